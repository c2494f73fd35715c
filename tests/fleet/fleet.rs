//! Gateways that share a store and a directory.

use crate::servers::{postgres, redis};
use crate::support::*;

/// Gateways of one fleet: the first one runs the simulated platform, and all have the first one's public URL.
pub struct Fleet {
    pub gateways: Vec<Gateway>,
    /// `store.prefix`.
    pub prefix: String,
    setting: FleetSettings,
    // Removed at the end.
    _folder: tempfile::TempDir,
}

/// What all gateways of a fleet have in common.
#[derive(Clone)]
struct FleetSettings {
    shared: String,
    more: String,
    rules: String,
}

impl Fleet {
    /// Two gateways on servers that the tests of the run share.
    pub async fn start() -> Fleet {
        Fleet::on(&redis::standalone(), 2, "").await
    }

    /// Gateways on this store, with these settings.
    pub async fn on(store: &str, count: usize, more: &str) -> Fleet {
        Fleet::with_rules(store, count, more, "").await
    }

    /// Gateways on this store, with these settings, and rules beside the default ones.
    pub async fn with_rules(store: &str, count: usize, more: &str, rules: &str) -> Fleet {
        let folder = tempfile::tempdir().expect("a folder");
        let secret = folder.path().join("secret");
        std::fs::write(&secret, "a secret of a test that is long enough for a fleet of gateways").expect("a secret");
        std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("a private file");
        let prefix = redis::own_prefix();
        // The tests share two cores with others: an answer that takes longer than the 200 ms of the default is not an outage.
        let shared = format!(
            "[server]\nsecret_file = {:?}\n[store]\nurl = {store:?}\nprefix = {prefix:?}\ntimeout = \"5s\"\n\
             [directory]\nurl = {:?}\ntimeout = \"10s\"\n",
            secret.display(),
            postgres::empty_database()
        );
        let setting = FleetSettings { shared, more: more.to_owned(), rules: rules.to_owned() };
        let mut fleet = Fleet { gateways: Vec::new(), prefix, setting, _folder: folder };
        fleet.gateways.push(fleet.setup().start().await);
        for _ in 1..count {
            fleet.add().await;
        }
        fleet
    }

    fn setup(&self) -> Setup {
        let FleetSettings { shared, more, rules } = &self.setting;
        Gateway::setup().toml(shared).toml(more).more_rules(rules)
    }

    /// The settings of another gateway of the fleet.
    pub fn setup_another(&self) -> Setup {
        let first = &self.gateways[0];
        let (url, platform) = (first.public_url(), first.platform_address());
        self.setup().toml(&format!(
            "[server]\npublic_url = \"{url}\"
             [clients]\nh5 = \"{url}/h5/\"\nitagent = \"{url}/itagent/\"\nitadmin = \"{url}/itadmin/\"
             [platform]\nkind = \"wecom\"\ncorp_id = \"wwdemo\"\nagent_id = \"1000002\"
             secret = \"simulated-secret-of-the-help-desk\"
             authorize_url = \"http://{platform}/connect/oauth2/authorize\"\napi_url = \"http://{platform}/\"\n"
        ))
    }

    /// Starts another gateway.
    pub async fn add(&mut self) {
        let setup = self.setup_another();
        self.gateways.push(setup.start().await);
    }

    /// The same client at another gateway.
    pub fn at(&self, number: usize, client: &Client) -> Client {
        self.gateways[number].with_token(client.token())
    }
}
