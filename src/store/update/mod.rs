//! Updates of commands and of the classifier: one signed file, made elsewhere and carried to the box by hand.
//!
//! An update is a gzip-compressed tar: `manifest.json` (version, and each file with its length and SHA-256),
//! `manifest.sig` (the maker's signature over the manifest), then the files, under `commands/` and `model/`. Manifest and
//! signature stand first, so that nothing of what nobody signed is read. The maker's key is the one that seals slots of
//! an image; a box trusts the keys that its own image or its administrator put there, and without any it takes nothing.
//!
//! [`pack`](pack()) makes one, [`examine`] judges it, [`Kept`] keeps the sets on a box and says which counts. Whether a
//! set *fits* (its commands load, its model has the labels of commands that are there) is `boot::update`'s to say, with
//! the code that the daemon runs; in here nothing is decided about meaning.

mod kept;
mod open;
mod pack;

use std::cmp::Ordering;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::keys::PublicKey;
use crate::record::unhex;

pub use kept::{Active, Chosen, FLOOR, FOLDER, Held, Kept, Set};
pub use open::{Listed, Manifest, Update, examine};
pub use pack::{Packed, pack};

/// The format of the files; a build refuses what is newer.
const FORMAT: u64 = 1;
/// What stands before the manifest when it is signed: a signature of something else is none of this.
const SIGNED: &[u8] = b"interlock update 1\n";
const MANIFEST: &str = "manifest.json";
const SIGNATURE: &str = "manifest.sig";
/// A command set has a handful of files, a model three or four.
const FILES_MAX: usize = 64;
/// A manifest of [`FILES_MAX`] files with long names is shorter.
const MANIFEST_LEN_MAX: u64 = 64 * 1024;
/// A signature is two lines of hexadecimal digits.
const SIGNATURE_LEN_MAX: u64 = 1024;
/// All files together, unpacked: the longest model that is loaded (128 MiB), its vocabulary, and commands.
const BYTES_MAX: u64 = 192 << 20;
const NAME_LEN_MAX: usize = 200;
/// Folders inside a part.
const DEPTH_MAX: usize = 3;
/// A list of keys is short; whatever is longer is not one.
const KEYS_LEN_MAX: u64 = 64 * 1024;
/// The name of a model's own manifest inside its part.
pub const MODEL_MANIFEST: &str = "model/manifest.toml";

/// Where a box's keys are when its configuration names no other place: an image puts them there.
pub const KEYS: &str = "/usr/lib/interlock/update-keys";

/// What can be updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The command set.
    Commands,
    /// The classifier.
    Model,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 2] = [Part::Commands, Part::Model];

    /// The word for it, which is also its folder.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Part::Commands => "commands",
            Part::Model => "model",
        }
    }

    /// The same for people, in Chinese.
    #[must_use]
    pub fn zh(self) -> &'static str {
        match self {
            Part::Commands => "命令集",
            Part::Model => "模型",
        }
    }

    fn of_name(name: &str) -> Option<Part> {
        let folder = name.split('/').next()?;
        Part::ALL.into_iter().find(|part| part.word() == folder)
    }
}

/// One to four numbers with dots between them, compared as numbers: 2026.10 is newer than 2026.9.
#[derive(Debug, Clone)]
pub struct Version {
    text: String,
    numbers: Vec<u64>,
}

impl Version {
    /// Reads one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Version> {
        let plain = |part: &str| !part.is_empty() && part.len() <= 18 && part.bytes().all(|b| b.is_ascii_digit());
        let parts: Vec<&str> = text.split('.').collect();
        if parts.len() > 4 || !parts.iter().all(|part| plain(part)) {
            return None;
        }
        let mut numbers: Vec<u64> = parts.iter().filter_map(|part| part.parse().ok()).collect();
        // 1 and 1.0 are the same.
        while numbers.len() > 1 && numbers.last() == Some(&0) {
            numbers.pop();
        }
        Some(Version { text: text.to_owned(), numbers })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Version) -> Ordering {
        self.numbers.cmp(&other.numbers)
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Version) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Version) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Version {}

/// Why there is no update, or why it is not taken.
#[derive(Debug, Error)]
pub enum UpdateError {
    /// The operating system refused a file.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is no update, or not a whole one.
    #[error("{} is no whole update: {what}", path.display())]
    NotAnUpdate {
        /// The file.
        path: PathBuf,
        /// The fact.
        what: String,
    },
    /// Nobody signed it.
    #[error("{} is not signed", path.display())]
    Unsigned {
        /// The file.
        path: PathBuf,
    },
    /// Its signature is not one of its manifest.
    #[error("{}: the signature does not fit; the manifest was changed after it was signed", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// Somebody signed it whom this box does not know.
    #[error("{} is signed by {signer}, who is not among the keys of {}", path.display(), keys.display())]
    Stranger {
        /// The file.
        path: PathBuf,
        /// The key that signed it.
        signer: String,
        /// Where the keys are that count.
        keys: PathBuf,
    },
    /// This box knows nobody.
    #[error("no key counts on this box: {}: {what}", keys.display())]
    NoKeys {
        /// Where they should be.
        keys: PathBuf,
        /// The fact.
        what: String,
    },
    /// A file is not the one that was signed.
    #[error("{}: {name} is not what was signed", path.display())]
    Damaged {
        /// The update, or the folder in which it is kept.
        path: PathBuf,
        /// The file in it.
        name: String,
    },
    /// A name that is none of an update, or leads out of it.
    #[error("{}: {name:?} is no name of a file of an update", path.display())]
    BadName {
        /// The update.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// There is more of it than an update ever has.
    #[error("{}: {what}", path.display())]
    TooMuch {
        /// The update.
        path: PathBuf,
        /// What is too much, with the bound.
        what: String,
    },
    /// A newer one was here already.
    #[error("{} are version {version}; version {floor} was here already", part.word())]
    Older {
        /// Of what.
        part: Part,
        /// The version in the file.
        version: Version,
        /// The newest that was ever taken.
        floor: Version,
    },
    /// Somebody else is at it.
    #[error("another update is under way in {}", path.display())]
    Busy {
        /// The lock.
        path: PathBuf,
    },
    /// There is no set before this one.
    #[error("there is no set before the one that is active")]
    NothingBefore,
}

impl UpdateError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> UpdateError {
        let path = path.to_owned();
        move |source| UpdateError::Io { path, source }
    }

    /// What to do about it, in English and in Chinese.
    #[must_use]
    pub fn hint(&self) -> Option<[&'static str; 2]> {
        match self {
            UpdateError::NotAnUpdate { .. } | UpdateError::Damaged { .. } | UpdateError::Changed { .. } => Some([
                "copy it again from where it was made; nothing was changed here",
                "请重新拷贝升级文件；未做任何改动",
            ]),
            UpdateError::Unsigned { .. } | UpdateError::Stranger { .. } => Some([
                "take one that the maker of this box signed; nothing was changed here",
                "请使用本设备厂商签名的升级文件；未做任何改动",
            ]),
            UpdateError::NoKeys { .. } => Some([
                "put the maker's public key there (64 hexadecimal digits a line), or name a file: [update] keys",
                "请把厂商公钥放在该文件中（每行 64 位十六进制），或在配置中指定 [update] keys",
            ]),
            UpdateError::Older { .. } => {
                Some(["if it is really the older one that is wanted: --older", "确实要装旧版本时请加 --older"])
            }
            UpdateError::BadName { .. } | UpdateError::TooMuch { .. } => {
                Some(["nothing was changed here", "未做任何改动"])
            }
            UpdateError::Busy { .. } => Some(["wait until it is over", "请等待其完成"]),
            UpdateError::NothingBefore => Some(["interlock update show", "请用 interlock update show 查看"]),
            UpdateError::Io { .. } => None,
        }
    }

    /// The same fact in Chinese.
    #[must_use]
    pub fn zh(&self) -> String {
        match self {
            UpdateError::Io { path, source } => format!("{}：{source}", path.display()),
            UpdateError::NotAnUpdate { path, what } => format!("{} 不是完整的升级文件：{what}", path.display()),
            UpdateError::Unsigned { path } => format!("{} 没有签名", path.display()),
            UpdateError::Changed { path } => format!("{}：签名不符，清单在签名后被改动", path.display()),
            UpdateError::Stranger { path, signer, keys } => {
                format!("{} 由 {signer} 签名，不在 {} 的可信公钥中", path.display(), keys.display())
            }
            UpdateError::NoKeys { keys, what } => format!("本设备没有可信公钥：{}：{what}", keys.display()),
            UpdateError::Damaged { path, name } => format!("{}：{name} 与签名内容不符", path.display()),
            UpdateError::BadName { path, name } => format!("{}：{name:?} 不是升级文件中允许的文件名", path.display()),
            UpdateError::TooMuch { path, what } => format!("{} 过大：{what}", path.display()),
            UpdateError::Older { part, version, floor } => {
                format!("{}为 {version} 版；本设备装过 {floor} 版", part.zh())
            }
            UpdateError::Busy { path } => format!("{} 正在进行另一次升级", path.display()),
            UpdateError::NothingBefore => "没有上一套可以退回".to_owned(),
        }
    }
}

/// The keys that count on this box, and where they are.
#[derive(Debug, Clone)]
pub struct Trust {
    place: PathBuf,
    keys: Vec<PublicKey>,
}

impl Trust {
    /// Reads a list of keys: 64 hexadecimal digits a line, `#` begins a remark.
    ///
    /// # Errors
    /// When there is no list, none of its lines is a key, or one of them is something else.
    pub fn read(place: &Path) -> Result<Trust, UpdateError> {
        let bad = |what: String| UpdateError::NoKeys { keys: place.to_owned(), what };
        let about = fs::metadata(place).map_err(|error| bad(error.to_string()))?;
        if !about.is_file() || about.len() > KEYS_LEN_MAX {
            return Err(bad("it is no list of keys".to_owned()));
        }
        let text = fs::read_to_string(place).map_err(|error| bad(error.to_string()))?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let key = |line: &str| unhex(line).and_then(|bytes| PublicKey::from_bytes(&bytes));
        let keys: Vec<PublicKey> =
            lines.map(|line| key(line).ok_or_else(|| bad(format!("{line:?} is no key")))).collect::<Result<_, _>>()?;
        if keys.is_empty() {
            Err(bad("there is no key in it".to_owned()))
        } else {
            Ok(Trust { place: place.to_owned(), keys })
        }
    }

    fn knows(&self, key: &PublicKey) -> bool {
        self.keys.contains(key)
    }
}

/// The part of a name, when it is one of a file of an update: nothing that leads out, no folder, nothing hidden.
fn part_of(name: &str) -> Option<Part> {
    let part = Part::of_name(name)?;
    let parts: Vec<&str> = name.split('/').collect();
    let plain = |part: &&str| !part.is_empty() && !part.starts_with('.') && part.chars().all(|c| !c.is_control());
    let shape = match part {
        // Flat, as `[commands] files` names them.
        Part::Commands => parts.len() == 2 && name.ends_with(".toml"),
        Part::Model => (2..=1 + DEPTH_MAX).contains(&parts.len()),
    };
    (shape && name.len() <= NAME_LEN_MAX && !name.contains('\\') && parts.iter().all(plain)).then_some(part)
}

fn signed(manifest: &[u8]) -> Vec<u8> {
    [SIGNED, manifest].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let version = |text: &str| Version::parse(text).unwrap();
        assert!(version("2026.10") > version("2026.9.30"));
        assert!(version("1.0.1") > version("1"));
        assert_eq!(version("1.0"), version("1"));
        assert_eq!(version("007").to_string(), "007");
        for none in ["", "1.", ".1", "1..2", "1.2.3.4.5", "v1", "1-2", "-1", "1 ", "9999999999999999999"] {
            assert!(Version::parse(none).is_none(), "{none:?}");
        }
    }

    #[test]
    fn a_name_is_one_of_a_file_of_a_part() {
        for good in ["commands/site.toml", "model/manifest.toml", "model/classifier/commands.onnx"] {
            assert!(part_of(good).is_some(), "{good}");
        }
        for bad in [
            "commands",
            "commands/",
            "commands/a.sh",
            "commands/a/b.toml",
            "commands/../a.toml",
            "commands/.a.toml",
            "model/../../etc/passwd",
            "model/./a",
            "model//a",
            "model/a\\b",
            "model/a/b/c/d/e",
            "/commands/a.toml",
            "other/a.toml",
            "manifest.json",
            "model/\n",
        ] {
            assert!(part_of(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn a_list_of_keys_is_whole_or_counts_for_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("keys");
        let key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
        let check = |text: &str, expected: Result<usize, &str>| {
            fs::write(&place, text).unwrap();
            match (Trust::read(&place), expected) {
                (Ok(trust), Ok(count)) => assert_eq!(trust.keys.len(), count),
                (Err(error), Err(says)) => assert!(error.to_string().ends_with(says), "{error}"),
                (found, _) => panic!("{text:?}: {found:?}"),
            }
        };
        check(&format!("# ours\n\n{key}\n"), Ok(1));
        check(&format!("{key}\n12\n"), Err("\"12\" is no key"));
        check("# nobody yet\n", Err("there is no key in it"));
        fs::remove_file(&place).unwrap();
        assert!(matches!(Trust::read(&place), Err(UpdateError::NoKeys { .. })));
        assert!(matches!(Trust::read(folder.path()), Err(UpdateError::NoKeys { .. })));
    }
}
