//! The paths that it serves; also what calls are counted by. The server API stands apart from the pages: `busy`, `frequency_limit` and the
//! `*` of a switch mean the API alone.

/// The page that a browser or phone is sent to.
pub const AUTHORIZE: &str = "/connect/oauth2/authorize";
/// Where a browser lands whose `redirect_uri` no application trusts.
pub const URI_CONFIRM: &str = "/wwopen/uriconfirm";
/// The hosted sign-in page with a QR code, older form.
pub const QR_CONNECT: &str = "/wwopen/sso/qrConnect";
/// The same, current form.
pub const QR_LOGIN: &str = "/wwlogin/sso/login";
/// What that page polls.
pub const QR_POLL: &str = "/wwopen/sso/l/qrConnect";
/// Its QR code as an image.
pub const QR_IMAGE: &str = "/wwopen/sso/qrImg";
/// What the QR code opens on a phone.
pub const QR_CONFIRM: &str = "/wwopen/sso/confirm2";

/// The application's token.
pub const TOKEN: &str = "/cgi-bin/gettoken";
/// A code to a person.
pub const USER_INFO: &str = "/cgi-bin/auth/getuserinfo";
/// The same in the older form.
pub const LEGACY_USER_INFO: &str = "/cgi-bin/user/getuserinfo";
/// What a member agreed to show.
pub const USER_DETAIL: &str = "/cgi-bin/auth/getuserdetail";
/// A member's profile.
pub const USER: &str = "/cgi-bin/user/get";
/// A department's members, in short.
pub const USER_SIMPLE_LIST: &str = "/cgi-bin/user/simplelist";
/// A department's members with their profiles.
pub const USER_LIST: &str = "/cgi-bin/user/list";
/// A department's name.
pub const DEPARTMENT: &str = "/cgi-bin/department/get";
/// A department and those below it.
pub const DEPARTMENT_LIST: &str = "/cgi-bin/department/list";
/// Their numbers alone.
pub const DEPARTMENT_SIMPLE_LIST: &str = "/cgi-bin/department/simplelist";
/// A connected corporation's member.
pub const LINKED_USER: &str = "/cgi-bin/linkedcorp/user/get";
/// A token for a connected corporation.
pub const DOWNSTREAM_TOKEN: &str = "/cgi-bin/corpgroup/corp/gettoken";
/// The corporations that share an application.
pub const SHARED_WITH: &str = "/cgi-bin/corpgroup/corp/list_app_share_info";
/// The addresses that the platform calls from.
pub const CALLBACK_ADDRESSES: &str = "/cgi-bin/getcallbackip";
/// The addresses of the platform's own servers.
pub const API_ADDRESSES: &str = "/cgi-bin/get_api_domain_ip";

/// The page for people who set switches; what programs use is below it.
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
