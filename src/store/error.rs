//! What can go wrong with the store, by what a caller or a person could do about it.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a store cannot be opened or read.
#[derive(Debug, Error)]
pub enum StoreError {
    /// Another daemon owns the state directory.
    #[error("state directory {} is in use by {}", dir.display(), owner(*pid))]
    InUse {
        /// The state directory.
        dir: PathBuf,
        /// The process that owns it, if it has written its number already.
        pid: Option<u32>,
    },
    /// A restore was cut off in the middle.
    #[error("state directory {} is in the middle of a restore", dir.display())]
    HalfRestored {
        /// The state directory.
        dir: PathBuf,
    },
    /// The operating system refused a file.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// SQLite refused a file.
    #[error("{}: {source}", path.display())]
    Sqlite {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The file was written by a newer build.
    #[error("{} has format {found}; this build reads up to {supported}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest format that this build knows.
        supported: i64,
    },
    /// The file is not what its name says, or is damaged in its header.
    #[error("{} is not a whole segment of an evidence log: {what}", path.display())]
    NotASegment {
        /// The file.
        path: PathBuf,
        /// The fact.
        what: String,
    },
    /// The key file is there but holds no key.
    #[error("{} holds no Ed25519 key (64 hexadecimal digits)", path.display())]
    NotAKey {
        /// The key file.
        path: PathBuf,
    },
    /// The SQLite in this build has the WAL-reset bug.
    #[error("SQLite {found} can lose committed rows (WAL reset); 3.51.3 or later is needed")]
    OldSqlite {
        /// Its version.
        found: &'static str,
    },
    /// SQLite did not take a setting that durability depends on.
    #[error("{} runs with {pragma} = {found}, not {wanted}", path.display())]
    Setting {
        /// The database.
        path: PathBuf,
        /// The setting.
        pragma: &'static str,
        /// What it is.
        found: String,
        /// What it must be.
        wanted: &'static str,
    },
    /// A row does not read as a row.
    #[error("row {seq} of {}: {source}", path.display())]
    Row {
        /// The segment.
        path: PathBuf,
        /// The row.
        seq: i64,
        /// What is wrong with it.
        source: crate::record::NotARow,
    },
    /// There is no evidence log where one was looked for.
    #[error("{} holds no evidence log", path.display())]
    NoLog {
        /// The directory.
        path: PathBuf,
    },
    /// A reader took longer than it may: a pinned reader lets the write-ahead log grow without bound.
    #[error("reading {} took longer than {limit_s} s", path.display())]
    TooSlow {
        /// The segment.
        path: PathBuf,
        /// The limit.
        limit_s: u64,
    },
    /// The writer thread could not be started.
    #[error("the evidence writer has no thread: {0}")]
    NoThread(io::Error),
    /// The log can be opened, but not written.
    #[error("{} takes no rows: {fault}", path.display())]
    NotWritable {
        /// The evidence directory.
        path: PathBuf,
        /// Why.
        fault: Fault,
    },
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the system's list of errors is open")]
fn hint_of_io(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Some("run as the user that owns the state directory"),
        io::ErrorKind::StorageFull => Some("free space on that file system"),
        io::ErrorKind::NotFound => Some("check --state"),
        io::ErrorKind::InvalidInput => Some("name a state directory, its evidence directory or a segment of it"),
        _ => None,
    }
}

fn owner(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl StoreError {
    /// What a person can do about it, if there is something.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            StoreError::InUse { .. } => Some("stop that daemon first, or give this one its own --state directory"),
            StoreError::HalfRestored { .. } => {
                Some("run `interlock restore` again, with --signer KEY; what was there is in its folder aside")
            }
            StoreError::Io { source, .. } => hint_of_io(source),
            StoreError::Newer { .. } => Some("install the newer version, or move the file away to start anew"),
            StoreError::NotASegment { .. } | StoreError::Row { .. } => {
                Some("interlock evidence verify names what is damaged; keep the file, it is evidence")
            }
            StoreError::NotAKey { .. } => Some("restore the key from a backup, or move it away to start a new key"),
            StoreError::OldSqlite { .. } => Some("build with the bundled SQLite"),
            StoreError::NoLog { .. } => Some("check --state; the log is made by the first start of the daemon"),
            StoreError::TooSlow { .. } => Some("narrow the query with --since, --until or --limit"),
            StoreError::NotWritable { fault, .. } => fault.hint(),
            StoreError::Sqlite { .. } | StoreError::Setting { .. } | StoreError::NoThread(_) => None,
        }
    }

    /// Whether what was read is no evidence log, or no longer one: bad data, where other errors are bad luck.
    #[must_use]
    pub fn is_bad_data(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase, Unknown};
        match self {
            // What SQLite calls just an error is a table or a column that is not there: our statements are right.
            StoreError::Sqlite { source, .. } => {
                matches!(source.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase | Unknown))
            }
            StoreError::Io { source, .. } => source.kind() == io::ErrorKind::InvalidInput,
            StoreError::NotASegment { .. } | StoreError::Row { .. } | StoreError::NotAKey { .. } => true,
            StoreError::InUse { .. }
            | StoreError::Newer { .. }
            | StoreError::OldSqlite { .. }
            | StoreError::Setting { .. }
            | StoreError::NoLog { .. }
            | StoreError::TooSlow { .. }
            | StoreError::NoThread(_)
            | StoreError::NotWritable { .. }
            | StoreError::HalfRestored { .. } => false,
        }
    }

    pub(super) fn io(path: &Path, source: io::Error) -> StoreError {
        StoreError::Io { path: path.to_owned(), source }
    }

    pub(super) fn sqlite(path: &Path, source: rusqlite::Error) -> StoreError {
        StoreError::Sqlite { path: path.to_owned(), source }
    }
}

/// Why the writer cannot write at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
pub enum Fault {
    /// No room on the file system.
    #[error("the disk is full")]
    DiskFull,
    /// The file system or the file does not take writes.
    #[error("the file system is read-only")]
    ReadOnly,
    /// A read, write or sync went wrong. The kernel may have dropped what was not synced, so the handle is never
    /// used again.
    #[error("the disk reported an error")]
    Io,
    /// What is on the disk is not what was written.
    #[error("the file is damaged")]
    Damaged,
    /// Another process holds the write lock of the segment.
    #[error("another process holds the lock of the log")]
    Locked,
    /// The signed head could not be written; rows are durable, a lost tail would not show.
    #[error("the signed head cannot be written")]
    Head,
}

impl Fault {
    /// A short stable word for rows and scripts.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Fault::DiskFull => "disk_full",
            Fault::ReadOnly => "read_only",
            Fault::Io => "io_error",
            Fault::Damaged => "damaged",
            Fault::Locked => "locked",
            Fault::Head => "head",
        }
    }

    /// What a person can do about it.
    #[must_use]
    pub fn hint(self) -> Option<&'static str> {
        match self {
            Fault::DiskFull => Some("free space on the file system of the state directory"),
            Fault::ReadOnly => Some("mount the file system of the state directory read-write"),
            Fault::Io => Some("look at the kernel log; the disk may be failing"),
            Fault::Damaged => Some("interlock evidence verify names what is damaged; keep the file, it is evidence"),
            Fault::Locked => Some("find the process with: fuser <state>/evidence/*.db"),
            Fault::Head => None,
        }
    }

    /// What an error of SQLite means to us.
    pub(super) fn of(error: &rusqlite::Error) -> Fault {
        use rusqlite::ErrorCode;
        let Some(code) = error.sqlite_error_code() else { return Fault::Damaged };
        // The list of codes is SQLite's and grows; what is not known is treated as the disk's error, which is the
        // strictest answer: the handle is dropped and everything is checked again.
        #[expect(clippy::wildcard_enum_match_arm, reason = "SQLite's list of codes is open")]
        match code {
            ErrorCode::DiskFull => Fault::DiskFull,
            ErrorCode::ReadOnly | ErrorCode::PermissionDenied => Fault::ReadOnly,
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::ConstraintViolation => Fault::Damaged,
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed => Fault::Locked,
            _ => Fault::Io,
        }
    }

    /// The same, where SQLite only says that it cannot open: then the system is asked about the file itself.
    fn of_file(path: &Path, error: &rusqlite::Error) -> Fault {
        if error.sqlite_error_code() != Some(rusqlite::ErrorCode::CannotOpen) {
            return Fault::of(error);
        }
        // Opened to write and not written to.
        match std::fs::OpenOptions::new().append(true).open(path) {
            Ok(_) => Fault::Io,
            Err(refused) => Fault::of_io(&refused),
        }
    }

    /// The fault behind an error of opening, if it may pass without anyone touching our files.
    pub(super) fn passing(error: &StoreError) -> Option<Fault> {
        /// `EIO`, which has no name in the standard library.
        const EIO: i32 = 5;
        match error {
            StoreError::NotWritable { fault, .. } => Some(*fault),
            StoreError::Sqlite { path, source } => {
                Some(Fault::of_file(path, source)).filter(|fault| *fault != Fault::Damaged)
            }
            StoreError::Io { source, .. } if source.raw_os_error() == Some(EIO) => Some(Fault::Io),
            StoreError::Io { source, .. } => match Fault::of_io(source) {
                Fault::ReadOnly if source.kind() == io::ErrorKind::PermissionDenied => None,
                fault @ (Fault::DiskFull | Fault::ReadOnly) => Some(fault),
                Fault::Io | Fault::Damaged | Fault::Locked | Fault::Head => None,
            },
            StoreError::InUse { .. }
            | StoreError::HalfRestored { .. }
            | StoreError::Newer { .. }
            | StoreError::NotASegment { .. }
            | StoreError::NotAKey { .. }
            | StoreError::OldSqlite { .. }
            | StoreError::Setting { .. }
            | StoreError::Row { .. }
            | StoreError::NoLog { .. }
            | StoreError::TooSlow { .. }
            | StoreError::NoThread(_) => None,
        }
    }

    /// What an error of opening means to us.
    pub(super) fn of_open(error: &StoreError) -> Fault {
        match error {
            StoreError::Sqlite { path, source } => Fault::of_file(path, source),
            StoreError::Io { source, .. } => Fault::of_io(source),
            StoreError::NotWritable { fault, .. } => *fault,
            StoreError::NotASegment { .. } | StoreError::Row { .. } | StoreError::NoLog { .. } => Fault::Damaged,
            StoreError::InUse { .. } => Fault::Locked,
            StoreError::HalfRestored { .. }
            | StoreError::Newer { .. }
            | StoreError::NotAKey { .. }
            | StoreError::OldSqlite { .. }
            | StoreError::Setting { .. }
            | StoreError::TooSlow { .. }
            | StoreError::NoThread(_) => Fault::Io,
        }
    }

    pub(super) fn of_io(error: &io::Error) -> Fault {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the system's list of errors is open")]
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Fault::DiskFull,
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => Fault::ReadOnly,
            _ => Fault::Io,
        }
    }
}
