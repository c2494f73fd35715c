//! A simulated messaging platform and a demo help desk, for development and tests. Not part of the product: the
//! cargo feature `demo` builds it, and only `app` and `cli` use it.
//!
//! The platform is an HTTP server that speaks WeCom's API: clients written for WeCom work with it unchanged. Time
//! comes from a [`Clock`](crate::domain::clock::Clock), so that tests control when codes and tokens expire. Faults
//! are injected with [`Switches`], from Rust or over HTTP under `/simulator`.
//!
//! Where public sources say nothing, the simulator decides: a rejected exchange (50001, stale token) leaves the code
//! usable, a scan on the hosted sign-in page expires after five minutes, and error pages are HTTP 400.

use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::domain::secret::random_name;

pub mod path;

mod platform;

mod authorize;

mod hosted;

mod control;

mod api;

mod link;

mod pages;

mod state;

mod switch_patch;

mod switches;

mod members;

pub mod helpdesk;

pub use members::{AGENT_ID, CORP_ID, Member, MemberKind, PARTNER_CORP_ID, SECRET, members};
pub use platform::SimulatedPlatform;
pub use switches::{StaleErrcode, Switches, Times};

/// Settings of `deskgate demo`; `LISTEN` and `DATA` are placeholders. `bind.proof = "none"` lets the commands of the
/// README work without a browser, which is acceptable because the demo listens on loopback only.
const SETTINGS: &str = r#"
[server]
listen = ["LISTEN"]
data_dir = "DATA"
development = true
admin_listen = "127.0.0.1:0"
public_url = "http://127.0.0.1:0"
client_address = "rightmost"

[clients]
h5 = "http://127.0.0.1:0/h5/"
itagent = "http://127.0.0.1:0/itagent/"
itadmin = "http://127.0.0.1:0/itadmin/"

[platform]
kind = "simulated"

[bind]
proof = "none"

[log]
level = "warn"
"#;

/// The temporary data directory of `deskgate demo`; dropping it removes the directory.
pub struct Workspace {
    directory: PathBuf,
}

impl Workspace {
    /// Creates the directory. Other users can write to the system's temporary directory, so the name is random and
    /// an existing directory is never reused.
    pub fn create() -> std::io::Result<Self> {
        let directory = std::env::temp_dir().join(format!("deskgate-demo-{}", random_name(22)));
        std::fs::DirBuilder::new().mode(0o700).create(&directory)?;
        Ok(Self { directory })
    }

    /// The demo's configuration as TOML.
    pub fn settings(&self, listen: SocketAddr) -> String {
        SETTINGS.replace("LISTEN", &listen.to_string()).replace("DATA", &self.directory.display().to_string())
    }

    /// The configuration file for operator commands.
    pub fn config_file(&self) -> PathBuf {
        self.directory.join("deskgate.toml")
    }

    /// Writes the rule files and the configuration file, so that operator commands find the gateway.
    pub fn write_config(&self, helpdesk: SocketAddr, rule_files: &[(&str, &str)]) -> std::io::Result<()> {
        let rules = self.directory.join("lua-free-rules");
        std::fs::create_dir_all(&rules)?;
        for (name, text) in rule_files {
            std::fs::write(rules.join(name), text)?;
        }
        std::fs::write(self.config_file(), operator_config(&self.directory, &rules, helpdesk))
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // A directory that cannot be removed does no harm.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn operator_config(data: &Path, rules: &Path, helpdesk: SocketAddr) -> String {
    format!(
        "[server]\ndata_dir = {:?}\ndevelopment = true\nclient_address = \"rightmost\"\n\n[platform]\nkind = \"simulated\"\n\n\
         [rules]\ndir = {:?}\n\n[upstreams.helpdesk]\naddresses = [\"{helpdesk}\"]\npath_case = \"sensitive\"\n",
        data.display(),
        rules.display()
    )
}

#[cfg(test)]
pub(crate) mod tests;
