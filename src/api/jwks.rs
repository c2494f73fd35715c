//! `GET /.well-known/jwks.json`

use crate::domain::clock::Timestamp;
use crate::reply::Reply;
use crate::token::Tokens;

/// The public keys of tokens and assertions as a JWK set (RFC 7517).
pub fn document(tokens: &Tokens, now: Timestamp) -> Reply {
    Reply::document(&serde_json::json!({ "keys": tokens.keys().jwks(now) }))
}
