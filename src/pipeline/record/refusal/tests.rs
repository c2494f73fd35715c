use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::domain::clock::Clock;
use crate::domain::language::Language;
use crate::domain::path::PathFault;
use crate::domain::rate::{Exceeded, Window};
use crate::pipeline::cors::CrossOrigin;
use crate::pipeline::journal::RequestJournal;
use crate::pipeline::request_id::RequestId;
use crate::pipeline::{Arrival, Caller};
use crate::sessions::CachedSession;

const NOW: Timestamp = Timestamp::from_seconds(1000);

/// Describes a refused request of a signed-in agent, as the journal keeps it.
fn describe_error(phase: Phase, error: &Error) -> RefusedRequest<'static> {
    let address = IpAddr::V4(Ipv4Addr::new(10, 1, 2, 3));
    let arrival = Arrival {
        request_id: RequestId::fresh(),
        client: address,
        peer: address,
        language: Language::English,
        cross_origin: CrossOrigin::Off,
        hsts: None,
    };
    let entry = AccessLogEntry {
        arrival: &arrival,
        method: "GET",
        path: b"/api/x",
        host: &|| Some(b"desk.example.com"),
        handler: &Handler::None,
        caller: &Caller::SignedIn(Arc::new(CachedSession::new(Session::sample()))),
        phase,
        status: error.code().status().as_u16(),
        error: Some(error),
        shown_code: None,
        incomplete: None,
        cut: None,
        trace_id: None,
        took: Duration::from_millis(1),
        overhead: None,
        upstream: None,
    };
    let journal = RequestJournal::new(Clock::system());
    journal.remember(&describe(&entry, &Outcome::of(&entry), NOW).expect("a refusal"));
    journal.refusals_of(arrival.request_id.as_str()).pop().expect("the refusal")
}

#[test]
fn a_refusal_has_its_check_its_phase_and_whether_explain_repeats_it() {
    let role = RoleName::new("user");
    let window = Window { limit: 30, per: Duration::from_secs(1) };
    let rate = Error::RateLimited { retry_after: Duration::from_secs(1), exceeded: Exceeded { by: "address", window } };
    let table = [
        (Phase::Authorize, Forbidden::RoleRequired { active: role, wanted: vec![] }.into(), Some("roles"), true),
        (Phase::Authorize, Forbidden::Origin.into(), Some("origin"), false),
        (Phase::Authorize, Error::StepUpRequired, Some("step_up"), true),
        (Phase::Verify, Error::InvalidToken(TokenFault::Expired), Some("signed_in"), false),
        (Phase::Limit, rate, Some("rate"), true),
        (Phase::Route, Error::NotFound, Some("path"), true),
        (Phase::Arrive, Error::from(PathFault::ParentSegment), None, true),
        (Phase::Arrive, Error::from(BadRequest::Framing), None, false),
        (Phase::Endpoint, Forbidden::NoRole.into(), None, false),
        (Phase::Upstream, Error::UpstreamTimeout, None, false),
    ];
    for (phase, error, check, is_repeatable) in table {
        let refused = describe_error(phase, &error);
        assert_eq!((refused.check.as_deref(), refused.is_repeatable), (check, is_repeatable), "{error}");
        assert_eq!(refused.phase, phase.as_str(), "{error}");
        assert_eq!(refused.request.code, error.code().number(), "{error}");
        assert!(!refused.next_step.is_empty(), "{error}");
        assert_eq!(refused.rate_limit, matches!(error, Error::RateLimited { .. }).then_some(30), "{error}");
    }
}

#[test]
fn name_and_department_are_kept_only_for_conditions() {
    let caller = describe_error(Phase::Authorize, &Error::StepUpRequired).caller.expect("a caller");
    assert_eq!((&*caller.name, &*caller.department), ("", ""));
    assert!(!caller.roles.is_empty());
}
