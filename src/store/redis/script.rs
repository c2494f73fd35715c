//! Scripts that run on the servers. Each conditional change is one: it is atomic, takes one round trip, and touches the
//! keys of one partition, which are in one slot of a cluster.
//!
//! Rejected: `MULTI` needs a second round trip for its condition (`WATCH`) and a connection of its own; functions
//! (`FUNCTION LOAD`) need Redis 7, a privilege, and a server that is promoted must have got them. A script is called by
//! its digest; a server that does not know it gets its text with the next call, so nothing is prepared in advance.

use ::redis::{Cmd, ToRedisArgs};

use crate::domain::partition::Partition;

/// A script and its digest.
pub struct ServerScript {
    code: &'static str,
    digest: String,
}

impl ServerScript {
    /// A script with this code.
    pub fn new(code: &'static str) -> Self {
        Self { code, digest: ::redis::Script::new(code).get_hash().to_owned() }
    }
}

/// A command for the server of one partition.
pub struct RedisCall {
    pub(super) partition: Partition,
    pub(super) command: Cmd,
    script: Option<&'static ServerScript>,
}

impl RedisCall {
    /// A plain command, such as `GET`. All of its keys belong to the partition.
    pub fn command(partition: Partition, name: &str) -> Self {
        Self { partition, command: ::redis::cmd(name), script: None }
    }

    /// A script with its keys; arguments follow with [`RedisCall::arg`].
    pub fn script(script: &'static ServerScript, partition: Partition, keys: &[String]) -> Self {
        let mut command = ::redis::cmd("EVALSHA");
        command.arg(&script.digest).arg(keys.len()).arg(keys);
        Self { partition, command, script: Some(script) }
    }

    /// Adds an argument, or several.
    pub fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        self.command.arg(argument);
        self
    }

    /// The same call with the script's text instead of its digest; `None` for a plain command.
    pub(super) fn with_code(&self) -> Option<Cmd> {
        let mut command = ::redis::cmd("EVAL");
        command.arg(self.script?.code);
        for argument in self.command.args_iter().skip(2) {
            match argument {
                ::redis::Arg::Simple(bytes) => command.arg(bytes),
                _ => return None,
            };
        }
        Some(command)
    }
}

/// A script of these files in a row.
macro_rules! script {
    ($($file:literal),+) => {
        LazyLock::new(|| ServerScript::new(concat!($(include_str!(concat!("scripts/", $file))),+)))
    };
}
pub(super) use script;
