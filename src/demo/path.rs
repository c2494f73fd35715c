//! Paths that the simulated platform serves.
//!
//! [`API`] and [`PAGES`] are separate lists: the switches `busy` and `frequency_limit`, and the key `*` of any
//! switch, apply to the server API only.

/// The authorize page.
pub const AUTHORIZE: &str = "/connect/oauth2/authorize";
/// Error page for a `redirect_uri` that no application trusts.
pub const URI_CONFIRM: &str = "/wwopen/uriconfirm";
/// The hosted sign-in page with a QR code, older form.
pub const QR_CONNECT: &str = "/wwopen/sso/qrConnect";
/// The hosted sign-in page with a QR code, current form.
pub const QR_LOGIN: &str = "/wwlogin/sso/login";
/// The poll of the hosted sign-in page.
pub const QR_POLL: &str = "/wwopen/sso/l/qrConnect";
/// The QR code of the hosted sign-in page as an image.
pub const QR_IMAGE: &str = "/wwopen/sso/qrImg";
/// The confirmation page that the QR code opens on a phone.
pub const QR_CONFIRM: &str = "/wwopen/sso/confirm2";

/// Issues an application token.
pub const TOKEN: &str = "/cgi-bin/gettoken";
/// Exchanges a code for the person's identifier.
pub const USER_INFO: &str = "/cgi-bin/auth/getuserinfo";
/// Exchanges a code for the person's identifier, older form.
pub const LEGACY_USER_INFO: &str = "/cgi-bin/user/getuserinfo";
/// Returns the private fields that a member agreed to share.
pub const USER_DETAIL: &str = "/cgi-bin/auth/getuserdetail";
/// Returns a member's profile.
pub const USER: &str = "/cgi-bin/user/get";
/// Lists a department's members by name.
pub const USER_SIMPLE_LIST: &str = "/cgi-bin/user/simplelist";
/// Lists a department's members with their profiles.
pub const USER_LIST: &str = "/cgi-bin/user/list";
/// Returns one department.
pub const DEPARTMENT: &str = "/cgi-bin/department/get";
/// Lists a department and its children.
pub const DEPARTMENT_LIST: &str = "/cgi-bin/department/list";
/// Lists the numbers of a department and its children.
pub const DEPARTMENT_SIMPLE_LIST: &str = "/cgi-bin/department/simplelist";
/// Returns the profile of a connected corporation's member.
pub const LINKED_USER: &str = "/cgi-bin/linkedcorp/user/get";
/// Issues a token for a connected corporation.
pub const DOWNSTREAM_TOKEN: &str = "/cgi-bin/corpgroup/corp/gettoken";
/// Lists the corporations that share an application.
pub const SHARED_WITH: &str = "/cgi-bin/corpgroup/corp/list_app_share_info";
/// Lists the addresses that the platform calls from.
pub const CALLBACK_ADDRESSES: &str = "/cgi-bin/getcallbackip";
/// Lists the addresses of the platform's API servers.
pub const API_ADDRESSES: &str = "/cgi-bin/get_api_domain_ip";

/// The control page; its JSON interface is below this path.
pub const CONTROL: &str = "/simulator";

/// Pages for browsers and phones.
pub const PAGES: [&str; 7] = [AUTHORIZE, URI_CONFIRM, QR_CONNECT, QR_LOGIN, QR_POLL, QR_IMAGE, QR_CONFIRM];

/// The server API.
pub const API: [&str; 15] = [
    TOKEN,
    USER_INFO,
    LEGACY_USER_INFO,
    USER_DETAIL,
    USER,
    USER_SIMPLE_LIST,
    USER_LIST,
    DEPARTMENT,
    DEPARTMENT_LIST,
    DEPARTMENT_SIMPLE_LIST,
    LINKED_USER,
    DOWNSTREAM_TOKEN,
    SHARED_WITH,
    CALLBACK_ADDRESSES,
    API_ADDRESSES,
];
