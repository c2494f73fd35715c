//! Validates and decodes chunked bodies (RFC 9112, section 7.1) as they were sent: of clients in both lanes, and of upstreams. Pingora
//! accepts spaces before an extension, bare semicolons and bare line feeds, which enable request smuggling.

/// The body violates the chunked framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InvalidChunk;

/// The most bytes of chunk extensions and trailers together; real clients send neither.
const MAX_EXTRA: usize = 4096;

/// The longest chunk size in hexadecimal digits.
const MAX_SIZE_DIGITS: u8 = 15;

/// The position within a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    Size {
        digits: u8,
    },
    Extension(ExtensionPart),
    /// After the CR of a size line.
    SizeEnd,
    Data {
        left: u64,
    },
    /// Before the CR that follows the data.
    DataCr,
    /// Before the LF that follows the data.
    DataLf,
    /// At the beginning of a trailer line.
    TrailerStart,
    Trailer {
        /// Whether the colon has been read.
        colon: bool,
    },
    /// After the CR of a trailer line.
    TrailerEnd,
    /// After the CR of the final empty line.
    LastLf,
    Done,
}

/// The position within a chunk extension. Blanks may follow `;` and surround `=`; those before `;` or the end of the line are
/// refused, as other servers take them for a part of the size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExtensionPart {
    /// Before the name.
    Start,
    Name,
    /// Behind the name and blanks.
    NameEnd,
    /// Before the value.
    ValueStart,
    Value,
    Quoted,
    /// Behind a backslash within quotes.
    Escaped,
    /// Behind the closing quote.
    QuoteEnd,
}

impl ExtensionPart {
    fn next(self, byte: u8) -> Result<Self, InvalidChunk> {
        let is_blank = matches!(byte, b' ' | b'\t');
        let is_text = byte == b'\t' || (0x20..0x7f).contains(&byte);
        match (self, byte) {
            (Self::Start, _) if is_blank => Ok(Self::Start),
            (Self::Start | Self::Name, byte) if is_token(byte) => Ok(Self::Name),
            (Self::Name | Self::NameEnd, _) if is_blank => Ok(Self::NameEnd),
            (Self::Name | Self::NameEnd, b'=') => Ok(Self::ValueStart),
            (Self::ValueStart, _) if is_blank => Ok(Self::ValueStart),
            (Self::ValueStart, b'"') => Ok(Self::Quoted),
            (Self::ValueStart | Self::Value, byte) if is_token(byte) => Ok(Self::Value),
            (Self::Quoted, b'"') => Ok(Self::QuoteEnd),
            (Self::Quoted, b'\\') => Ok(Self::Escaped),
            (Self::Quoted | Self::Escaped, _) if is_text => Ok(Self::Quoted),
            (Self::Name | Self::Value | Self::QuoteEnd, b';') => Ok(Self::Start),
            _ => Err(InvalidChunk),
        }
    }

    /// Whether the line may end here.
    fn is_complete(self) -> bool {
        matches!(self, Self::Name | Self::Value | Self::QuoteEnd)
    }
}

/// Validates one chunked body, however its bytes are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkValidator {
    state: ChunkState,
    size: u64,
    extra: usize,
}

impl ChunkValidator {
    pub(super) fn new() -> Self {
        Self { state: ChunkState::Size { digits: 0 }, size: 0, extra: 0 }
    }

    pub(super) fn is_done(&self) -> bool {
        self.state == ChunkState::Done
    }

    /// Validates the next bytes. Returns how many of them belong to the body.
    pub(super) fn validate(&mut self, bytes: &[u8]) -> Result<usize, InvalidChunk> {
        self.decode(bytes, |_| {})
    }

    /// Validates the next bytes and hands over the data among them, without sizes, extensions and trailers. Returns how many of
    /// them belong to the body.
    pub(super) fn decode(&mut self, bytes: &[u8], mut data: impl FnMut(&[u8])) -> Result<usize, InvalidChunk> {
        let mut at = 0;
        while at < bytes.len() && self.state != ChunkState::Done {
            if let ChunkState::Data { left } = self.state {
                let available = u64::try_from(bytes.len() - at).unwrap_or(u64::MAX);
                let consumed = left.min(available);
                let end = at + usize::try_from(consumed).unwrap_or(bytes.len() - at);
                data(&bytes[at..end]);
                at = end;
                self.state =
                    if consumed == left { ChunkState::DataCr } else { ChunkState::Data { left: left - consumed } };
            } else {
                self.state = self.next_state(bytes[at])?;
                at += 1;
            }
        }
        Ok(at)
    }

    fn next_state(&mut self, byte: u8) -> Result<ChunkState, InvalidChunk> {
        match (self.state, byte) {
            (ChunkState::Size { digits }, byte) if byte.is_ascii_hexdigit() && digits < MAX_SIZE_DIGITS => {
                let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
                self.size = self.size << 4 | digit;
                Ok(ChunkState::Size { digits: digits + 1 })
            }
            (ChunkState::Size { digits: 1.. }, b';') => Ok(ChunkState::Extension(ExtensionPart::Start)),
            (ChunkState::Size { digits: 1.. }, b'\r') => Ok(ChunkState::SizeEnd),
            (ChunkState::Extension(part), b'\r') if part.is_complete() => Ok(ChunkState::SizeEnd),
            (ChunkState::Extension(part), byte) => {
                self.count_extra()?;
                part.next(byte).map(ChunkState::Extension)
            }
            (ChunkState::SizeEnd, b'\n') if self.size == 0 => Ok(ChunkState::TrailerStart),
            (ChunkState::SizeEnd, b'\n') => {
                let left = std::mem::take(&mut self.size);
                Ok(ChunkState::Data { left })
            }
            (ChunkState::DataCr, b'\r') => Ok(ChunkState::DataLf),
            (ChunkState::DataLf, b'\n') => Ok(ChunkState::Size { digits: 0 }),
            (ChunkState::TrailerStart, b'\r') => Ok(ChunkState::LastLf),
            (ChunkState::TrailerStart | ChunkState::Trailer { colon: false }, byte) if is_token(byte) => {
                self.count_extra()?;
                Ok(ChunkState::Trailer { colon: false })
            }
            (ChunkState::Trailer { colon: false }, b':') => Ok(ChunkState::Trailer { colon: true }),
            (ChunkState::Trailer { colon: true }, b'\r') => Ok(ChunkState::TrailerEnd),
            (ChunkState::Trailer { colon: true }, byte) if byte == b'\t' || (byte >= 0x20 && byte != 0x7f) => {
                self.count_extra()?;
                Ok(ChunkState::Trailer { colon: true })
            }
            (ChunkState::TrailerEnd, b'\n') => Ok(ChunkState::TrailerStart),
            (ChunkState::LastLf, b'\n') => Ok(ChunkState::Done),
            _ => Err(InvalidChunk),
        }
    }

    fn count_extra(&mut self) -> Result<(), InvalidChunk> {
        self.extra += 1;
        if self.extra > MAX_EXTRA { Err(InvalidChunk) } else { Ok(()) }
    }
}

/// Whether a byte may be part of a field name (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests;
