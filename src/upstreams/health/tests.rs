use std::collections::BTreeMap;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::config::{HumanDuration, UpstreamConfig};
use crate::domain::clock::Clock;
use crate::metrics::Metrics;
use crate::upstreams::tls::UpstreamTlsFiles;

const AT: Timestamp = Timestamp::from_seconds(0);

fn upstreams(address: &str, health: HealthConfig) -> Arc<Upstreams> {
    let addresses = vec![address.parse().expect("an address")];
    let slow_start = HumanDuration::seconds(0);
    let config = UpstreamConfig { addresses, health: Some(health), slow_start, ..UpstreamConfig::default() };
    let metrics = Arc::new(Metrics::new().expect("metrics"));
    Arc::new(
        Upstreams::new(&BTreeMap::from([("desk".to_owned(), config)]), metrics, Clock::system()).expect("upstreams"),
    )
}

#[test]
fn checks_in_a_row_change_the_state_of_an_address() {
    let health = HealthConfig { unhealthy_after: 3, healthy_after: 2, ..HealthConfig::default() };
    let upstreams = upstreams("127.0.0.1:1", health.clone());
    let upstream = upstreams.at(0).expect("an upstream");
    let (address, now) = (&upstream.addresses[0], Moment::now());
    let table = [
        (false, Availability::Available),
        (false, Availability::Available),
        (true, Availability::Available),
        (false, Availability::Available),
        (false, Availability::Available),
        (false, Availability::Unhealthy),
        (true, Availability::Unhealthy),
        (false, Availability::Unhealthy),
        (true, Availability::Unhealthy),
        (true, Availability::Available),
    ];
    for (step, (passed, expected)) in table.into_iter().enumerate() {
        let outcome = if passed { Ok(()) } else { Err("refused".to_owned()) };
        upstream.checked(address, &health, outcome, now, AT);
        assert_eq!(upstream.availability(address, now), expected, "step {step}");
    }
}

#[test]
fn an_address_is_available_once_checks_are_turned_off() {
    let health = HealthConfig { unhealthy_after: 1, ..HealthConfig::default() };
    let upstreams = upstreams("127.0.0.1:1", health.clone());
    let upstream = upstreams.at(0).expect("an upstream");
    upstream.checked(&upstream.addresses[0], &health, Err("refused".to_owned()), Moment::now(), AT);
    let addresses = vec!["127.0.0.1:1".parse().expect("an address")];
    let config = UpstreamConfig { addresses, slow_start: HumanDuration::seconds(0), ..UpstreamConfig::default() };
    upstreams.apply(&BTreeMap::from([("desk".to_owned(), config)]), UpstreamTlsFiles::new());
    let upstream = upstreams.at(0).expect("an upstream");
    assert_eq!(upstream.availability(&upstream.addresses[0], Moment::now()), Availability::Available);
}

/// Answers every connection with these bytes.
async fn server(response: &'static [u8]) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 1024];
            let _ = stream.read(&mut head).await;
            let _ = stream.write_all(response).await;
        }
    });
    address
}

#[tokio::test]
async fn a_check_wants_a_connection_and_the_expected_status() {
    let ok = server(b"HTTP/1.1 204 No Content\r\n\r\n").await.to_string();
    let failing = server(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n").await.to_string();
    let mail = server(b"220 mail ESMTP\r\n").await.to_string();
    let dead =
        TcpListener::bind("127.0.0.1:0").await.expect("a free port").local_addr().expect("an address").to_string();
    let tcp = HealthConfig::default();
    let http = HealthConfig { path: "/health".to_owned(), expect: vec![200, 204], ..HealthConfig::default() };
    let connector = Connector::<()>::new(None);
    for (case, address, health, expected) in [
        ("a connection", &failing, &tcp, Ok(())),
        ("no connection", &dead, &tcp, Err("refused")),
        ("an expected status", &ok, &http, Ok(())),
        ("another status", &failing, &http, Err("status 500")),
        ("no HTTP", &mail, &http, Err("invalid_response")),
    ] {
        let upstreams = upstreams(address, health.clone());
        let upstream = upstreams.at(0).expect("an upstream");
        let outcome = check(&connector, &upstream.addresses[0], health).await;
        assert_eq!(outcome, expected.map_err(str::to_owned), "{case}");
    }
}

#[test]
fn checks_are_spread_over_the_interval_in_groups() {
    let every = Duration::from_secs(5);
    let pauses: Vec<Duration> = (0..1000).map(|seed| pause(seed, every, Duration::ZERO)).collect();
    let early = pauses.iter().filter(|pause| **pause <= every / 2).count();
    assert!(pauses.iter().all(|pause| *pause <= every) && (400..600).contains(&early), "{early}");
    let times: std::collections::BTreeSet<&Duration> = pauses.iter().collect();
    assert_eq!(times.len(), usize::try_from(GROUPS).expect("a number"));
}

#[test]
fn checks_of_an_address_are_one_interval_apart_however_long_they_take() {
    let every = Duration::from_secs(5);
    for took in [0, 1, 4999].map(Duration::from_millis) {
        let mut at = Duration::from_millis(1234);
        let mut checks = Vec::new();
        for _ in 0..3 {
            at += pause(7, every, at);
            checks.push(at);
            at += took;
        }
        assert!(checks.windows(2).all(|pair| pair[1] - pair[0] == every), "{took:?}: {checks:?}");
    }
}
