//! What a person types: the verbs, their arguments and one worked example each.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

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
                            interlock mcp list"
    )]
    Mcp(McpArgs),
    /// Measured figures of this machine; needs no daemon.
    #[command(after_help = "Example:\n  interlock bench match --json")]
    Bench(BenchArgs),
    /// This machine: one line each, with what to do.
    #[command(after_help = "Example:\n  interlock doctor")]
    Doctor(DoctorArgs),
    /// Validates a configuration and its commands; needs no daemon.
    #[command(after_help = "Example:\n  interlock check --config /etc/interlock/interlock.toml")]
    Check(CheckArgs),
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

/// `match`.
#[derive(Debug, Args)]
pub struct MatchArgs {
    /// The sentence; without it, JSON Lines are read from standard input.
    #[arg(value_name = "TEXT")]
    pub text: Vec<String>,
    /// A command file; may be given several times. The default is what the product ships.
    #[arg(long, value_name = "PATH")]
    pub commands: Vec<PathBuf>,
    /// The state directory whose learned set takes part; it is only read.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Only these stages, separated by commas: hotword, pattern, pinyin, model, knowledge.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub stages: Vec<String>,
    /// Another model than the shipped one, by its manifest.
    #[arg(long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Also show what each stage saw.
    #[arg(long)]
    pub explain: bool,
    /// One JSON object a line, on a terminal too.
    #[arg(long)]
    pub json: bool,
}

/// `knowledge`.
#[derive(Debug, Subcommand)]
pub enum KnowledgeVerb {
    /// Puts Markdown, text or JSON Lines files, or folders of them, into the library; again is in place of before.
    #[command(after_help = "Example:\n  interlock knowledge add /srv/manuals/pumps.md")]
    Add {
        /// Files and folders.
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        /// Where the library is.
        #[command(flatten)]
        from: KnowledgeFrom,
    },
    /// Takes sources out again.
    #[command(after_help = "Example:\n  interlock knowledge remove /srv/manuals/pumps.md")]
    Remove {
        /// Their names, as `list` shows them, or their paths.
        #[arg(required = true)]
        names: Vec<String>,
        /// Where the library is.
        #[command(flatten)]
        from: KnowledgeFrom,
    },
    /// The sources.
    #[command(after_help = "Example:\n  interlock knowledge list")]
    List {
        /// Where the library is.
        #[command(flatten)]
        from: KnowledgeFrom,
    },
    /// The passages that are nearest to a question.
    #[command(after_help = "Example:\n  interlock knowledge search 水泵不上水怎么处理")]
    Search {
        /// The question.
        #[arg(value_name = "TEXT", required = true)]
        text: Vec<String>,
        /// How many.
        #[arg(long, default_value_t = 3, value_name = "N")]
        most: usize,
        /// Where the library is.
        #[command(flatten)]
        from: KnowledgeFrom,
    },
}

/// Where the library is.
#[derive(Debug, Args)]
pub struct KnowledgeFrom {
    /// The state directory of the daemon.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
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

/// `evidence`.
#[derive(Debug, Subcommand)]
pub enum EvidenceVerb {
    /// The newest rows.
    #[command(after_help = "Example:\n  interlock evidence tail -n 20")]
    Tail {
        /// How many.
        #[arg(short = 'n', long, default_value_t = 20)]
        rows: usize,
        /// Where the evidence is, and how it is shown.
        #[command(flatten)]
        from: EvidenceFrom,
    },
    /// Rows that fit.
    #[command(after_help = "Example:\n  interlock evidence query --kind settled --limit 100 --json")]
    Query {
        /// Rows of this kind.
        #[arg(long)]
        kind: Option<String>,
        /// Rows of this run.
        #[arg(long)]
        run: Option<String>,
        /// Rows of this call.
        #[arg(long)]
        call: Option<String>,
        /// Rows of this task.
        #[arg(long)]
        task: Option<String>,
        /// Rows whose detail has this text.
        #[arg(long)]
        text: Option<String>,
        /// From this row on.
        #[arg(long, value_name = "SEQ")]
        since: Option<u64>,
        /// Up to this row.
        #[arg(long, value_name = "SEQ")]
        until: Option<u64>,
        /// At most so many.
        #[arg(long, default_value_t = 1000)]
        limit: usize,
        /// Where the evidence is, and how it is shown.
        #[command(flatten)]
        from: EvidenceFrom,
    },
    /// One row, whole.
    #[command(after_help = "Example:\n  interlock evidence show 42")]
    Show {
        /// Its number.
        seq: u64,
        /// Where the evidence is, and how it is shown.
        #[command(flatten)]
        from: EvidenceFrom,
    },
    /// Whether the log is whole; works on a copy, needs no daemon. Exit 1 unless INTACT.
    #[command(after_help = "Example:\n  interlock evidence verify --state /mnt/copy/interlock --json")]
    Verify {
        /// A single segment file, instead of a state directory.
        file: Option<PathBuf>,
        /// Checkpoints that left this machine earlier; the log must still fit them.
        #[arg(long, value_name = "FILE")]
        checkpoints: Option<PathBuf>,
        /// Where the evidence is, and how it is shown.
        #[command(flatten)]
        from: EvidenceFrom,
    },
    /// All rows on standard output; reads a state directory, needs no daemon.
    #[command(after_help = "Example:\n  interlock evidence export --format csv > evidence.csv")]
    Export {
        /// How they are written.
        #[arg(long, value_enum, default_value_t = ExportFormat::Jsonl)]
        format: ExportFormat,
        /// From this row on.
        #[arg(long, value_name = "SEQ")]
        since: Option<u64>,
        /// The state directory to read.
        #[arg(long, value_name = "DIR")]
        state: Option<PathBuf>,
    },
    /// How much there is.
    #[command(after_help = "Example:\n  interlock evidence stats")]
    Stats {
        /// Where the evidence is, and how it is shown.
        #[command(flatten)]
        from: EvidenceFrom,
    },
}

/// How exported rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// JSON Lines.
    Jsonl,
    /// Comma-separated values.
    Csv,
}

/// Where the evidence is, and how it is shown.
#[derive(Debug, Args)]
pub struct EvidenceFrom {
    /// The state directory to read; the default is the daemon's, then the usual place.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// JSON Lines.
    #[arg(long)]
    pub json: bool,
}

/// `commands`.
#[derive(Debug, Subcommand)]
pub enum CommandsVerb {
    /// The commands of a set.
    #[command(after_help = "Example:\n  interlock commands list --hotwords > hotwords.txt")]
    List(CommandsListArgs),
    /// Home Assistant intents, or a table, as a command set on standard output.
    #[command(
        after_help = "Example:\n  interlock commands import sentences/zh-cn --list area=厨房,客厅 --list name=吊扇 > home.toml"
    )]
    Import(ImportArgs),
    /// Sentences with what they should mean: those that are understood otherwise, and figures.
    #[command(after_help = "Example:\n  interlock commands test sentences.jsonl --commands home.toml")]
    Test(CommandsTestArgs),
}

/// `commands list`.
#[derive(Debug, Args)]
pub struct CommandsListArgs {
    /// A command file; the default is what the product ships.
    #[arg(long, value_name = "PATH")]
    pub commands: Option<PathBuf>,
    /// The state directory whose learned set is shown too; it is only read.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Words for the recogniser instead: places and phrases, one a line.
    #[arg(long)]
    pub hotwords: bool,
    /// JSON Lines; with --hotwords one object as Wyoming's `transcribe` takes it.
    #[arg(long)]
    pub json: bool,
}

/// `commands import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// A folder of intent files, one of them, or a table (.csv, .tsv).
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Values of a list: area=厨房,客厅, or name=@FILE. Without values, a slot takes any text. May be repeated.
    #[arg(long, value_name = "NAME=VALUES")]
    pub list: Vec<String>,
    /// Where it is written; standard output when left out.
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// `commands test`.
#[derive(Debug, Args)]
pub struct CommandsTestArgs {
    /// JSON Lines: `query`, and `expected_command` (or `expected_intent`), null where nothing may be executed.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// A command file; the default is what the product ships.
    #[arg(long, value_name = "PATH")]
    pub commands: Option<PathBuf>,
    /// The state directory whose learned set takes part; it is only read.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

/// `learn`.
#[derive(Debug, Subcommand)]
pub enum LearnVerb {
    /// The proposals that wait for a person.
    #[command(after_help = "Example:\n  interlock learn list")]
    List {
        /// Those that were decided as well.
        #[arg(long)]
        all: bool,
        /// The versions of the learned set instead.
        #[arg(long)]
        versions: bool,
        /// JSON Lines.
        #[arg(long)]
        json: bool,
    },
    /// Proposals on standard input, one a line, through the review gate. Without a daemon nothing is kept.
    #[command(
        after_help = "Example:\n  echo '{\"id\": 1, \"channel\": \"B\", \"phrase\": \"打水\", \"command\": \"pump_start\"}' | interlock learn propose"
    )]
    Propose(ProposeArgs),
    /// Tool descriptions and skills against schema and behaviour, with how they could be mended; needs no daemon.
    #[command(after_help = "Example:\n  interlock learn describe tools.json skills/pump-check/SKILL.md")]
    Describe {
        /// Answers to `tools/list` (.json) and skills (.md); standard input holds tools, one a line, without any.
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Takes a proposal, after the gate has looked once more.
    #[command(after_help = "Example:\n  interlock learn approve p3")]
    Approve {
        /// Its number, or the id that its line had.
        proposal: String,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Turns a proposal down.
    #[command(after_help = "Example:\n  interlock learn reject p3 --note \"nobody says that here\"")]
    Reject {
        /// Its number, or the id that its line had.
        proposal: String,
        /// Why.
        #[arg(long, default_value = "")]
        note: String,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Goes back to an earlier version of the learned set, exactly.
    #[command(after_help = "Example:\n  interlock learn rollback 4")]
    Rollback {
        /// The version (0: nothing learned); the one before the active one when left out.
        version: Option<u64>,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
}

/// `learn propose`.
#[derive(Debug, Args)]
pub struct ProposeArgs {
    /// Ask the gate here, and keep nothing.
    #[arg(long)]
    pub offline: bool,
    /// The command set that they are held against; the default is the shipped one. Keeps nothing.
    #[arg(long, value_name = "PATH")]
    pub commands: Option<PathBuf>,
    /// On top of what is learned in this state directory. Keeps nothing.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// As if this were the configured policy. Keeps nothing.
    #[arg(long, value_enum)]
    pub policy: Option<LearnPolicy>,
}

/// Who may take what passes the review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LearnPolicy {
    /// A person.
    Strict,
    /// The gate, except for what is dangerous.
    Auto,
}

/// `trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// The run, as `say --json` and `evidence query --kind run_opened` name it; `last` is the one that was opened last.
    pub run: String,
    /// The written form.
    #[arg(long, value_enum, default_value = "text")]
    pub format: TraceFormat,
    /// As `--format json`.
    #[arg(long)]
    pub json: bool,
    /// Where evidence and state are kept.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

/// The written forms of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TraceFormat {
    /// Lines for a person.
    Text,
    /// The language of Graphviz.
    Dot,
    /// One object.
    Json,
    /// One page that stands alone.
    Html,
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

/// `workflow`.
#[derive(Debug, Subcommand)]
pub enum WorkflowVerb {
    /// Begins one and gives its number.
    #[command(
        after_help = "Example:\n  interlock workflow begin --profile unknown-safe --require close --require stop"
    )]
    Begin {
        /// What it guarantees: unknown-safe, compensation-safe, speculation-safe, externally-mediated; several may be given.
        #[arg(long, value_name = "PROFILE")]
        profile: Vec<String>,
        /// An operation that must have its effect at the commit; several may be given.
        #[arg(long, value_name = "OP")]
        require: Vec<String>,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// One action within it.
    #[command(
        after_help = "Example:\n  interlock workflow do w1 device '{\"device\": \"pump-1\", \"action\": \"stop\"}' --op stop"
    )]
    Do {
        /// The workflow, w1, w2, …
        workflow: String,
        /// The tool.
        tool: String,
        /// Its input, a JSON object.
        input: String,
        /// The logical operation, the same for each attempt at it.
        #[arg(long, value_name = "OP")]
        op: Option<String>,
        /// The branch.
        #[arg(long, value_name = "BRANCH")]
        branch: Option<String>,
        /// An operation that it rests on; several may be given.
        #[arg(long, value_name = "OP")]
        after: Vec<String>,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Keeps it, or only some of its branches.
    #[command(after_help = "Example:\n  interlock workflow commit w1")]
    Commit {
        /// The workflow, w1, w2, …
        workflow: String,
        /// A branch to keep; all of them when none is given.
        #[arg(long, value_name = "BRANCH")]
        branch: Vec<String>,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Gives it up and undoes what can be undone.
    #[command(after_help = "Example:\n  interlock workflow abort w1")]
    Abort {
        /// The workflow, w1, w2, …
        workflow: String,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Runs a recipe of the configuration from its first step to the commit.
    #[command(after_help = "Example:\n  interlock workflow run stop-pumping")]
    Run {
        /// Its name.
        recipe: String,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// One workflow with its ledger, or all of them in short.
    #[command(after_help = "Example:\n  interlock workflow show w1 --json")]
    Show {
        /// The workflow, w1, w2, …
        workflow: Option<String>,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
}

/// `effects`.
#[derive(Debug, Subcommand)]
pub enum EffectsVerb {
    /// One history a line in, its anomalies out; needs no daemon. Exit 1 when there is any.
    #[command(
        after_help = "Example:\n  echo '{\"id\": 1, \"events\": [[\"begin\", \"w\", [\"pay\"]], [\"commit\", \"w\", [\"m\"]]]}' | interlock effects check"
    )]
    Check,
    /// What the tools of the configured MCP servers say about their effects; lists them and calls none.
    #[command(after_help = "Example:\n  interlock effects census --json")]
    Census {
        /// Definitions from a file instead of the daemon: JSON Lines of {"server", "tools": […]}.
        #[arg(long, value_name = "FILE")]
        tools: Option<PathBuf>,
        /// One JSON object.
        #[arg(long)]
        json: bool,
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
    /// One JSON object.
    #[arg(long)]
    pub json: bool,
}
