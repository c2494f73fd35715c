//! QR codes as PNG images and as text for a terminal.
//!
//! The `qrcode` crate encodes; the mask is chosen here, because the crate takes 3 ms for that and everything else
//! together a tenth of it. Measured for the URL of a sign-in: 0.21 ms here, 0.47 ms with the `fast_qr` crate.

use qrcode::canvas::{Canvas, MaskPattern};
use qrcode::{Color, EcLevel, bits, ec};

mod penalty;

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

/// Error correction of an image: 15 %, the usual level on screens.
const IMAGE_LEVEL: EcLevel = EcLevel::M;

/// Error correction in a terminal: the lowest level, because the code must fit into few lines.
const TERMINAL_LEVEL: EcLevel = EcLevel::L;

/// Pixels per module: sharp on every screen, and the image stays below 2 KiB.
const SCALE: usize = 4;

/// Light modules around the code, as the standard requires.
const QUIET_ZONE: usize = 4;

/// Why a QR code cannot be drawn.
#[derive(Debug, thiserror::Error)]
pub enum QrFault {
    /// The text is too long for any version.
    #[error("the text does not fit into a QR code")]
    TooLong(#[from] qrcode::types::QrError),
    /// The PNG encoder failed.
    #[error("the image cannot be encoded")]
    Image(#[from] png::EncodingError),
}

/// Encodes a text as a black-and-white PNG.
pub fn png(text: &str) -> Result<Vec<u8>, QrFault> {
    let code = Modules::encode(text, IMAGE_LEVEL)?;
    let side = (code.width + 2 * QUIET_ZONE) * SCALE;
    let row_bytes = side.div_ceil(8);
    let mut pixels = vec![0xff_u8; row_bytes * side];
    for (place, _) in code.colors.iter().enumerate().filter(|(_, color)| **color == Color::Dark) {
        let left = (place % code.width + QUIET_ZONE) * SCALE;
        let top = (place / code.width + QUIET_ZONE) * SCALE;
        for y in top..top + SCALE {
            for x in left..left + SCALE {
                pixels[y * row_bytes + x / 8] &= !(0x80 >> (x % 8));
            }
        }
    }
    Ok(encode_png(&pixels, side)?)
}

/// Draws a text with half-block characters, two modules above each other in one. Characters are the dark modules.
pub fn half_blocks(text: &str) -> Result<String, QrFault> {
    let code = Modules::encode(text, TERMINAL_LEVEL)?;
    let side = code.width + 2 * QUIET_ZONE;
    let line = |top: usize| -> String {
        let block = |x| match (code.is_dark(x, top), code.is_dark(x, top + 1)) {
            (false, false) => ' ',
            (true, false) => '▀',
            (false, true) => '▄',
            (true, true) => '█',
        };
        (0..side).map(block).collect()
    };
    Ok((0..side).step_by(2).map(line).collect::<Vec<_>>().join("\n"))
}

/// The modules of a code, row by row, without the quiet zone.
struct Modules {
    colors: Vec<Color>,
    width: usize,
}

impl Modules {
    /// Encodes a text with the mask of the lowest penalty.
    fn encode(text: &str, level: EcLevel) -> Result<Self, QrFault> {
        let bits = bits::encode_auto(text.as_bytes(), level)?;
        let version = bits.version();
        let (data, correction) = ec::construct_codewords(&bits.into_bytes(), version, level)?;
        let mut canvas = Canvas::new(version, level);
        canvas.draw_all_functional_patterns();
        canvas.draw_data(&data, &correction);
        let width = usize::try_from(version.width()).unwrap_or_default();
        let masked = MASKS.iter().map(|mask| {
            let mut canvas = canvas.clone();
            canvas.apply_mask(*mask);
            canvas.into_colors()
        });
        let colors = masked.min_by_key(|colors| penalty::of(colors, width)).unwrap_or_default();
        Ok(Self { colors, width })
    }

    /// Whether the module at these coordinates is dark; they include the quiet zone.
    fn is_dark(&self, x: usize, y: usize) -> bool {
        let (Some(x), Some(y)) = (x.checked_sub(QUIET_ZONE), y.checked_sub(QUIET_ZONE)) else { return false };
        x < self.width && self.colors.get(y * self.width + x) == Some(&Color::Dark)
    }
}

fn encode_png(pixels: &[u8], side: usize) -> Result<Vec<u8>, png::EncodingError> {
    let side = u32::try_from(side).unwrap_or(u32::MAX);
    let mut image = Vec::with_capacity(4096);
    let mut encoder = png::Encoder::new(&mut image, side, side);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::One);
    encoder.set_compression(png::Compression::Fast);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(image)
}

#[cfg(test)]
mod tests;
