//! `deskgate explain`

use std::io::IsTerminal;
use std::net::IpAddr;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use url::Url;

use super::client::ask_gateway;
use super::output::with_iso_time;
use super::{ConfigArgs, Exit, Failed, load_rules, print, print_error, print_faults};
use crate::app::{GatewayAnswer, GatewayCommand, RuleSource};
use crate::config::Config;
use crate::domain::finished_request::RefusedRequest;
use crate::domain::session::{LoginMethod, LoginSource};
use crate::explain::{ColorChoice, Explainer};
use crate::rules::RuleSet;
use crate::rules::case::SampleRequest;

mod refused;

#[derive(Args)]
pub(super) struct ExplainArgs {
    /// Method, such as GET
    #[arg(required_unless_present = "request_id")]
    method: Option<String>,
    /// Path, without the query
    #[arg(required_unless_present = "request_id")]
    path: Option<String>,
    /// Explain the refusal of this request by the running gateway; its response and its log line have the ID
    #[arg(long, value_name = "ID", conflicts_with_all = ["method", "path"])]
    request_id: Option<String>,
    /// Active role [default: not signed in]
    #[arg(long)]
    role: Option<String>,
    /// A role that the employee has; repeatable [default: the active role]
    #[arg(long = "holds", value_name = "ROLE")]
    roles: Vec<String>,
    /// Client address
    #[arg(long, default_value = "127.0.0.1")]
    address: IpAddr,
    /// Employee ID
    #[arg(long, default_value = "u1001")]
    employee_id: String,
    /// Employee name
    #[arg(long, default_value = "")]
    name: String,
    /// Corporation ID
    #[arg(long, default_value = "wwdemo")]
    corp_id: String,
    /// Department
    #[arg(long, default_value = "")]
    department: String,
    /// How the employee signed in
    #[arg(long, default_value = "oauth2", value_parser = login_methods())]
    login_method: LoginMethod,
    /// Client in which the employee signed in
    #[arg(long, default_value = "h5", value_parser = login_sources())]
    login_source: LoginSource,
    /// The employee has given a one-time password recently
    #[arg(long)]
    stepped_up: bool,
    /// Number of equal requests just before this one, for rate limits
    #[arg(long, default_value_t = 0, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    after: u32,
    /// Origin of the page that sends the request, such as https://desk.example.com
    #[arg(long, value_parser = parse_origin)]
    origin: Option<String>,
    /// With OPTIONS: explain the preflight that a browser sends before a request with this method
    #[arg(long, value_name = "METHOD", requires = "origin")]
    preflight: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

/// An origin as browsers write it: scheme, host and a port that is not the scheme's own; or `null`.
fn parse_origin(text: &str) -> Result<String, String> {
    if text == "null" {
        return Ok(text.to_owned());
    }
    let example = "write the scheme and the host, such as https://desk.example.com";
    match Url::parse(text).map(|url| url.origin()) {
        Ok(origin) if !origin.is_tuple() => Err(format!("it is not an origin; {example}")),
        Ok(origin) if origin.ascii_serialization() == text => Ok(text.to_owned()),
        Ok(origin) => Err(format!("browsers send {}; {example}", origin.ascii_serialization())),
        Err(_) => Err(format!("it is not an origin; {example}")),
    }
}

fn login_methods() -> impl TypedValueParser<Value = LoginMethod> {
    let words = PossibleValuesParser::new(LoginMethod::ALL.map(LoginMethod::as_str));
    words.try_map(|word| LoginMethod::parse(&word).ok_or("unknown login method"))
}

fn login_sources() -> impl TypedValueParser<Value = LoginSource> {
    let words = PossibleValuesParser::new(LoginSource::ALL.map(LoginSource::as_str));
    words.try_map(|word| LoginSource::parse(&word).ok_or("unknown login source"))
}

impl ExplainArgs {
    /// The configuration and its rules. Without a configuration: the defaults, with the rules of the default folder or,
    /// if there is none, the shipped ones.
    fn load(&self) -> Result<(Config, RuleSet), Failed> {
        let is_unset = self.config.config.is_none() && self.config.overrides.is_empty();
        if is_unset {
            let config = Config::default();
            let folder = config.rules.dir.clone();
            let source = if folder.is_dir() { RuleSource::Folder(folder) } else { RuleSource::Shipped };
            let rules = load_rules(&source, &["helpdesk".into()])?;
            return Ok((config, rules));
        }
        let config = self.config.load().map_err(|faults| print_faults(&faults))?;
        let rules = load_rules(&RuleSource::Folder(config.rules.dir.clone()), &config.named_upstreams())?;
        Ok((config, rules))
    }
}

/// Asks the running gateway why it has refused a request.
fn explain_refusal(args: &ExplainArgs, request_id: &str) -> Result<(), Failed> {
    let command = GatewayCommand::Refusals { request_id: request_id.to_owned() };
    let GatewayAnswer::Refusals(refusals) = ask_gateway(&args.config, &command)? else {
        return Err(print_error("the running gateway is of another version"));
    };
    let config = args.config.config.as_deref();
    if args.json {
        let with_command = |refused: &RefusedRequest| {
            let mut entry = with_iso_time(refused, refused.request.at);
            entry["repeat"] = serde_json::json!(refused::repeat_command(refused, config));
            entry
        };
        return print(refusals.iter().map(with_command).collect::<serde_json::Value>());
    }
    let texts: Vec<String> = refusals.iter().map(|refused| refused::text(refused, config)).collect();
    print(texts.join("\n\n"))
}

pub(super) fn run(args: ExplainArgs) -> Result<(), Failed> {
    if let Some(request_id) = &args.request_id {
        return explain_refusal(&args, request_id);
    }
    // The argument parser has made sure of both.
    let (method, path) = (args.method.clone().unwrap_or_default(), args.path.clone().unwrap_or_default());
    if let Some(announced) = args.preflight.as_ref().filter(|_| method != "OPTIONS") {
        let why = format!(
            "a preflight is an OPTIONS request, not {method}: write `explain OPTIONS {path} --origin … --preflight {announced}`"
        );
        print_error(why);
        return Err(Failed(Exit::Usage));
    }
    let (config, rules) = args.load()?;
    let sample = SampleRequest {
        method,
        // Decisions do not depend on the query.
        path: path.split(['?', '#']).next().unwrap_or_default().to_owned(),
        role: args.role,
        roles: args.roles,
        address: args.address,
        employee_id: args.employee_id,
        name: args.name,
        corp_id: args.corp_id,
        department: args.department,
        login_source: args.login_source,
        login_method: args.login_method,
        stepped_up: args.stepped_up,
        origin: args.origin,
        requested_method: args.preflight,
    };
    let explanation = Explainer::new(&rules, &config).explain(&sample, args.after);
    let text = if args.json {
        serde_json::to_string_pretty(&explanation).map_err(print_error)? + "\n"
    } else {
        let color = if std::io::stdout().is_terminal() { ColorChoice::Always } else { ColorChoice::Never };
        explanation.render(color)
    };
    print(text.trim_end_matches('\n'))?;
    if sample.method == "OPTIONS" && sample.requested_method.is_none() && !args.json {
        print("note: a browser's preflight is answered differently; add --origin and --preflight to explain one")?;
    }
    Ok(())
}
