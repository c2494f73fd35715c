//! A QR code in a terminal.

use std::io::IsTerminal;

use qrcode::render::unicode::Dense1x2;
use qrcode::types::QrError;
use qrcode::{EcLevel, QrCode};

/// Black on white, whatever the terminal's colours are: not every camera reads it the other way round.
const INK: &str = "\u{1b}[38;5;16;48;5;231m";

const PLAIN: &str = "\u{1b}[0m";

/// The code's lines. Where nobody looks at it in a terminal, without colours.
pub(super) fn draw(text: &str) -> Result<String, QrError> {
    let code = QrCode::with_error_correction_level(text, EcLevel::L)?;
    // The letters are ink: a half block is the dark half.
    let drawn = code.render::<Dense1x2>().dark_color(Dense1x2::Dark).light_color(Dense1x2::Light).build();
    if !std::io::stdout().is_terminal() {
        return Ok(drawn);
    }
    Ok(drawn.lines().map(|line| format!("{INK}{line}{PLAIN}")).collect::<Vec<_>>().join("\n"))
}
