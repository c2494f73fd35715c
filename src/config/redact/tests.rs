use super::*;

#[test]
fn credentials_and_query_values_are_hidden() {
    let table = [
        ("redis://user:pw@host:6379/0", "redis://***@host:6379/0"),
        ("redis://:p/w,@x@host:6379", "redis://***@host:6379"),
        ("redis://host:6379/0?password=pw", "redis://host:6379/0?password=***"),
        ("redis:/user:pw@host", "***@host"),
        ("user:pw@host", "***@host"),
        ("user:pw@host?k=pw", "***@host?k=***"),
        (
            "postgres://user:p?w@host/db?sslmode=require&password=pw",
            "postgres://***@host/db?sslmode=require&password=***",
        ),
        ("postgres:///db?host=/run/postgresql", "postgres:///db?host=/run/postgresql"),
        ("user=desk password=p w host=h", "user=desk password=***"),
        ("user=desk Password = 'p w'", "user=desk Password =***"),
        ("https://user:pw@host/a@b?c=pw#d", "https://***@host/a@b?c=***#d"),
        ("https://user:p/w@host/", "https://***@host/"),
        ("https://user:p#w@host/", "https://***@host/"),
        ("/health?pw", "/health?***"),
        ("/health?a=pw&&b", "/health?a=***&&***"),
    ];
    for (value, shown) in table {
        assert_eq!(redacted(value), shown, "{value}");
    }
}

#[test]
fn other_values_are_shown_as_they_are() {
    for value in [
        "embedded",
        "sqlite:directory.db",
        "https://desk.example.com/h5/",
        "https://desk.example.com:8443/@team/",
        "https://[2001:db8::1]/@team/",
        "https://open.example.com/connect#wechat_redirect",
        "redis+sentinel://10.0.0.1:26379,10.0.0.2:26379/desk",
        "127.0.0.1:8080",
        "[::1]:8080",
        "ops@example.com",
        "info,deskgate=debug",
        "/run/deskgate/a@b",
        "what?",
        "",
    ] {
        assert_eq!(redacted(value), value);
    }
}

#[test]
fn messages_hide_what_they_quote() {
    let table = [
        (r#""redis://u:pw@h" is not supported; use "embedded""#, r#""redis://***@h" is not supported; use "embedded""#),
        (r#"invalid type: string "u:p\"w@h", expected a number"#, r#"invalid type: string "***@h", expected a number"#),
        ("unknown variant `u:pw@h`, expected `a` or `b`", "unknown variant `***@h`, expected `a` or `b`"),
        (r#"a quotation "u:pw@h that does not end"#, r#"a quotation "***@h that does not end"#),
        (
            r#""" is not a URL, such as "https://desk.example.com/""#,
            r#""" is not a URL, such as "https://desk.example.com/""#,
        ),
        ("30 has no unit", "30 has no unit"),
        ("„日志“ \"u:pw@日\"", "„日志“ \"***@日\""),
    ];
    for (message, shown) in table {
        assert_eq!(redacted_message(message), shown);
    }
}

#[test]
fn all_texts_inside_a_value_are_redacted() {
    let value = serde_json::json!({ "a": ["x://u:pw@h", { "b": "/p?k=pw" }], "c": 7 });
    assert_eq!(redacted_value(value), serde_json::json!({ "a": ["x://***@h", { "b": "/p?k=***" }], "c": 7 }));
}
