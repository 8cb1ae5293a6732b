//! The command line: verbs, messages with hints, exit codes.
//!
//! Nothing is decided here. A verb that talks to the daemon sends its arguments and prints the answer; an offline verb
//! calls the very code that the daemon runs.

mod agent;
pub mod args;
mod ask;
mod bench;
mod check;
mod client;
mod commands;
mod console;
mod device;
pub mod doctor;
pub mod doctor_model;
mod effects;
pub mod error;
mod evidence;
pub mod generate;
pub mod history;
mod json_lines;
mod keep;
mod knowledge;
mod later;
mod learn;
mod learn_describe;
pub mod learn_propose;
pub mod match_verb;
mod mcp;
mod mcp_login;
mod out;
pub mod places;
mod policy;
mod run;
mod say;
mod status;
mod support;
mod task;
mod trace;
mod update;
mod watch;
mod workflow;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Lang, Verb};
use error::{CliError, Exit};
use out::Out;

/// Parses the command line, does what it says, and gives the exit code.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are not errors; they go to standard output and end with 0.
            let _ = error.print();
            let code = if error.use_stderr() { Exit::Usage as u8 } else { 0 };
            return ExitCode::from(code);
        }
    };
    let out = Out::new(cli.lang.unwrap_or_else(lang_of_environment));
    match verb(&cli, &out) {
        Ok(code) => code,
        Err(error) => {
            out.error(&error);
            ExitCode::from(error.exit as u8)
        }
    }
}

fn verb(cli: &Cli, out: &Out) -> Result<ExitCode, CliError> {
    let client = || client::Client::connect(&places::client_socket(cli.socket.as_deref()));
    let done = match &cli.verb {
        // It ends as the program ended that it watched.
        Verb::Watch(args) => return watch::watch(args, out),
        Verb::Run(args) => run::run(args, cli.socket.as_deref()),
        Verb::Say(args) => say::say(args, client()?, out),
        Verb::Agent(args) => agent::agent(args, client()?, out),
        Verb::Device(verb) => device::device(verb, client()?, out),
        Verb::Match(args) => understand(args),
        Verb::Task(verb) => task::task(verb, client()?, out),
        Verb::Ask(verb) => ask::ask(verb, client()?, out),
        Verb::Console(verb) => console::console(verb, client()?, out),
        Verb::Status(args) => status::status(args, client()?, out),
        Verb::Reload => status::reload(client()?, out),
        Verb::Evidence(verb) => evidence::evidence(verb, client, out),
        Verb::History(verb) => history::history(verb),
        Verb::Commands(verb) => commands::commands(verb, out),
        Verb::Knowledge(verb) => knowledge::knowledge(verb, out),
        Verb::Learn(verb) => learn::learn(verb, client, out),
        Verb::Policy(verb) => policy::policy(verb),
        Verb::Workflow(verb) => workflow::workflow(verb, client()?, out),
        Verb::Trace(args) => trace::trace(args, out),
        Verb::Effects(verb) => effects::effects(verb, client, out),
        Verb::Mcp(args) => match &args.verb {
            None => mcp::bridge(client()?),
            Some(verb) => mcp::servers(verb, client, out),
        },
        Verb::Bench(args) => bench::bench(args, out),
        Verb::Doctor(args) => doctor::doctor(args, cli.socket.as_deref(), out),
        Verb::Backup(args) => keep::backup(args, out),
        Verb::Restore(args) => keep::restore(args, out),
        Verb::FactoryReset(args) => keep::factory_reset(args, out),
        Verb::Update(verb) => update::update(verb, client, out),
        Verb::SupportBundle(args) => support::support_bundle(args, cli.socket.as_deref(), out),
        Verb::Completions { shell } => generate::print_completions(*shell, out),
        Verb::Man => generate::print_manual(out),
        Verb::Check(args) => check::check(args, out),
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn understand(args: &args::MatchArgs) -> Result<(), CliError> {
    let ([] | [_]) = args.commands.as_slice() else {
        return Err(CliError::new(Exit::Usage, "--commands is given more than once"));
    };
    let wanted = match_verb::MatchArgs {
        commands: args.commands.first().cloned(),
        state: args.state.clone(),
        model: args.model.clone(),
        stages: (!args.stages.is_empty()).then(|| args.stages.join(",")),
        explain: args.explain,
        json: args.json || !std::io::stdin().is_terminal(),
        text: (!args.text.is_empty()).then(|| args.text.join(" ")),
    };
    let ended = match_verb::run(&wanted, &mut std::io::stdin().lock(), &mut std::io::stdout().lock());
    match ended {
        Ok(0) => Ok(()),
        Ok(_) => Err(CliError::silent(Exit::Data)),
        Err(error) => {
            let hint = if let match_verb::MatchError::Config(error) = &error { error.hint.clone() } else { None };
            let exit = match error.exit_code() {
                78 => Exit::Config,
                66 => Exit::NoInput,
                64 => Exit::Usage,
                _ => Exit::CannotWrite,
            };
            let shown = CliError::new(exit, error.to_string());
            Err(match hint {
                Some(hint) => shown.hint(hint),
                None => shown,
            })
        }
    }
}

/// `LC_ALL`, `LC_MESSAGES`, `LANG`, in the order of POSIX.
fn lang_of_environment() -> Lang {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    match set("LC_ALL").or_else(|| set("LC_MESSAGES")).or_else(|| set("LANG")) {
        Some(locale) if locale.starts_with("zh") => Lang::Zh,
        Some(_) | None => Lang::En,
    }
}
