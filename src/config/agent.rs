//! `[agent]`: the language model that requests may be handed to, its hooks, and the profiles of its subagents.
//!
//! No secret stands in this file: a key comes as a systemd credential or lies in a file of its own, and this room only
//! says where. An address that would carry the key over a network in the clear is refused.

use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;

use interlock_domain::agent::profile::{Hook, Profile, When};
use interlock_domain::block::Provider;
use interlock_domain::gate::policy::Mode;
use interlock_domain::surface::narrow::{Allow, NAMES_MAX};
use serde::Deserialize;
use toml::Spanned;

use super::ConfigError;

/// Turns of one run: below 1 nothing happens; beyond a few hundred a model goes in circles and a person pays for it.
const TURNS: RangeInclusive<u32> = 1..=500;
const TURNS_DEFAULT: u32 = 32;

/// How long the model may be silent, in seconds. A small model on an edge box reads a long prompt for a minute.
const QUIET_SECONDS: RangeInclusive<u64> = 1..=3600;
const QUIET_DEFAULT: Duration = Duration::from_secs(120);

/// The model's window in tokens, and what of it is kept for its answer.
const WINDOW: RangeInclusive<usize> = 1024..=10_000_000;
const WINDOW_DEFAULT: usize = 32_768;
const OUTPUT: RangeInclusive<usize> = 64..=1_000_000;
const OUTPUT_DEFAULT: usize = 4096;

/// How long a hook may take, in seconds: a call waits for it.
const HOOK_SECONDS: RangeInclusive<u64> = 1..=120;
const HOOK_DEFAULT: Duration = Duration::from_secs(10);

/// Hooks and profiles: each hook is a process for every call, each profile a part of every prompt.
const HOOKS_MAX: usize = 16;
const PROFILES_MAX: usize = 32;

/// The longest text of instructions, bytes: it is in every request.
const INSTRUCTIONS_MAX: usize = 64 * 1024;

/// Where the key is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// There is none: a model on this box needs none.
    None,
    /// A systemd credential of this name.
    Credential(String),
    /// A file that nobody but the service can read: absolute.
    File(PathBuf),
}

/// The checked table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// The base address, without the path of the operation.
    pub endpoint: String,
    /// What it speaks.
    pub provider: Provider,
    /// The model's name.
    pub model: String,
    /// Where the key is.
    pub key: Key,
    /// What the model is told besides what the product tells it.
    pub instructions: Option<String>,
    /// Turns of one run.
    pub turns_max: u32,
    /// How long the model may be silent.
    pub quiet: Duration,
    /// The model's window, tokens.
    pub window: usize,
    /// What of it is kept for the answer, tokens.
    pub output: usize,
    /// Commands around calls, in this order.
    pub hooks: Vec<Hook>,
    /// Kinds of subagents.
    pub profiles: Vec<Profile>,
}

#[derive(Debug, Deserialize)]
struct File {
    agent: Option<Spanned<Written>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Written {
    endpoint: Spanned<String>,
    kind: Option<Spanned<String>>,
    model: Spanned<String>,
    key_credential: Option<Spanned<String>>,
    key_file: Option<Spanned<PathBuf>>,
    instructions: Option<Spanned<String>>,
    max_turns: Option<Spanned<u32>>,
    timeout: Option<Spanned<u64>>,
    window: Option<Spanned<usize>>,
    output: Option<Spanned<usize>>,
    #[serde(default)]
    hook: Vec<Spanned<WrittenHook>>,
    #[serde(default)]
    profile: Vec<Spanned<WrittenProfile>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WrittenHook {
    on: Spanned<String>,
    tools: Option<Spanned<Vec<String>>>,
    command: Spanned<Vec<String>>,
    timeout: Option<Spanned<u64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WrittenProfile {
    name: Spanned<String>,
    description: Option<Spanned<String>>,
    instructions: Option<Spanned<String>>,
    allow: Option<Spanned<Vec<String>>>,
    deny: Option<Spanned<Vec<String>>>,
    mode: Option<Spanned<String>>,
    max_turns: Option<Spanned<u32>>,
    worktree: Option<bool>,
    fork: Option<bool>,
}

/// Reads `[agent]` out of the text of a configuration; `None` when there is no such table.
///
/// # Errors
/// The first mistake in it.
pub fn parse(text: &str, path: &Path) -> Result<Option<Agent>, ConfigError> {
    let file: File = toml::from_str(text).map_err(|error| ConfigError::from_toml(path, text, &error))?;
    let reader = Reader { text, path };
    file.agent.map(|written| reader.agent(written.into_inner())).transpose()
}

struct Reader<'a> {
    text: &'a str,
    path: &'a Path,
}

impl Reader<'_> {
    fn wrong(&self, span: Range<usize>, message: impl Into<String>) -> ConfigError {
        ConfigError::at(self.path, self.text, span, message)
    }

    fn agent(&self, written: Written) -> Result<Agent, ConfigError> {
        let provider = match &written.kind {
            None => Provider::Chat,
            Some(kind) => kind.get_ref().parse().map_err(|_| {
                let words = Provider::ALL.map(Provider::word).join(", ");
                self.wrong(kind.span(), "there is no such kind of endpoint").hint(format!("one of {words}"))
            })?,
        };
        let key = self.key(&written)?;
        self.address(&written.endpoint, &key)?;
        if written.model.get_ref().trim().is_empty() {
            return Err(self.wrong(written.model.span(), "the name of the model is empty"));
        }
        let window = self.within(written.window.as_ref(), WINDOW_DEFAULT, &WINDOW)?;
        let output = self.within(written.output.as_ref(), OUTPUT_DEFAULT.min(window / 2), &OUTPUT)?;
        if output > window / 2 {
            let span = written.output.as_ref().map_or(0..0, Spanned::span);
            return Err(self.wrong(span, format!("{output} tokens are more than half of the window of {window}")));
        }
        if written.hook.len() > HOOKS_MAX || written.profile.len() > PROFILES_MAX {
            let message = format!("at most {HOOKS_MAX} hooks and {PROFILES_MAX} profiles");
            return Err(ConfigError::of_file(self.path, message));
        }
        let hooks = written.hook.into_iter().map(|hook| self.hook(hook)).collect::<Result<Vec<_>, _>>()?;
        let mut profiles: Vec<Profile> = Vec::new();
        for profile in written.profile {
            let span = profile.span();
            let profile = self.profile(profile.into_inner())?;
            if profiles.iter().any(|other| other.name == profile.name) {
                return Err(self.wrong(span, format!("there are two profiles {:?}", profile.name)));
            }
            profiles.push(profile);
        }
        Ok(Agent {
            endpoint: written.endpoint.get_ref().trim_end_matches('/').to_owned(),
            provider,
            model: written.model.into_inner(),
            key,
            instructions: self.text_of(written.instructions)?,
            turns_max: self.within(written.max_turns.as_ref(), TURNS_DEFAULT, &TURNS)?,
            quiet: self.seconds(written.timeout.as_ref(), QUIET_DEFAULT, &QUIET_SECONDS)?,
            window,
            output,
            hooks,
            profiles,
        })
    }

    fn key(&self, written: &Written) -> Result<Key, ConfigError> {
        match (&written.key_credential, &written.key_file) {
            (Some(_), Some(file)) => Err(self.wrong(file.span(), "there are two keys").hint("keep one of them")),
            (Some(name), None) => {
                let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
                let text = name.get_ref();
                if text.is_empty() || text.starts_with('.') || !text.chars().all(plain) {
                    return Err(self.wrong(name.span(), "the name of a credential is letters, digits, - _ ."));
                }
                Ok(Key::Credential(text.clone()))
            }
            (None, Some(file)) if !file.get_ref().is_absolute() => {
                Err(self.wrong(file.span(), format!("{:?} is not an absolute path", file.get_ref())))
            }
            (None, Some(file)) => Ok(Key::File(file.get_ref().clone())),
            (None, None) => Ok(Key::None),
        }
    }

    /// A key must not travel in the clear; without one, a model in the plant's own network is fine.
    fn address(&self, endpoint: &Spanned<String>, key: &Key) -> Result<(), ConfigError> {
        let text = endpoint.get_ref().as_str();
        let wrong = |message: &str| self.wrong(endpoint.span(), message);
        let (secure, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err(wrong("not an http:// or https:// address").hint("http://127.0.0.1:8080/v1")),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.contains('@') {
            return Err(wrong("the address holds a name or a password").hint("use key-credential or key-file"));
        }
        let host =
            authority.rsplit_once(':').filter(|(_, port)| !port.contains(']')).map_or(authority, |(host, _)| host);
        let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
        let loopback = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
        if host.is_empty() {
            return Err(wrong("the address has no host"));
        }
        if !secure && !loopback && *key != Key::None {
            return Err(
                wrong("the key would go over the network in the clear").hint("write https://, or a loopback address")
            );
        }
        Ok(())
    }

    fn hook(&self, hook: Spanned<WrittenHook>) -> Result<Hook, ConfigError> {
        let hook = hook.into_inner();
        let when = match hook.on.get_ref().as_str() {
            "before" => When::Before,
            "after" => When::After,
            _ => return Err(self.wrong(hook.on.span(), "there is no such moment").hint("\"before\" or \"after\"")),
        };
        let program = hook.command.get_ref().first();
        if !program.is_some_and(|program| Path::new(program).is_absolute()) {
            let message = "a hook is an absolute path and its arguments";
            return Err(self
                .wrong(hook.command.span(), message)
                .hint("command = [\"/usr/local/bin/check\", \"--strict\"]"));
        }
        Ok(Hook {
            when,
            tools: self.names(hook.tools)?,
            command: hook.command.into_inner(),
            patience: self.seconds(hook.timeout.as_ref(), HOOK_DEFAULT, &HOOK_SECONDS)?,
        })
    }

    fn profile(&self, profile: WrittenProfile) -> Result<Profile, ConfigError> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let name = profile.name.get_ref();
        if name.is_empty() || name.len() > 64 || !name.chars().all(fits) {
            return Err(self.wrong(profile.name.span(), "the name of a profile is 1 to 64 letters, digits, - _"));
        }
        let mode = match &profile.mode {
            None => None,
            Some(word) => Some(Mode::from_word(word.get_ref()).ok_or_else(|| {
                let known: Vec<_> = Mode::ALL.iter().map(|mode| mode.word()).collect();
                self.wrong(word.span(), "there is no such mode").hint(format!("one of {}", known.join(", ")))
            })?),
        };
        let turns_max = profile.max_turns.as_ref().map(|turns| self.within(Some(turns), TURNS_DEFAULT, &TURNS));
        let deny = match self.names(profile.deny)? {
            // No list takes nothing away; a `*` in it takes away everything.
            Allow::All => BTreeSet::new(),
            Allow::Only(names) => names,
        };
        Ok(Profile {
            name: profile.name.into_inner(),
            description: self.text_of(profile.description)?.unwrap_or_default(),
            instructions: self.text_of(profile.instructions)?,
            allow: self.names(profile.allow)?,
            deny,
            mode,
            turns_max: turns_max.transpose()?,
            worktree: profile.worktree.unwrap_or(false),
            fork: profile.fork.unwrap_or(false),
        })
    }

    fn names(&self, names: Option<Spanned<Vec<String>>>) -> Result<Allow, ConfigError> {
        if let Some(list) = &names
            && (list.get_ref().len() > NAMES_MAX || list.get_ref().iter().any(String::is_empty))
        {
            return Err(self.wrong(list.span(), format!("at most {NAMES_MAX} names of tools, none of them empty")));
        }
        Ok(Allow::of(names.map(Spanned::into_inner)))
    }

    fn text_of(&self, text: Option<Spanned<String>>) -> Result<Option<String>, ConfigError> {
        match text {
            Some(text) if text.get_ref().len() > INSTRUCTIONS_MAX => {
                let length = text.get_ref().len();
                Err(self.wrong(text.span(), format!("the text has {length} bytes; {INSTRUCTIONS_MAX} fit")))
            }
            text => Ok(text.map(Spanned::into_inner)),
        }
    }

    fn seconds(
        &self,
        written: Option<&Spanned<u64>>,
        default: Duration,
        bounds: &RangeInclusive<u64>,
    ) -> Result<Duration, ConfigError> {
        self.within(written, default.as_secs(), bounds).map(Duration::from_secs)
    }

    fn within<T: Copy + PartialOrd + std::fmt::Display>(
        &self,
        written: Option<&Spanned<T>>,
        default: T,
        bounds: &RangeInclusive<T>,
    ) -> Result<T, ConfigError> {
        match written {
            None => Ok(default),
            Some(value) if bounds.contains(value.get_ref()) => Ok(*value.get_ref()),
            Some(value) => {
                let (value, span) = (value.get_ref(), value.span());
                Err(self.wrong(span, format!("{value} is outside {} to {}", bounds.start(), bounds.end())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "[agent]\nendpoint = \"http://127.0.0.1:8080/v1/\"\nmodel = \"m\"\n";

    fn read(more: &str) -> Result<Option<Agent>, ConfigError> {
        parse(&format!("{LEAST}{more}"), Path::new("f.toml"))
    }

    #[test]
    fn every_key_changes_something() {
        let plain = read("").unwrap().unwrap();
        assert_eq!(plain.endpoint, "http://127.0.0.1:8080/v1");
        assert_eq!((plain.turns_max, plain.window, plain.output), (32, 32_768, 4096));
        assert_eq!(parse("version = 1\n", Path::new("f.toml")), Ok(None));
        let check = |more: &str, changed: &dyn Fn(&Agent) -> bool| {
            let agent = read(more).unwrap().unwrap();
            assert!(changed(&agent) && !changed(&plain), "{more}");
        };
        check("kind = \"gemini\"\n", &|agent| agent.provider == Provider::Gemini);
        check("key-credential = \"agent-key\"\n", &|agent| agent.key == Key::Credential("agent-key".into()));
        check("key-file = \"/etc/k\"\n", &|agent| agent.key == Key::File("/etc/k".into()));
        check("instructions = \"Be brief.\"\n", &|agent| agent.instructions.as_deref() == Some("Be brief."));
        check("max-turns = 3\n", &|agent| agent.turns_max == 3);
        check("timeout = 7\n", &|agent| agent.quiet == Duration::from_secs(7));
        check("window = 8192\n", &|agent| (agent.window, agent.output) == (8192, 4096));
        check("window = 4096\n", &|agent| agent.output == 2048);
        check("output = 1000\n", &|agent| agent.output == 1000);
        let hook = "[[agent.hook]]\non = \"before\"\ncommand = [\"/bin/true\"]\n";
        check(hook, &|agent| agent.hooks.len() == 1 && agent.hooks[0].tools == Allow::All);
        let hook = read(&format!("{hook}tools = [\"shell\"]\ntimeout = 3\n")).unwrap().unwrap().hooks.remove(0);
        assert_eq!((hook.when, hook.patience), (When::Before, Duration::from_secs(3)));
        assert_eq!(hook.tools, Allow::Only(["shell".to_owned()].into()));
        let profile = "[[agent.profile]]\nname = \"reader\"\ndescription = \"reads\"\ninstructions = \"read\"\n\
            allow = [\"read_file\", \"*\"]\ndeny = [\"shell\"]\nmode = \"plan\"\nmax-turns = 4\nworktree = true\nfork = true\n";
        let profile = read(profile).unwrap().unwrap().profiles.remove(0);
        let expected = Profile {
            name: "reader".into(),
            description: "reads".into(),
            instructions: Some("read".into()),
            allow: Allow::All,
            deny: ["shell".to_owned()].into(),
            mode: Some(Mode::Plan),
            turns_max: Some(4),
            worktree: true,
            fork: true,
        };
        assert_eq!(profile, expected);
    }

    #[test]
    fn a_mistake_names_its_place() {
        let check = |text: &str, expected: &str| {
            let error = parse(text, Path::new("f.toml")).unwrap_err();
            assert!(error.to_string().contains(expected), "{text}\n{error}");
        };
        let least = |more: &str| format!("{LEAST}{more}");
        check("[agent]\nmodel = \"m\"\n", "endpoint");
        check(&least("api-key = \"sk-1\"\n"), "f.toml:4:1");
        check(&least("kind = \"cohere\"\n"), "f.toml:4:8: agent.kind: there is no such kind of endpoint");
        check(&least("max-turns = 0\n"), "agent.max-turns: 0 is outside 1 to 500");
        check(&least("timeout = 0\n"), "outside");
        check(&least("window = 2048\noutput = 2000\n"), "more than half of the window");
        check(&least("key-file = \"k\"\n"), "not an absolute path");
        check(&least("key-file = \"/k\"\nkey-credential = \"k\"\n"), "two keys");
        check(&least("key-credential = \"../k\"\n"), "name of a credential");
        check(&least("[[agent.hook]]\non = \"during\"\ncommand = [\"/a\"]\n"), "no such moment");
        check(&least("[[agent.hook]]\non = \"after\"\ncommand = [\"a\"]\n"), "absolute path");
        check(&least("[[agent.hook]]\non = \"after\"\ncommand = []\n"), "absolute path");
        check(&least("[[agent.profile]]\nname = \"a b\"\n"), "name of a profile");
        check(&least("[[agent.profile]]\nname = \"a\"\n[[agent.profile]]\nname = \"a\"\n"), "two profiles");
        check(&least("[[agent.profile]]\nname = \"a\"\nmode = \"yolo\"\n"), "no such mode");
        let address = |address: &str, key: &str| format!("[agent]\nmodel = \"m\"\nendpoint = \"{address}\"\n{key}");
        let key = "key-credential = \"k\"\n";
        check(&address("ftp://a/", ""), "not an http");
        check(&address("http:///v1", ""), "no host");
        check(&address("https://me:secret@a/v1", ""), "a name or a password");
        check(&address("http://models.example/v1", key), "in the clear");
        check(&address("http://10.0.0.5:8000/v1", key), "in the clear");
        for (fits, key) in [
            ("http://10.0.0.5:8000/v1", ""),
            ("https://models.example/v1", key),
            ("http://[::1]:8080/v1", key),
            ("http://localhost/v1", key),
        ] {
            assert!(parse(&address(fits, key), Path::new("f.toml")).is_ok(), "{fits}");
        }
    }
}
