//! Draws a QR code in the terminal.

use std::io::IsTerminal;

use crate::qr::{self, QrFault};

/// Black on white in any colour scheme: some cameras do not read inverted codes.
const BLACK_ON_WHITE: &str = "\u{1b}[38;5;16;48;5;231m";

const RESET: &str = "\u{1b}[0m";

/// Returns the lines of the code, without colours if standard output is not a terminal.
pub(super) fn draw(text: &str) -> Result<String, QrFault> {
    let drawn = qr::half_blocks(text)?;
    if !std::io::stdout().is_terminal() {
        return Ok(drawn);
    }
    Ok(drawn.lines().map(|line| format!("{BLACK_ON_WHITE}{line}{RESET}")).collect::<Vec<_>>().join("\n"))
}
