//! Why a token was rejected.

/// Why a token was rejected. For the log and `authn_total{reason}`: the client gets the same message for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenFault {
    /// Not three canonical base64url segments, or too long.
    Malformed,
    /// The header differs from the one that the gateway writes: another algorithm, type or extra member.
    Header,
    /// The signing key is unknown or retired.
    UnknownKey,
    /// A claim is missing, repeated or of the wrong type.
    Claims,
    /// Another issuer or audience.
    Audience,
    /// Expired, or not valid yet.
    Expired,
    /// The signature does not verify.
    Signature,
    /// The session has been revoked, has ended or never existed.
    Revoked,
}

impl TokenFault {
    /// Every fault, for metrics.
    pub const ALL: [TokenFault; 8] = [
        Self::Malformed,
        Self::Header,
        Self::UnknownKey,
        Self::Claims,
        Self::Audience,
        Self::Expired,
        Self::Signature,
        Self::Revoked,
    ];

    /// Whether the gateway can never have issued the token. One that has expired or was revoked, or whose key or issuer
    /// was replaced, may be that of a user who has yet to notice.
    pub fn is_forged(self) -> bool {
        match self {
            TokenFault::Malformed | TokenFault::Header | TokenFault::Claims | TokenFault::Signature => true,
            TokenFault::UnknownKey | TokenFault::Audience | TokenFault::Expired | TokenFault::Revoked => false,
        }
    }

    /// The label in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            TokenFault::Malformed => "malformed",
            TokenFault::Header => "header",
            TokenFault::UnknownKey => "unknown_key",
            TokenFault::Claims => "claims",
            TokenFault::Audience => "audience",
            TokenFault::Expired => "expired",
            TokenFault::Signature => "signature",
            TokenFault::Revoked => "revoked",
        }
    }
}
