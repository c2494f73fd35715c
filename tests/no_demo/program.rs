//! The program of a build without the feature `demo`, for `tests/no_demo.rs`.

use std::process::ExitCode;

fn main() -> ExitCode {
    deskgate::cli::run()
}
