//! `[model]` and `[knowledge]`, and the manifest of a model: which files it has and what their hashes are.
//!
//! Nothing is loaded here. A manifest that is wrong refuses the configuration with its place; a model file that is
//! wrong is found out when it is loaded, and then only the model stage is missing.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use super::ConfigError;
use super::file;

/// The manifest of the model that is in the binary.
pub const EMBEDDED: &str = include_str!("../../models/manifest.toml");
/// Its name in messages.
pub const EMBEDDED_NAME: &str = "models/manifest.toml";
/// The model that is in the binary.
pub const EMBEDDED_MODEL: &[u8] = include_bytes!("../../models/classifier/commands.onnx");
/// Its labels.
pub const EMBEDDED_LABELS: &[u8] = include_bytes!("../../models/classifier/labels.txt");
/// The passages that are in the binary, for the embedded plant.
pub const EMBEDDED_PASSAGES: &str = include_str!("../../models/knowledge/passages.jsonl");

/// Which execution provider is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Provider {
    /// Ascend where ONNX Runtime has it, else the CPU.
    #[default]
    Auto,
    /// Ascend.
    Cann,
    /// The CPU.
    Cpu,
}

/// The model stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// Whether there is one.
    pub enabled: bool,
    /// Where it is to run.
    pub provider: Provider,
    /// Another manifest than the embedded one.
    pub manifest: Option<PathBuf>,
}

pub(super) fn model(path: &Path, text: &str, file: &file::Model) -> Result<Model, ConfigError> {
    let provider = match &file.provider {
        None => Provider::Auto,
        Some(word) => match word.get_ref().as_str() {
            "auto" => Provider::Auto,
            "cann" => Provider::Cann,
            "cpu" => Provider::Cpu,
            _ => {
                return Err(ConfigError::at(path, text, word.span(), "there is no such provider")
                    .hint("\"auto\", \"cann\" or \"cpu\""));
            }
        },
    };
    let directory = path.parent().unwrap_or(Path::new("."));
    let manifest = file.manifest.as_ref().map(|manifest| directory.join(manifest));
    Ok(Model { enabled: file.enabled.unwrap_or(true), provider, manifest })
}

/// The folders of `[knowledge]`, absolute.
pub(super) fn folders(path: &Path, text: &str, file: &file::Knowledge) -> Result<Vec<PathBuf>, ConfigError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut folders: Vec<PathBuf> = Vec::new();
    for folder in &file.folders {
        let place = directory.join(folder.get_ref());
        if folders.contains(&place) {
            return Err(ConfigError::at(path, text, folder.span(), "this folder is named twice"));
        }
        folders.push(place);
    }
    Ok(folders)
}

/// What a manifest says of a classifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The graph, relative to the manifest.
    pub file: PathBuf,
    /// Its SHA-256.
    pub sha256: String,
    /// The labels, relative to the manifest.
    pub labels: PathBuf,
    /// Their SHA-256.
    pub labels_sha256: String,
    /// The vocabulary of a sentence encoder, relative to the manifest, and its SHA-256; none for a model of grams.
    pub pieces: Option<(PathBuf, String)>,
}

#[derive(Deserialize)]
struct Written {
    version: Spanned<u32>,
    commands: Classifier,
}

/// The keys that the daemon needs; training writes more beside them.
#[derive(Deserialize)]
struct Classifier {
    kind: Option<Spanned<String>>,
    file: Spanned<PathBuf>,
    sha256: Spanned<String>,
    labels: Spanned<PathBuf>,
    labels_sha256: Spanned<String>,
    pieces: Option<Spanned<PathBuf>>,
    pieces_sha256: Option<Spanned<String>>,
}

/// Reads the manifest at `path`.
///
/// # Errors
/// When it cannot be read or is wrong.
pub fn read(path: &Path) -> Result<Manifest, ConfigError> {
    parse(path, &super::read(path)?)
}

/// Reads the text of a manifest.
///
/// # Errors
/// The first mistake, with its place.
pub fn parse(path: &Path, text: &str) -> Result<Manifest, ConfigError> {
    let written: Written = toml::from_str(text).map_err(|error| ConfigError::from_toml(path, text, &error))?;
    let wrong = |span, fact: &str| ConfigError::at(path, text, span, fact);
    if *written.version.get_ref() != 1 {
        return Err(wrong(written.version.span(), "this build reads version 1"));
    }
    let whole = 0..text.len().min(1);
    let Classifier { kind, file, sha256, labels, labels_sha256, pieces, pieces_sha256 } = written.commands;
    let pieces = match (kind.as_ref().map(|kind| kind.get_ref().as_str()), pieces, pieces_sha256) {
        (None | Some("grams"), None, None) => None,
        (Some("sentences"), Some(pieces), Some(hash)) => Some((pieces, hash)),
        (Some("sentences"), _, _) => {
            return Err(wrong(kind.map_or(whole, |kind| kind.span()), "such a model has pieces and pieces_sha256"));
        }
        (None | Some("grams"), _, _) => {
            return Err(wrong(file.span(), "only a model of the kind \"sentences\" has pieces"));
        }
        (Some(_), _, _) => {
            return Err(wrong(kind.map_or(whole, |kind| kind.span()), "there is no such kind")
                .hint("\"grams\" or \"sentences\""));
        }
    };
    for name in [&file, &labels].into_iter().chain(pieces.as_ref().map(|(name, _)| name)) {
        let inside = name.get_ref().components().all(|part| matches!(part, std::path::Component::Normal(_)));
        if !inside {
            return Err(wrong(name.span(), "a model's files lie beside its manifest or in a folder there"));
        }
    }
    for hash in [&sha256, &labels_sha256].into_iter().chain(pieces.as_ref().map(|(_, hash)| hash)) {
        if hash.get_ref().len() != 64 || !hash.get_ref().bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(wrong(hash.span(), "not a SHA-256 in 64 small hexadecimal digits"));
        }
    }
    Ok(Manifest {
        file: file.into_inner(),
        sha256: sha256.into_inner(),
        labels: labels.into_inner(),
        labels_sha256: labels_sha256.into_inner(),
        pieces: pieces.map(|(name, hash)| (name.into_inner(), hash.into_inner())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "version = 1\n[commands]\nfile = \"a.onnx\"\nsha256 = \"0000000000000000000000000000000000000000000000000000000000000000\"\nlabels = \"l/a.txt\"\nlabels_sha256 = \"0000000000000000000000000000000000000000000000000000000000000000\"\nseed = 3\n";

    #[test]
    fn the_embedded_manifest_is_of_the_embedded_files() {
        let manifest = parse(Path::new(EMBEDDED_NAME), EMBEDDED).expect("the embedded manifest");
        assert_eq!(manifest.file, Path::new("classifier/commands.onnx"));
        assert!(EMBEDDED_MODEL.len() <= 2 << 20, "{} bytes", EMBEDDED_MODEL.len());
        assert!(EMBEDDED_LABELS.starts_with(b"none\n"));
    }

    fn check(from: &str, to: &str, expected: &str) {
        let text = GOOD.replace(from, to);
        assert_eq!(parse(Path::new("m.toml"), &text).expect_err("refused").to_string(), expected);
    }

    #[test]
    fn a_mistake_names_its_place() {
        assert!(parse(Path::new("m.toml"), GOOD).is_ok());
        check("= 1\n", "= 2\n", "m.toml:1:11: version: this build reads version 1");
        check(
            "a.onnx",
            "../a.onnx",
            "m.toml:3:8: commands.file: a model's files lie beside its manifest or in a folder there",
        );
        check(
            "\"l/a.txt\"",
            "\"/l\"",
            "m.toml:5:10: commands.labels: a model's files lie beside its manifest or in a folder there",
        );
        check("seed = 3\n", "kind = \"tree\"\n", "m.toml:7:8: commands.kind: there is no such kind");
        check(
            "seed = 3\n",
            "kind = \"sentences\"\n",
            "m.toml:7:8: commands.kind: such a model has pieces and pieces_sha256",
        );
        check(
            "seed = 3\n",
            "pieces = \"p.tsv\"\n",
            "m.toml:3:8: commands.file: only a model of the kind \"sentences\" has pieces",
        );
    }

    #[test]
    fn a_sentence_encoder_names_its_pieces() {
        let hash = "0".repeat(64);
        let text =
            GOOD.replace("seed = 3", &format!("kind = \"sentences\"\npieces = \"p.tsv\"\npieces_sha256 = \"{hash}\""));
        let manifest = parse(Path::new("m.toml"), &text).expect("a manifest");
        assert_eq!(manifest.pieces, Some((PathBuf::from("p.tsv"), hash)));
        assert_eq!(parse(Path::new("m.toml"), GOOD).expect("the small one").pieces, None);
    }

    fn config(text: &str) -> Result<super::super::Config, String> {
        super::super::check(Path::new("/etc/i/i.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn each_key_changes_something() {
        let plain = config("version = 1\n").expect("plain");
        assert_eq!(plain.model, Model { enabled: true, provider: Provider::Auto, manifest: None });
        let other = config("version = 1\n[model]\nenabled = false\nprovider = \"cpu\"\n").expect("other");
        assert_eq!(other.model, Model { enabled: false, provider: Provider::Cpu, manifest: None });
        let none = config("version = 1\n[model]\nprovider = \"gpu\"\n").expect_err("refused");
        assert_eq!(none, "/etc/i/i.toml:3:12: model.provider: there is no such provider");
        let named = config("version = 1\n[model]\nmanifest = \"m/m.toml\"\n").expect("named");
        assert_eq!(named.model.manifest.as_deref(), Some(Path::new("/etc/i/m/m.toml")));
        let folders = config("version = 1\n[knowledge]\nfolders = [\"manuals\", \"/srv/k\"]\n").expect("folders");
        assert_eq!(folders.knowledge_folders, [PathBuf::from("/etc/i/manuals"), PathBuf::from("/srv/k")]);
        let twice = config("version = 1\n[knowledge]\nfolders = [\"a\", \"a\"]\n").expect_err("refused");
        assert_eq!(twice, "/etc/i/i.toml:3:17: knowledge.folders: this folder is named twice");
    }
}
