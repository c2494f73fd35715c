//! The words of the pages, in both languages.

use crate::domain::language::Language;

#[rustfmt::skip]
const WORDS: &[(&str, &str, &str)] = &[
    ("signin_title",    "Sign in to the IT help desk",                     "登录 IT 服务台"),
    ("signin_hint",     "Scan with WeCom, then check that your phone shows the same number.", "请用企业微信扫码，并核对手机上显示的数字是否一致。"),
    ("signin_loading",  "Fetching a code …",                               "正在获取二维码…"),
    ("signin_number",   "Number",                                          "数字"),
    ("signin_waiting",  "Waiting for the scan",                            "等待扫码"),
    ("signin_scanned",  "Scanned. Confirm on your phone.",                 "已扫码，请在手机上确认。"),
    ("signin_done",     "Signed in. One moment …",                         "登录成功，请稍候…"),
    ("signin_expired",  "This code is no longer good.",                    "二维码已失效。"),
    ("signin_lost",     "The network is gone; trying again …",             "网络连接中断，正在重试…"),
    ("signin_renew",    "Show a new code",                                 "刷新二维码"),
    ("signin_redirect", "Sign in inside WeCom",                            "在企业微信内登录"),
    ("signin_noscript", "This page needs JavaScript.",                     "本页面需要启用 JavaScript。"),
    ("qr_alt",          "QR code for signing in",                          "登录二维码"),
    ("confirm_title",   "Is this you?",                                    "是您本人在登录吗？"),
    ("confirm_who",     "You are about to sign in a computer as",          "即将在一台电脑上登录账号"),
    ("confirm_number",  "The computer must show this number:",             "电脑上应显示此数字："),
    ("confirm_address", "Its address",                                     "网络地址"),
    ("confirm_browser", "Its browser",                                     "浏览器"),
    ("confirm_time",    "Asked at",                                        "请求时间"),
    ("confirm_warn",    "If you did not ask for this, or the number differs, cancel.", "如非本人操作或数字不一致，请取消。"),
    ("confirm_yes",     "Confirm",                                         "确认登录"),
    ("confirm_no",      "Cancel",                                          "取消"),
    ("confirmed_title", "Confirmed",                                       "已确认"),
    ("confirmed_text",  "The computer is signed in. You can close this page.", "电脑端已登录，可关闭本页面。"),
    ("cancelled_title", "Cancelled",                                       "已取消"),
    ("cancelled_text",  "Nobody was signed in. You can close this page.",  "未登录任何设备，可关闭本页面。"),
    ("error_title",     "That did not work",                               "操作未成功"),
];

/// Looks words up; an unknown one shows as its own name, which the tests forbid.
pub(super) fn words(language: Language) -> impl Fn(&str) -> &str {
    move |name| {
        let found = WORDS.iter().find(|(word, _, _)| *word == name);
        found.map_or(name, |(_, english, chinese)| match language {
            Language::English => english,
            Language::Chinese => chinese,
        })
    }
}
