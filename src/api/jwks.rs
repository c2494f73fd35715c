//! `GET /.well-known/jwks.json`

use crate::reply::Reply;
use crate::signin::sessions::UserSessions;

/// The public keys of tokens and assertions as a JWK set (RFC 7517).
pub fn document(sessions: &UserSessions) -> Reply {
    Reply::document(&serde_json::json!({ "keys": sessions.public_keys() }))
}
