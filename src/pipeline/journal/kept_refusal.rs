//! One kept refusal: its texts are in one piece of memory, so that keeping it costs a copy rather than a dozen allocations.

use std::borrow::Cow;
use std::net::IpAddr;

use crate::domain::clock::Timestamp;
use crate::domain::finished_request::{FinishedRequest, RefusedCaller, RefusedRequest};

/// A refusal as it is kept. Both conversions name every field, so that a new one cannot be forgotten.
pub(super) struct KeptRefusal {
    at: Timestamp,
    client_address: IpAddr,
    peer_address: IpAddr,
    status: u16,
    code: u16,
    duration_ms: f64,
    phase: Cow<'static, str>,
    check: Option<Cow<'static, str>>,
    rate_limit: Option<u32>,
    is_repeatable: bool,
    next_step: Cow<'static, str>,
    caller: Option<KeptCaller>,
    texts: CopiedTexts,
}

/// The caller without its texts.
struct KeptCaller {
    login_method: Cow<'static, str>,
    login_source: Cow<'static, str>,
    stepped_up: bool,
}

impl KeptRefusal {
    /// Copies a refusal into this memory.
    pub(super) fn new(refused: &RefusedRequest<'_>, memory: Vec<u8>) -> Self {
        let RefusedRequest {
            request,
            phase,
            check,
            wants,
            rule_place,
            peer_address,
            host,
            caller,
            rate_limit,
            is_repeatable,
            next_step,
        } = refused;
        let FinishedRequest {
            at,
            request_id,
            client_address,
            method,
            path,
            status,
            code,
            reason,
            rule,
            employee_id,
            corp_id,
            upstream,
            duration_ms,
        } = request;
        let mut texts = CopiedTexts::in_memory(memory);
        for text in [request_id, method, path, reason] {
            texts.push(Some(text));
        }
        for text in [rule, employee_id, corp_id, upstream, wants, rule_place, host] {
            texts.push(text.as_deref());
        }
        let caller = caller.as_ref().map(|caller| {
            let RefusedCaller { current_role, roles, name, department, login_method, login_source, stepped_up } =
                caller;
            for text in [current_role, name, department].into_iter().chain(roles) {
                texts.push(Some(text));
            }
            KeptCaller {
                login_method: login_method.clone(),
                login_source: login_source.clone(),
                stepped_up: *stepped_up,
            }
        });
        texts.shrink();
        Self {
            at: *at,
            client_address: *client_address,
            peer_address: *peer_address,
            status: *status,
            code: *code,
            duration_ms: *duration_ms,
            phase: phase.clone(),
            check: check.clone(),
            rate_limit: *rate_limit,
            is_repeatable: *is_repeatable,
            next_step: next_step.clone(),
            caller,
            texts,
        }
    }

    /// The refusal.
    pub(super) fn refusal(&self) -> RefusedRequest<'static> {
        let mut texts = self.texts.iter().map(|text| text.map(|text| Cow::Owned(text.to_owned())));
        let mut optional = || texts.next().flatten();
        // In the order of `new`.
        let [request_id, method, path, reason] = std::array::from_fn(|_| optional().unwrap_or_default());
        let [rule, employee_id, corp_id, upstream, wants, rule_place, host] = std::array::from_fn(|_| optional());
        RefusedRequest {
            request: FinishedRequest {
                at: self.at,
                request_id,
                client_address: self.client_address,
                method,
                path,
                status: self.status,
                code: self.code,
                reason,
                rule,
                employee_id,
                corp_id,
                upstream,
                duration_ms: self.duration_ms,
            },
            phase: self.phase.clone(),
            check: self.check.clone(),
            wants,
            rule_place,
            peer_address: self.peer_address,
            host,
            caller: self.caller.as_ref().map(|caller| {
                let [current_role, name, department] = std::array::from_fn(|_| optional().unwrap_or_default());
                RefusedCaller {
                    current_role,
                    roles: std::iter::from_fn(&mut optional).collect(),
                    name,
                    department,
                    login_method: caller.login_method.clone(),
                    login_source: caller.login_source.clone(),
                    stepped_up: caller.stepped_up,
                }
            }),
            rate_limit: self.rate_limit,
            is_repeatable: self.is_repeatable,
            next_step: self.next_step.clone(),
        }
    }

    /// The request id.
    pub(super) fn request_id(&self) -> &str {
        self.texts.iter().next().flatten().unwrap_or_default()
    }

    /// When the request ended.
    pub(super) fn at(&self) -> Timestamp {
        self.at
    }

    /// The memory that the refusal takes, without what the allocator adds.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.texts.0.capacity()
    }

    /// The memory of the texts, for another refusal.
    pub(super) fn into_memory(self) -> Vec<u8> {
        self.texts.0
    }
}

/// Optional texts, each after its length.
struct CopiedTexts(Vec<u8>);

impl CopiedTexts {
    /// In place of a length.
    const ABSENT: u32 = u32::MAX;

    fn in_memory(mut memory: Vec<u8>) -> Self {
        memory.clear();
        Self(memory)
    }

    fn push(&mut self, text: Option<&str>) {
        let length = text.map_or(Self::ABSENT, |text| u32::try_from(text.len()).unwrap_or(Self::ABSENT));
        self.0.extend_from_slice(&length.to_le_bytes());
        if length != Self::ABSENT {
            self.0.extend_from_slice(text.unwrap_or_default().as_bytes());
        }
    }

    /// Frees memory that only a much longer refusal needed.
    fn shrink(&mut self) {
        self.0.shrink_to(2 * self.0.len());
    }

    fn iter(&self) -> impl Iterator<Item = Option<&str>> {
        let mut rest = self.0.as_slice();
        std::iter::from_fn(move || {
            let (length, after) = rest.split_first_chunk()?;
            let length = u32::from_le_bytes(*length);
            if length == Self::ABSENT {
                rest = after;
                return Some(None);
            }
            let (text, after) = after.split_at_checked(usize::try_from(length).ok()?)?;
            rest = after;
            // `push` copied it from a text.
            Some(std::str::from_utf8(text).ok())
        })
    }
}

#[cfg(test)]
mod tests;
