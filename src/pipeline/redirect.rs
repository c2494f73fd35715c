//! Finds where a request on a listener that redirects to HTTPS goes: to the same path and query under the public URL, whatever
//! host the request names. Its head is checked like any other.

use super::head::{Fields, RequestHead};
use super::{Policy, arrive};
use crate::endpoints;
use crate::error::Error;

/// The URL to redirect to. `None` for the readiness check, which load balancers make without TLS.
pub(super) fn location(
    policy: &Policy<'_>,
    public_origin: &str,
    head: &RequestHead<'_>,
    fields: &Fields<'_>,
) -> Result<Option<String>, Error> {
    let request = arrive::check(&policy.limits.load(), policy.hosts, head, fields)?;
    if endpoints::answers_any_host(&request.path) {
        return Ok(None);
    }
    let query = request.query.map(|query| format!("?{query}")).unwrap_or_default();
    Ok(Some(format!("{public_origin}{}{query}", request.path)))
}
