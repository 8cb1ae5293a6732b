//! What a configuration adds to the tools and to what a model is told: `[[alias]]`, `[skills]`, `[plugins]`,
//! `[[maintenance]]`.
//!
//! A plugin is a folder with a manifest, `plugin.toml`. It brings MCP servers, command sets, aliases and skills, and
//! nothing else: no rule, no mode, no hook. What it brings enters where its like enters, and passes the same gate.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use interlock_domain::agent::skill::{Skill, Source};
use interlock_domain::id::ToolName;
use serde::Deserialize;
use toml::Spanned;

use super::{ConfigError, mcp};

/// The most aliases, checks, plugins and skills: each is a part of every list that a person or a model reads.
const ALIASES_MAX: usize = 64;
const CHECKS_MAX: usize = 16;
const PLUGINS_MAX: usize = 32;
const SKILLS_MAX: usize = 64;

/// How long a check may take, in seconds: the run waits for it.
const CHECK_SECONDS: std::ops::RangeInclusive<u64> = 1..=110;
const CHECK_DEFAULT: Duration = Duration::from_secs(60);

/// The most entries of a skills folder that are looked at, so that a folder of a million files is no start of an hour.
const SKILL_ENTRIES_MAX: usize = 1024;

/// Names that no alias may take: those of tools of the daemon, and of what the loop answers by itself. An alias that had
/// one would stand in for it.
const RESERVED: &[&str] =
    &["alarm", "describe_tool", "log", "monitor", "report", "skill", "subagent", "system", "task", "workflow"];

/// What stands between the server and the tool in the name of a tool of an MCP server.
const OF_A_SERVER: &str = "__";

/// Tools that may have another name: those whose work does not depend on what they are called.
pub(super) const ALIASED: &[&str] = &["device", "read_file", "write_file", "shell", "http"];

/// Another name for a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alias {
    /// The other name.
    pub name: ToolName,
    /// The tool.
    pub tool: ToolName,
}

/// A command that looks at declared paths after each change of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maintenance {
    /// Its name.
    pub name: String,
    /// Files and directories; relative ones begin at the working directory.
    pub paths: Vec<PathBuf>,
    /// The command line.
    pub check: String,
    /// How long it may take.
    pub timeout: Duration,
}

/// What the tables say, plugins included.
#[derive(Debug, Clone, Default)]
pub struct Extensions {
    /// Other names of tools.
    pub aliases: Vec<Alias>,
    /// Skills by their source, the strongest first; of two with one name the first counts.
    pub skills: Vec<Skill>,
    /// Checks.
    pub maintenance: Vec<Maintenance>,
    /// Servers of plugins.
    pub servers: Vec<mcp::Server>,
    /// Command sets of plugins.
    pub command_files: Vec<PathBuf>,
    /// The manifests, which are Interlock's own files.
    pub manifests: Vec<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct File {
    #[serde(default)]
    alias: Vec<Spanned<WrittenAlias>>,
    #[serde(default)]
    skills: WrittenSkills,
    #[serde(default)]
    plugins: WrittenPlugins,
    #[serde(default)]
    maintenance: Vec<Spanned<WrittenCheck>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WrittenAlias {
    name: Spanned<String>,
    tool: Spanned<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WrittenSkills {
    #[serde(default)]
    managed: Vec<Spanned<PathBuf>>,
    #[serde(default)]
    user: Vec<Spanned<PathBuf>>,
    #[serde(default)]
    project: Vec<Spanned<PathBuf>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WrittenPlugins {
    #[serde(default)]
    dirs: Vec<Spanned<PathBuf>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WrittenCheck {
    name: Spanned<String>,
    paths: Spanned<Vec<PathBuf>>,
    check: Spanned<String>,
    timeout: Option<Spanned<u64>>,
}

/// `plugin.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Manifest {
    name: Spanned<String>,
    #[serde(default, rename = "version")]
    _version: Option<String>,
    #[serde(default, rename = "description")]
    _description: Option<String>,
    #[serde(default)]
    commands: Vec<Spanned<PathBuf>>,
    #[serde(default)]
    skills: Option<Spanned<PathBuf>>,
    #[serde(default)]
    alias: Vec<Spanned<WrittenAlias>>,
    #[serde(default)]
    mcp: mcp::Written,
}

/// Reads the tables of a configuration.
///
/// # Errors
/// The first mistake in the file, in a plugin of it or in a skill.
pub(super) fn read(path: &Path, text: &str) -> Result<Extensions, ConfigError> {
    let file: File = toml::from_str(text).map_err(|error| ConfigError::from_toml(path, text, &error))?;
    let here = Place { path, text };
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut found = Extensions::default();
    here.aliases(&file.alias, &mut found)?;
    here.checks(&file.maintenance, &mut found)?;
    for (source, dirs) in [
        (Source::Managed, &file.skills.managed),
        (Source::User, &file.skills.user),
        (Source::Project, &file.skills.project),
    ] {
        for dir in dirs {
            skills(&directory.join(dir.get_ref()), source, &mut found)?;
        }
    }
    if file.plugins.dirs.len() > PLUGINS_MAX {
        return Err(ConfigError::of_file(path, format!("there are more than {PLUGINS_MAX} plugins")));
    }
    for dir in &file.plugins.dirs {
        plugin(&directory.join(dir.get_ref()), &mut found)?;
    }
    Ok(found)
}

/// A text and where it comes from.
#[derive(Clone, Copy)]
struct Place<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Place<'_> {
    fn wrong<T>(self, at: &Spanned<T>, message: impl Into<String>) -> ConfigError {
        ConfigError::at(self.path, self.text, at.span(), message)
    }

    fn aliases(self, written: &[Spanned<WrittenAlias>], found: &mut Extensions) -> Result<(), ConfigError> {
        for alias in written.iter().map(Spanned::get_ref) {
            let tool = |name: &Spanned<String>| {
                ToolName::new(name.get_ref()).map_err(|error| self.wrong(name, error.to_string()))
            };
            let (name, of) = (tool(&alias.name)?, tool(&alias.tool)?);
            if !ALIASED.contains(&of.as_str()) {
                return Err(self
                    .wrong(&alias.tool, format!("{of} cannot have another name"))
                    .hint(format!("one of {}", ALIASED.join(", "))));
            }
            let taken = ALIASED.contains(&name.as_str()) || RESERVED.contains(&name.as_str());
            if name.as_str().contains(OF_A_SERVER) {
                return Err(self
                    .wrong(&alias.name, format!("{name} would stand for a tool of an MCP server"))
                    .hint(format!("a name without {OF_A_SERVER} inside")));
            }
            if taken || found.aliases.iter().any(|known| known.name == name) {
                return Err(self.wrong(&alias.name, format!("there is a tool {name} already")));
            }
            if found.aliases.len() == ALIASES_MAX {
                return Err(self.wrong(&alias.name, format!("there are more than {ALIASES_MAX} aliases")));
            }
            found.aliases.push(Alias { name, tool: of });
        }
        Ok(())
    }

    fn checks(self, written: &[Spanned<WrittenCheck>], found: &mut Extensions) -> Result<(), ConfigError> {
        let mut names = BTreeSet::new();
        for check in written {
            let WrittenCheck { name, paths, check: command, timeout } = check.get_ref();
            if !names.insert(name.get_ref()) || name.get_ref().is_empty() {
                return Err(self.wrong(name, format!("{:?} is no name, or two checks have it", name.get_ref())));
            }
            if paths.get_ref().is_empty() {
                return Err(self.wrong(paths, "a check looks at one path at least"));
            }
            if command.get_ref().trim().is_empty() {
                return Err(self.wrong(command, "there is no command"));
            }
            let timeout = match timeout {
                None => CHECK_DEFAULT,
                Some(seconds) if CHECK_SECONDS.contains(seconds.get_ref()) => Duration::from_secs(*seconds.get_ref()),
                Some(seconds) => return Err(self.wrong(seconds, super::outside(seconds.get_ref(), &CHECK_SECONDS))),
            };
            if found.maintenance.len() == CHECKS_MAX {
                return Err(self.wrong(name, format!("there are more than {CHECKS_MAX} checks")));
            }
            found.maintenance.push(Maintenance {
                name: name.get_ref().clone(),
                paths: paths.get_ref().clone(),
                check: command.get_ref().clone(),
                timeout,
            });
        }
        Ok(())
    }
}

/// Reads the skills of a folder: each a folder with a `SKILL.md`.
fn skills(dir: &Path, source: Source, found: &mut Extensions) -> Result<(), ConfigError> {
    let listed = std::fs::read_dir(dir).map_err(|error| ConfigError::of_file(dir, error.to_string()))?;
    let entries: Vec<PathBuf> =
        listed.take(SKILL_ENTRIES_MAX + 1).filter_map(Result::ok).map(|entry| entry.path()).collect();
    if entries.len() > SKILL_ENTRIES_MAX {
        return Err(ConfigError::of_file(dir, format!("the folder has more than {SKILL_ENTRIES_MAX} entries")));
    }
    let mut files: Vec<PathBuf> =
        entries.into_iter().map(|entry| entry.join("SKILL.md")).filter(|f| f.is_file()).collect();
    // The order of a directory is nobody's.
    files.sort();
    for file in files {
        // A plugin comes from somebody else; a link in it is no way to another one's files.
        if source == Source::Plugin {
            stays_in(dir, &file)?;
        }
        let text = super::read(&file)?;
        let skill = Skill::parse(&text, source).map_err(|bad| ConfigError::of_file(&file, bad.to_string()))?;
        if found.skills.iter().any(|known| known.name == skill.name) {
            continue;
        }
        if found.skills.len() == SKILLS_MAX {
            return Err(ConfigError::of_file(&file, format!("there are more than {SKILLS_MAX} skills")));
        }
        found.skills.push(skill);
    }
    Ok(())
}

/// Where a file of a plugin really lies is in the plugin.
fn stays_in(dir: &Path, file: &Path) -> Result<(), ConfigError> {
    let real = |path: &Path| path.canonicalize().map_err(|error| ConfigError::of_file(path, error.to_string()));
    let (dir, real) = (real(dir)?, real(file)?);
    if real.starts_with(&dir) {
        return Ok(());
    }
    let said = format!("it is a link to {}, which lies outside of the plugin", real.display());
    Err(ConfigError::of_file(file, said).hint("put the file itself into the plugin's folder"))
}

/// Reads a plugin.
fn plugin(dir: &Path, found: &mut Extensions) -> Result<(), ConfigError> {
    let path = dir.join("plugin.toml");
    let text = super::read(&path)?;
    let manifest: Manifest = toml::from_str(&text).map_err(|error| ConfigError::from_toml(&path, &text, &error))?;
    let here = Place { path: &path, text: &text };
    let name = manifest.name.get_ref();
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Err(here.wrong(&manifest.name, format!("{name:?} is no name of a plugin: letters, digits and - only")));
    }
    // What it names lies in its own folder: a manifest is no way to read another one's files.
    let inside = |at: &Spanned<PathBuf>| {
        let plain = at.get_ref().components().all(|part| matches!(part, std::path::Component::Normal(_)));
        let file = dir.join(at.get_ref());
        if plain { Ok(file) } else { Err(here.wrong(at, format!("{:?} leads out of the plugin", at.get_ref()))) }
    };
    for file in &manifest.commands {
        let file = inside(file)?;
        stays_in(dir, &file)?;
        found.command_files.push(file);
    }
    here.aliases(&manifest.alias, found)?;
    if let Some(folder) = &manifest.skills {
        let folder = inside(folder)?;
        stays_in(dir, &folder)?;
        skills(&folder, Source::Plugin, found)?;
    }
    let brought = mcp::of_plugin(&path, &text, &manifest.mcp)?;
    found.servers.extend(brought.into_iter().map(|server| server.of_plugin(dir)));
    found.manifests.push(path);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(dir: &Path, text: &str) -> Result<super::super::Config, ConfigError> {
        super::super::check(&dir.join("interlock.toml"), &format!("version = 1\n{text}"))
    }

    fn refused(dir: &Path, text: &str) -> String {
        config(dir, text).map(|_| String::new()).unwrap_or_else(|error| format!("{} {}", error.key, error.message))
    }

    fn put(dir: &Path, name: &str, text: &str) {
        let file = dir.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    #[test]
    fn a_plugin_brings_servers_commands_aliases_and_skills_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = "name = \"git\"\nskills = \"skills\"\n[[alias]]\nname = \"save\"\ntool = \"write_file\"\n\
                        [[mcp.server]]\nname = \"git\"\ncommand = [\"./serve\", \"x\"]\n";
        put(dir.path(), "p/plugin.toml", manifest);
        put(
            dir.path(),
            "p/skills/commit/SKILL.md",
            "---\nname: commit\ndescription: how to commit\n---\nDo it well.\n",
        );
        put(dir.path(), "mine/commit/SKILL.md", "---\nname: commit\ndescription: ours\n---\nOur way.\n");
        let read = config(dir.path(), "[plugins]\ndirs = [\"p\"]\n[skills]\nuser = [\"mine\"]\n").unwrap();
        let names: Vec<_> = read.mcp.servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names, ["git"]);
        let mcp::Reach::Command { command, .. } = &read.mcp.servers[0].reach else { panic!("no command") };
        assert_eq!(command[0], dir.path().join("p/serve").to_string_lossy());
        assert_eq!(read.extensions.aliases.len(), 1);
        // Of two skills with one name, the stronger source counts.
        let skills: Vec<_> = read.extensions.skills.iter().map(|one| (one.source, one.description.as_str())).collect();
        assert_eq!(skills, [(Source::User, "ours")]);
        for (text, want) in [
            ("name = \"git\"\n[policy]\nallow = [\"Bash\"]\n", "policy unknown field `policy`"),
            (
                "name = \"git\"\n[mcp]\nlisten = \"127.0.0.1:1\"\n",
                "mcp.listen a plugin brings servers, and nothing else of [mcp]",
            ),
            ("name = \"git\"\ncommands = [\"../x.toml\"]\n", "commands \"../x.toml\" leads out of the plugin"),
            ("name = \"g t\"\n", "name \"g t\" is no name of a plugin"),
            (
                "name = \"git\"\n[[alias]]\nname = \"x\"\ntool = \"system\"\n",
                "alias.tool system cannot have another name",
            ),
            (
                "name = \"git\"\n[[alias]]\nname = \"shell\"\ntool = \"http\"\n",
                "alias.name there is a tool shell already",
            ),
        ] {
            put(dir.path(), "p/plugin.toml", text);
            let said = refused(dir.path(), "[plugins]\ndirs = [\"p\"]\n");
            assert!(said.starts_with(want), "{text}\n{said}");
        }
        for (name, want) in [
            ("task", "alias.name there is a tool task already"),
            ("subagent", "alias.name there is a tool subagent already"),
            ("describe_tool", "alias.name there is a tool describe_tool already"),
            ("mail__send", "alias.name mail__send would stand for a tool of an MCP server"),
        ] {
            put(
                dir.path(),
                "p/plugin.toml",
                &format!("name = \"git\"\n[[alias]]\nname = \"{name}\"\ntool = \"shell\"\n"),
            );
            let said = refused(dir.path(), "[plugins]\ndirs = [\"p\"]\n");
            assert!(said.starts_with(want), "{name}\n{said}");
        }
        assert!(refused(dir.path(), "[plugins]\ndirs = [\"none\"]\n").contains("No such file"));
        assert!(refused(dir.path(), "[skills]\nuser = [\"none\"]\n").contains("No such file"));
    }

    #[test]
    fn a_hostile_plugin_leads_nowhere_else_and_takes_no_more_than_its_room() {
        let dir = tempfile::tempdir().unwrap();
        let skill = "---\nname: x\ndescription: d\n---\nbody\n";
        put(dir.path(), "outside/x/SKILL.md", skill);
        put(dir.path(), "outside/commands.toml", "version = 1\n");
        put(dir.path(), "p/own/commands.toml", "version = 1\n");
        let link = |to: &str, at: &str| {
            let at = dir.path().join(at);
            std::fs::create_dir_all(at.parent().unwrap()).unwrap();
            let _ = std::fs::remove_file(&at);
            std::os::unix::fs::symlink(dir.path().join(to), at).unwrap();
        };
        link("outside/commands.toml", "p/commands.toml");
        link("outside", "p/linked");
        link("outside/x", "p/skills/x");
        link("p/own/commands.toml", "p/alias.toml");
        let check = |more: &str, want: &str| {
            put(dir.path(), "p/plugin.toml", &format!("name = \"git\"\n{more}"));
            let said = refused(dir.path(), "[plugins]\ndirs = [\"p\"]\n");
            assert!(said.contains(want) && (said.is_empty() == want.is_empty()), "{more}: {said}");
        };
        check("commands = [\"commands.toml\"]\n", "lies outside of the plugin");
        check("commands = [\"linked/commands.toml\"]\n", "lies outside of the plugin");
        check("skills = \"linked\"\n", "lies outside of the plugin");
        check("skills = \"skills\"\n", "lies outside of the plugin");
        check("commands = [\"/etc/passwd\"]\n", "leads out of the plugin");
        check("skills = \"..\"\n", "leads out of the plugin");
        check("commands = [\"alias.toml\"]\n", "");
        // A file that never ends, one that is too large, a folder of too many.
        put(dir.path(), "p/big/x/SKILL.md", &format!("{skill}{}", "x".repeat(100_000)));
        check("skills = \"big\"\n", "are read at most");
        for at in 0..=SKILL_ENTRIES_MAX {
            std::fs::create_dir_all(dir.path().join(format!("p/many/{at}"))).unwrap();
        }
        check("skills = \"many\"\n", "more than 1024 entries");
        std::fs::remove_file(dir.path().join("p/plugin.toml")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", dir.path().join("p/plugin.toml")).unwrap();
        assert!(refused(dir.path(), "[plugins]\ndirs = [\"p\"]\n").contains("no regular file"));
    }

    #[test]
    fn checks_are_bounded_and_named() {
        let dir = tempfile::tempdir().unwrap();
        let one = "[[maintenance]]\nname = \"build\"\npaths = [\"src\"]\ncheck = \"make\"\n";
        let read = config(dir.path(), one).unwrap().extensions.maintenance;
        assert_eq!((read.len(), read[0].timeout), (1, CHECK_DEFAULT));
        for (text, want) in [
            (format!("{one}{one}"), "maintenance.name \"build\" is no name, or two checks have it"),
            (one.replace("[\"src\"]", "[]"), "maintenance.paths a check looks at one path at least"),
            (one.replace("make", " "), "maintenance.check there is no command"),
            (format!("{one}timeout = 0\n"), "maintenance.timeout 0 is outside 1 to 110 seconds"),
            (format!("{one}often = true\n"), "maintenance.often unknown field `often`"),
        ] {
            let said = refused(dir.path(), &text);
            assert!(said.starts_with(want), "{text}\n{said}");
        }
    }
}
