//! Which path is answered by what.

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, patch, post};

use super::api::{self, connected, contacts, identity, tokens};
use super::{Shared, authorize, control, hosted, path, trouble};

/// Everything. What troubles the platform (slow, busy, broken) troubles no `/simulator` path: the
/// switches can always be set back.
pub fn router(shared: Shared) -> Router {
    let troubled = from_fn_with_state(shared.clone(), trouble::befall);
    server_api().merge(pages()).route_layer(troubled).merge(switches()).with_state(shared)
}

fn server_api() -> Router<Shared> {
    Router::new()
        .route(path::TOKEN, api::on_get(tokens::give))
        .route(path::USER_INFO, api::on_get(identity::user_info))
        .route(path::LEGACY_USER_INFO, api::on_get(identity::legacy_user_info))
        .route(path::USER_DETAIL, api::on_post(identity::user_detail))
        .route(path::USER, api::on_get(contacts::user))
        .route(path::USER_SIMPLE_LIST, api::on_get(contacts::users_in_short))
        .route(path::USER_LIST, api::on_get(contacts::users))
        .route(path::DEPARTMENT, api::on_get(contacts::department))
        .route(path::DEPARTMENT_LIST, api::on_get(contacts::departments))
        .route(path::DEPARTMENT_SIMPLE_LIST, api::on_get(contacts::departments_in_short))
        .route(path::LINKED_USER, api::on_post(connected::user))
        .route(path::DOWNSTREAM_TOKEN, api::on_post(connected::token))
        .route(path::SHARED_WITH, api::on_post(connected::shared_with))
        .route(path::CALLBACK_ADDRESSES, api::on_get(tokens::addresses))
        .route(path::API_ADDRESSES, api::on_get(tokens::addresses))
}

fn pages() -> Router<Shared> {
    Router::new()
        .route(path::AUTHORIZE, get(authorize::page))
        .route(path::URI_CONFIRM, get(authorize::domain_fault))
        .route(path::QR_CONNECT, get(hosted::legacy_page))
        .route(path::QR_LOGIN, get(hosted::page))
        .route(path::QR_POLL, get(hosted::poll))
        .route(path::QR_IMAGE, get(hosted::image))
        .route(path::QR_CONFIRM, get(hosted::confirm))
}

fn switches() -> Router<Shared> {
    Router::new()
        .route(path::CONTROL, get(control::page))
        .route("/simulator/switches", get(control::show))
        .route("/simulator/switches", patch(control::merge))
        .route("/simulator/switches", post(control::set_one))
        .route("/simulator/switches", delete(control::reset))
        .route("/simulator/switches/reset", post(control::reset))
        .route("/simulator/clock", post(control::advance))
        .route("/simulator/tokens/revoke", post(control::revoke))
        .route("/simulator/calls", get(control::calls))
        .route("/simulator/avatars/{userid}", get(control::avatar))
}
