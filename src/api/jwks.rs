//! `GET /.well-known/jwks.json`

use crate::reply::Reply;
use crate::signin::SignIn;

/// The public keys of tokens and assertions, in the form of RFC 7517.
pub fn document(signin: &SignIn) -> Reply {
    Reply::document(&serde_json::json!({ "keys": signin.keys().jwks(signin.now()) }))
}
