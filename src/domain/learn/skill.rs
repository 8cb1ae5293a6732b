//! A skill (SKILL.md) against what is there: its folder, its files, the tools that it calls.
//!
//! Names and references only: whether its advice is good is for a person. The form is that of Agent Skills: a front
//! matter with `name` and `description`, then text.

use std::collections::BTreeSet;
use std::fmt;

/// Longest name and description of a skill, in characters (Agent Skills, "Frontmatter").
const NAME_LEN_MAX: usize = 64;
const DESCRIPTION_LEN_MAX: usize = 1024;

/// A skill and what is around it.
#[derive(Debug, Clone, PartialEq)]
pub struct Skill {
    /// The folder that it lies in, the last part only.
    pub folder: String,
    /// Its text.
    pub text: String,
    /// The files of the folder, with slashes, without the folder.
    pub files: BTreeSet<String>,
    /// The tools that there are.
    pub tools: BTreeSet<String>,
}

/// Something that is wrong with a skill, and its line, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// There is no front matter.
    NoFrontMatter,
    /// The front matter has no name.
    NoName,
    /// The name is not that of the folder.
    NotTheFolder(String),
    /// The name has a form that no client takes.
    NameForm(String),
    /// There is no description, or an empty one.
    NoDescription,
    /// The description is longer than clients take.
    LongDescription(usize),
    /// It names a file that is not there.
    NoFile(usize, String),
    /// It names a tool that is not there.
    NoTool(usize, String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::NoFrontMatter => f.write_str("there is no front matter between two lines of ---"),
            Fault::NoName => f.write_str("the front matter has no name"),
            Fault::NotTheFolder(name) => write!(f, "the name {name:?} is not that of the folder"),
            Fault::NameForm(name) => {
                write!(f, "the name {name:?} is not of small letters, digits and hyphens, at most {NAME_LEN_MAX}")
            }
            Fault::NoDescription => f.write_str("the front matter has no description"),
            Fault::LongDescription(length) => {
                write!(f, "the description has {length} characters; {DESCRIPTION_LEN_MAX} are read")
            }
            Fault::NoFile(line, file) => write!(f, "line {line} names the file {file}, which is not there"),
            Fault::NoTool(line, tool) => write!(f, "line {line} names the tool {tool}, which is not there"),
        }
    }
}

/// What is wrong with a skill.
#[must_use]
pub fn faults(skill: &Skill) -> Vec<Fault> {
    let mut found = Vec::new();
    match front_matter(&skill.text) {
        None => found.push(Fault::NoFrontMatter),
        Some(fields) => {
            let field = |key: &str| fields.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
            match field("name").filter(|name| !name.is_empty()) {
                None => found.push(Fault::NoName),
                Some(name) if !well_formed(name) => found.push(Fault::NameForm(name.to_owned())),
                Some(name) if name != skill.folder => found.push(Fault::NotTheFolder(name.to_owned())),
                Some(_) => {}
            }
            match field("description").filter(|text| !text.is_empty()) {
                None => found.push(Fault::NoDescription),
                Some(text) if text.chars().count() > DESCRIPTION_LEN_MAX => {
                    found.push(Fault::LongDescription(text.chars().count()));
                }
                Some(_) => {}
            }
        }
    }
    for (line, text) in skill.text.lines().enumerate() {
        for word in references(text) {
            if is_file(word) && !skill.files.contains(word.trim_start_matches("./")) {
                found.push(Fault::NoFile(line + 1, word.to_owned()));
            }
        }
        for word in called(text) {
            if !skill.tools.is_empty() && !skill.tools.contains(word) {
                found.push(Fault::NoTool(line + 1, word.to_owned()));
            }
        }
    }
    found
}

/// The skill with its name set right and misspelled references replaced by the one thing that is near; none when a
/// fault is left that only a person can mend.
#[must_use]
pub fn repaired(skill: &Skill) -> Option<String> {
    let mut text = skill.text.clone();
    for fault in faults(skill) {
        let (said, is) = match &fault {
            Fault::NotTheFolder(name) | Fault::NameForm(name) if well_formed(&skill.folder) => {
                text = text.replacen(&format!("name: {name}"), &format!("name: {}", skill.folder), 1);
                continue;
            }
            Fault::NoName if well_formed(&skill.folder) => {
                text = text.replacen("---\n", &format!("---\nname: {}\n", skill.folder), 1);
                continue;
            }
            Fault::NoFile(_, file) => (file.clone(), only_near(file, &skill.files)?),
            Fault::NoTool(_, tool) => (tool.clone(), only_near(tool, &skill.tools)?),
            Fault::NoFrontMatter
            | Fault::NoName
            | Fault::NameForm(_)
            | Fault::NotTheFolder(_)
            | Fault::NoDescription
            | Fault::LongDescription(_) => return None,
        };
        text = text.replace(&said, &is);
    }
    let mended = Skill { text, ..skill.clone() };
    faults(&mended).is_empty().then_some(mended.text)
}

/// The plain fields of the front matter: what clients need is one line a field.
fn front_matter(text: &str) -> Option<Vec<(&str, &str)>> {
    let rest = text.strip_prefix("---\n").or_else(|| text.strip_prefix("---\r\n"))?;
    let end = rest.find("\n---")?;
    let fields = rest[..end].lines().filter_map(|line| line.split_once(':'));
    Some(fields.map(|(key, value)| (key.trim(), value.trim().trim_matches(['"', '\'']))).collect())
}

fn well_formed(name: &str) -> bool {
    let fits = |ch: char| ch.is_ascii_lowercase() || ch.is_ascii_digit() || ch == '-';
    !name.is_empty()
        && name.len() <= NAME_LEN_MAX
        && name.chars().all(fits)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// What stands in backquotes or is the target of a link.
fn references(line: &str) -> Vec<&str> {
    let quoted = line.split('`').skip(1).step_by(2).flat_map(str::split_whitespace);
    let linked = line.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    quoted
        .chain(linked)
        .map(|word| word.trim_matches(['"', '\'', ',', '(', ')']))
        .filter(|word| !word.is_empty())
        .collect()
}

/// A path of the skill's own folder: it has an ending and no scheme, and leads nowhere else.
fn is_file(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or_default();
    let ending = name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()).map(|(_, ending)| ending);
    let known = ["py", "sh", "md", "json", "toml", "yaml", "yml", "txt", "csv", "js", "ts"];
    ending.is_some_and(|ending| known.contains(&ending))
        && !word.contains("://")
        && !word.starts_with(['/', '~', '$', '-', '<'])
        && !word.contains("..")
        && !word.contains(['*', '{', '='])
}

/// Names in backquotes before or behind the word tool: `read_file` tool, 工具 `shell`.
fn called(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let parts: Vec<&str> = line.split('`').collect();
    for at in (1..parts.len()).step_by(2) {
        let name = parts[at].split('(').next().unwrap_or_default();
        let plain = !name.is_empty() && name.chars().all(|ch| ch.is_ascii_alphanumeric() || ch == '_' || ch == '-');
        let before = parts[at - 1].trim_end().to_lowercase();
        let after = parts.get(at + 1).map(|after| after.trim_start().to_lowercase()).unwrap_or_default();
        let told = ["tool", "工具"].iter().any(|word| before.ends_with(word) || after.starts_with(word));
        if plain && told {
            found.push(name);
        }
    }
    found
}

/// The one name that differs in at most two letters.
fn only_near(said: &str, names: &BTreeSet<String>) -> Option<String> {
    let mut near = names.iter().filter(|name| super::describe::near(said, name));
    let one = near.next()?;
    near.next().is_none().then(|| one.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skill(text: &str) -> Skill {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Skill {
            folder: "pump-check".to_owned(),
            text: text.to_owned(),
            files: set(&["SKILL.md", "scripts/read.py", "reference.md"]),
            tools: set(&["device", "read_file"]),
        }
    }

    fn check(text: &str, expected: &[&str], mended: bool) {
        let found: Vec<String> = faults(&skill(text)).iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{text}");
        let repaired = repaired(&skill(text));
        assert_eq!(repaired.is_some(), mended, "{text}: {repaired:?}");
        if let Some(text) = repaired {
            assert_eq!(faults(&skill(&text)), [], "{text}");
        }
    }

    #[test]
    fn names_and_references_are_held_against_what_is_there() {
        let head = "---\nname: pump-check\ndescription: Looks at pumps.\n---\n";
        check(
            &format!("{head}Run `python scripts/read.py`, see [more](reference.md). The tool `device` reads.\n"),
            &[],
            true,
        );
        check("Just text.", &["there is no front matter between two lines of ---"], false);
        check("---\nname: pump\ndescription: x\n---\n", &["the name \"pump\" is not that of the folder"], true);
        check("---\ndescription: x\n---\n", &["the front matter has no name"], true);
        check("---\nname: pump-check\n---\n", &["the front matter has no description"], false);
        check(
            &format!("{head}Run `scripts/raed.py`.\n"),
            &["line 5 names the file scripts/raed.py, which is not there"],
            true,
        );
        check(
            &format!("{head}Run `scripts/other.py`.\n"),
            &["line 5 names the file scripts/other.py, which is not there"],
            false,
        );
        check(&format!("{head}Use the tool `devise`.\n"), &["line 5 names the tool devise, which is not there"], true);
        check(
            "---\nname: Pump Check\ndescription: x\n---\n",
            &["the name \"Pump Check\" is not of small letters, digits and hyphens, at most 64"],
            true,
        );
    }
}
