//! Shared rate limits of two gateways on one Redis server.

use crate::servers::redis::{self, RedisServer, own_prefix};
use crate::support::*;

fn rule(name: &str, rate: &str) -> String {
    format!(
        "\n[[rule]]\nname = \"{name}\"\npath = \"/rate/{name}\"\nupstream = \"helpdesk\"\npublic = true\nrate = [{rate}]\n"
    )
}

/// A gateway with these rules on the Redis server at `url`.
async fn gateway(url: &str, prefix: &str, more: &str, rules: &str) -> Gateway {
    // Read at the start only.
    let secret = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(secret.path(), "a secret of a test that is long enough for a fleet of gateways").expect("a secret");
    // A busy machine must not look like an outage.
    let settings = format!(
        "[server]\nsecret_file = {:?}\n[store]\nurl = \"{url}\"\nprefix = \"{prefix}\"\ntimeout = \"5s\"\n{more}",
        secret.path().display()
    );
    Gateway::setup().toml(&settings).more_rules(rules).start().await
}

async fn statuses(client: &Client, target: &str, count: usize) -> Vec<u16> {
    let mut statuses = Vec::with_capacity(count);
    for _ in 0..count {
        statuses.push(client.get(target).await.status);
    }
    statuses
}

fn admitted(statuses: &[u16]) -> usize {
    assert!(statuses.iter().all(|status| matches!(status, 200 | 429)), "{statuses:?}");
    statuses.iter().filter(|status| **status == 200).count()
}

/// How often a gateway has asked Redis about rates.
async fn asked(desk: &Gateway) -> f64 {
    let mut sum = 0.0;
    for result in ["granted", "renewed", "refused", "returned", "failed"] {
        sum += desk.metric("deskgate_rate_lease_total", &[&format!("result=\"{result}\"")]).await;
    }
    sum
}

#[tokio::test]
async fn two_gateways_share_a_limit() {
    let rules = [
        rule("few", "{ by = \"rule\", limit = 5, per = \"1h\" }"),
        rule("many", "{ by = \"rule\", limit = 200, per = \"1h\" }"),
        rule("apart", "{ by = \"rule\", limit = 5, per = \"1h\", shared = false }"),
        rule("address", "{ by = \"address\", limit = 5, per = \"1h\" }"),
    ]
    .concat();
    let (url, prefix) = (redis::standalone(), own_prefix());
    let fleet = [gateway(&url, &prefix, "", &rules).await, gateway(&url, &prefix, "", &rules).await];
    let clients = fleet.each_ref().map(Gateway::anonymous);
    for (rule, requests, most, least) in
        [("few", 5, 5, 5), ("many", 200, 200, 180), ("apart", 8, 10, 10), ("address", 8, 10, 10)]
    {
        let target = format!("/rate/{rule}");
        let (one, other) =
            tokio::join!(statuses(&clients[0], &target, requests), statuses(&clients[1], &target, requests));
        let total = admitted(&one) + admitted(&other);
        assert!((least..=most).contains(&total), "{rule}: {total} of {most}");
    }
    let refused = clients[1].get("/rate/few").await.expect_code(1429);
    let wait: u64 = refused.header("retry-after").expect("Retry-After").parse().expect("seconds");
    assert!((3400..=3600).contains(&wait), "{wait}");
    let asked = asked(&fleet[0]).await + asked(&fleet[1]).await;
    assert!(asked < 60.0, "asked {asked} times");
}

#[tokio::test]
async fn employees_are_counted_over_gateways() {
    let rules =
        rule("employee", "{ by = \"employee\", limit = 6, per = \"1h\" }").replace("public = true", "signed_in = true");
    let (url, prefix) = (redis::standalone(), own_prefix());
    let fleet = [gateway(&url, &prefix, "", &rules).await, gateway(&url, &prefix, "", &rules).await];
    let one = fleet[0].sign_in("u1001").await;
    let other = fleet[1].sign_in("u1001").await;
    let colleague = fleet[1].sign_in("a2001").await;
    let total =
        admitted(&statuses(&one, "/rate/employee", 4).await) + admitted(&statuses(&other, "/rate/employee", 4).await);
    assert_eq!(total, 6);
    assert_eq!(admitted(&statuses(&colleague, "/rate/employee", 8).await), 6);
}

#[tokio::test]
async fn without_redis_a_part_is_admitted_or_everything_refused() {
    let rules = [
        rule("few", "{ by = \"rule\", limit = 5, per = \"1h\" }"),
        rule("shadow", "{ by = \"rule\", limit = 5, per = \"1h\", mode = \"shadow\" }"),
    ]
    .concat();
    let mut server = RedisServer::start(&[]);
    let (url, prefix) = (server.url(), own_prefix());
    let local = gateway(&url, &prefix, "", &rules).await;
    let refusing = gateway(&url, &prefix, "[rates]\noutage = \"refuse\"\n", &rules).await;
    server.kill();
    // One of the gateways is not counted yet, or both are.
    let total = admitted(&statuses(&local.anonymous(), "/rate/few", 10).await);
    assert!((2..=5).contains(&total), "{total}");
    for _ in 0..3 {
        let refused = refusing.anonymous().get("/rate/few").await.expect_code(1503);
        assert!(refused.header("retry-after").is_some());
    }
    assert_eq!(admitted(&statuses(&refusing.anonymous(), "/rate/shadow", 8).await), 8, "shadow mode refuses nothing");
    server.restart();
    eventually("an admitted request", || async {
        (refusing.anonymous().get("/rate/few").await.status == 200).then_some(())
    })
    .await;
}
