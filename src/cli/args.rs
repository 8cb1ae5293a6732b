//! What a person types: the verbs, their arguments and one worked example each.

mod console;
mod keep;
mod record;
mod understand;
mod update;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use console::{ConsoleVerb, RoleWord, TokenVerb};
pub use keep::{BackupArgs, BundleArgs, ResetArgs, RestoreArgs};
pub use record::{
    EffectsFrom, EffectsVerb, EvidenceFrom, EvidenceVerb, ExportFormat, TraceArgs, TraceFormat, WorkflowVerb,
};
pub use understand::{
    CommandsListArgs, CommandsTestArgs, CommandsVerb, ImportArgs, KnowledgeFrom, KnowledgeVerb, LearnPolicy, LearnVerb,
    MatchArgs, ProposeArgs,
};
pub use update::{ApplyArgs, PackArgs, UpdateFrom, UpdateVerb};

/// An interlock between whoever proposes an action and whatever acts.
#[derive(Debug, Parser)]
#[command(name = "interlock", version, max_term_width = 100, arg_required_else_help = true)]
pub struct Cli {
    /// The language of messages; the default follows LANG.
    #[arg(long, global = true, value_enum)]
    pub lang: Option<Lang>,
    /// The daemon's socket.
    #[arg(long, global = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The languages that messages are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Lang {
    /// Simplified Chinese.
    #[value(name = "zh-CN", alias = "zh")]
    Zh,
    /// English.
    #[value(name = "en")]
    En,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// The daemon. Without a configuration: a simulated plant, the shipped commands, MCP on loopback.
    #[command(after_help = "Example:\n  interlock run --config /etc/interlock/interlock.toml")]
    Run(RunArgs),
    /// One operator command through the whole path.
    #[command(after_help = "Example:\n  interlock say 启动二号泵")]
    Say(SayArgs),
    /// A request to the configured language model; its tool calls walk the same path.
    #[command(after_help = "Example:\n  interlock agent 检查三台泵的压力，异常的报给我")]
    Agent(AgentArgs),
    /// The configured devices.
    #[command(subcommand)]
    Device(DeviceVerb),
    /// Understanding only; needs no daemon and executes nothing.
    #[command(after_help = "Example:\n  echo '{\"id\": 1, \"query\": \"启动二号泵\"}' | interlock match")]
    Match(MatchArgs),
    /// Background tasks and their five states.
    #[command(subcommand)]
    Task(TaskVerb),
    /// Questions that wait for a person.
    #[command(subcommand)]
    Ask(AskVerb),
    /// The console in a browser: where it is, and who may open it.
    #[command(subcommand)]
    Console(ConsoleVerb),
    /// What runs and where it listens.
    #[command(after_help = "Example:\n  interlock status --json")]
    Status(JsonArg),
    /// Reads the configuration again; a wrong one is refused and the old one stays.
    #[command(after_help = "Example:\n  interlock reload")]
    Reload,
    /// The evidence log.
    #[command(subcommand)]
    Evidence(EvidenceVerb),
    /// What there is to say: command sets, those of others, and how well sentences are understood; needs no daemon.
    #[command(subcommand)]
    Commands(CommandsVerb),
    /// The typed graph of one run, from the log alone; needs no daemon.
    #[command(after_help = "Example:\n  interlock trace last --format html > run.html")]
    Trace(TraceArgs),
    /// Self-learning: proposals, the review gate, versions.
    #[command(subcommand)]
    Learn(LearnVerb),
    /// Manuals whose passages answer questions; needs no daemon, and one that runs needs no restart.
    #[command(subcommand)]
    Knowledge(KnowledgeVerb),
    /// Decisions of the gate for calls on standard input; needs no daemon and has no effect.
    #[command(subcommand)]
    Policy(PolicyVerb),
    /// A group of actions with a guarantee: unsettled is never a success.
    #[command(subcommand)]
    Workflow(WorkflowVerb),
    /// What actions left behind: histories checked for the eight anomalies.
    #[command(subcommand)]
    Effects(EffectsVerb),
    /// Streams and histories of model providers; needs no daemon and asks nobody.
    #[command(subcommand)]
    History(super::history::HistoryVerb),
    /// Supervises the threads of a process that knows nothing of us; needs no daemon.
    #[command(after_help = "Example:\n  interlock watch -- python3 worker.py")]
    Watch(WatchArgs),
    /// MCP over standard input and output, joined to the daemon; and the MCP servers behind it.
    #[command(
        after_help = "Example (in an MCP client's configuration):\n  command = \"interlock\", args = [\"mcp\"]\n\n\
                            Example (which servers there are, and which of their tools wait for approval):\n  \
                            interlock mcp list\n\n\
                            Example (a server that wants a login, once):\n  interlock mcp login tickets"
    )]
    Mcp(McpArgs),
    /// Measured figures of this machine; needs no daemon.
    #[command(after_help = "Example:\n  interlock bench match --json")]
    Bench(BenchArgs),
    /// This machine: one line each, with what to do.
    #[command(after_help = "Examples:\n  interlock doctor\n  interlock doctor --npu")]
    Doctor(DoctorArgs),
    /// Validates a configuration and its commands; needs no daemon.
    #[command(after_help = "Example:\n  interlock check --config /etc/interlock/interlock.toml")]
    Check(CheckArgs),
    /// The whole state in one signed file; a daemon that runs need not stop.
    #[command(after_help = "Example:\n  interlock backup /mnt/usb/box-7.tar.gz")]
    Backup(BackupArgs),
    /// Puts a backup in the place of the state; no daemon may run.
    #[command(after_help = "Example:\n  interlock restore /mnt/usb/box-7.tar.gz")]
    Restore(RestoreArgs),
    /// Moves the state aside: the next start begins with nothing; no daemon may run.
    #[command(after_help = "Example:\n  interlock factory-reset --yes")]
    FactoryReset(ResetArgs),
    /// Signed updates of commands and of the classifier, carried here in one file.
    #[command(subcommand)]
    Update(UpdateVerb),
    /// What support needs, with secrets removed; needs no daemon and sends nothing.
    #[command(after_help = "Example:\n  interlock support-bundle /tmp/box-7.tar.gz")]
    SupportBundle(BundleArgs),
    /// Shell completions on standard output.
    #[command(after_help = "Example:\n  interlock completions bash > /usr/share/bash-completion/completions/interlock")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// The manual page on standard output.
    #[command(after_help = "Example:\n  interlock man > /usr/share/man/man1/interlock.1")]
    Man,
}

/// `mcp`.
#[derive(Debug, Args)]
pub struct McpArgs {
    /// Nothing for MCP over standard input and output.
    #[command(subcommand)]
    pub verb: Option<McpVerb>,
}

/// What can be done with the MCP servers behind the daemon.
#[derive(Debug, Subcommand)]
pub enum McpVerb {
    /// The servers, and the tools that are not simply there.
    #[command(after_help = "Example:\n  interlock mcp list --json")]
    List(JsonArg),
    /// Lets a tool whose definition has changed be used as it is defined now.
    #[command(after_help = "Example:\n  interlock mcp approve git git_log")]
    Approve {
        /// The server.
        server: String,
        /// The server's own name for the tool; all of its changed tools if not given.
        tool: Option<String>,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Logs in once at a server that wants OAuth: prints an address for a browser and waits for what it brings back.
    #[command(after_help = "Example:\n  interlock mcp login tickets")]
    Login {
        /// The server.
        server: String,
        /// The port of this machine that the browser is sent back to; a free one if not given.
        #[arg(long, default_value_t = 0)]
        port: u16,
    },
}

/// `--json`.
#[derive(Debug, Args)]
pub struct JsonArg {
    /// One JSON object (JSON Lines for lists).
    #[arg(long)]
    pub json: bool,
}

/// `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The configuration; the default is /etc/interlock/interlock.toml if it is there.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where evidence and state are kept.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

/// `say`.
#[derive(Debug, Args)]
pub struct SayArgs {
    /// The sentence.
    #[arg(value_name = "TEXT", required = true)]
    pub text: Vec<String>,
    /// Wait until a question is answered, instead of returning its number.
    #[arg(long)]
    pub wait: bool,
    /// One JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `agent`.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// What is wanted.
    #[arg(value_name = "TEXT", required = true)]
    pub text: Vec<String>,
    /// A mode that is narrower than the configured one: plan, dontAsk, default, acceptEdits, bypassPermissions.
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
    /// Goes on with the conversation of this run.
    #[arg(long, value_name = "RUN")]
    pub resume: Option<String>,
    /// JSON Lines, as they come.
    #[arg(long)]
    pub json: bool,
}

/// `device`.
#[derive(Debug, Subcommand)]
pub enum DeviceVerb {
    /// A line for each point, with its value.
    #[command(after_help = "Example:\n  interlock device list --json")]
    List(DeviceListArgs),
    /// Reads a device, or one point of it.
    #[command(after_help = "Example:\n  interlock device read pump-2 pressure")]
    Read {
        /// The device's name.
        device: String,
        /// The point's name; all of them when it is left out.
        point: Option<String>,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Writes one point, through the one path.
    #[command(after_help = "Example:\n  interlock device write pump-2 frequency 42.5")]
    Write {
        /// The device's name.
        device: String,
        /// The point's name.
        point: String,
        /// A number, or true or false for a coil.
        value: String,
        /// Wait until a question is answered, instead of returning its number.
        #[arg(long)]
        wait: bool,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
}

/// `device list`.
#[derive(Debug, Args)]
pub struct DeviceListArgs {
    /// Only this device.
    pub device: Option<String>,
    /// JSON Lines.
    #[arg(long)]
    pub json: bool,
}

/// `task`.
#[derive(Debug, Subcommand)]
pub enum TaskVerb {
    /// The tasks that run or were not cleaned yet.
    #[command(after_help = "Example:\n  interlock task list --json")]
    List {
        /// Those that were cleaned too.
        #[arg(long)]
        all: bool,
        /// JSON Lines.
        #[arg(long)]
        json: bool,
    },
    /// One task, with what to do about it.
    #[command(after_help = "Example:\n  interlock task show t1")]
    Show {
        /// The task, t1, t2, …
        task: String,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Asks a task to stop.
    #[command(after_help = "Example:\n  interlock task stop t1")]
    Stop {
        /// The task, t1, t2, …
        task: String,
    },
    /// Lets a task rest.
    #[command(after_help = "Example:\n  interlock task pause t1")]
    Pause {
        /// The task, t1, t2, …
        task: String,
    },
    /// Lets a resting task go on.
    #[command(after_help = "Example:\n  interlock task resume t1")]
    Resume {
        /// The task, t1, t2, …
        task: String,
    },
    /// Starts a task again that was held after too many restarts.
    #[command(after_help = "Example:\n  interlock task restart t1")]
    Restart {
        /// The task, t1, t2, …
        task: String,
    },
    /// Takes an ended task off the list.
    #[command(after_help = "Example:\n  interlock task clean t1")]
    Clean {
        /// The task, t1, t2, …
        task: String,
    },
}

/// `ask`.
#[derive(Debug, Subcommand)]
pub enum AskVerb {
    /// What waits for an answer.
    #[command(after_help = "Example:\n  interlock ask list")]
    List(JsonArg),
    /// Lets the call go.
    #[command(after_help = "Example:\n  interlock ask allow q1")]
    Allow(AnswerArgs),
    /// Refuses the call.
    #[command(after_help = "Example:\n  interlock ask deny q1")]
    Deny(AnswerArgs),
    /// Says what became of an action whose outcome is not known.
    #[command(after_help = "Example:\n  interlock ask settle q1 done --note \"pump 2 is running, seen on site\"")]
    Settle {
        /// The question, q1, q2, …
        question: String,
        /// What was found.
        finding: Finding,
        /// How that is known.
        #[arg(long)]
        note: String,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
}

/// `ask allow` and `ask deny`.
#[derive(Debug, Args)]
pub struct AnswerArgs {
    /// The question, q1, q2, …
    pub question: String,
    /// One JSON object: the settlement.
    #[arg(long)]
    pub json: bool,
}

/// What a person found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Finding {
    /// The effect is there.
    Done,
    /// The effect is not there.
    Failed,
}

/// `policy`.
#[derive(Debug, Subcommand)]
pub enum PolicyVerb {
    /// One call a line in, one decision a line out.
    #[command(
        after_help = "Example:\n  echo '{\"id\": 1, \"cwd\": \"/srv\", \"call\": {\"tool\": \"Bash\", \"input\": {\"command\": \"ls\"}}}' | interlock policy check"
    )]
    Check {
        /// A configuration whose policy rules are older than those of a line.
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
    },
}

/// `watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// A process that is there.
    #[arg(long, value_name = "N")]
    pub pid: Option<i32>,
    /// Silence or stillness after which it counts as stuck, in seconds.
    #[arg(long, value_name = "SECONDS")]
    pub tau: Option<f64>,
    /// The time between two scans, in seconds.
    #[arg(long, value_name = "SECONDS")]
    pub scan: Option<f64>,
    /// JSON Lines.
    #[arg(long)]
    pub json: bool,
    /// A program to start, with its arguments.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// `bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// What to measure.
    pub name: BenchName,
    /// The longer run.
    #[arg(long)]
    pub long: bool,
    /// Scale the command set to so many (bench match).
    #[arg(long, value_name = "N")]
    pub commands: Option<usize>,
    /// Another program, measured in the same run (bench mcp): an MCP server on its standard input and output with a tool
    /// `version` or `echo`. `{server}` in its command stands for the server that the daemon has behind it.
    #[arg(long, value_name = "NAME=COMMAND")]
    pub beside: Vec<String>,
    /// One JSON object.
    #[arg(long)]
    pub json: bool,
}

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchName {
    /// Supervision on real threads.
    Liveness,
    /// The evidence log.
    Evidence,
    /// Decisions.
    Gate,
    /// The order of calls: declared classes against all alone.
    Schedule,
    /// Understanding.
    Match,
    /// Agents over MCP, and servers behind the gate.
    Mcp,
    /// The server that `mcp` is measured with: it echoes what it is called with.
    #[value(hide = true)]
    McpServer,
    /// From exec to ready.
    Startup,
    /// The checker of effect histories.
    Effects,
    /// Provider streams into blocks, and the repair of a long history.
    Normalize,
}

/// `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// The state directory to look at.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// The configuration; the default is /etc/interlock/interlock.toml if it is there.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The bring-up of an Ascend accelerator instead, step by step: nodes, driver, toolkit, provider, session, outputs.
    #[arg(long)]
    pub npu: bool,
    /// JSON Lines.
    #[arg(long)]
    pub json: bool,
}

/// `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The configuration; the default is /etc/interlock/interlock.toml.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The state directory, whose updates are read too.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// One JSON object.
    #[arg(long)]
    pub json: bool,
}
