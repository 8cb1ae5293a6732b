//! Which updates count, and whether one that was brought fits this box.
//!
//! A start must not fail because of an update: one that is damaged, signed by nobody who counts, or does not load, is
//! passed over with its reason, for the set before it and then for what the program was shipped with. Here it is judged
//! with the very code that the daemon runs; what an update is, and where it is kept, is `store::update`'s.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use thiserror::Error;

use super::{CommandSet, clashes, load_commands, model};
use crate::config::{Config, ConfigError};
use crate::engine::stamp;
use crate::infer::classifier::{Classifier, Source};
use crate::infer::runtime::{self, Provider};
use crate::record::{Row, kind};
use crate::store::queue::{Entry, Writer};
use crate::store::update::{KEYS, Kept, Manifest, Part, Set, Trust, UpdateError};

/// A label that stands for no command.
const NO_COMMAND: &str = "none";
/// Commands that are named in a message; the rest is counted.
const NAMED_MAX: usize = 5;

/// The set that counts for a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Of {
    /// Its version.
    pub version: String,
    /// The hash of its manifest.
    pub id: String,
    /// Who signed it.
    pub signer: String,
}

/// A set that should count and does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Of what.
    pub part: Part,
    /// Which; its id where nothing else is known.
    pub id: String,
    /// Why.
    pub why: String,
}

/// What counts on this box.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InForce {
    /// Commands; none for those of the program or the configuration.
    pub commands: Option<Of>,
    /// The classifier, likewise.
    pub model: Option<Of>,
    /// What should count and does not.
    pub refused: Vec<Refused>,
    /// Parts that an update is active for while the configuration names its own.
    pub overridden: Vec<Part>,
    /// The classifiers of updates, in the order in which they are tried.
    pub(crate) models: Vec<Source>,
}

/// The keys whose updates count here.
///
/// # Errors
/// When there are none.
pub fn trust(config: &Config) -> Result<Trust, UpdateError> {
    Trust::read(config.update_keys.as_deref().unwrap_or(Path::new(KEYS)))
}

/// Whether the configuration names its own of this: then an update of it does not count.
#[must_use]
pub fn is_overridden(config: &Config, part: Part) -> bool {
    match part {
        Part::Commands => !config.command_files.is_empty(),
        Part::Model => config.model.manifest.is_some(),
    }
}

/// Finds out what counts, and puts the command files of an update into the configuration. Never fails: a reason why
/// something does not count is part of the answer.
#[must_use]
pub fn settle(config: &mut Config, state: &Path) -> InForce {
    let kept = Kept::of(state);
    let mut found = InForce::default();
    let active = match kept.active() {
        Ok(active) => active,
        Err(error) => {
            let why = error.to_string();
            found.refused = Part::ALL
                .map(|part| Refused { part, id: "unknown".to_owned(), why: why.clone() })
                .into_iter()
                .collect();
            return found;
        }
    };
    let before = active.before.unwrap_or_default();
    for part in Part::ALL {
        let Some(now) = active.now.of(part) else { continue };
        if is_overridden(config, part) {
            found.overridden.push(part);
            continue;
        }
        let mut ids = vec![now];
        ids.extend(before.of(part).filter(|before| *before != now));
        for id in ids {
            match counts(config, &kept, part, id) {
                Ok((set, source)) => {
                    let Manifest { version, id, signer, .. } = &set.manifest;
                    let of = Of { version: version.to_string(), id: id.clone(), signer: signer.clone() };
                    found.models.extend(source);
                    match part {
                        Part::Commands => {
                            config.command_files = set.files(Part::Commands);
                            found.commands = Some(of);
                            break;
                        }
                        // The set before stays behind it: what a model's graph is worth is seen when it is loaded.
                        Part::Model => found.model = found.model.or(Some(of)),
                    }
                }
                Err(why) => found.refused.push(Refused { part, id: id.to_owned(), why }),
            }
        }
    }
    found
}

/// One set, as far as it can be judged at a start.
fn counts(config: &Config, kept: &Kept, part: Part, id: &str) -> Result<(Set, Option<Source>), String> {
    let set = trust(config).and_then(|trust| kept.set(id, &trust)).map_err(|error| error.to_string())?;
    let files = set.files(part);
    if files.is_empty() {
        return Err(format!("the set has no {}", part.word()));
    }
    let source = match part {
        Part::Commands => {
            let with = Config { command_files: files, ..config.clone() };
            load_commands(&with).map_err(|error| error.to_string())?;
            None
        }
        Part::Model => {
            let manifest = set.folder.join(crate::store::update::MODEL_MANIFEST);
            Some(model::source(Some(&manifest)).map_err(|error| error.to_string())?)
        }
    };
    Ok((set, source))
}

impl InForce {
    /// What counts for a part.
    #[must_use]
    pub fn of(&self, part: Part) -> Option<&Of> {
        match part {
            Part::Commands => self.commands.as_ref(),
            Part::Model => self.model.as_ref(),
        }
    }

    /// Whether there was never an update, or none counts and none should.
    #[must_use]
    pub fn is_shipped(&self) -> bool {
        *self == InForce::default()
    }

    /// For `status`, the log and scripts.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let of = |of: Option<&Of>| {
            of.map_or(Value::Null, |of| json!({ "version": of.version, "id": of.id, "signer": of.signer }))
        };
        let refused = |one: &Refused| json!({ "part": one.part.word(), "id": one.id, "why": one.why });
        json!({
            "commands": of(self.commands.as_ref()),
            "model": of(self.model.as_ref()),
            "refused": self.refused.iter().map(refused).collect::<Vec<_>>(),
            "overridden": self.overridden.iter().map(|part| part.word()).collect::<Vec<_>>(),
        })
    }

    /// In one line, in English and in Chinese.
    #[must_use]
    pub fn line(&self) -> [String; 2] {
        let mut lines = [Vec::new(), Vec::new()];
        for part in Part::ALL {
            let (en, zh) = match (self.of(part), self.overridden.contains(&part)) {
                (Some(of), _) => (of.version.clone(), of.version.clone()),
                (None, true) => ("of the configuration".to_owned(), "由配置指定".to_owned()),
                (None, false) => ("as shipped".to_owned(), "出厂自带".to_owned()),
            };
            lines[0].push(format!("{} {en}", part.word()));
            lines[1].push(format!("{} {zh}", part.zh()));
        }
        for Refused { part, id, why } in &self.refused {
            let id = id.get(..12).unwrap_or(id);
            lines[0].push(format!("{} {id} does not count: {why}", part.word()));
            lines[1].push(format!("{} {id} 未生效：{why}", part.zh()));
        }
        [lines[0].join(", "), lines[1].join("，")]
    }

    /// What the writer of a configuration should know.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let overridden = self.overridden.iter().map(|part| {
            let key = key_of(*part);
            format!("{key} is set: an update of the {} is active and does not count", part.word())
        });
        let refused = self.refused.iter().map(|one| {
            format!(
                "the update {} of the {} does not count: {}",
                one.id.get(..12).unwrap_or(&one.id),
                one.part.word(),
                one.why
            )
        });
        overridden.chain(refused).collect()
    }

    /// Writes down what counts from now on, if that is another than what was written down last.
    pub(super) fn note(&self, state: &Path, writer: &Writer) {
        let kept = Kept::of(state);
        let (now, told) = (self.to_json(), kept.told());
        if told.as_deref() == Some(&*now.to_string()) || (told.is_none() && self.is_shipped()) {
            return;
        }
        let to = match (self.refused.is_empty(), self.commands.is_some() || self.model.is_some()) {
            (false, _) => "not_loaded",
            (true, true) => "in_force",
            (true, false) => "none",
        };
        let cause = self.refused.first().map(|one| format!("{}: {}", one.part.word(), one.why));
        match &cause {
            Some(cause) => tracing::error!(kind = "UPDATE_NOT_LOADED", "{cause}; what counts: {}", self.line()[0]),
            None => tracing::info!("updates: {}", self.line()[0]),
        }
        let row = Row { to: Some(to.into()), cause: cause.map(Into::into), ..Row::new(stamp::now(), kind::UPDATE) };
        writer.append_or_count(Entry::urgent(row.detailed(&now)));
        // On a disk that takes nothing the row comes again at the next start: twice is better than never.
        if let Err(error) = kept.tell(&now.to_string()) {
            tracing::warn!(%error, "what was said of updates will be said again");
        }
    }
}

fn key_of(part: Part) -> &'static str {
    match part {
        Part::Commands => "[commands] files",
        Part::Model => "[model] manifest",
    }
}

/// Why an update that is whole and signed is not taken here.
#[derive(Debug, Error)]
pub enum Unfit {
    /// A file of it is wrong.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// The configuration names its own.
    #[error("the configuration names its own {}: the update's would not count", key_of(*.0))]
    Overridden(Part),
    /// Phrases that cannot be told apart.
    #[error("{} pairs of phrases are too near to each other: {}", .0.len(), named(.0))]
    Clashes(Vec<String>),
    /// Commands that are in force and not in it.
    #[error("{} commands that are in force are not in it: {}", .0.len(), named(.0))]
    Fewer(Vec<String>),
    /// The model is not one that this box can use.
    #[error("the model does not fit: {0}")]
    Model(String),
}

impl Unfit {
    /// What to do about it, in English and in Chinese.
    #[must_use]
    pub fn hint(&self) -> [&'static str; 2] {
        match self {
            Unfit::Config(_) | Unfit::Clashes(_) | Unfit::Model(_) => [
                "ask its maker for a corrected one; nothing was changed here",
                "请向厂商索取更正后的文件；未做任何改动",
            ],
            Unfit::Overridden(_) => {
                ["take that key out of the configuration, or leave the update", "请从配置中删除该项，或不使用此升级"]
            }
            Unfit::Fewer(_) => ["if they are really no longer wanted: --fewer", "确实不再需要这些命令时请加 --fewer"],
        }
    }

    /// The same fact in Chinese.
    #[must_use]
    pub fn zh(&self) -> String {
        match self {
            Unfit::Config(error) => error.to_string(),
            Unfit::Overridden(part) => format!("配置用 {} 指定了自己的{}，此升级不会生效", key_of(*part), part.zh()),
            Unfit::Clashes(all) => format!("有 {} 对说法过于相近：{}", all.len(), named(all)),
            Unfit::Fewer(all) => format!("缺少现有的 {} 条命令：{}", all.len(), named(all)),
            Unfit::Model(why) => format!("模型不适用：{why}"),
        }
    }
}

fn named(all: &[String]) -> String {
    let more = all.len().saturating_sub(NAMED_MAX);
    let names = all.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    if more == 0 { names } else { format!("{names} and {more} more") }
}

/// What was found of an update that fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fit {
    /// How many commands there are with it; none when it has no commands.
    pub commands: Option<usize>,
    /// What runs its model; none when it has no model, or when there is no ONNX Runtime here to try it.
    pub runs: Option<String>,
}

/// Judges an update that lies unpacked in `folder`, as `interlock check` judges a configuration. `config` is the
/// configuration as `settle` left it, so that what is in force now is compared with; `fewer` lets commands go.
///
/// # Errors
/// [`Unfit`].
pub fn judge(config: &Config, now: &InForce, manifest: &Manifest, folder: &Path, fewer: bool) -> Result<Fit, Unfit> {
    let plain = |path: &Path| path.strip_prefix(folder).map_or_else(|_| path.to_owned(), Path::to_owned);
    let in_it = |error: ConfigError| ConfigError { file: plain(&error.file), ..error };
    for part in Part::ALL.into_iter().filter(|part| manifest.has(*part)) {
        // What an update put there is not the configuration's own.
        if is_overridden(config, part) && now.of(part).is_none() {
            return Err(Unfit::Overridden(part));
        }
    }
    let current = load_commands(config)?;
    let mut ids: BTreeSet<String> = current.ids().map(str::to_owned).collect();
    let mut fit = Fit { commands: None, runs: None };
    if manifest.has(Part::Commands) {
        let files: Vec<PathBuf> =
            manifest.files.keys().filter(|name| name.starts_with("commands/")).map(|name| folder.join(name)).collect();
        let with = Config { command_files: files, ..config.clone() };
        let set: CommandSet = load_commands(&with).map_err(in_it)?;
        let near = clashes(&with, &set).map_err(in_it)?;
        if !near.is_empty() {
            let shown = |clash: &super::Clash| {
                let (one, other) = (&clash.conflict.phrase, &clash.conflict.other_phrase);
                format!("{}:{} {one:?} and {other:?}", plain(&clash.at.0).display(), clash.at.1)
            };
            return Err(Unfit::Clashes(near.iter().map(shown).collect()));
        }
        let new: BTreeSet<String> = set.ids().map(str::to_owned).collect();
        let missing: Vec<String> = ids.difference(&new).cloned().collect();
        if !missing.is_empty() && !fewer {
            return Err(Unfit::Fewer(missing));
        }
        fit.commands = Some(set.len());
        ids = new;
    }
    if manifest.has(Part::Model) {
        let source = model::source(Some(&folder.join(crate::store::update::MODEL_MANIFEST))).map_err(in_it)?;
        let unfit = |why: String| Unfit::Model(why.replace(&format!("{}/", folder.display()), ""));
        let labels = source.checked().map_err(|error| unfit(error.to_string()))?;
        let strange: Vec<String> =
            labels.into_iter().filter(|label| label != NO_COMMAND && !ids.contains(label)).collect();
        if !strange.is_empty() {
            let count = strange.len();
            return Err(Unfit::Model(format!("{count} of its labels are no commands here: {}", named(&strange))));
        }
        if runtime::find().is_some() {
            let loaded = Classifier::load(&source, Provider::Cpu).map_err(|error| unfit(error.to_string()))?;
            fit.runs = Some(loaded.running().to_string());
        }
    }
    Ok(fit)
}
