//! What an exchange with an upstream reports, over either version of HTTP.

use pingora_core::Error as PingoraError;
use pingora_core::protocols::http::HttpTask;

/// Whether something follows a header or a piece of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remaining {
    Something,
    Nothing,
}

impl Remaining {
    pub(super) fn after(is_last: bool) -> Self {
        if is_last { Self::Nothing } else { Self::Something }
    }
}

/// What has happened in an exchange.
pub(super) enum ExchangeStep {
    Response(HttpTask),
    /// The piece of the request's body that was on its way is so no longer.
    Piece(PieceEnd),
}

/// What has become of a piece of the request's body.
pub(super) enum PieceEnd {
    /// It has been sent, and more follows.
    Sent,
    /// It has been sent, and with it the end of the body.
    BodySent,
    /// The upstream takes no more of the body. Its response may come all the same.
    Refused(Box<PingoraError>),
}

impl PieceEnd {
    /// The end of a piece that has been sent.
    pub(super) fn sent(remaining: Remaining) -> Self {
        match remaining {
            Remaining::Something => Self::Sent,
            Remaining::Nothing => Self::BodySent,
        }
    }
}
