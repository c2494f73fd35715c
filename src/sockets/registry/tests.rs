use futures::FutureExt;

use super::*;
use std::collections::HashSet;

use async_trait::async_trait;

use crate::domain::employee::{CorpId, EmployeeId};
use crate::metrics::Metrics;
use crate::rules::{RuleMatch, load_texts};
use crate::store::StoreError;
use crate::store::socket_slots::{SlotOutcome, SocketSlot};

const PATH: &str = "/ws/desk";

/// A rule for every path below `/ws`, with a limit of two sockets.
fn rules(name: &str) -> RuleSet {
    let text = format!(
        "[[rule]]\nname = \"{name}\"\npath = \"/ws/{{*rest}}\"\nupstream = \"desk\"\nsigned_in = true\n\
         websocket = {{ max_per_employee = 2 }}\n"
    );
    let metrics = Metrics::new().expect("metrics");
    load_texts(&[("rules.toml".to_owned(), text)], &["desk".into()], &metrics).expect("valid rules")
}

fn rule_of(rules: &RuleSet) -> Arc<Rule> {
    match rules.find("GET", PATH) {
        RuleMatch::Rule(rule) => rule.clone(),
        _ => panic!("a rule"),
    }
}

fn socket(session: Option<&str>) -> Opener {
    Opener {
        kind: OpenKind::WebSocket,
        session: session.map(SessionId::new),
        lifetime: None,
        employee: session.map(|_| (CorpId::new("wwdemo"), EmployeeId::new("u1001"))),
        method: http::Method::GET,
        path: PATH.into(),
        address: [127, 0, 0, 1].into(),
    }
}

fn close_reason(registration: &Registration) -> Option<CloseReason> {
    registration.handle().closed().now_or_never()
}

#[test]
fn a_closed_session_reaches_exactly_its_open_sockets() {
    let (registry, rule) = (Arc::new(Registry::default()), rule_of(&rules("one")));
    let open = |session| (0..100).map(|_| registry.register(socket(session), &rule).0).collect::<Vec<_>>();
    let (mut mine, other, mut anonymous) = (open(Some("mine")), open(Some("other")), open(None));
    // From the front, the middle and the end, so that others take their positions.
    for position in [0, 98, 50, 0, 13, 94, 47, 1] {
        mine.swap_remove(position);
        anonymous.remove(position);
    }
    assert_eq!(registry.count_sockets(), 92 + 100 + 92);
    registry.close_session(&SessionId::new("mine"), CloseReason::Revoked);
    assert!(mine.iter().all(|socket| close_reason(socket) == Some(CloseReason::Revoked)));
    assert!(other.iter().chain(&anonymous).all(|socket| close_reason(socket).is_none()));
    assert!(registry.drain(Duration::ZERO).now_or_never().is_some(), "all at once");
    assert!(other.iter().chain(&anonymous).all(|socket| close_reason(socket) == Some(CloseReason::Drain)));
    assert!(mine.iter().all(|socket| close_reason(socket) == Some(CloseReason::Revoked)), "the first reason wins");
    drop((mine, other, anonymous));
    assert_eq!((registry.count_sockets(), registry.sessions().len()), (0, 0));
}

#[test]
fn sockets_of_an_employee_are_counted_under_the_rule_in_force() {
    let (registry, before, after) = (Arc::new(Registry::default()), rules("before"), rules("after"));
    let register = |session: &str, rules: &RuleSet| registry.register(socket(Some(session)), &rule_of(rules));
    let (first, capacity) = register("one", &before);
    assert_eq!(capacity, Capacity::Available);
    let (_second, capacity) = register("two", &before);
    assert_eq!(capacity, Capacity::Available);
    assert_eq!(register("three", &before).1, Capacity::Exhausted);
    registry.apply_rules(&after);
    assert_eq!(register("three", &before).1, Capacity::Available, "a rule that no socket has any more");
    assert_eq!(register("three", &after).1, Capacity::Exhausted);
    drop(first);
    let (third, capacity) = register("three", &before);
    assert_eq!(capacity, Capacity::Available);
    third.apply_rules(&ArcSwap::from_pointee(after)).expect("a rule");
    assert_eq!(register("four", &rules("after")).1, Capacity::Exhausted);
}

#[tokio::test(start_paused = true)]
async fn a_drain_closes_few_sockets_one_by_one_and_many_evenly_within_its_time() {
    for (count, within, expected) in [
        (3, Duration::from_secs(15), 2 * DRAIN_INTERVAL),
        (500, Duration::from_secs(15), 499 * DRAIN_INTERVAL),
        (3000, Duration::from_secs(15), 749 * DRAIN_INTERVAL),
        (3000, Duration::ZERO, Duration::ZERO),
    ] {
        let (registry, rule) = (Arc::new(Registry::default()), rule_of(&rules("one")));
        let sockets: Vec<_> = (0..count).map(|_| registry.register(socket(None), &rule).0).collect();
        let began = tokio::time::Instant::now();
        let drain = tokio::spawn({
            let registry = registry.clone();
            async move { registry.drain(within).await }
        });
        if count > 1 && !within.is_zero() {
            tokio::time::sleep(expected / 2).await;
            let closed = sockets.iter().filter(|socket| close_reason(socket).is_some()).count();
            assert!((count / 3..=2 * count / 3).contains(&closed), "{closed} of {count} after half of the time");
            let late = registry.register(socket(None), &rule).0;
            assert_eq!(close_reason(&late), Some(CloseReason::Drain), "a socket that comes late");
        }
        drain.await.expect("a drain");
        assert!(sockets.iter().all(|socket| close_reason(socket) == Some(CloseReason::Drain)));
        let took = began.elapsed();
        assert!(took >= expected && took < expected + 2 * DRAIN_INTERVAL + Duration::from_secs(1), "{count}: {took:?}");
    }
}

#[test]
fn exchanges_may_finish_during_a_drain_but_not_after_it() {
    let (registry, rule) = (Arc::new(Registry::default()), rule_of(&rules("one")));
    let exchange = || Opener { kind: OpenKind::Exchange, employee: None, ..socket(Some("mine")) };
    let open = registry.register(exchange(), &rule).0;
    assert!(registry.drain(Duration::ZERO).now_or_never().is_some());
    assert_eq!(close_reason(&open), None);
    assert_eq!(close_reason(&registry.register(exchange(), &rule).0), None, "one that comes late");
    registry.end_drain();
    assert_eq!(close_reason(&open), Some(CloseReason::Drain));
    assert_eq!(close_reason(&registry.register(exchange(), &rule).0), Some(CloseReason::Drain), "one that comes late");
}

/// The sockets of a session in the thousands, opened and closed in any order, cost what as many sessions cost.
#[test]
fn adding_and_removing_does_not_depend_on_the_number_of_sockets() {
    const SOCKETS: usize = 200_000;
    let (registry, rule) = (Arc::new(Registry::default()), rule_of(&rules("one")));
    let mut open: Vec<Registration> = (0..SOCKETS).map(|_| registry.register(socket(Some("mine")), &rule).0).collect();
    registry.close_session(&SessionId::new("mine"), CloseReason::Revoked);
    // In the order of opening: a search from the front or the back would read all the others.
    let middle = open.split_off(SOCKETS / 2);
    open.into_iter().rev().chain(middle).for_each(drop);
    assert_eq!(registry.count_sockets(), 0);
}

/// The slots of several gateways in one store.
#[derive(Debug, Default)]
struct TestSlots {
    taken: Mutex<HashSet<SocketSlot>>,
    is_away: std::sync::atomic::AtomicBool,
}

impl TestSlots {
    fn count(&self) -> usize {
        self.taken.lock().expect("slots").len()
    }
}

#[async_trait]
impl SocketSlots for TestSlots {
    async fn take(&self, slot: &SocketSlot, most: usize) -> Result<SlotOutcome, StoreError> {
        if self.is_away.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(StoreError::Unavailable("away".into()));
        }
        let mut taken = self.taken.lock().expect("slots");
        if taken.iter().filter(|other| other.group == slot.group).count() >= most {
            return Ok(SlotOutcome::Exhausted);
        }
        taken.insert(slot.clone());
        Ok(SlotOutcome::Taken)
    }

    fn hold(&self, slot: SocketSlot) {
        self.taken.lock().expect("slots").insert(slot);
    }

    fn free(&self, slot: SocketSlot) {
        self.taken.lock().expect("slots").remove(&slot);
    }
}

/// Gateways whose slots differ in their numbers.
fn gateways(slots: &Arc<TestSlots>) -> [Arc<Registry>; 2] {
    let registries = [(); 2].map(|()| Registry::new(Some(slots.clone())));
    if let Some(slots) = &registries[1].slots {
        slots.start_numbers_at(1000);
    }
    registries.map(Arc::new)
}

async fn open(registry: &Arc<Registry>, rule: &Arc<Rule>) -> (Registration, Capacity) {
    registry.register_socket(socket(Some("mine")), rule).await
}

#[tokio::test]
async fn sockets_of_an_employee_are_counted_over_all_gateways() {
    let (slots, rule) = (Arc::new(TestSlots::default()), rule_of(&rules("one")));
    let [one, two] = gateways(&slots);
    let (first, capacity) = open(&one, &rule).await;
    assert_eq!(capacity, Capacity::Available);
    let (_second, capacity) = open(&two, &rule).await;
    assert_eq!(capacity, Capacity::Available);
    for gateway in [&one, &two] {
        assert_eq!(open(gateway, &rule).await.1, Capacity::Exhausted);
    }
    assert_eq!(slots.count(), 2, "a refused socket holds no slot");
    drop(first);
    assert_eq!(slots.count(), 1);
    assert_eq!(open(&two, &rule).await.1, Capacity::Available);
}

#[tokio::test]
async fn slots_follow_the_rule_in_force() {
    let (slots, before, after) = (Arc::new(TestSlots::default()), rules("before"), rules("after"));
    let [one, two] = gateways(&slots);
    let (first, second) = (open(&one, &rule_of(&before)).await.0, open(&one, &rule_of(&before)).await.0);
    first.apply_rules(&ArcSwap::from_pointee(rules("before"))).expect("a rule");
    assert_eq!(open(&two, &rule_of(&before)).await.1, Capacity::Exhausted);
    one.apply_rules(&after);
    assert_eq!(open(&two, &rule_of(&before)).await.1, Capacity::Available);
    assert_eq!(open(&two, &rule_of(&after)).await.1, Capacity::Exhausted);
    drop((first, second));
    assert_eq!(slots.count(), 0);
}

#[tokio::test]
async fn without_the_store_each_gateway_counts_its_own_sockets() {
    let (slots, rule) = (Arc::new(TestSlots::default()), rule_of(&rules("one")));
    let [one, two] = gateways(&slots);
    slots.is_away.store(true, std::sync::atomic::Ordering::Relaxed);
    let opened = [open(&one, &rule).await, open(&one, &rule).await, open(&two, &rule).await];
    assert!(opened.iter().all(|(_, capacity)| *capacity == Capacity::Available));
    assert_eq!(open(&one, &rule).await.1, Capacity::Exhausted);
    slots.is_away.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(open(&two, &rule).await.1, Capacity::Exhausted, "what was opened meanwhile counts");
    drop(opened);
    assert_eq!(slots.count(), 0);
}
