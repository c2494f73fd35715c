//! Draws a QR code in the terminal.

use std::io::IsTerminal;

use qrcode::render::unicode::Dense1x2;
use qrcode::types::QrError;
use qrcode::{EcLevel, QrCode};

/// Black on white regardless of the terminal's colours: some cameras cannot read an inverted code.
const BLACK_ON_WHITE: &str = "\u{1b}[38;5;16;48;5;231m";

const RESET: &str = "\u{1b}[0m";

/// Draws a QR code as lines of half blocks, with colours if standard output is a terminal.
pub(super) fn draw(text: &str) -> Result<String, QrError> {
    let code = QrCode::with_error_correction_level(text, EcLevel::L)?;
    // A half block is a dark module, because the foreground is black.
    let drawn = code.render::<Dense1x2>().dark_color(Dense1x2::Dark).light_color(Dense1x2::Light).build();
    if !std::io::stdout().is_terminal() {
        return Ok(drawn);
    }
    Ok(drawn.lines().map(|line| format!("{BLACK_ON_WHITE}{line}{RESET}")).collect::<Vec<_>>().join("\n"))
}
