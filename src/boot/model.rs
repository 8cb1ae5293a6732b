//! What a configuration makes of the model and the knowledge: where the bytes are, and which passages are shipped.

use std::path::Path;

use super::update::InForce;
use super::{BootError, Places};
use crate::config::model::{self, Manifest};
use crate::config::{Config, ConfigError};
use crate::engine::agent::Handle as Models;
use crate::engine::inference::Inference;
use crate::engine::librarian::{Librarian, Shipped};
use crate::engine::listener::Later;
use crate::engine::supervisor::Supervisor;
use crate::infer::classifier::{Bytes, Source};
use crate::infer::knowledge::{Library, Passage, ReadError, json_lines};
use crate::infer::runtime::Provider;
use crate::store::queue::Writer;

/// The name of the shipped passages in the library.
pub const SHIPPED: &str = "interlock: general notes";

/// The classifier of a manifest, or the embedded one.
///
/// # Errors
/// When the manifest cannot be read or is wrong.
pub fn source(manifest: Option<&Path>) -> Result<Source, ConfigError> {
    match manifest {
        None => {
            let manifest = model::parse(Path::new(model::EMBEDDED_NAME), model::EMBEDDED)?;
            let (model, labels) = (Bytes::Embedded(model::EMBEDDED_MODEL), Bytes::Embedded(model::EMBEDDED_LABELS));
            Ok(of(manifest, "the embedded model".to_owned(), model, labels, None))
        }
        Some(path) => {
            let manifest = model::read(path)?;
            let folder = path.parent().unwrap_or(Path::new("."));
            let model = folder.join(&manifest.file);
            let labels = folder.join(&manifest.labels);
            let pieces = manifest.pieces.as_ref().map(|(name, hash)| (Bytes::File(folder.join(name)), hash.clone()));
            Ok(of(manifest, model.display().to_string(), Bytes::File(model), Bytes::File(labels), pieces))
        }
    }
}

fn of(manifest: Manifest, name: String, model: Bytes, labels: Bytes, pieces: Option<(Bytes, String)>) -> Source {
    let Manifest { sha256, labels_sha256, .. } = manifest;
    Source { name, model, model_sha256: sha256, labels, labels_sha256, pieces }
}

/// The classifiers of a configuration, in the order in which they are tried: those of updates, then the one that it names
/// or the embedded one. None when the model stage is switched off.
///
/// # Errors
/// See [`source`].
pub fn of_config(config: &Config, updates: &InForce) -> Result<Option<(Vec<Source>, Provider)>, ConfigError> {
    if !config.model.enabled {
        return Ok(None);
    }
    let provider = match config.model.provider {
        model::Provider::Auto => Provider::Auto,
        model::Provider::Cann => Provider::Cann,
        model::Provider::Cpu => Provider::Cpu,
    };
    let mut sources = updates.models.clone();
    sources.push(source(config.model.manifest.as_deref())?);
    Ok(Some((sources, provider)))
}

/// The stages that need the world, as this configuration wants them.
pub(super) fn later(
    config: &Config,
    updates: &InForce,
    places: &Places,
    supervisor: Supervisor,
    writer: Writer,
    models: Models,
) -> Result<Later, BootError> {
    let inference = of_config(config, updates)?;
    let inference = inference.map(|(sources, provider)| Inference::new(sources, provider, supervisor, writer));
    let librarian =
        Librarian::start(places.state.join(Library::FILE)).map_err(|error| BootError::Other(error.into()))?;
    librarian.follow(config.knowledge_folders.clone(), shipped(config));
    Ok(Later { inference, librarian: Some(librarian), models: Some(models) })
}

/// The shipped passages answer while the embedded plant runs; a plant of its own has its own manuals.
pub(super) fn shipped(config: &Config) -> Shipped {
    let passages = if config.devices.is_empty() { passages().ok() } else { None };
    Shipped { name: SHIPPED, passages }
}

/// The shipped passages.
///
/// # Errors
/// Never in practice: they are a constant, and a test reads it.
pub fn passages() -> Result<Vec<Passage>, ReadError> {
    json_lines(Path::new("models/knowledge/passages.jsonl"), model::EMBEDDED_PASSAGES)
}

/// A library in memory with the shipped passages: what an offline verb answers from when it is shown no state.
#[must_use]
pub fn shipped_library() -> Option<Library> {
    let mut library = Library::in_memory().ok()?;
    library.put(SHIPPED, &passages().ok()?).ok()?;
    Some(library)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_embedded_is_whole() {
        assert_eq!(source(None).expect("the embedded manifest").name, "the embedded model");
        assert_eq!(passages().expect("the shipped passages").len(), 40);
        let library = shipped_library().expect("a library");
        let found = library.answer("水泵不上水怎么处理", 3).expect("searched");
        assert_eq!(found[0].id, "k04");
    }
}
