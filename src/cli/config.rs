//! `deskgate config …`

use std::path::Path;

use clap::{Args, Subcommand};
use serde_json::{Map, json};

use super::client::load_config;
use super::{ConfigArgs, Failed, print};
use crate::config::{ShownSection, inline_toml};

#[derive(Args)]
pub(super) struct ConfigCommandArgs {
    #[command(subcommand)]
    command: ConfigSubcommand,
}

#[derive(Subcommand)]
enum ConfigSubcommand {
    /// Print the effective configuration as TOML: the file, --set and the defaults together.
    ///
    /// Secrets are shown as ***. A comment names the default of each key that differs from it. Reads the file; a running gateway
    /// may still use what it has read earlier, see `deskgate reload`.
    Show {
        /// Show only keys that differ from their default.
        #[arg(long)]
        changed: bool,
        /// Print JSON: for each section and key the value and whether it differs from the default.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        config: ConfigArgs,
    },
}

pub(super) fn run(args: &ConfigCommandArgs) -> Result<(), Failed> {
    let ConfigSubcommand::Show { changed, json, config } = &args.command;
    let folder = config.config.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
    let mut sections = load_config(config)?.shown(folder);
    if *changed {
        for section in &mut sections {
            section.settings.retain(|setting| setting.default.is_some());
        }
        sections.retain(|section| !section.settings.is_empty());
    }
    print(if *json { as_json(&sections).to_string() } else { as_toml(&sections) })
}

fn as_toml(sections: &[ShownSection]) -> String {
    let mut lines = Vec::new();
    for section in sections {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.push(format!("[{}]", section.name));
        for setting in &section.settings {
            // A key without a value is shown as a comment: TOML has no word for it.
            let unset = if setting.value.is_null() { "# " } else { "" };
            let default = setting.default.as_ref().map(|value| format!("  # default: {}", inline_toml(value)));
            let value = inline_toml(&setting.value);
            lines.push(format!("{unset}{} = {value}{}", setting.key, default.unwrap_or_default()));
        }
    }
    lines.join("\n")
}

fn as_json(sections: &[ShownSection]) -> serde_json::Value {
    let keys = |section: &ShownSection| {
        let entries = section.settings.iter().map(|setting| {
            let mut entry = json!({ "value": setting.value, "differs": setting.default.is_some() });
            if let Some(default) = &setting.default {
                entry["default"] = default.clone();
            }
            (setting.key.clone(), entry)
        });
        entries.collect::<Map<_, _>>()
    };
    sections.iter().map(|section| (section.name.clone(), keys(section).into())).collect::<Map<_, _>>().into()
}
