//! What the operator says about the runs of a model: the commands that look at calls, and the kinds of subagents.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::gate::policy::Mode;
use crate::surface::narrow::{Allow, Narrowing};

/// How deep subagents may make subagents. Deeper, nobody can follow any more who does what for whom.
pub const DEPTH_MAX: u32 = 3;

/// When a hook runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Before the call is handed in: it may deny it or change its input.
    Before,
    /// After the call has ended: it may add to its result, or withhold it.
    After,
}

impl When {
    /// The word in the configuration and in what the hook is told.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            When::Before => "before",
            When::After => "after",
        }
    }
}

/// A command that looks at calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// When it runs.
    pub when: When,
    /// For which tools, by name.
    pub tools: Allow,
    /// The program, absolute, and its arguments.
    pub command: Vec<String>,
    /// How long it may take.
    pub patience: Duration,
}

impl Hook {
    /// It looks at calls of this tool.
    #[must_use]
    pub fn is_about(&self, tool: &str) -> bool {
        match &self.tools {
            Allow::All => true,
            Allow::Only(names) => names.contains(tool),
        }
    }
}

/// A kind of subagent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profile {
    /// As the model names it.
    pub name: String,
    /// What it is for, told to the model.
    pub description: String,
    /// What it is told to be, besides what every run is told.
    pub instructions: Option<String>,
    /// The tools that it may have.
    pub allow: Allow,
    /// The tools that it may not have.
    pub deny: BTreeSet<String>,
    /// Its mode, at most its parent's.
    pub mode: Option<Mode>,
    /// Its turns.
    pub turns_max: Option<u32>,
    /// It works in a git work tree of its own.
    pub worktree: bool,
    /// It begins with what its parent knows, instead of with its task alone.
    pub fork: bool,
}

impl Profile {
    /// What a child of this kind is left, when the place that makes it names these tools.
    #[must_use]
    pub fn narrowing(&self, call_site: Option<Vec<String>>) -> Narrowing {
        Narrowing { profile: self.allow.clone(), call_site: Allow::of(call_site), deny: self.deny.clone() }
    }
}
