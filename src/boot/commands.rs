//! The command sets of a configuration, compiled and bound.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use interlock_domain::command::conflict::{self, Conflict};
use interlock_domain::command::definition::Commands;
use interlock_domain::command::understanding::Understanding;
use interlock_domain::device::table::Devices;
use interlock_domain::learn::gate::Policy;

use crate::config::{self, Config, ConfigError, commands, lexicon, regression};
use crate::engine::learner::{Basis, Vocabulary};

/// Commands, and how they are learned and talked about.
pub struct CommandSet {
    commands: Commands,
    policy: Policy,
    dialogue: Duration,
}

/// Reads the command files of a configuration, or the shipped ones.
///
/// # Errors
/// The first mistake in one of them.
pub fn load(config: &Config) -> Result<CommandSet, ConfigError> {
    let mut all = Commands::default();
    if config.command_files.is_empty() {
        all = commands::read(Path::new(commands::EMBEDDED_NAME), commands::EMBEDDED)?;
    }
    // What a file says of all sentences holds only where every file of the operator says so, and no plugin says it.
    let mut all_first = !config.command_files.is_empty();
    for (at, file) in config.command_files.iter().chain(&config.extensions.command_files).enumerate() {
        let more = commands::read(file, &config::read(file)?)?;
        let is_plugin = at >= config.command_files.len();
        if is_plugin && !more.skip_words.is_empty() {
            return Err(ConfigError::of_file(file, "a plugin cannot say which words are passed over")
                .hint("skip_words would hold for the commands of every file; give them in a file of [commands]"));
        }
        all_first &= more.first_wins;
        for command in &more.list {
            if all.list.iter().any(|known| known.id == command.id) {
                return Err(ConfigError::of_file(file, format!("the command {:?} is in another file too", command.id))
                    .hint("an id names one command over all files"));
            }
        }
        all.zones.extend(more.zones.into_iter().filter(|zone| !all.zones.contains(zone)).collect::<Vec<_>>());
        all.skip_words.extend(more.skip_words);
        all.list.extend(more.list);
    }
    all.first_wins = all_first;
    Ok(CommandSet { commands: all, policy: config.learning, dialogue: config.dialogue_patience })
}

/// The shipped words, which are in the binary.
fn vocabulary() -> Result<Vocabulary, ConfigError> {
    Ok(Vocabulary {
        lexicon: lexicon::read(Path::new(lexicon::EMBEDDED_NAME), lexicon::EMBEDDED)?,
        confusions: lexicon::read_confusions(
            Path::new(lexicon::EMBEDDED_CONFUSIONS_NAME),
            lexicon::EMBEDDED_CONFUSIONS,
        )?,
        replay: regression::read(Path::new(regression::EMBEDDED_NAME), regression::EMBEDDED)?,
    })
}

/// Two phrases that are too near to each other, and where they stand.
#[derive(Debug, Clone, PartialEq)]
pub struct Clash {
    /// What is too near, and by how much.
    pub conflict: Conflict,
    /// File and line of the phrase.
    pub at: (PathBuf, usize),
    /// File and line of the other.
    pub other_at: (PathBuf, usize),
}

impl std::fmt::Display for Clash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Conflict { command, phrase, other, other_phrase, margin } = &self.conflict;
        let place = |(file, line): &(PathBuf, usize)| format!("{}:{line}", file.display());
        write!(
            f,
            "{}: {phrase:?} ({command}) and {}: {other_phrase:?} ({other}) ",
            place(&self.at),
            place(&self.other_at)
        )?;
        if *margin == 0.0 {
            f.write_str("cannot be told apart by sound")
        } else {
            write!(f, "are {margin:.1} apart, which is nearer than the margin")
        }
    }
}

/// The phrases of a configuration's commands that are too near to each other to ship.
///
/// # Errors
/// When a file cannot be read any more.
pub fn clashes(config: &Config, set: &CommandSet) -> Result<Vec<Clash>, ConfigError> {
    let mut texts = vec![(PathBuf::from(commands::EMBEDDED_NAME), commands::EMBEDDED.to_owned())];
    if !config.command_files.is_empty() {
        texts.clear();
        for file in &config.command_files {
            texts.push((file.clone(), config::read(file)?));
        }
    }
    let place = |id: &str, phrase: &str| {
        let found = texts.iter().map(|(file, text)| (file.clone(), commands::line_of(text, id, phrase)));
        found.max_by_key(|(_, line)| *line).unwrap_or_default()
    };
    let Vocabulary { lexicon, confusions, .. } = vocabulary()?;
    let understanding = Understanding::compile(set.commands.clone(), &lexicon, &confusions);
    let found = conflict::conflicts(&understanding).into_iter().map(|conflict| Clash {
        at: place(&conflict.command, &conflict.phrase),
        other_at: place(&conflict.other, &conflict.other_phrase),
        conflict,
    });
    Ok(found.collect())
}

impl CommandSet {
    /// How many commands there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.commands.list.len()
    }

    /// There are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their ids.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.commands.list.iter().map(|command| command.id.as_str())
    }

    /// How many are bound to a tool.
    #[must_use]
    pub fn bound(&self) -> usize {
        self.commands.list.iter().filter(|command| !command.bind.is_empty()).count()
    }

    /// What learning stands on, with the devices that the commands may name.
    #[must_use]
    pub fn basis(self, devices: Arc<Devices>) -> Basis {
        let CommandSet { commands, policy, dialogue } = self;
        let vocabulary = || vocabulary().map_err(|error| error.to_string());
        Basis { commands, vocabulary, devices, policy, dialogue }
    }
}
