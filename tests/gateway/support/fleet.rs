//! Two gateways that act as one: they share a Redis server, a PostgreSQL database, a secret and a simulated platform.

use std::process::Command;

use deskgate::demo::SECRET;
use tempfile::TempDir;

use super::command::PROGRAM;
use super::{Client, Gateway, Setup};
use crate::servers::{postgres, redis};

/// Two gateways behind one public URL, the first one's.
pub struct Fleet {
    pub one: Gateway,
    pub two: Gateway,
    _secret: TempDir,
}

impl Fleet {
    /// Starts both with these settings, on a store of their own.
    pub async fn with(settings: &str) -> Fleet {
        Self::start(&redis::standalone(), |setup| setup.toml(settings)).await
    }

    /// Starts both on this Redis server.
    pub async fn start(store: &str, configure: impl Fn(Setup) -> Setup) -> Fleet {
        let folder = tempfile::tempdir().expect("a folder");
        let secret = folder.path().join("secret");
        let created = Command::new(PROGRAM).args(["secret", "new"]).arg(&secret).output().expect("the program");
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
        let shared = format!(
            "[server]\nsecret_file = \"{}\"\n[store]\nurl = \"{store}\"\nprefix = \"{}\"\ntimeout = \"2s\"\n\
             [directory]\nurl = \"{}\"\n",
            secret.display(),
            redis::own_prefix(),
            postgres::database(),
        );
        let one = configure(Gateway::setup().toml(&shared)).start().await;
        let (public_url, platform) = (one.public_url(), one.platform_address());
        let same = format!(
            "[server]\npublic_url = \"{public_url}\"\n\
             [clients]\nh5 = \"{public_url}/h5/\"\nitagent = \"{public_url}/itagent/\"\nitadmin = \"{public_url}/itadmin/\"\n\
             [platform]\nkind = \"wecom\"\ncorp_id = \"wwdemo\"\nsecret = \"{SECRET}\"\n\
             authorize_url = \"http://{platform}/connect/oauth2/authorize\"\napi_url = \"http://{platform}/\"\n"
        );
        let two = configure(Gateway::setup().toml(&shared).toml(&same)).start().await;
        Fleet { one, two, _secret: folder }
    }

    /// Both gateways.
    pub fn gateways(&self) -> [&Gateway; 2] {
        [&self.one, &self.two]
    }
}

impl Client {
    /// A browser with the same cookies that a balancer sends to another gateway.
    pub fn at(&self, gateway: &Gateway) -> Client {
        let moved = gateway.anonymous();
        moved.use_jar(self.jar());
        match self.token_if_any() {
            Some(token) => moved.with_token(token),
            None => moved,
        }
    }
}
