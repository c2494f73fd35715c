//! The QR code as an image.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::super::query::Parameters;
use super::super::{Shared, path};
use crate::qr;

/// `GET /wwopen/sso/qrImg`: the address of the confirm page, to be scanned.
pub async fn image(State(shared): State<Shared>, parameters: Parameters) -> Response {
    let key = parameters.get(super::KEY).unwrap_or_default();
    let address = {
        let ledger = shared.ledger();
        ledger.scans.asked(key, ledger.now()).map(|_| format!("{}{}?k={key}", ledger.origin, path::QR_CONFIRM))
    };
    match address.and_then(|address| qr::png(&address).ok()) {
        Some(picture) => {
            ([(header::CONTENT_TYPE, "image/png"), (header::CACHE_CONTROL, "no-store")], picture).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
