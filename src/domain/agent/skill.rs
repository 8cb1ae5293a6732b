//! Skills: folders with instructions that a model asks for when it needs them.
//!
//! A skill changes what a model reads and which tools it is offered, and nothing else: it gives no right, allows no call
//! and adds no tool. What it hides is hidden from the model only; the gate judges as if there were no skills.

use std::collections::BTreeSet;

use thiserror::Error;

/// The longest skill, bytes: it is read into a conversation as a whole.
pub const SKILL_BYTES_MAX: usize = 64 * 1024;

/// The longest description, characters: all of them stand in every prompt.
const DESCRIPTION_CHARS_MAX: usize = 1024;

/// Where a skill comes from, from strong to weak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The fleet's owner.
    Managed,
    /// The person who runs the box.
    User,
    /// The folder that is worked in.
    Project,
    /// A plugin.
    Plugin,
}

/// One skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// Its name.
    pub name: String,
    /// When it is of use.
    pub description: String,
    /// The instructions.
    pub body: String,
    /// The tools that are offered while it is in use; `None` for all.
    pub tools: Option<BTreeSet<String>>,
    /// Where it comes from.
    pub source: Source,
}

/// A `SKILL.md` that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadSkill {
    /// It is too long.
    #[error("the skill has {0} bytes; {SKILL_BYTES_MAX} are read at most")]
    TooLong(usize),
    /// There is no head.
    #[error("the skill does not begin with a head between two lines of ---")]
    NoHead,
    /// A field is missing or wrong.
    #[error("the head of the skill has no {0}")]
    Missing(&'static str),
}

impl Skill {
    /// Reads a `SKILL.md`: a head of `key: value` lines between two `---`, and the instructions. Keys that are not known
    /// are left alone: skills are written for many programs.
    ///
    /// # Errors
    /// When there is no head, or no name or description in it.
    pub fn parse(text: &str, source: Source) -> Result<Skill, BadSkill> {
        if text.len() > SKILL_BYTES_MAX {
            return Err(BadSkill::TooLong(text.len()));
        }
        let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
        let rest = text.strip_prefix("---\n").ok_or(BadSkill::NoHead)?;
        let (head, body) = rest.split_once("\n---").ok_or(BadSkill::NoHead)?;
        let field = |key: &str| {
            let line = head.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix(':'));
            line.map(|value| value.trim().trim_matches(['"', '\'']).to_owned()).filter(|value| !value.is_empty())
        };
        let plain = |name: &String| {
            name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        };
        let name =
            field("name").filter(plain).ok_or(BadSkill::Missing("name of at most 64 letters, digits, - and _"))?;
        let description = field("description").ok_or(BadSkill::Missing("description"))?;
        let tools = field("allowed-tools").map(|list| {
            let list = list.trim_matches(['[', ']']).to_owned();
            let names = list.split([',', ' ']).map(|name| name.trim_matches(['"', '\'', ' ']));
            names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
        });
        let description = description.chars().take(DESCRIPTION_CHARS_MAX).collect();
        let body = body.strip_prefix('\n').unwrap_or(body).trim().to_owned();
        Ok(Skill { name, description, body, tools, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_is_read_and_the_rest_is_the_instructions() {
        let text = "---\r\nname: pump-care\r\ndescription: \"how pumps: are cared for\"\r\nlicense: MIT\r\n\
                    allowed-tools: [device, \"read_file\"]\r\n---\r\n\r\n# Pumps\r\n---\r\nLook first.\r\n";
        let skill = Skill::parse(text, Source::User).unwrap();
        assert_eq!(skill.name, "pump-care");
        assert_eq!(skill.description, "how pumps: are cared for");
        assert_eq!(skill.body, "# Pumps\n---\nLook first.");
        assert_eq!(skill.tools, Some(["device".to_owned(), "read_file".to_owned()].into()));
        let plain = Skill::parse("---\nname: a\ndescription: b\n---", Source::Plugin).unwrap();
        assert_eq!((plain.body.as_str(), plain.tools), ("", None));
    }

    #[test]
    fn what_is_no_skill_is_refused() {
        let parse = |text: &str| Skill::parse(text, Source::User).unwrap_err();
        assert_eq!(parse("# Pumps"), BadSkill::NoHead);
        assert_eq!(parse("---\nname: a\n"), BadSkill::NoHead);
        assert_eq!(parse("---\nname: a\n---\n"), BadSkill::Missing("description"));
        assert!(matches!(parse("---\nname: a b\ndescription: x\n---\n"), BadSkill::Missing(_)));
        assert!(matches!(parse(&"x".repeat(SKILL_BYTES_MAX + 1)), BadSkill::TooLong(_)));
    }
}
