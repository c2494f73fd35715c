//! `deskgate demo` on free ports.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub struct Demo {
    process: Child,
    output: String,
}

impl Demo {
    /// Starts the demo with its data below this folder.
    pub fn start(folder: &Path) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_deskgate"))
            .args(["demo", "--listen", "127.0.0.1:0"])
            .env("TMPDIR", folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("start");
        let mut output = String::new();
        for line in BufReader::new(process.stdout.take().expect("output")).lines().map_while(Result::ok) {
            output.push_str(&line);
            output.push('\n');
            if line.starts_with("ready ") {
                break;
            }
        }
        Self { process, output }
    }

    /// The value of the first `name=value` that the demo has printed.
    pub fn printed(&self, name: &str) -> &str {
        let value = self.output.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_else(|| panic!("the demo has printed no {name}: {}", self.output))
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
