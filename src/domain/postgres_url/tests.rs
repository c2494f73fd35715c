use super::*;

#[test]
fn certificates_are_checked_unless_the_server_is_on_this_machine() {
    for (url, expected) in [
        ("postgres://desk@db.example.com/desk", SslMode::VerifyFull),
        ("postgresql://desk@10.0.0.7:6432/desk", SslMode::VerifyFull),
        ("postgres://desk@localhost.example.com/desk", SslMode::VerifyFull),
        ("postgres://desk@127.0.0.1/desk", SslMode::Disable),
        ("postgres://desk@[::1]:5433/desk", SslMode::Disable),
        ("postgres://desk@localhost/desk", SslMode::Disable),
        ("postgres://desk@%2Frun%2Fpostgresql/desk", SslMode::Disable),
        ("postgres://desk@localhost/desk?host=/run/postgresql", SslMode::Disable),
        ("postgres://desk@localhost/desk?sslmode=verify-full", SslMode::VerifyFull),
        ("postgres://desk@db.example.com/desk?sslmode=require", SslMode::Require),
        ("postgres://desk@db.example.com/desk?sslmode=verify-ca", SslMode::VerifyCa),
        ("postgres://desk@db.example.com/desk?sslmode=disable", SslMode::Disable),
    ] {
        assert_eq!(PostgresUrl::parse(url).expect(url).ssl_mode, expected, "{url}");
    }
}

#[test]
fn parts_are_percent_decoded_and_the_password_is_not_shown() {
    let url = PostgresUrl::parse("postgres://d%40sk:p%2Fss%20word@db:6432/the%20desk").expect("a URL");
    assert_eq!((url.user.as_str(), url.database.as_str(), url.port), ("d@sk", "the desk", 6432));
    assert_eq!(url.password.as_ref().map(|password| password.reveal().as_str()), Some("p/ss word"));
    for shown in [format!("{url:?}"), url.to_string()] {
        assert!(!shown.contains("ss word"), "{shown}");
    }
    assert_eq!(url.to_string(), "postgres://db:6432/the desk");
    let socket = PostgresUrl::parse("postgres://desk@%2Frun%2Fpostgresql/desk").expect("a URL");
    assert_eq!(socket.host, PostgresHost::Socket("/run/postgresql".into()));
}

#[test]
fn urls_with_mistakes_are_refused_and_not_shown() {
    for url in [
        "postgres://db/hunter2",
        "postgres://hunter2@db",
        "postgres://hunter2@db/",
        "postgres:///hunter2",
        "postgres://hunter2@/desk",
        "postgres://hunter2@one,two/desk",
        "postgres://hunter2@db/desk?sslmode=prefer",
        "postgres://hunter2@db/desk?sslmode=",
        "postgres://hunter2@db/desk?options=-c%20search_path%3Dx",
        "postgres://hunter2@db/desk?host=other",
        "mysql://hunter2@db/desk",
        "hunter2",
    ] {
        let why = PostgresUrl::parse(url).expect_err(url);
        assert!(!why.contains("hunter2"), "{why}");
    }
}
