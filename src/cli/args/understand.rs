//! What a person types about commands: matching, manuals, command sets, learning.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

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
    /// A folder of intent files, one of them, or a table (.csv, .tsv). The first row of a table names its columns: id, text
    /// and risk; also aliases, patterns and slots (several values with ; between them), category, protective, and device,
    /// action, point, value and by, which bind the command.
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
        /// Hand what can be mended to the daemon as proposals; a person approves them.
        #[arg(long)]
        propose: bool,
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
