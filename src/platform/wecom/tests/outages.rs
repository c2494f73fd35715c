//! A platform that is busy, slow, down or throttling.

use super::*;
use crate::demo::{StaleErrcode, Times};

fn next(path: &str, calls: u64) -> std::collections::BTreeMap<String, Times> {
    [(path.to_owned(), Times::Next(calls))].into()
}

#[tokio::test]
async fn a_call_to_a_busy_platform_is_retried_three_times() {
    for path in [path::TOKEN, path::USER, path::DEPARTMENT] {
        let pair = Pair::start().await;
        pair.simulator.switches(|switches| switches.busy = next(path, 3));
        assert_eq!(pair.profile("a2001").await.unwrap().department, "IT", "{path}");
        assert_eq!(pair.simulator.calls(path), 4, "{path}");
    }
    let pair = Pair::start().await;
    pair.simulator.switches(|switches| switches.busy = next(path::USER, 4));
    let busy = PlatformError::Unavailable("errcode -1".to_owned());
    assert_eq!(pair.profile("a2001").await, Err(busy));
    assert_eq!(pair.simulator.calls(path::USER), 4, "once and three times more");
}

#[tokio::test]
async fn a_code_exchange_is_not_retried_when_the_platform_is_busy() {
    let pair = Pair::start().await;
    pair.simulator.switches(|switches| switches.busy = next(path::USER_INFO, 1));
    let busy = PlatformError::Unavailable("errcode -1".to_owned());
    assert_eq!(pair.identify("u1001").await, Err(busy));
    assert_eq!(pair.simulator.calls(path::USER_INFO), 1);
}

#[tokio::test]
async fn a_stale_token_is_fetched_again_and_the_call_retried_once() {
    for errcode in [StaleErrcode::Invalid, StaleErrcode::Expired] {
        let pair = Pair::start().await;
        pair.identify("u1001").await.unwrap();
        pair.simulator.switches(|switches| switches.stale_token_errcode = Some(errcode));
        pair.simulator.revoke_tokens();
        assert_eq!(pair.identify("u1001").await, Ok(member("u1001")), "{errcode:?}");
        assert_eq!((pair.tokens_fetched(), pair.simulator.calls(path::USER_INFO)), (2, 3), "{errcode:?}");
    }
}

#[tokio::test]
async fn a_token_revoked_mid_flow_is_fetched_once_for_all_callers() {
    let pair = Pair::start().await;
    pair.identify("u1001").await.unwrap();
    let codes = join_all((0..100).map(|_| code_of(&pair.simulator, "u1001"))).await;
    // Another server of the same application fetches a token: the platform revokes ours.
    pair.simulator.switches(|switches| switches.rotate_tokens = true);
    pair.simulator.revoke_tokens();
    for person in join_all(codes.iter().map(|code| pair.client.identify(code))).await {
        assert_eq!(person, Ok(member("u1001")));
    }
    assert_eq!(pair.tokens_fetched(), 2, "no stampede");
}

#[tokio::test]
async fn an_ageing_token_is_used_while_one_caller_replaces_it() {
    let pair = Pair::start().await;
    pair.identify("u1001").await.unwrap();
    let codes = join_all((0..20).map(|_| code_of(&pair.simulator, "u1001"))).await;
    pair.client_clock.advance(Duration::from_secs(7100));
    let slow = Duration::from_secs(2);
    pair.simulator.switches(|switches| switches.slow = [(path::TOKEN.to_owned(), slow)].into());
    let replaced = std::cell::Cell::new(false);
    let first = async {
        let person = pair.client.identify(&codes[0]).await;
        replaced.set(true);
        person
    };
    let others = async {
        let people = join_all(codes[1..].iter().map(|code| pair.client.identify(code))).await;
        assert!(!replaced.get(), "they waited for the new token");
        people
    };
    let (first, people) = tokio::join!(first, others);
    assert_eq!(first, Ok(member("u1001")));
    assert!(people.iter().all(|person| *person == Ok(member("u1001"))));
    assert_eq!(pair.tokens_fetched(), 2);
}

#[tokio::test]
async fn repeated_failures_open_the_circuit_and_a_probe_closes_it() {
    let pair = Pair::start().await;
    pair.simulator.switches(|switches| switches.bad_gateway = [("*".to_owned(), Times::All)].into());
    for _ in 0..5 {
        assert_eq!(pair.identify("u1001").await.unwrap_err().class(), "unavailable");
    }
    let fetched = pair.tokens_fetched();
    for _ in 0..20 {
        assert_eq!(pair.client.identify("code").await.unwrap_err().class(), "resting");
    }
    assert_eq!(pair.tokens_fetched(), fetched, "an open circuit makes no calls");
    assert!(pair.client.circuit_open_for().is_some());

    pair.simulator.switches(|switches| *switches = Default::default());
    pair.client_clock.advance(Duration::from_secs(5));
    assert_eq!(pair.client.circuit_open_for(), None);
    assert_eq!(pair.identify("u1001").await, Ok(member("u1001")));
}

#[tokio::test]
async fn throttling_opens_the_circuit_for_a_minute() {
    let pair = Pair::start().await;
    pair.simulator.switches(|switches| switches.frequency_limit = Some(1));
    pair.profile("u1001").await.unwrap();
    let throttled = PlatformError::Unavailable("errcode 45009".to_owned());
    assert_eq!(pair.profile("u1001").await, Err(throttled));
    assert_eq!(pair.profile("u1001").await.unwrap_err().class(), "resting");
    assert!(pair.client.circuit_open_for().is_some_and(|rest| rest > Duration::from_secs(50)));
}

#[tokio::test]
async fn an_untrusted_address_names_the_setting_to_check() {
    let pair = Pair::start().await;
    pair.simulator.switches(|switches| switches.denied_addresses = vec!["127.0.0.0/8".parse().unwrap()]);
    let error = pair.identify("u1001").await.unwrap_err();
    assert!(error.to_string().contains("trusted IP addresses"), "{error}");
}

#[tokio::test]
async fn an_untrusted_domain_names_the_setting_to_check() {
    let pair = Pair::start().await;
    let code = code_of(&pair.simulator, "u1001").await;
    pair.simulator.trust(&["elsewhere.example"]);
    let error = pair.client.identify(&code).await.unwrap_err();
    assert!(error.to_string().contains("server.public_url"), "{error}");
}

#[tokio::test]
async fn each_kind_of_member_has_its_person_and_status() {
    let pair = Pair::start().await;
    let inactive = |reason| Ok(MemberStatus::Inactive(reason));
    for (kind, person, status) in [
        (MemberKind::Active, member("u1001"), Ok(MemberStatus::Active)),
        (MemberKind::Disabled, member("u1001"), inactive(InactiveReason::Disabled)),
        (MemberKind::NotActivated, member("u1001"), inactive(InactiveReason::NotActivated)),
        (MemberKind::Left, member("u1001"), inactive(InactiveReason::Left)),
        (MemberKind::Deleted, member("u1001"), inactive(InactiveReason::Gone)),
        (MemberKind::Outsider, Person::Outsider, Err("unknown_member")),
        (MemberKind::Customer, Person::Outsider, Err("unknown_member")),
    ] {
        pair.simulator.switches(|switches| switches.members = [("u1001".to_owned(), kind)].into());
        assert_eq!(pair.identify("u1001").await, Ok(person.clone()), "{kind:?}");
        let profile = pair.client.profile(&person).await.map(|profile| profile.status);
        assert_eq!(profile.map_err(|error| error.class()), status, "{kind:?}");
        assert_eq!(pair.client.status(&person).await.map_err(|error| error.class()), status, "{kind:?}");
    }
}

#[tokio::test]
async fn a_status_costs_one_call() {
    let pair = Pair::start().await;
    assert_eq!(pair.client.status(&member("a2001")).await, Ok(MemberStatus::Active));
    assert_eq!((pair.simulator.calls(path::USER), pair.simulator.calls(path::DEPARTMENT)), (1, 0));
}

#[tokio::test]
async fn a_member_outside_the_visible_range_has_no_profile() {
    let pair = Pair::start().await;
    let range = [(AGENT_ID.to_owned(), vec!["a2001".to_owned()])];
    pair.simulator.switches(|switches| switches.visible_range = range.into());
    assert_eq!(pair.profile("u1001").await, Ok(Profile::undisclosed(MemberStatus::OutOfSight)));
    assert_eq!(pair.client.status(&member("u1001")).await, Ok(MemberStatus::OutOfSight));
    assert_eq!(pair.profile("a2001").await.unwrap().name, "Alice Chen");
}

#[tokio::test]
async fn a_connected_corporations_member_has_only_a_name() {
    let pair = Pair::start().await;
    let linked = pair.identify("wwpartner/p7001").await.unwrap();
    let named = Profile { name: "Paula Novak".to_owned(), ..Profile::undisclosed(MemberStatus::Active) };
    assert_eq!(pair.client.profile(&linked).await, Ok(named));
    assert_eq!(pair.client.status(&linked).await, Ok(MemberStatus::Active));
    let range = [(AGENT_ID.to_owned(), vec!["a2001".to_owned()])];
    pair.simulator.switches(|switches| switches.visible_range = range.into());
    assert_eq!(pair.client.profile(&linked).await, Ok(Profile::undisclosed(MemberStatus::OutOfSight)));
    pair.simulator.switches(|switches| {
        switches.visible_range.clear();
        switches.members = [("p7001".to_owned(), MemberKind::Deleted)].into();
    });
    assert_eq!(pair.client.status(&linked).await, Ok(MemberStatus::Inactive(InactiveReason::Gone)));
}

#[tokio::test]
async fn only_an_old_application_gets_the_avatar() {
    let pair = Pair::start().await;
    assert_eq!(pair.profile("u1001").await.unwrap().avatar, "");
    pair.simulator.switches(|switches| switches.old_application = true);
    assert!(pair.profile("u1001").await.unwrap().avatar.starts_with("http"));
}

#[tokio::test]
async fn a_slow_platform_costs_one_timeout() {
    let pair = Pair::start_with(|settings| settings.timeout = Duration::from_millis(300)).await;
    let slow = Duration::from_secs(30);
    pair.simulator.switches(|switches| switches.slow = [("*".to_owned(), slow)].into());
    let start = std::time::Instant::now();
    let silent = PlatformError::Unavailable("no response in time".to_owned());
    assert_eq!(pair.client.identify("code").await, Err(silent));
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_failed_department_lookup_does_not_fail_the_profile() {
    let pair = Pair::start().await;
    pair.simulator.switches(|switches| switches.bad_gateway = [(path::DEPARTMENT.to_owned(), Times::Next(1))].into());
    assert_eq!(pair.profile("a2001").await.unwrap().department, "");
    assert_eq!(pair.profile("a2001").await.unwrap().department, "IT", "looked up again");
}

#[tokio::test]
async fn each_api_has_its_own_circuit() {
    let pair = Pair::start().await;
    pair.simulator.switches(|switches| switches.bad_gateway = [(path::USER.to_owned(), Times::All)].into());
    for _ in 0..5 {
        pair.identify("u1001").await.unwrap();
        assert_eq!(pair.profile("u1001").await.unwrap_err().class(), "unavailable");
    }
    assert_eq!(pair.profile("u1001").await.unwrap_err().class(), "resting");
    assert!(pair.client.circuit_open_for().is_some(), "no user should be sent to the platform");
}

#[tokio::test]
async fn a_malformed_code_is_rejected_without_a_call() {
    let pair = Pair::start().await;
    for code in ["<script>", "' OR 1=1", "a b", "a\r\nb", "码", "%00"] {
        assert_eq!(pair.client.identify(code).await, Err(PlatformError::InvalidCode), "{code}");
    }
    assert_eq!(pair.simulator.calls(path::USER_INFO), 0);
}
