//! Signing keys: a rotation on any gateway disturbs no request on any other.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::fleet::Fleet;
use crate::support::*;

/// How many clients work during the rotations.
const CLIENTS: usize = 8;

#[tokio::test]
async fn rotation_under_load_refuses_nobody_on_any_gateway() {
    let fleet = &Fleet::start().await;
    let is_over = &AtomicBool::new(false);
    // One session of the first key for each client, and a new one again and again, used where it was not made.
    let work = (0..CLIENTS).map(|number| async move {
        let old = fleet.gateways[number % 2].sign_in("a2001").await;
        let mut kids = BTreeSet::new();
        let mut requests = 0;
        while !is_over.load(Ordering::Relaxed) {
            let here = (number + requests) % 2;
            let new = fleet.gateways[here].sign_in("u1001").await;
            kids.insert(header_of(new.token())["kid"].to_string());
            fleet.at(1 - here, &new).get("/api/desk/x").await.expect_status(200);
            fleet.at(here, &new).get("/api/desk/x").await.expect_status(200);
            fleet.at(here, &old).get("/api/agent-desk/x").await.expect_status(200);
            requests += 1;
        }
        kids
    });
    let rotations = async {
        for (gateway, how) in [(0, "--now"), (1, "--now"), (0, "--now"), (1, "")] {
            let arguments: Vec<&str> = ["key", "rotate", how].into_iter().filter(|one| !one.is_empty()).collect();
            fleet.gateways[gateway].command(&arguments).await.expect_success();
        }
        is_over.store(true, Ordering::Relaxed);
    };
    let (kids, ()) = tokio::join!(futures::future::join_all(work), rotations);
    let kids: BTreeSet<String> = kids.into_iter().flatten().collect();
    assert!(kids.len() >= 3, "the rotations happened under load: {kids:?}");
}
