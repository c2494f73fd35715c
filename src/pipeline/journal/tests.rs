use std::net::{IpAddr, Ipv4Addr};

use super::refusals::{MOST_BYTES, MOST_REFUSALS};
use super::*;
use crate::domain::finished_request::{FollowEvent, FollowFilter, FollowedOutcomes};

fn finished(request_id: &str) -> FinishedRequest<'_> {
    FinishedRequest {
        at: Timestamp::from_seconds(1),
        request_id: request_id.into(),
        client_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        method: "GET".into(),
        path: "/x".into(),
        status: 200,
        code: 0,
        reason: "answered".into(),
        rule: Some("desk".into()),
        employee_id: Some("u1001".into()),
        corp_id: Some("wwdemo".into()),
        upstream: None,
        duration_ms: 1.0,
    }
}

pub(super) fn refused(request_id: &str, at: i64, reason: usize) -> RefusedRequest<'_> {
    RefusedRequest {
        request: FinishedRequest {
            at: Timestamp::from_seconds(at),
            reason: "x".repeat(reason).into(),
            ..finished(request_id)
        },
        phase: "route".into(),
        check: None,
        wants: None,
        rule_place: None,
        peer_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        host: None,
        caller: None,
        rate_limit: None,
        is_repeatable: true,
        next_step: "".into(),
    }
}

fn journal() -> RequestJournal {
    RequestJournal::new(Clock::system())
}

const PLAIN: FollowedRequest<'_> =
    FollowedRequest { is_unusual: false, rule: Some("desk"), employee_id: Some("u1001") };

fn publish(journal: &RequestJournal, selected_by: FollowedRequest<'_>, request_id: &str) {
    journal.publish(selected_by, || Arc::new(finished(request_id).into_owned()));
}

#[tokio::test]
async fn a_follower_sees_what_its_filter_selects() {
    let other_rule = FollowedRequest { rule: Some("other"), ..PLAIN };
    let other_employee = FollowedRequest { employee_id: None, ..PLAIN };
    let unusual = FollowedRequest { is_unusual: true, ..PLAIN };
    let (all, refused) = (FollowedOutcomes::All, FollowedOutcomes::Refused);
    let filter = |outcomes, employee: Option<&str>, rule: Option<&str>| FollowFilter {
        outcomes,
        employee_id: employee.map(str::to_owned),
        rule: rule.map(str::to_owned),
    };
    let table = [
        ("everything", filter(all, None, None), [true, true, true, true]),
        ("refusals", filter(refused, None, None), [false, true, false, false]),
        ("one rule", filter(all, None, Some("desk")), [true, true, false, true]),
        ("one employee", filter(all, Some("u1001"), None), [true, true, true, false]),
    ];
    for (case, filter, expected) in table {
        let journal = journal();
        let mut follower = journal.followers.add(filter).expect("a follower");
        for (number, request) in [PLAIN, unusual, other_rule, other_employee].into_iter().enumerate() {
            publish(&journal, request, &number.to_string());
        }
        publish(&journal, unusual, "end");
        let mut seen = [false; 4];
        loop {
            let FollowEvent::Request(request) = follower.next().await else { panic!("{case}: no request") };
            match request.request_id.parse::<usize>() {
                Ok(number) => seen[number] = true,
                Err(_) => break,
            }
        }
        assert_eq!(seen, expected, "{case}");
    }
}

#[tokio::test]
async fn a_slow_follower_loses_requests_and_is_told_how_many() {
    let journal = journal();
    let mut follower = journal.followers.add(FollowFilter::default()).expect("a follower");
    for number in 0..1030 {
        publish(&journal, PLAIN, &number.to_string());
    }
    for number in 0..1024 {
        let FollowEvent::Request(request) = follower.next().await else { panic!("no request {number}") };
        assert_eq!(request.request_id, number.to_string());
    }
    assert_eq!(follower.next().await, FollowEvent::Lost(6));
    publish(&journal, PLAIN, "next");
    assert!(matches!(follower.next().await, FollowEvent::Request(request) if request.request_id == "next"));
}

#[test]
fn a_record_is_built_only_for_a_follower_that_wants_it() {
    let journal = journal();
    assert!(!journal.followers.is_any());
    let filter = FollowFilter { outcomes: FollowedOutcomes::Refused, ..FollowFilter::default() };
    let follower = journal.followers.add(filter).expect("a follower");
    assert!(journal.followers.is_any());
    journal.publish(PLAIN, || panic!("no follower wants it"));
    drop(follower);
    assert!(!journal.followers.is_any(), "a follower that has gone is forgotten");
}

#[test]
fn followers_are_limited() {
    let journal = journal();
    let followers: Vec<RequestFollower> =
        (0..16).map(|_| journal.followers.add(FollowFilter::default()).expect("a follower")).collect();
    assert!(journal.followers.add(FollowFilter::default()).is_err());
    drop(followers);
    assert!(journal.followers.add(FollowFilter::default()).is_ok());
}

#[test]
fn refusals_are_found_by_their_id_the_newest_first() {
    let journal = journal();
    for (id, at) in [("repeated", 10), ("other", 11), ("repeated", 12)] {
        journal.remember(&refused(id, at, 1));
    }
    let found: Vec<i64> = journal.refusals_of("repeated").iter().map(|refused| refused.request.at.seconds()).collect();
    assert_eq!(found, [12, 10]);
    assert_eq!(journal.refusals_of("unknown"), []);
    assert_eq!(journal.kept(), (3, journal.started_at), "nothing was forgotten since the start");
}

#[test]
fn the_oldest_refusals_are_forgotten_by_number_and_by_bytes() {
    let by_number = journal();
    for number in 0..=MOST_REFUSALS {
        by_number.remember(&refused(&number.to_string(), 100 + i64::try_from(number).expect("a small number"), 1));
    }
    assert_eq!(by_number.kept(), (MOST_REFUSALS, Timestamp::from_seconds(100)));
    assert!(by_number.refusals_of("0").is_empty() && !by_number.refusals_of("1").is_empty());

    let by_bytes = journal();
    for number in 0..10 {
        by_bytes.remember(&refused(&number.to_string(), number, MOST_BYTES / 4));
    }
    let (count, since) = by_bytes.kept();
    assert!((1..4).contains(&count), "{count}");
    assert_eq!(since.seconds(), 9 - i64::try_from(count).expect("a small number"));
    assert!(!by_bytes.refusals_of("9").is_empty());
}
