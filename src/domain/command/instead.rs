//! What agents are told instead of a description or a skill: the part of a learned set that no sentence depends on.
//!
//! It stands here because a set is versioned and brought back as a whole; how a repair comes about is `learn::retold`'s.

/// Whether a text is a tool's or a skill's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// A tool's description.
    Tool,
    /// A SKILL.md.
    Skill,
}

impl Of {
    /// As it is written.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Of::Tool => "tool",
            Of::Skill => "skill",
        }
    }
}

/// A repair that is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instead {
    /// Of what.
    pub of: Of,
    /// The tool's name as agents see it, or the skill's folder.
    pub name: String,
    /// The text that it was made for.
    pub instead_of: String,
    /// The text in its place.
    pub text: String,
}
