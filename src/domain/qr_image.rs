//! QR codes as PNG pictures.

use qrcode::{Color, EcLevel, QrCode};

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
pub enum QrFault {
    /// The text is too long for any code.
    #[error("the text does not fit into a QR code")]
    TooLong(#[from] qrcode::types::QrError),
    /// The picture cannot be written.
    #[error("the picture cannot be written")]
    Picture(#[from] png::EncodingError),
}

/// Pixels per module. Four is sharp on every screen and keeps the picture below 2 KiB.
const SCALE: usize = 4;

/// Modules of white around the code, as the standard wants.
const QUIET: usize = 4;

/// A black-and-white PNG of a text.
pub fn png(text: &str) -> Result<Vec<u8>, QrFault> {
    let code = QrCode::with_error_correction_level(text, EcLevel::M)?;
    let modules = code.width();
    let side = (modules + 2 * QUIET) * SCALE;
    let row_bytes = side.div_ceil(8);
    let mut pixels = vec![0xff_u8; row_bytes * side];
    let colors = code.to_colors();
    for (place, _) in colors.iter().enumerate().filter(|(_, color)| **color == Color::Dark) {
        let (left, top) = ((place % modules + QUIET) * SCALE, (place / modules + QUIET) * SCALE);
        for y in top..top + SCALE {
            for x in left..left + SCALE {
                pixels[y * row_bytes + x / 8] &= !(0x80 >> (x % 8));
            }
        }
    }
    Ok(write(&pixels, side)?)
}

fn write(pixels: &[u8], side: usize) -> Result<Vec<u8>, png::EncodingError> {
    let side = u32::try_from(side).unwrap_or(u32::MAX);
    let mut file = Vec::with_capacity(4096);
    let mut encoder = png::Encoder::new(&mut file, side, side);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::One);
    encoder.set_compression(png::Compression::Fast);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(file)
}

#[cfg(test)]
mod tests;
