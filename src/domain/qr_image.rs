//! QR codes as PNG pictures.
//!
//! The crate draws; which of the eight masks is best is judged here, because the crate takes 3 ms for that and
//! everything else together a tenth of one.

use qrcode::canvas::{Canvas, MaskPattern};
use qrcode::{Color, EcLevel, bits, ec};

mod penalty;

/// The eight of the standard.
const MASKS: [MaskPattern; 8] = [
    MaskPattern::Checkerboard,
    MaskPattern::HorizontalLines,
    MaskPattern::VerticalLines,
    MaskPattern::DiagonalLines,
    MaskPattern::LargeCheckerboard,
    MaskPattern::Fields,
    MaskPattern::Diamonds,
    MaskPattern::Meadow,
];

/// How much of a code may be damaged: 15 %, as is usual on screens.
const LEVEL: EcLevel = EcLevel::M;

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
    let (colors, modules) = draw(text)?;
    let side = (modules + 2 * QUIET) * SCALE;
    let row_bytes = side.div_ceil(8);
    let mut pixels = vec![0xff_u8; row_bytes * side];
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

/// The modules of the code, row by row, and how many are in a row.
fn draw(text: &str) -> Result<(Vec<Color>, usize), QrFault> {
    let bits = bits::encode_auto(text.as_bytes(), LEVEL)?;
    let version = bits.version();
    let (data, correction) = ec::construct_codewords(&bits.into_bytes(), version, LEVEL)?;
    let mut canvas = Canvas::new(version, LEVEL);
    canvas.draw_all_functional_patterns();
    canvas.draw_data(&data, &correction);
    let width = usize::try_from(version.width()).unwrap_or_default();
    let masked = MASKS.iter().map(|mask| {
        let mut canvas = canvas.clone();
        canvas.apply_mask(*mask);
        canvas.into_colors()
    });
    let best = masked.min_by_key(|colors| penalty::of(colors, width));
    Ok((best.unwrap_or_default(), width))
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
