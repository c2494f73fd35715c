//! The device that a request comes from, and the short name of its browser and system.

/// The device that a request comes from.
#[derive(Debug, Clone)]
pub struct ClientDevice {
    /// Its address.
    pub address: String,
    /// Its `User-Agent`, truncated.
    pub user_agent: String,
    /// The id of the request, for the log.
    pub request_id: String,
}

/// The browser that a `User-Agent` names; `?` if unknown.
pub fn browser(user_agent: &str) -> &'static str {
    // The order matters: WeCom's client names other browsers too, and most browsers name Chrome or Safari.
    const KINDS: [(&str, &str); 8] = [
        (PLATFORM_CLIENT, "WeCom"),
        ("MicroMessenger", "WeChat"),
        ("Edg/", "Edge"),
        ("OPR/", "Opera"),
        ("Firefox/", "Firefox"),
        ("Chrome/", "Chrome"),
        ("Safari/", "Safari"),
        ("curl/", "curl"),
    ];
    KINDS.iter().find(|(mark, _)| user_agent.contains(mark)).map_or("?", |(_, kind)| kind)
}

/// The operating system that a `User-Agent` names.
fn system(user_agent: &str) -> Option<&'static str> {
    // The order matters: Android names Linux, and iPhones name Mac OS.
    const KINDS: [(&str, &str); 7] = [
        ("Android", "Android"),
        ("iPhone", "iPhone"),
        ("iPad", "iPad"),
        ("Windows", "Windows"),
        ("Mac OS", "macOS"),
        ("CrOS", "ChromeOS"),
        ("Linux", "Linux"),
    ];
    KINDS.iter().find(|(mark, _)| user_agent.contains(mark)).map(|(_, kind)| *kind)
}

/// The product token of WeCom's client in `User-Agent`.
pub const PLATFORM_CLIENT: &str = "wxwork";

/// `Firefox · Windows`
pub fn describe(user_agent: &str) -> String {
    match system(user_agent) {
        Some(system) => format!("{} · {system}", browser(user_agent)),
        None => browser(user_agent).to_owned(),
    }
}

#[cfg(test)]
mod tests;
