use proptest::prelude::*;

use super::*;

const MALFORMED: Credential<'static> = Credential::Malformed(TokenSource::Header);

#[test]
fn a_bearer_header_is_read_in_one_form_only() {
    let header = |token: &'static str| Credential::Token(token.as_bytes(), TokenSource::Header);
    let table: &[(&str, Result<Credential, BadRequest>)] = &[
        ("Bearer a.b.c", Ok(header("a.b.c"))),
        ("bearer a", Ok(header("a"))),
        ("BEARER a", Ok(header("a"))),
        ("Bearer", Ok(Credential::None)),
        ("Bearer   ", Ok(Credential::None)),
        ("Bearer  a", Ok(MALFORMED)),
        ("Bearer\ta", Ok(MALFORMED)),
        ("Bearer a,", Ok(MALFORMED)),
        ("Bearer \"a\"", Ok(MALFORMED)),
        ("Bearer a b", Ok(MALFORMED)),
        ("Bearer a, Bearer b", Err(BadRequest::TwoTokens)),
        ("Bearer a,bearer b", Err(BadRequest::TwoTokens)),
        ("Bearerx a", Ok(Credential::None)),
        ("Basic dTpw", Ok(Credential::None)),
        ("", Ok(Credential::None)),
    ];
    for (value, expected) in table {
        assert_eq!(from_header(value.as_bytes()).map(Credential::checked), *expected, "{value:?}");
    }
}

#[test]
fn the_token_is_found_among_other_subprotocols() {
    let protocol = |token: &'static str| Credential::Token(token.as_bytes(), TokenSource::Subprotocol);
    let table: &[(&[&str], Result<Credential, BadRequest>)] = &[
        (&["bearer.a"], Ok(protocol("a"))),
        (&["chat, bearer.a"], Ok(protocol("a"))),
        (&["chat", "bearer.a.b.c , x"], Ok(protocol("a.b.c"))),
        (&["Bearer.a"], Ok(protocol("a"))),
        (&["bearer.a, bearer.a"], Ok(protocol("a"))),
        (&["bearer.a, bearer.b"], Err(BadRequest::TwoTokens)),
        (&["bearer.a", "bearer.b"], Err(BadRequest::TwoTokens)),
        (&["bearer."], Ok(Credential::None)),
        (&["chat"], Ok(Credential::None)),
        (&["bearer.a b"], Ok(Credential::Malformed(TokenSource::Subprotocol))),
        (&[], Ok(Credential::None)),
    ];
    for (lines, expected) in table {
        let bytes: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
        assert_eq!(from_subprotocols(&bytes).map(Credential::checked), *expected, "{lines:?}");
    }
}

#[test]
fn the_query_token_is_found_among_other_parameters() {
    let query = |token: &'static str| Credential::Token(token.as_bytes(), TokenSource::Query);
    let table: &[(Option<&str>, Result<Credential, BadRequest>)] = &[
        (None, Ok(Credential::None)),
        (Some("token=a"), Ok(query("a"))),
        (Some("x=1&token=a&y=2"), Ok(query("a"))),
        (Some("token=a&token=a"), Ok(query("a"))),
        (Some("token=a&token=b"), Err(BadRequest::TwoTokens)),
        (Some("token="), Ok(Credential::None)),
        (Some("%74oken=a"), Ok(query("a"))),
        (Some("mytoken=a"), Ok(Credential::None)),
        (Some("token=a%20b"), Ok(Credential::Malformed(TokenSource::Query))),
    ];
    for (text, expected) in table {
        assert_eq!(from_query(*text).map(Credential::checked), *expected, "{text:?}");
    }
}

proptest! {
    #[test]
    fn the_subprotocol_parser_never_panics_or_invents_a_token(
        lines in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..4)
    ) {
        let slices: Vec<&[u8]> = lines.iter().map(Vec::as_slice).collect();
        if let Ok(Credential::Token(token, _)) = from_subprotocols(&slices).map(Credential::checked) {
            prop_assert!(slices.iter().any(|line| line.windows(token.len()).any(|part| part == token)));
            prop_assert!(token.iter().all(|byte| byte.is_ascii_graphic() && *byte != b','));
        }
    }
}
