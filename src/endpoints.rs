//! Our own endpoints as data: it reads like the contract's table. `api.rs` maps each to its handler.

use crate::error::Operation;

/// One thing that the gateway answers itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// Issue a QR-code ticket.
    Qrcode,
    /// Poll a ticket.
    ScanStatus,
    /// Build the platform's authorize URL.
    Oauth2Url,
    /// Where the platform returns to.
    Oauth2Callback,
    /// The phone's confirm page.
    ConfirmPage,
    /// The phone's answer.
    Confirm,
    /// Verify a token.
    Verify,
    /// End the session.
    Logout,
    /// The current user.
    Me,
    /// Switch the active role.
    SwitchRole,
    /// Bind an employee account.
    Bind,
    /// The caller's sessions.
    Sessions,
    /// End all of the caller's sessions but this one.
    EndOtherSessions,
    /// End one of the caller's sessions.
    EndSession,
    /// Who has which role.
    UserRoles,
    /// Give a role.
    GrantRole,
    /// Take a role.
    TakeRole,
    /// End every session of an employee.
    EndSessionsOf,
    /// Reset an employee's one-time-password device.
    ResetOtp,
    /// Sign an agent in.
    AgentLogin,
    /// Set an agent's password.
    AgentPassword,
    /// A new one-time-password secret.
    OtpSetup,
    /// Bind the device.
    OtpBind,
    /// Step up.
    OtpVerify,
    /// How the device stands.
    OtpStatus,
    /// The sign-in page.
    SignInPage,
    /// The page that binds.
    BindPage,
    /// Style of the pages.
    PageStyle,
    /// Script of the sign-in page.
    SignInScript,
    /// Script of the page that binds.
    BindScript,
    /// Whether the gateway can work.
    Ready,
    /// What is running.
    Version,
    /// Public keys.
    Jwks,
    /// The description of all of these.
    OpenApi,
    /// Development: a token without the platform.
    DevLogin,
    /// Development: who there is.
    DevUsers,
    /// Development: whether it is on.
    DevHealth,
}

/// Who may call an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnAccess {
    /// Anybody.
    Anyone,
    /// Whoever has a valid token.
    SignedIn,
    /// The same, and a half-authenticated token will do.
    SignedInAnyStage,
    /// Whoever is an administrator, and acts as one.
    Admin,
    /// The same, freshly stepped up.
    SteppedUpAdmin,
}

/// One row of the table.
#[derive(Debug)]
pub struct OwnRoute {
    /// What it does.
    pub endpoint: Endpoint,
    /// With which method.
    pub method: &'static str,
    /// At which path.
    pub path: &'static str,
    /// For whom.
    pub access: OwnAccess,
    /// The phrase with which its 1005 begins.
    pub doing: Operation,
}

impl OwnRoute {
    fn fits(&self, path: &str) -> bool {
        path == self.path || self.parameter(path).is_some()
    }

    /// What stands in a path for this route's `{…}`, which is always its last segment.
    pub fn parameter<'p>(&self, path: &'p str) -> Option<&'p str> {
        let (fixed, _) = self.path.split_once('{')?;
        path.strip_prefix(fixed).filter(|value| !value.is_empty() && !value.contains('/'))
    }
}

const fn row(
    endpoint: Endpoint,
    method: &'static str,
    path: &'static str,
    access: OwnAccess,
    doing: Operation,
) -> OwnRoute {
    OwnRoute { endpoint, method, path, access, doing }
}

/// Every endpoint.
#[rustfmt::skip]
pub const TABLE: &[OwnRoute] = &[
    row(Endpoint::Qrcode,           "GET",    "/api/auth/qrcode",              OwnAccess::Anyone,           Operation::Qrcode),
    row(Endpoint::ScanStatus,       "GET",    "/api/auth/scan/status",         OwnAccess::Anyone,           Operation::ScanStatus),
    row(Endpoint::Oauth2Url,        "GET",    "/api/auth/oauth2/url",          OwnAccess::Anyone,           Operation::AuthorizeUrl),
    row(Endpoint::Oauth2Callback,   "GET",    "/api/auth/oauth2/callback",     OwnAccess::Anyone,           Operation::Callback),
    row(Endpoint::ConfirmPage,      "GET",    "/api/auth/qr/confirm",          OwnAccess::Anyone,           Operation::Callback),
    row(Endpoint::Confirm,          "POST",   "/api/auth/qr/confirm",          OwnAccess::Anyone,           Operation::Callback),
    row(Endpoint::Verify,           "POST",   "/api/auth/verify",              OwnAccess::Anyone,           Operation::Verify),
    row(Endpoint::Logout,           "POST",   "/api/auth/logout",              OwnAccess::SignedInAnyStage, Operation::Logout),
    row(Endpoint::Me,               "GET",    "/api/auth/me",                  OwnAccess::SignedInAnyStage, Operation::Request),
    row(Endpoint::SwitchRole,       "POST",   "/api/auth/switch-role",         OwnAccess::SignedIn,         Operation::SwitchRole),
    row(Endpoint::Bind,             "POST",   "/api/auth/bind",                OwnAccess::Anyone,           Operation::Bind),
    row(Endpoint::Sessions,         "GET",    "/api/auth/sessions",            OwnAccess::SignedIn,         Operation::Sessions),
    row(Endpoint::EndOtherSessions, "DELETE", "/api/auth/sessions",            OwnAccess::SignedIn,         Operation::Sessions),
    row(Endpoint::EndSession,       "DELETE", "/api/auth/sessions/{id}",       OwnAccess::SignedIn,         Operation::Sessions),
    row(Endpoint::UserRoles,        "GET",    "/api/admin/roles/user-roles",   OwnAccess::Admin,            Operation::Admin),
    row(Endpoint::GrantRole,        "PUT",    "/api/admin/roles/user-roles",   OwnAccess::SteppedUpAdmin,   Operation::Admin),
    row(Endpoint::TakeRole,         "DELETE", "/api/admin/roles/user-roles",   OwnAccess::SteppedUpAdmin,   Operation::Admin),
    row(Endpoint::EndSessionsOf,    "DELETE", "/api/admin/sessions",           OwnAccess::SteppedUpAdmin,   Operation::Admin),
    row(Endpoint::ResetOtp,         "DELETE", "/api/admin/otp",                OwnAccess::SteppedUpAdmin,   Operation::Admin),
    row(Endpoint::AgentLogin,       "POST",   "/api/agents/login",             OwnAccess::Anyone,           Operation::Agent),
    row(Endpoint::AgentPassword,    "POST",   "/api/agents/password",          OwnAccess::SignedIn,         Operation::Agent),
    row(Endpoint::OtpSetup,         "POST",   "/api/auth/otp-setup",           OwnAccess::SignedInAnyStage, Operation::Otp),
    row(Endpoint::OtpBind,          "POST",   "/api/auth/otp-bind",            OwnAccess::SignedInAnyStage, Operation::Otp),
    row(Endpoint::OtpVerify,        "POST",   "/api/auth/otp-verify",          OwnAccess::SignedInAnyStage, Operation::Otp),
    row(Endpoint::OtpStatus,        "GET",    "/api/auth/otp-status",          OwnAccess::SignedInAnyStage, Operation::Otp),
    row(Endpoint::SignInPage,       "GET",    "/api/auth/signin",              OwnAccess::Anyone,           Operation::Request),
    row(Endpoint::PageStyle,        "GET",    "/api/auth/page.css",            OwnAccess::Anyone,           Operation::Request),
    row(Endpoint::SignInScript,     "GET",    "/api/auth/signin.js",           OwnAccess::Anyone,           Operation::Request),
    row(Endpoint::BindPage,         "GET",    "/api/auth/bind/page",           OwnAccess::Anyone,           Operation::Bind),
    row(Endpoint::BindScript,       "GET",    "/api/auth/bind.js",             OwnAccess::Anyone,           Operation::Request),
    row(Endpoint::Ready,            "GET",    "/api/ready",                    OwnAccess::Anyone,           Operation::Request),
    row(Endpoint::Version,          "GET",    "/version",                      OwnAccess::Anyone,           Operation::Request),
    row(Endpoint::Jwks,             "GET",    "/.well-known/jwks.json",        OwnAccess::Anyone,           Operation::Request),
    row(Endpoint::OpenApi,          "GET",    "/api/auth/openapi.json",        OwnAccess::Anyone,           Operation::Request),
    row(Endpoint::DevLogin,         "POST",   "/api/dev/login",                OwnAccess::Anyone,           Operation::Request),
    row(Endpoint::DevUsers,         "GET",    "/api/dev/users",                OwnAccess::Anyone,           Operation::Request),
    row(Endpoint::DevHealth,        "GET",    "/api/dev/health",               OwnAccess::Anyone,           Operation::Request),
];

/// What our own table says about a path.
#[derive(Debug)]
pub enum OwnLookup {
    /// This endpoint answers.
    Endpoint(&'static OwnRoute),
    /// The path is ours, but not with this method; these are.
    OtherMethods(String),
    /// The path is ours, and nothing is there.
    Nothing,
    /// The path is not ours.
    NotOurs,
}

/// Whether a path belongs to the gateway: no rule can claim it.
pub fn is_ours(path: &str) -> bool {
    path.starts_with("/api/auth/")
        || is_for_development(path)
        || TABLE.iter().any(|row| row.path == path)
        || matches!(path, "/api/auth" | "/api/dev" | "/metrics")
}

/// Whether what is at a path answers in development mode only.
pub fn is_for_development(path: &str) -> bool {
    path.starts_with("/api/dev/")
}

/// The endpoint of a path and method.
pub fn find(method: &str, path: &str) -> OwnLookup {
    // Most requests are not ours; two comparisons tell.
    let may_be =
        path.starts_with("/api/") || path.starts_with("/.well-known/") || path == "/version" || path == "/metrics";
    if !may_be || !is_ours(path) {
        return OwnLookup::NotOurs;
    }
    let here = || TABLE.iter().filter(|row| row.fits(path));
    let same = |row: &&OwnRoute| row.method == method || (row.method == "GET" && method == "HEAD");
    match here().find(same) {
        Some(row) => OwnLookup::Endpoint(row),
        None if here().next().is_some() => OwnLookup::OtherMethods(allow(here().map(|row| row.method))),
        None => OwnLookup::Nothing,
    }
}

/// An `Allow` of these methods; whoever takes GET takes HEAD.
pub fn allow<'m>(methods: impl IntoIterator<Item = &'m str>) -> String {
    let named = methods.into_iter().flat_map(|method| match method {
        "GET" => vec!["GET", "HEAD"],
        method => vec![method],
    });
    let mut all: Vec<&str> = Vec::new();
    for method in named {
        if !all.contains(&method) {
            all.push(method);
        }
    }
    all.join(", ")
}
