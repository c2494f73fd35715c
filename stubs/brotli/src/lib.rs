//! Takes the place of the crate `brotli` (see `[patch.crates-io]` in deskgate's Cargo.toml).
//!
//! Pingora links brotli for its response compression, which deskgate never turns on: bodies pass unchanged. The real crate would
//! add one megabyte to the program, half of it dictionaries. This one has only what Pingora names, and every use of it is an error.

use std::io::{Error, ErrorKind, Result, Write};

/// Refuses to compress.
pub struct CompressorWriter<W>(W);

/// Refuses to decompress.
pub struct DecompressorWriter<W>(W);

impl<W> CompressorWriter<W> {
    pub fn new(target: W, _buffer_size: usize, _quality: u32, _window_bits: u32) -> Self {
        Self(target)
    }
}

impl<W> DecompressorWriter<W> {
    pub fn new(target: W, _buffer_size: usize) -> Self {
        Self(target)
    }
}

macro_rules! refuse_everything {
    ($($writer:ident)*) => {$(
        impl<W> $writer<W> {
            pub fn get_ref(&self) -> &W {
                &self.0
            }

            pub fn get_mut(&mut self) -> &mut W {
                &mut self.0
            }
        }

        impl<W> Write for $writer<W> {
            fn write(&mut self, _bytes: &[u8]) -> Result<usize> {
                Err(unsupported())
            }

            fn flush(&mut self) -> Result<()> {
                Err(unsupported())
            }
        }
    )*};
}

refuse_everything!(CompressorWriter DecompressorWriter);

fn unsupported() -> Error {
    Error::new(ErrorKind::Unsupported, "deskgate is built without brotli")
}
