//! What a call is by nature, found from the tool and the input: its class, its keys, its risk, what it would do.
//!
//! "By input, not by tool": one `device` call reads, the next one opens a breaker. The gate judges the [`Deed`], the
//! schedule orders by class and keys, the effect keeps the contract; all of them read what is found here once.

use crate::risk::Risk;
use std::sync::Arc;
use std::time::Duration;

use super::contract::Contract;

/// How a call stands towards others in time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Runs beside anything that its keys allow.
    Safe,
    /// First come, first served among the calls of one lane.
    Queue(Lane),
    /// A barrier in its batch: everything before it has ended, nothing after it has started.
    Exclusive,
    /// Gives its receipt at the handshake; handshakes follow one another.
    Background,
    /// Acts only by wishes of its own, made in its name (a subagent, a workflow's commit). What stands before it in its
    /// batch has ended when it starts, what stands after it waits for its end; composites of one batch run beside one
    /// another unless their keys overlap. While it runs it holds no key, no lane and no barrier.
    Composite,
}

impl Class {
    /// The word in evidence rows.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Class::Safe => "safe",
            Class::Queue(_) => "queue",
            Class::Exclusive => "exclusive",
            Class::Background => "background",
            Class::Composite => "composite",
        }
    }
}

/// A line for one thing that serves one call at a time: a bus, a server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane(pub Arc<str>);

/// One resource in its canonical spelling.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A file or a directory with all that is below it: a canonical path.
    Path(String),
    /// A device, by name.
    Device(String),
    /// Anything else that a tool names: `alarm`, `log`.
    Named(String),
}

impl Key {
    /// The two may be about one thing.
    #[must_use]
    pub fn overlaps(&self, other: &Key) -> bool {
        match (self, other) {
            (Key::Path(one), Key::Path(two)) => {
                crate::request::paths::within(one, two) || crate::request::paths::within(two, one)
            }
            (Key::Device(one), Key::Device(two)) | (Key::Named(one), Key::Named(two)) => one == two,
            (Key::Path(_) | Key::Device(_) | Key::Named(_), _) => false,
        }
    }
}

/// What a call touches.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Keys {
    /// What it only looks at.
    pub reads: Vec<Key>,
    /// What it may change.
    pub writes: Vec<Key>,
}

impl Keys {
    /// Their order matters: one of them may change what the other touches.
    #[must_use]
    pub fn interfere(&self, other: &Keys) -> bool {
        let meet = |ours: &[Key], theirs: &[Key]| ours.iter().any(|one| theirs.iter().any(|two| one.overlaps(two)));
        meet(&self.writes, &other.writes) || meet(&self.writes, &other.reads) || meet(&self.reads, &other.writes)
    }
}

/// What the call would do, in the words that rules are written in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed {
    /// Reads a file or lists a directory.
    Read {
        /// The path as it was written.
        path: String,
        /// All that is below the path is read too: a search.
        below: bool,
    },
    /// Writes, creates or removes a file.
    Write {
        /// The path as it was written.
        path: String,
    },
    /// Runs a shell command.
    Shell {
        /// The command, and what could be understood of it.
        script: Arc<super::shell::Script>,
        /// Where it runs, when that is not the working directory.
        cwd: Option<String>,
    },
    /// Sends a request over HTTP.
    Fetch {
        /// The address as it was written.
        url: String,
        /// `GET` or `HEAD`, which change nothing by their definition (RFC 9110, 9.2.1).
        reads: bool,
    },
    /// Acts on a device.
    Device {
        /// The device.
        device: String,
        /// The action.
        action: String,
        /// Its zone.
        zone: Option<String>,
    },
    /// Calls a tool of a downstream MCP server.
    Mcp {
        /// The server, raw.
        server: String,
        /// The tool, raw.
        tool: String,
    },
    /// Uses a tool of the daemon itself.
    Own {
        /// The tool.
        tool: String,
        /// Its verb, where the tool has verbs.
        verb: Option<String>,
    },
}

/// What a call is by nature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nature {
    /// What it would do.
    pub deed: Deed,
    /// How it stands towards others in time.
    pub class: Class,
    /// What it touches.
    pub keys: Keys,
    /// Its declared risk.
    pub risk: Risk,
    /// It brings a plant into its safe state: an operator's protective action runs at once.
    pub protective: bool,
    /// What is promised about it.
    pub contract: Arc<Contract>,
    /// How long it may run before it is asked to stop.
    pub patience: Duration,
}
