//! Runs `deskgate` subcommands.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::{TEST_TIMEOUT, within};

/// The binary under test.
pub(super) const PROGRAM: &str = env!("CARGO_BIN_EXE_deskgate");

/// `deskgate ARGS… --config FILE` in this folder.
pub(super) fn command_line(args: &[&str], config: &Path, folder: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(args).arg("--config").arg(config).current_dir(folder).env_remove("RUST_LOG");
    command
}

/// Checks of a finished command.
pub trait CommandOutput {
    /// Returns stdout; panics unless the exit status is 0.
    #[track_caller]
    fn expect_success(&self) -> String;

    /// Stdout followed by stderr.
    fn output_text(&self) -> String;
}

impl CommandOutput for Output {
    fn expect_success(&self) -> String {
        assert!(self.status.success(), "{:?}: {}", self.status, self.output_text());
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    fn output_text(&self) -> String {
        format!("{}{}", String::from_utf8_lossy(&self.stdout), String::from_utf8_lossy(&self.stderr))
    }
}

/// Runs `deskgate ARGS… --config FILE` with this standard input and waits for its exit.
pub(super) async fn run_command(args: &[&str], input: &str, config: &Path, folder: &Path) -> Output {
    let mut command = command_line(args, config, folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let input = input.to_owned();
    let run = tokio::task::spawn_blocking(move || {
        let mut child = command.spawn()?;
        // A command that reads no input may have exited already.
        let _ = child.stdin.take().expect("an input").write_all(input.as_bytes());
        child.wait_with_output()
    });
    within(TEST_TIMEOUT, "the exit of the command", run).await.expect("a thread").expect("the program")
}
