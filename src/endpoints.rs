//! The gateway's own endpoints as a table. `api.rs` maps each to its handler, `pipeline` checks its access.

use crate::error::Operation;

/// An endpoint that the gateway answers itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// Issues a QR-code ticket.
    Qrcode,
    /// Polls a ticket.
    ScanStatus,
    /// Builds the platform's authorize URL.
    Oauth2Url,
    /// Receives the platform's redirect.
    Oauth2Callback,
    /// The confirm page on the phone.
    ConfirmPage,
    /// Confirms or cancels on the phone.
    Confirm,
    /// Verifies a token.
    Verify,
    /// Ends the caller's session.
    Logout,
    /// Shows the current user.
    Me,
    /// Switches the active role.
    SwitchRole,
    /// Binds an employee account.
    Bind,
    /// Tells whether the caller's link is approved.
    BindStatus,
    /// Lists the caller's sessions.
    Sessions,
    /// Ends all of the caller's sessions but this one.
    EndOtherSessions,
    /// Ends one of the caller's sessions.
    EndSession,
    /// Lists the roles of employees.
    UserRoles,
    /// Grants a role.
    GrantRole,
    /// Revokes a role.
    TakeRole,
    /// Ends all sessions of an employee.
    EndSessionsOf,
    /// Resets an employee's one-time-password device.
    ResetOtp,
    /// Lists links of connected corporations' members.
    Links,
    /// Approves or adds a link.
    ApproveLink,
    /// Removes a link.
    RemoveLink,
    /// Signs an agent in.
    AgentLogin,
    /// Sets an agent's password.
    AgentPassword,
    /// Creates a one-time-password secret.
    OtpSetup,
    /// Binds the one-time-password device.
    OtpBind,
    /// Verifies a one-time password (step-up).
    OtpVerify,
    /// Shows the state of the one-time-password device.
    OtpStatus,
    /// The sign-in page.
    SignInPage,
    /// The bind page.
    BindPage,
    /// The style sheet of the pages.
    PageStyle,
    /// The script of the sign-in page.
    SignInScript,
    /// The script of the bind page.
    BindScript,
    /// Readiness.
    Ready,
    /// The running version.
    Version,
    /// The public signing keys.
    Jwks,
    /// The OpenAPI description of all endpoints.
    OpenApi,
    /// Development mode: issues a token without the platform.
    DevLogin,
    /// Development mode: lists employees.
    DevUsers,
    /// Development mode: reports that it is on.
    DevHealth,
}

/// Who may call an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnAccess {
    /// Every client; a token is not read.
    Anyone,
    /// Callers with a valid token.
    SignedIn,
    /// Callers with a valid token, also a half-authenticated one.
    SignedInAnyStage,
    /// Callers with a valid token of a session that began with more than an employee ID.
    Proven,
    /// Like `Proven`, also with a half-authenticated token.
    ProvenAnyStage,
    /// Callers whose active role is `admin`, in a session that began with more than an employee ID.
    Admin,
    /// Like `Admin`, after a recent step-up.
    SteppedUpAdmin,
}

/// One row of [`TABLE`].
#[derive(Debug)]
pub struct OwnRoute {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// The method.
    pub method: &'static str,
    /// The path; a `{…}` is always the last segment.
    pub path: &'static str,
    /// Who may call it.
    pub access: OwnAccess,
    /// The operation that its 1005 names.
    pub operation: Operation,
}

impl OwnRoute {
    fn matches(&self, path: &str) -> bool {
        path == self.path || self.parameter(path).is_some()
    }

    /// Whether the endpoint answers in development mode only.
    pub fn is_for_development(&self) -> bool {
        is_for_development(self.path)
    }

    /// The value of the route's `{…}` in a path.
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
    operation: Operation,
) -> OwnRoute {
    OwnRoute { endpoint, method, path, access, operation }
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
    row(Endpoint::BindStatus,       "GET",    "/api/auth/bind/status",         OwnAccess::Anyone,           Operation::Bind),
    row(Endpoint::Sessions,         "GET",    "/api/auth/sessions",            OwnAccess::SignedIn,         Operation::Sessions),
    row(Endpoint::EndOtherSessions, "DELETE", "/api/auth/sessions",            OwnAccess::SignedIn,         Operation::Sessions),
    row(Endpoint::EndSession,       "DELETE", "/api/auth/sessions/{id}",       OwnAccess::SignedIn,         Operation::Sessions),
    row(Endpoint::UserRoles,        "GET",    "/api/admin/roles/user-roles",   OwnAccess::Admin,            Operation::Admin),
    row(Endpoint::GrantRole,        "PUT",    "/api/admin/roles/user-roles",   OwnAccess::SteppedUpAdmin,   Operation::Admin),
    row(Endpoint::TakeRole,         "DELETE", "/api/admin/roles/user-roles",   OwnAccess::SteppedUpAdmin,   Operation::Admin),
    row(Endpoint::EndSessionsOf,    "DELETE", "/api/admin/sessions",           OwnAccess::SteppedUpAdmin,   Operation::Admin),
    row(Endpoint::ResetOtp,         "DELETE", "/api/admin/otp",                OwnAccess::SteppedUpAdmin,   Operation::Admin),
    row(Endpoint::Links,            "GET",    "/api/admin/links",              OwnAccess::Admin,            Operation::Admin),
    row(Endpoint::ApproveLink,      "PUT",    "/api/admin/links",              OwnAccess::SteppedUpAdmin,   Operation::Admin),
    row(Endpoint::RemoveLink,       "DELETE", "/api/admin/links",              OwnAccess::SteppedUpAdmin,   Operation::Admin),
    row(Endpoint::AgentLogin,       "POST",   "/api/agents/login",             OwnAccess::Anyone,           Operation::Agent),
    row(Endpoint::AgentPassword,    "POST",   "/api/agents/password",          OwnAccess::Proven,           Operation::Agent),
    row(Endpoint::OtpSetup,         "POST",   "/api/auth/otp-setup",           OwnAccess::ProvenAnyStage,   Operation::Otp),
    row(Endpoint::OtpBind,          "POST",   "/api/auth/otp-bind",            OwnAccess::ProvenAnyStage,   Operation::Otp),
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

/// The result of [`find`].
#[derive(Debug)]
pub enum EndpointMatch {
    /// This endpoint answers.
    Endpoint(&'static OwnRoute),
    /// The path has endpoints, but not with this method. Holds the value of `Allow`.
    OtherMethods(String),
    /// The path is reserved and has no endpoint.
    NotFound,
    /// The path is not reserved; rules decide.
    NotReserved,
}

/// Whether a path is reserved for the gateway, so that no rule can have it.
pub fn is_reserved(path: &str) -> bool {
    path.starts_with("/api/auth/")
        || is_for_development(path)
        || TABLE.iter().any(|row| row.path == path)
        || matches!(path, "/api/auth" | "/api/dev" | "/metrics")
}

/// The beginnings of all reserved paths. `/api/a` stands for those below `auth`, `admin` and `agents`.
const STARTS_OF_RESERVED: [&str; 6] = ["/api/a", "/api/dev", "/api/ready", "/.well-known/", "/version", "/metrics"];

/// Whether the endpoints of a path answer in development mode only.
pub fn is_for_development(path: &str) -> bool {
    path.starts_with("/api/dev/")
}

/// Whether a path answers under every host name: health checkers call it by address.
pub fn answers_any_host(path: &str) -> bool {
    path == "/api/ready"
}

/// Finds the endpoint of a method and path.
pub fn find(method: &str, path: &str) -> EndpointMatch {
    // Most requests are for upstreams; a few comparisons rule them out.
    if !STARTS_OF_RESERVED.iter().any(|start| path.starts_with(start)) || !is_reserved(path) {
        return EndpointMatch::NotReserved;
    }
    let here = || rows_of(path);
    let has_method = |row: &&OwnRoute| row.method == method || (row.method == "GET" && method == "HEAD");
    match here().find(has_method) {
        Some(row) => EndpointMatch::Endpoint(row),
        None if here().next().is_some() => EndpointMatch::OtherMethods(methods(path)),
        None => EndpointMatch::NotFound,
    }
}

fn rows_of(path: &str) -> impl Iterator<Item = &'static OwnRoute> {
    TABLE.iter().filter(move |row| row.matches(path))
}

/// The methods of a path's endpoints, as `Allow` lists them.
pub fn methods(path: &str) -> String {
    allow(rows_of(path).map(|row| row.method))
}

/// The value of `Allow` for these methods; GET includes HEAD.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reserved_path_is_found() {
        for path in
            TABLE.iter().map(|row| row.path).chain(["/api/auth", "/api/auth/x", "/api/dev", "/api/dev/x", "/metrics"])
        {
            assert!(!matches!(find("GET", path), EndpointMatch::NotReserved), "{path}");
        }
        for path in ["/", "/api", "/api/a", "/api/tickets", "/api/authx", "/api/readyx", "/versions", "/metrics/x"] {
            assert!(matches!(find("GET", path), EndpointMatch::NotReserved), "{path}");
        }
    }
}
