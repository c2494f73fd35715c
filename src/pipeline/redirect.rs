//! Finds where a request on a listener that redirects to HTTPS goes: to the same path and query under the host that it names, if
//! `server.hosts` has it, and otherwise under the public URL. Its head is checked like any other.

use url::Url;

use super::head::{Fields, RequestHead};
use super::{Policy, arrive};
use crate::domain::host::{AllowedHosts, HostEntry, LoopbackHosts, RequestHost};
use crate::endpoints;
use crate::error::Error;

/// Where plain requests are redirected.
pub struct RedirectTarget {
    /// The public URL without its final slash.
    public_origin: String,
    /// The port of the public URL as it follows a host, with its colon; empty for that of the scheme.
    port: String,
    /// The hosts of `server.hosts`.
    hosts: AllowedHosts,
}

impl RedirectTarget {
    /// The target under a public URL, with `server.hosts` beside it.
    pub fn new(public_url: &Url, hosts: &[HostEntry]) -> Self {
        Self {
            public_origin: public_url.as_str().trim_end_matches('/').to_owned(),
            port: public_url.port().map(|port| format!(":{port}")).unwrap_or_default(),
            hosts: AllowedHosts { entries: hosts.to_vec(), loopback: LoopbackHosts::NotAllowed },
        }
    }

    /// The origin for a request. The host is written as the configuration has it, never as the client sent it.
    fn origin(&self, host: Option<&RequestHost<'_>>) -> String {
        match host.and_then(|host| self.hosts.entry(host)) {
            Some(entry) => format!("https://{}{}", entry.without_port(), self.port),
            None => self.public_origin.clone(),
        }
    }
}

/// The URL to redirect to. `None` for the readiness check, which load balancers make without TLS.
pub(super) fn location(
    policy: &Policy<'_>,
    target: &RedirectTarget,
    head: &RequestHead<'_>,
    fields: &Fields<'_>,
) -> Result<Option<String>, Error> {
    let request = arrive::check(&policy.limits.load(), policy.hosts, head, fields)?;
    if endpoints::answers_any_host(&request.path) {
        return Ok(None);
    }
    let query = request.query.map(|query| format!("?{query}")).unwrap_or_default();
    Ok(Some(format!("{}{}{query}", target.origin(request.host.as_ref()), request.path)))
}

#[cfg(test)]
mod tests;
