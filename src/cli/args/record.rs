//! What a person types about what happened: evidence, traces, effects and workflows.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

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
        /// A signed head that left this machine earlier (TOPIC/head); the log must reach it and still fit it.
        #[arg(long, value_name = "FILE")]
        head: Option<PathBuf>,
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
    /// Ends one that is unsettled and cannot be undone: a person answers for what is left. It is no success.
    #[command(after_help = "Example:\n  interlock workflow close w1 --note \"refunded by hand\"")]
    Close {
        /// The workflow, w1, w2, …
        workflow: String,
        /// What was done about what is left.
        #[arg(long, value_name = "TEXT")]
        note: String,
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

/// Which effects of the log are meant.
#[derive(Debug, Args)]
pub struct EffectsFrom {
    /// The effects of one run; `last` is the one that was opened last.
    #[arg(long, value_name = "RUN", conflicts_with = "all")]
    pub run: Option<String>,
    /// All effects that the log has.
    #[arg(long)]
    pub all: bool,
    /// The state directory with the log.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

/// `effects`.
#[derive(Debug, Subcommand)]
pub enum EffectsVerb {
    /// One history a line in, its anomalies out; or those of the log. Needs no daemon. Exit 1 when there is any.
    #[command(
        after_help = "Example:\n  echo '{\"id\": 1, \"events\": [[\"begin\", \"w\", [\"pay\"]], [\"commit\", \"w\", [\"m\"]]]}' | interlock effects check\n\nExample (what the log says of the run that was opened last):\n  interlock effects check --run last"
    )]
    Check(EffectsFrom),
    /// The history of effects in the log, as `effects check` reads it; needs no daemon.
    #[command(after_help = "Example:\n  interlock effects history --all | interlock effects check")]
    History(EffectsFrom),
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
