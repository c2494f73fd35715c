use super::*;

fn host(name: &str, port: u16) -> RedisHost {
    RedisHost { name: name.to_owned(), port }
}

fn redis(url: &str) -> RedisAddress {
    match StoreUrl::new(url).target() {
        Ok(StoreTarget::Redis(address)) => address,
        other => panic!("{url}: {other:?}"),
    }
}

#[test]
fn url_names_the_arrangement_of_the_servers() {
    let table = [
        ("redis://cache", RedisLayout::Single(host("cache", 6379)), RedisTls::Off),
        ("redis://[::1]:7000/3", RedisLayout::Single(host("::1", 7000)), RedisTls::Off),
        ("rediss://cache:7", RedisLayout::Single(host("cache", 7)), RedisTls::On),
        ("redis+unix:///run/redis.sock", RedisLayout::Unix(PathBuf::from("/run/redis.sock")), RedisTls::Off),
        (
            "redis+sentinel://a,b:7/desk-1",
            RedisLayout::Sentinel { hosts: vec![host("a", 26379), host("b", 7)], name: "desk-1".to_owned() },
            RedisTls::Off,
        ),
        ("rediss+cluster://a,b:7", RedisLayout::Cluster(vec![host("a", 6379), host("b", 7)]), RedisTls::On),
    ];
    for (url, layout, tls) in table {
        let address = redis(url);
        assert_eq!((address.layout, address.tls), (layout, tls), "{url}");
    }
    assert_eq!(StoreUrl::default().target(), Ok(StoreTarget::Embedded));
    assert_eq!(redis("redis://cache/3").database, 3);
}

#[test]
fn user_and_password_are_percent_decoded() {
    let address = redis("redis://desk:p%40ss/,w%C3%B6rd@cache:1");
    assert_eq!(address.username.as_deref(), Some("desk"));
    assert_eq!(address.password.map(|word| word.reveal().clone()).as_deref(), Some("p@ss/,wörd"));
    let address = redis("redis://:only@cache");
    assert_eq!((address.username.as_deref(), address.password.is_some()), (None, true));
}

#[test]
fn a_malformed_url_is_refused_without_showing_its_password() {
    for url in [
        "",
        "redis",
        "http://cache",
        "redis://",
        "redis://cache:0",
        "redis://cache:70000",
        "redis://cache/x",
        "redis://a,b",
        "redis://[::1",
        "redis+unix://path",
        "rediss+unix:///path",
        "redis+sentinel://a",
        "redis+sentinel://a/na me",
        "redis+cluster://a/0",
        "redis+cluster://a,,b",
        "redis+other://a",
        "redis://:%ff@cache",
        "redis://:hunter2@",
        "redis+sentinel://:hunter2@a",
    ] {
        let why = StoreUrl::new(url).target().expect_err(url);
        assert!(!why.contains("hunter2"), "{why}");
    }
    assert_eq!(format!("{:?}", StoreUrl::new("redis://u:hunter2@cache")), "\"redis://***@cache\"");
}
