//! The sets that a box keeps, and which of them counts.
//!
//! `<state>/updates/sets/ID` holds an update unpacked, with its signature: it is held against it again whenever it is
//! read. `<state>/updates/active` names the set of each part, and those before; it is replaced as a whole by a rename, so
//! a power cut leaves the old or the new. `<state>/update-floor` has the newest version that was ever taken of each part;
//! a reset and a restore leave it where it is.
//!
//! The daemon only reads: whoever applies an update switches, asks the daemon to read anew, and switches back if it
//! cannot.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::backup::{Hashed, owned_alike};
use super::super::error::StoreError;
use super::super::keys::write_whole;
use super::open::{Manifest, Update};
use super::{MANIFEST, MANIFEST_LEN_MAX, Part, SIGNATURE, SIGNATURE_LEN_MAX, Trust, UpdateError, Version, part_of};

/// The folder of the state directory.
pub const FOLDER: &str = "updates";
/// How far updates have come; beside the folder, because a reset takes that away.
pub const FLOOR: &str = "update-floor";
const SETS: &str = "sets";
const ACTIVE: &str = "active";
const LOCK: &str = "lock";
const TOLD: &str = "told";
/// Both are a few short lines.
const NOTE_LEN_MAX: u64 = 4096;
/// What a file is too long for is not hashed when a set is read: a model's graph is, by its own manifest, when it is
/// loaded, and a start should not wait for a second hash of it.
const HASHED_LEN_MAX: u64 = 8 << 20;

/// The set of each part, by id; none is what the program was shipped with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// Commands.
    pub commands: Option<String>,
    /// The classifier.
    pub model: Option<String>,
}

impl Chosen {
    /// The set of a part.
    #[must_use]
    pub fn of(&self, part: Part) -> Option<&str> {
        match part {
            Part::Commands => self.commands.as_deref(),
            Part::Model => self.model.as_deref(),
        }
    }

    fn put(&mut self, part: Part, id: &str) {
        match part {
            Part::Commands => self.commands = Some(id.to_owned()),
            Part::Model => self.model = Some(id.to_owned()),
        }
    }
}

/// What counts, and what counted before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Active {
    /// What counts.
    #[serde(flatten)]
    pub now: Chosen,
    /// What counted before; where `back` leads.
    pub before: Option<Chosen>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Floor {
    commands: Option<String>,
    model: Option<String>,
}

/// A set that was read from the disk and is what was signed.
#[derive(Debug, Clone)]
pub struct Set {
    /// What it says of itself.
    pub manifest: Manifest,
    /// Where its files are.
    pub folder: PathBuf,
}

impl Set {
    /// The files of a part, in the order of their names.
    #[must_use]
    pub fn files(&self, part: Part) -> Vec<PathBuf> {
        let of_part = self.manifest.files.keys().filter(|name| part_of(name) == Some(part));
        of_part.map(|name| self.folder.join(name)).collect()
    }
}

/// The updates of a state directory.
#[derive(Debug, Clone)]
pub struct Kept {
    state: PathBuf,
}

/// The right to change them: one at a time.
#[derive(Debug)]
pub struct Held<'a> {
    kept: &'a Kept,
    _lock: File,
}

impl Kept {
    /// Those of this state directory; nothing is read yet.
    #[must_use]
    pub fn of(state: &Path) -> Kept {
        Kept { state: state.to_owned() }
    }

    fn folder(&self) -> PathBuf {
        self.state.join(FOLDER)
    }

    /// What counts by the pointer; nothing where there never was an update.
    ///
    /// # Errors
    /// When the pointer cannot be read.
    pub fn active(&self) -> Result<Active, UpdateError> {
        let path = self.folder().join(ACTIVE);
        let Some(text) = note(&path)? else { return Ok(Active::default()) };
        serde_json::from_str(&text).map_err(|error| UpdateError::NotAnUpdate { path, what: error.to_string() })
    }

    /// The newest version that was ever taken of a part.
    ///
    /// # Errors
    /// When the note about it cannot be read: then nobody knows whether an update is older.
    pub fn floor(&self, part: Part) -> Result<Option<Version>, UpdateError> {
        let path = self.state.join(FLOOR);
        let floor = self.floors()?;
        let text = match part {
            Part::Commands => floor.commands,
            Part::Model => floor.model,
        };
        let Some(text) = text else { return Ok(None) };
        let bad = || UpdateError::NotAnUpdate { path, what: format!("{text:?} is no version") };
        Version::parse(&text).ok_or_else(bad).map(Some)
    }

    fn floors(&self) -> Result<Floor, UpdateError> {
        let path = self.state.join(FLOOR);
        let Some(text) = note(&path)? else { return Ok(Floor::default()) };
        serde_json::from_str(&text).map_err(|error| UpdateError::NotAnUpdate { path, what: error.to_string() })
    }

    /// Reads a set and holds it against its signature.
    ///
    /// # Errors
    /// What does not fit.
    pub fn set(&self, id: &str, trust: &Trust) -> Result<Set, UpdateError> {
        let folder = self.set_folder(id);
        let text = |name: &str, most: u64| -> Result<String, UpdateError> {
            let path = folder.join(name);
            let mut text = String::new();
            let file = File::open(&path).map_err(UpdateError::io(&path))?;
            file.take(most).read_to_string(&mut text).map_err(UpdateError::io(&path))?;
            Ok(text)
        };
        let manifest =
            Manifest::read(&folder, &text(MANIFEST, MANIFEST_LEN_MAX)?, &text(SIGNATURE, SIGNATURE_LEN_MAX)?, trust)?;
        let damaged = |name: &str| UpdateError::Damaged { path: folder.clone(), name: name.to_owned() };
        if manifest.id != id {
            return Err(damaged(MANIFEST));
        }
        for (name, listed) in &manifest.files {
            let path = folder.join(name);
            let about = fs::symlink_metadata(&path).map_err(UpdateError::io(&path))?;
            if !about.is_file() || about.len() != listed.len {
                return Err(damaged(name));
            }
            if listed.len <= HASHED_LEN_MAX {
                let file = File::open(&path).map_err(UpdateError::io(&path))?;
                let mut hashed = Hashed::of(file.take(listed.len));
                io::copy(&mut hashed, &mut io::sink()).map_err(UpdateError::io(&path))?;
                if hashed.end().1 != listed.sha256 {
                    return Err(damaged(name));
                }
            }
        }
        Ok(Set { manifest, folder })
    }

    /// What the daemon said last of what counts; none when it never said anything.
    #[must_use]
    pub fn told(&self) -> Option<String> {
        fs::read_to_string(self.folder().join(TOLD)).ok().map(|text| text.trim_end().to_owned())
    }

    /// Keeps what the daemon says of what counts.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn tell(&self, text: &str) -> Result<(), StoreError> {
        let folder = self.folder();
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(|e| StoreError::io(&folder, e))?;
        write_whole(&folder, TOLD, 0o600, text)
    }

    fn set_folder(&self, id: &str) -> PathBuf {
        // An id is what a manifest hashes to; whatever else stands in the pointer leads nowhere.
        let plain = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        self.folder().join(SETS).join(if plain { id } else { "none" })
    }

    /// Takes the right to change what counts.
    ///
    /// # Errors
    /// When another process has it, or the folder cannot be made.
    pub fn hold(&self) -> Result<Held<'_>, UpdateError> {
        let folder = self.folder();
        DirBuilder::new().recursive(true).mode(0o700).create(folder.join(SETS)).map_err(UpdateError::io(&folder))?;
        self.owned(&folder)?;
        let path = folder.join(LOCK);
        let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let lock = opened.map_err(UpdateError::io(&path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Held { kept: self, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(UpdateError::Busy { path }),
            Err(TryLockError::Error(source)) => Err(UpdateError::Io { path, source }),
        }
    }

    /// Root puts there what the daemon's user must be able to read.
    fn owned(&self, path: &Path) -> Result<(), UpdateError> {
        let owner = fs::metadata(&self.state).map_err(UpdateError::io(&self.state))?;
        owned_alike(path, &owner)
            .map_err(|error| UpdateError::Io { path: path.to_owned(), source: io::Error::other(error.to_string()) })
    }
}

impl Held<'_> {
    /// A place to unpack into; what an attempt that was cut off left there is taken away.
    ///
    /// # Errors
    /// When it cannot be taken away.
    pub fn staging(&self) -> Result<PathBuf, UpdateError> {
        let path = self.kept.folder().join("new");
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(UpdateError::io(&path)(error)),
            Ok(()) | Err(_) => Ok(path),
        }
    }

    /// Takes what was unpacked in as a set, and lets it count. Says what counted until now.
    ///
    /// # Errors
    /// [`UpdateError`]; what counted still counts then.
    pub fn take(&self, update: &Update, staging: &Path) -> Result<Active, UpdateError> {
        let (kept, manifest) = (self.kept, &update.manifest);
        let folder = kept.set_folder(&manifest.id);
        kept.owned(staging)?;
        // The same update again: what is there may be damaged, what came is whole.
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(UpdateError::io(&folder)(error)),
            Ok(()) | Err(_) => {}
        }
        synced_below(staging)?;
        fs::rename(staging, &folder).map_err(UpdateError::io(&folder))?;
        synced(&kept.folder().join(SETS))?;
        let was = kept.active()?;
        let mut now = was.now.clone();
        for part in Part::ALL.into_iter().filter(|part| manifest.has(*part)) {
            now.put(part, &manifest.id);
        }
        // The same once more leads back to where `back` led already.
        let before = if now == was.now { was.before.clone() } else { Some(was.now.clone()) };
        self.switch(&Active { now, before })?;
        Ok(was)
    }

    /// Lets this count, as a whole.
    ///
    /// # Errors
    /// When it cannot be written; what counted still counts then.
    pub fn switch(&self, active: &Active) -> Result<(), UpdateError> {
        let text = serde_json::to_string(active).map_err(|error| UpdateError::io(&self.kept.folder())(error.into()))?;
        self.note(&self.kept.folder(), ACTIVE, &text)
    }

    /// Goes back to what counted before; going back again comes back here. Says what counted until now.
    ///
    /// # Errors
    /// When nothing counted before.
    pub fn back(&self) -> Result<Active, UpdateError> {
        let was = self.kept.active()?;
        let before = was.before.clone().ok_or(UpdateError::NothingBefore)?;
        self.switch(&Active { now: before, before: Some(was.now.clone()) })?;
        Ok(was)
    }

    /// Goes back to what the program was shipped with. Says what counted until now.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn none(&self) -> Result<Active, UpdateError> {
        let was = self.kept.active()?;
        if was.now != Chosen::default() {
            self.switch(&Active { now: Chosen::default(), before: Some(was.now.clone()) })?;
        }
        Ok(was)
    }

    /// Remembers that this was taken, and takes away the sets that neither count nor counted before.
    ///
    /// # Errors
    /// When it cannot be remembered.
    pub fn settle(&self, update: Option<&Update>) -> Result<(), UpdateError> {
        if let Some(Update { manifest, .. }) = update {
            let mut floor = self.kept.floors()?;
            for part in Part::ALL.into_iter().filter(|part| manifest.has(*part)) {
                let is_newer = self.kept.floor(part)?.is_none_or(|floor| floor < manifest.version);
                let version = Some(manifest.version.to_string()).filter(|_| is_newer);
                match part {
                    Part::Commands => floor.commands = version.or(floor.commands),
                    Part::Model => floor.model = version.or(floor.model),
                }
            }
            let text =
                serde_json::to_string(&floor).map_err(|error| UpdateError::io(&self.kept.state)(error.into()))?;
            self.note(&self.kept.state, FLOOR, &text)?;
        }
        let active = self.kept.active()?;
        let before = active.before.unwrap_or_default();
        let wanted: Vec<&str> =
            Part::ALL.iter().flat_map(|part| [active.now.of(*part), before.of(*part)]).flatten().collect();
        let sets = self.kept.folder().join(SETS);
        for entry in fs::read_dir(&sets).map_err(UpdateError::io(&sets))?.flatten() {
            if !wanted.iter().any(|id| entry.file_name() == **id) {
                // What stays is only in the way.
                let _gone = fs::remove_dir_all(entry.path());
            }
        }
        Ok(())
    }

    fn note(&self, folder: &Path, name: &str, text: &str) -> Result<(), UpdateError> {
        let path = folder.join(name);
        let told =
            |error: StoreError| UpdateError::Io { path: path.clone(), source: io::Error::other(error.to_string()) };
        write_whole(folder, name, 0o600, text).map_err(told)?;
        self.kept.owned(&path)
    }
}

/// A short file of ours; none when it is not there.
fn note(path: &Path) -> Result<Option<String>, UpdateError> {
    let mut text = String::new();
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(UpdateError::io(path)(error)),
        Ok(file) => {
            file.take(NOTE_LEN_MAX).read_to_string(&mut text).map_err(UpdateError::io(path))?;
            Ok(Some(text))
        }
    }
}

fn synced(folder: &Path) -> Result<(), UpdateError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(UpdateError::io(folder))
}

/// The files are synced already; the folders hold their names.
fn synced_below(folder: &Path) -> Result<(), UpdateError> {
    for entry in fs::read_dir(folder).map_err(UpdateError::io(folder))? {
        let entry = entry.map_err(UpdateError::io(folder))?;
        if entry.file_type().map_err(UpdateError::io(folder))?.is_dir() {
            synced_below(&entry.path())?;
        }
    }
    synced(folder)
}
