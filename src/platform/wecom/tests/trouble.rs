//! A platform in trouble: busy, slow, silent, asked too often.

use super::*;
use crate::demo::{StaleErrcode, Times};

fn next(path: &str, calls: u64) -> std::collections::BTreeMap<String, Times> {
    [(path.to_owned(), Times::Next(calls))].into()
}

#[tokio::test]
async fn a_busy_platform_is_asked_again_three_times_at_most() {
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
async fn a_code_exchange_is_never_made_again_for_a_busy_platform() {
    let pair = Pair::start().await;
    pair.simulator.switches(|switches| switches.busy = next(path::USER_INFO, 1));
    let busy = PlatformError::Unavailable("errcode -1".to_owned());
    assert_eq!(pair.identify("u1001").await, Err(busy));
    assert_eq!(pair.simulator.calls(path::USER_INFO), 1);
}

#[tokio::test]
async fn either_number_for_a_stale_token_fetches_one_and_replays_once() {
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
async fn fault_23_a_token_that_dies_mid_flow_is_fetched_once_for_all() {
    let pair = Pair::start().await;
    pair.identify("u1001").await.unwrap();
    let codes = join_all((0..100).map(|_| code_of(&pair.simulator, "u1001"))).await;
    // Another application server of the same corporation fetches: the platform ends our token.
    pair.simulator.switches(|switches| switches.rotate_tokens = true);
    pair.simulator.revoke_tokens();
    for person in join_all(codes.iter().map(|code| pair.client.identify(code))).await {
        assert_eq!(person, Ok(member("u1001")));
    }
    assert_eq!(pair.tokens_fetched(), 2, "no stampede");
}

#[tokio::test]
async fn while_an_ageing_token_is_replaced_the_others_go_on_with_it() {
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
async fn a_platform_that_fails_is_left_alone_and_tried_again_later() {
    let pair = Pair::start().await;
    pair.simulator.switches(|switches| switches.bad_gateway = [("*".to_owned(), Times::All)].into());
    for _ in 0..5 {
        assert_eq!(pair.identify("u1001").await.unwrap_err().class(), "unavailable");
    }
    let asked = pair.tokens_fetched();
    for _ in 0..20 {
        assert_eq!(pair.client.identify("code").await.unwrap_err().class(), "circuit_open_for");
    }
    assert_eq!(pair.tokens_fetched(), asked, "nobody waits for it, and it is not asked");
    assert!(pair.client.circuit_open_for().is_some());

    pair.simulator.switches(|switches| *switches = Default::default());
    pair.client_clock.advance(Duration::from_secs(5));
    assert_eq!(pair.client.circuit_open_for(), None);
    assert_eq!(pair.identify("u1001").await, Ok(member("u1001")));
}

#[tokio::test]
async fn asked_too_often_it_is_left_alone_for_a_minute() {
    let pair = Pair::start().await;
    pair.simulator.switches(|switches| switches.frequency_limit = Some(1));
    pair.profile("u1001").await.unwrap();
    let overrun = PlatformError::Unavailable("errcode 45009".to_owned());
    assert_eq!(pair.profile("u1001").await, Err(overrun));
    assert_eq!(pair.profile("u1001").await.unwrap_err().class(), "circuit_open_for");
    assert!(pair.client.circuit_open_for().is_some_and(|rest| rest > Duration::from_secs(50)));
}

#[tokio::test]
async fn a_refused_address_names_what_to_look_at() {
    let pair = Pair::start().await;
    pair.simulator.switches(|switches| switches.denied_addresses = vec!["127.0.0.0/8".parse().unwrap()]);
    let error = pair.identify("u1001").await.unwrap_err();
    assert!(error.to_string().contains("trusted IP addresses"), "{error}");
}

#[tokio::test]
async fn a_domain_that_is_not_the_applications_names_what_to_look_at() {
    let pair = Pair::start().await;
    let code = code_of(&pair.simulator, "u1001").await;
    pair.simulator.trust(&["elsewhere.example"]);
    let error = pair.client.identify(&code).await.unwrap_err();
    assert!(error.to_string().contains("server.public_url"), "{error}");
}

#[tokio::test]
async fn who_somebody_is_decides_who_may_come_in() {
    let pair = Pair::start().await;
    for (kind, person, status) in [
        (MemberKind::Active, Some(member("u1001")), Ok(MemberStatus::Active)),
        (MemberKind::Disabled, Some(member("u1001")), Ok(MemberStatus::Inactive)),
        (MemberKind::NotActivated, Some(member("u1001")), Ok(MemberStatus::Inactive)),
        (MemberKind::Outsider, Some(Person::Outsider), Err("unknown_member")),
        (MemberKind::Customer, Some(Person::Outsider), Err("unknown_member")),
    ] {
        pair.simulator.switches(|switches| switches.members = [("u1001".to_owned(), kind)].into());
        let found = pair.identify("u1001").await.ok();
        assert_eq!(found, person, "{kind:?}");
        let profile = pair.client.profile(&found.unwrap()).await;
        assert_eq!(profile.map(|profile| profile.status).map_err(|error| error.class()), status, "{kind:?}");
    }
}

#[tokio::test]
async fn a_member_out_of_sight_signs_in_without_a_profile() {
    let pair = Pair::start().await;
    let range = [(AGENT_ID.to_owned(), vec!["a2001".to_owned()])];
    pair.simulator.switches(|switches| switches.visible_range = range.into());
    assert_eq!(pair.profile("u1001").await, Ok(Profile::unnamed()));
    assert_eq!(pair.profile("a2001").await.unwrap().name, "Alice Chen");
}

#[tokio::test]
async fn a_connected_corporations_member_has_a_name_at_most() {
    let pair = Pair::start().await;
    let linked = pair.identify("wwpartner/p7001").await.unwrap();
    let named = Profile { name: "Paula Novak".to_owned(), ..Profile::unnamed() };
    assert_eq!(pair.client.profile(&linked).await, Ok(named));
    let range = [(AGENT_ID.to_owned(), vec!["a2001".to_owned()])];
    pair.simulator.switches(|switches| switches.visible_range = range.into());
    assert_eq!(pair.client.profile(&linked).await, Ok(Profile::unnamed()));
}

#[tokio::test]
async fn an_old_application_is_told_the_picture() {
    let pair = Pair::start().await;
    assert_eq!(pair.profile("u1001").await.unwrap().avatar, "");
    pair.simulator.switches(|switches| switches.old_application = true);
    assert!(pair.profile("u1001").await.unwrap().avatar.starts_with("http"));
}

#[tokio::test]
async fn fault_22_a_slow_platform_costs_one_timeout() {
    let pair = Pair::start_with(|settings| settings.timeout = Duration::from_millis(300)).await;
    let slow = Duration::from_secs(30);
    pair.simulator.switches(|switches| switches.slow = [("*".to_owned(), slow)].into());
    let start = std::time::Instant::now();
    let silent = PlatformError::Unavailable("no answer in time".to_owned());
    assert_eq!(pair.client.identify("code").await, Err(silent));
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_department_that_cannot_be_had_keeps_nobody_out() {
    let pair = Pair::start().await;
    pair.simulator.switches(|switches| switches.bad_gateway = [(path::DEPARTMENT.to_owned(), Times::Next(1))].into());
    assert_eq!(pair.profile("a2001").await.unwrap().department, "");
    assert_eq!(pair.profile("a2001").await.unwrap().department, "IT", "and is asked for again");
}

#[tokio::test]
async fn one_call_that_fails_is_left_alone_though_another_answers() {
    let pair = Pair::start().await;
    pair.simulator.switches(|switches| switches.bad_gateway = [(path::USER.to_owned(), Times::All)].into());
    for _ in 0..5 {
        pair.identify("u1001").await.unwrap();
        assert_eq!(pair.profile("u1001").await.unwrap_err().class(), "unavailable");
    }
    assert_eq!(pair.profile("u1001").await.unwrap_err().class(), "circuit_open_for");
    assert!(pair.client.circuit_open_for().is_some(), "nobody should be sent there");
}

#[tokio::test]
async fn a_code_that_the_platform_would_never_give_is_not_sent_there() {
    let pair = Pair::start().await;
    for code in ["<script>", "' OR 1=1", "a b", "a\r\nb", "码", "%00"] {
        assert_eq!(pair.client.identify(code).await, Err(PlatformError::InvalidCode), "{code}");
    }
    assert_eq!(pair.simulator.calls(path::USER_INFO), 0);
}
