//! Measures drawing the QR code of a sign-in: the authorize URL as a PNG.
#![allow(missing_docs)]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use deskgate::qr;

const AUTHORIZE_URL: &str = "https://open.weixin.qq.com/connect/oauth2/authorize?appid=ww1a2b3c4d5e6f7a8b\
    &redirect_uri=https%3A%2F%2Fdesk.example.com%2Fapi%2Fauth%2Foauth2%2Fcallback&response_type=code&scope=snsapi_base\
    &state=qr0123456789abcdefghijABCDEFGHIJ01&agentid=1000002#wechat_redirect";

fn draw_png(criterion: &mut Criterion) {
    criterion.bench_function("the QR code of a sign-in", |bencher| {
        bencher.iter(|| qr::png(black_box(AUTHORIZE_URL)).is_ok());
    });
}

criterion_group!(benches, draw_png);
criterion_main!(benches);
