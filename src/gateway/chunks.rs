//! Chunked bodies, read strictly (RFC 9112, section 7.1). The engine reads them kindly: spaces before an
//! extension, bare semicolons, line feeds alone. What two readers could cut in two ways is refused here,
//! on the client's own bytes.

/// The body has no one reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadChunk;

/// Longest extension or trailer section that is followed; nobody needs either.
const LONGEST_EXTRA: usize = 4096;

/// Where in a chunked body a reader stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In a size; so many digits of it are there.
    Size {
        digits: u8,
    },
    /// In an extension. Whether its name has begun.
    Extension {
        named: bool,
    },
    /// After the CR of a size line.
    SizeEnd,
    /// In the data; so many bytes are to come.
    Data {
        left: u64,
    },
    /// After the data: its CR, then its LF.
    DataCr,
    DataLf,
    /// At the beginning of a trailer line.
    TrailerStart,
    /// In a trailer line. Whether its colon has come.
    Trailer {
        colon: bool,
    },
    /// After the CR of a trailer line.
    TrailerEnd,
    /// After the CR of the empty line.
    LastLf,
    /// The body is over.
    Done,
}

/// Follows one chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunks {
    place: Place,
    size: u64,
    extra: usize,
}

impl Chunks {
    /// At the beginning of a body.
    pub fn new() -> Self {
        Self { place: Place::Size { digits: 0 }, size: 0, extra: 0 }
    }

    /// Follows these bytes. What comes after the body's end is not looked at.
    pub fn follow(&mut self, bytes: &[u8]) -> Result<(), BadChunk> {
        let mut at = 0;
        while at < bytes.len() && self.place != Place::Done {
            if let Place::Data { left } = self.place {
                let available = u64::try_from(bytes.len() - at).unwrap_or(u64::MAX);
                let taken = left.min(available);
                at += usize::try_from(taken).unwrap_or(bytes.len());
                self.place = if taken == left { Place::DataCr } else { Place::Data { left: left - taken } };
            } else {
                self.place = self.step(bytes[at])?;
                at += 1;
            }
        }
        Ok(())
    }

    fn step(&mut self, byte: u8) -> Result<Place, BadChunk> {
        match (self.place, byte) {
            (Place::Size { digits }, byte) if byte.is_ascii_hexdigit() && digits < 15 => {
                let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
                self.size = self.size << 4 | digit;
                Ok(Place::Size { digits: digits + 1 })
            }
            (Place::Size { digits: 1.. }, b';') => Ok(Place::Extension { named: false }),
            (Place::Size { digits: 1.. }, b'\r') | (Place::Extension { named: true }, b'\r') => Ok(Place::SizeEnd),
            (Place::Extension { .. }, byte) if byte == b'\t' || (0x20..0x7f).contains(&byte) => {
                self.count_extra()?;
                // `;` and blanks alone name nothing.
                let named = !matches!(byte, b';' | b' ' | b'\t');
                Ok(Place::Extension { named })
            }
            (Place::SizeEnd, b'\n') if self.size == 0 => Ok(Place::TrailerStart),
            (Place::SizeEnd, b'\n') => {
                let left = std::mem::take(&mut self.size);
                Ok(Place::Data { left })
            }
            (Place::DataCr, b'\r') => Ok(Place::DataLf),
            (Place::DataLf, b'\n') => Ok(Place::Size { digits: 0 }),
            (Place::TrailerStart, b'\r') => Ok(Place::LastLf),
            (Place::TrailerStart | Place::Trailer { colon: false }, byte) if is_token(byte) => {
                self.count_extra()?;
                Ok(Place::Trailer { colon: false })
            }
            (Place::Trailer { colon: false }, b':') => Ok(Place::Trailer { colon: true }),
            (Place::Trailer { colon: true }, b'\r') => Ok(Place::TrailerEnd),
            (Place::Trailer { colon: true }, byte) if byte == b'\t' || (byte >= 0x20 && byte != 0x7f) => {
                self.count_extra()?;
                Ok(Place::Trailer { colon: true })
            }
            (Place::TrailerEnd, b'\n') => Ok(Place::TrailerStart),
            (Place::LastLf, b'\n') => Ok(Place::Done),
            _ => Err(BadChunk),
        }
    }

    fn count_extra(&mut self) -> Result<(), BadChunk> {
        self.extra += 1;
        if self.extra > LONGEST_EXTRA { Err(BadChunk) } else { Ok(()) }
    }
}

impl Default for Chunks {
    fn default() -> Self {
        Self::new()
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests;
