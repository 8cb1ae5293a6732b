//! `read_file` and `write_file`: one regular file, by the path that the gate judged.
//!
//! Both take the canonical path beside the input and open exactly that, through no link (`sys::open`): what was put
//! there after the decision is refused, never followed. A write is whole or not there: it goes to a new file beside
//! the old one and takes its name, or it is appended in one piece.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use interlock_domain::effect::report::{Loss, Report};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{About, bad_input, failed};
use crate::sys::entry::{Entry, There};
use crate::sys::open::{self, Kind, NotOpened};

/// What a read gives when no limit is named: a screen or ten, and little of a model's budget.
const READ_BYTES_DEFAULT: u64 = 64 * 1024;

/// New files are readable by all, less what the daemon's umask takes away.
const NEW_FILE_MODE: u32 = 0o644;

/// Bounds of both tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most that one read gives, bytes.
    pub read_max: u64,
    /// The most that one write takes, bytes.
    pub write_max: u64,
}

impl Default for Limits {
    /// A megabyte fits one answer of a model; eight are a large file for a person to have written.
    fn default() -> Limits {
        Limits { read_max: 1 << 20, write_max: 8 << 20 }
    }
}

/// `read_file`.
pub const READ_FILE: About = About {
    name: "read_file",
    title: ["Read a file", "读取文件"],
    description: [
        "Reads a part of one regular file: `limit` bytes from `offset`. Text comes back as UTF-8, anything else as \
         base64. `next_offset` says where to go on; null means that the end was reached.",
        "读取一个普通文件的一部分：从 offset 起的 limit 个字节。文本以 UTF-8 返回，其他内容以 base64 返回。\
         next_offset 是继续读取的位置；为 null 表示已到文件末尾。",
    ],
    input: read_input,
    output: read_output,
};

/// `write_file`.
pub const WRITE_FILE: About = About {
    name: "write_file",
    title: ["Write a file", "写入文件"],
    description: [
        "Writes one regular file, whole or not at all. Mode `create` (the default) refuses a file that exists, \
         `overwrite` replaces it and keeps its permissions, `append` adds to its end. The directory must exist.",
        "写入一个普通文件，要么完整写入，要么不写。模式 create（默认）拒绝已存在的文件，overwrite 替换文件并保留权限，\
         append 追加到末尾。目录必须已存在。",
    ],
    input: write_input,
    output: write_output,
};

fn read_input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": { "type": "string", "minLength": 1, "maxLength": 4096 },
            "offset": { "type": "integer", "minimum": 0, "description": "the first byte, from 0" },
            "limit": { "type": "integer", "minimum": 1, "description": "at most so many bytes" },
            "encoding": {
                "enum": ["auto", "base64"],
                "description": "auto: UTF-8 where the bytes are UTF-8, else base64"
            }
        },
        "required": ["path"],
        "additionalProperties": false
    })
}

fn read_output() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": { "type": "string" },
            "size": { "type": "integer", "minimum": 0, "description": "of the file, bytes; 0 where the system does not say" },
            "offset": { "type": "integer", "minimum": 0 },
            "bytes": { "type": "integer", "minimum": 0, "description": "bytes of the file that `content` stands for" },
            "next_offset": { "type": ["integer", "null"], "minimum": 1 },
            "encoding": { "enum": ["utf-8", "base64"] },
            "content": { "type": "string" }
        },
        "required": ["path", "size", "offset", "bytes", "next_offset", "encoding", "content"],
        "additionalProperties": false
    })
}

fn write_input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": { "type": "string", "minLength": 1, "maxLength": 4096 },
            "content": { "type": "string" },
            "encoding": { "enum": ["utf-8", "base64"], "description": "how `content` is written here; utf-8 if not given" },
            "mode": { "enum": ["create", "overwrite", "append"], "description": "create if not given" }
        },
        "required": ["path", "content"],
        "additionalProperties": false
    })
}

fn write_output() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": { "type": "string" },
            "bytes": { "type": "integer", "minimum": 0, "description": "bytes that were written" },
            "size": { "type": "integer", "minimum": 0, "description": "of the file now, bytes" },
            "sha256": { "type": "string", "description": "of the bytes that were written, hexadecimal" },
            "created": { "type": "boolean", "description": "the file was not there before" },
            "durable": { "type": "boolean", "description": "it has reached the disk; false where the disk did not confirm it" }
        },
        "required": ["path", "bytes", "size", "sha256", "created", "durable"],
        "additionalProperties": false
    })
}

/// Runs `read_file`. `judged` is the canonical path that the gate decided on.
pub async fn read_file(input: &Value, judged: &Path, limits: Limits) -> Report {
    let read = match ReadFile::parse(input, judged, limits) {
        Ok(read) => read,
        Err(report) => return report,
    };
    away_from_the_runtime(move || read.run()).await
}

/// Runs `write_file`. `judged` is the canonical path that the gate decided on.
///
/// Dropped half way, the write still ends by itself: what became of it is then not known to the caller.
pub async fn write_file(input: &Value, judged: &Path, limits: Limits) -> Report {
    let write = match WriteFile::parse(input, judged, limits) {
        Ok(write) => write,
        Err(report) => return report,
    };
    away_from_the_runtime(move || write.run()).await
}

/// Files block: a slow disk must not hold up the others.
async fn away_from_the_runtime(work: impl FnOnce() -> Report + Send + 'static) -> Report {
    match tokio::task::spawn_blocking(work).await {
        Ok(report) => report,
        Err(ended) if ended.is_panic() => Report::Lost(Loss::Panicked(panic_text(ended))),
        Err(_) => Report::Lost(Loss::Stopped),
    }
}

fn panic_text(ended: tokio::task::JoinError) -> String {
    let payload = ended.into_panic();
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a text".to_owned())
}

struct ReadFile {
    path: PathBuf,
    offset: u64,
    limit: u64,
    as_text: bool,
}

impl ReadFile {
    fn parse(input: &Value, judged: &Path, limits: Limits) -> Result<ReadFile, Report> {
        let number = |key: &str, default: u64| match input.get(key) {
            None => Ok(default),
            Some(value) => value.as_u64().ok_or_else(|| bad_input(format!("{key} is no whole number from 0 up"))),
        };
        let offset = number("offset", 0)?;
        // A file offset is signed in the kernel.
        if i64::try_from(offset).is_err() {
            return Err(bad_input(format!("offset {offset} is beyond the end of any file")));
        }
        let limit = number("limit", READ_BYTES_DEFAULT.min(limits.read_max))?;
        if limit == 0 || limit > limits.read_max {
            return Err(bad_input(format!("limit is {limit}; 1 to {} bytes can be read at once", limits.read_max)));
        }
        let as_text = match input.get("encoding").map(Value::as_str) {
            None | Some(Some("auto")) => true,
            Some(Some("base64")) => false,
            Some(_) => return Err(bad_input("encoding is neither auto nor base64")),
        };
        Ok(ReadFile { path: judged.to_owned(), offset, limit, as_text })
    }

    fn run(&self) -> Report {
        match self.bytes() {
            Ok((size, bytes)) => Report::Done(self.output(size, &bytes)),
            Err(NotRead::NotOpened(why)) => not_opened(&why),
            Err(NotRead::Broke(error)) => refused(&self.path, error),
        }
    }

    /// One byte more than asked for, where there is one: it says whether the end was reached.
    fn bytes(&self) -> Result<(u64, Vec<u8>), NotRead> {
        let file = open::regular_file(&self.path).map_err(NotRead::NotOpened)?;
        let size = file.metadata().map_err(NotRead::Broke)?.len();
        let mut bytes = Vec::new();
        let from = From { file: &file, at: self.offset };
        from.take(self.limit + 1).read_to_end(&mut bytes).map_err(NotRead::Broke)?;
        Ok((size, bytes))
    }

    fn output(&self, size: u64, bytes: &[u8]) -> Value {
        let fits = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let more = bytes.len() > fits;
        let window = &bytes[..bytes.len().min(fits)];
        let text = if self.as_text { text(window, more) } else { None };
        let (encoding, content, used) = match text {
            Some(text) => ("utf-8", text.to_owned(), text.len()),
            None => ("base64", STANDARD.encode(window), window.len()),
        };
        let next = (more || used < window.len()).then(|| self.offset + used as u64);
        json!({
            "path": self.path.to_string_lossy(), "size": size, "offset": self.offset, "bytes": used,
            "next_offset": next, "encoding": encoding, "content": content,
        })
    }
}

enum NotRead {
    NotOpened(NotOpened),
    Broke(io::Error),
}

/// The window as text. Where more follows, a character that the window cuts in two is left for the next one.
fn text(window: &[u8], more: bool) -> Option<&str> {
    match std::str::from_utf8(window) {
        Ok(text) => Some(text),
        Err(error) if more && error.error_len().is_none() && error.valid_up_to() > 0 => {
            std::str::from_utf8(&window[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    }
}

/// Reads at an offset of its own. (A file of `/proc` has no end that can be asked for.)
struct From<'f> {
    file: &'f File,
    at: u64,
}

impl Read for From<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Create,
    Overwrite,
    Append,
}

struct WriteFile {
    path: PathBuf,
    content: Vec<u8>,
    how: How,
}

impl WriteFile {
    fn parse(input: &Value, judged: &Path, limits: Limits) -> Result<WriteFile, Report> {
        let Some(content) = input.get("content").and_then(Value::as_str) else {
            return Err(bad_input("content is no string"));
        };
        let content = match input.get("encoding").map(Value::as_str) {
            None | Some(Some("utf-8")) => content.as_bytes().to_vec(),
            Some(Some("base64")) => {
                STANDARD.decode(content).map_err(|error| bad_input(format!("content is not base64: {error}")))?
            }
            Some(_) => return Err(bad_input("encoding is neither utf-8 nor base64")),
        };
        if content.len() as u64 > limits.write_max {
            let (len, max) = (content.len(), limits.write_max);
            return Err(failed("too_large", format!("content has {len} bytes; {max} can be written at once")));
        }
        let how = match input.get("mode").map(Value::as_str) {
            None | Some(Some("create")) => How::Create,
            Some(Some("overwrite")) => How::Overwrite,
            Some(Some("append")) => How::Append,
            Some(_) => return Err(bad_input("mode is none of create, overwrite and append")),
        };
        Ok(WriteFile { path: judged.to_owned(), content, how })
    }

    fn run(&self) -> Report {
        let entry = match Entry::of(&self.path) {
            Ok(entry) => entry,
            Err(why) => return not_opened(&why),
        };
        match (entry.look(), self.how) {
            (Err(error), _) => refused(&self.path, error),
            (Ok(None), How::Create | How::Overwrite | How::Append) => self.create(&entry),
            (Ok(Some(_)), How::Create) => self.exists(),
            (Ok(Some(old)), How::Overwrite | How::Append) => match (old.kind, self.how) {
                (Kind::File, How::Append) => self.append(&entry),
                (Kind::File, How::Create | How::Overwrite) => self.replace(&entry, old),
                (Kind::Link, _) => not_opened(&NotOpened::Link(self.path.clone())),
                (kind @ (Kind::Directory | Kind::Other), _) => self.no_file(kind),
            },
        }
    }

    fn create(&self, entry: &Entry) -> Report {
        let created = entry.beside(NEW_FILE_MODE).and_then(|beside| {
            beside.file().write_all(&self.content)?;
            beside.file().sync_all()?;
            beside.take_free_name()
        });
        match created {
            // From here on the file is there for everyone, whatever the directory says.
            Ok(()) => self.done(self.content.len() as u64, true, entry.sync()),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => self.exists(),
            Err(error) => refused(&self.path, error),
        }
    }

    fn replace(&self, entry: &Entry, old: There) -> Report {
        // What replaces a file that others may not read is not readable by them at any moment.
        let replaced = entry.beside(0o600).and_then(|beside| {
            let mut file = beside.file();
            file.write_all(&self.content)?;
            let now = file.metadata()?;
            if (now.uid(), now.gid()) != (old.owner, old.group) {
                fchown(file, Some(old.owner), Some(old.group))?;
            }
            file.set_permissions(PermissionsExt::from_mode(old.permissions))?;
            file.sync_all()?;
            beside.replace()
        });
        match replaced {
            Ok(()) => self.done(self.content.len() as u64, false, entry.sync()),
            Err(error) => refused(&self.path, error),
        }
    }

    /// Adds to the end of a file that is there, in one piece.
    fn append(&self, entry: &Entry) -> Report {
        let file = match entry.open_to_append() {
            Ok(file) => file,
            Err(why) => return not_opened(&why),
        };
        let before = match file.metadata() {
            Ok(metadata) if metadata.is_file() => metadata.len(),
            Ok(_) => return self.no_file(Kind::Other),
            Err(error) => return refused(&self.path, error),
        };
        let mut written = 0;
        while written < self.content.len() {
            match (&file).write(&self.content[written..]) {
                Ok(count) if count > 0 => written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                stuck => {
                    let error = stuck.err().unwrap_or_else(|| io::Error::from(ErrorKind::WriteZero));
                    return self.take_back(&file, before, written as u64, error);
                }
            }
        }
        let durable = file.sync_all().is_ok();
        let size = file.metadata().map_or(before + written as u64, |metadata| metadata.len());
        self.done(size, false, durable)
    }

    /// A part was appended and the rest does not fit. The part is cut off again, but only if nobody appended after it.
    fn take_back(&self, file: &File, before: u64, written: u64, error: io::Error) -> Report {
        let mut at = file;
        let alone = at.seek(SeekFrom::End(0)).is_ok_and(|end| end == before + written);
        if written == 0 || (alone && file.set_len(before).is_ok()) {
            refused(&self.path, error)
        } else {
            let all = self.content.len();
            Report::Lost(Loss::Partial(format!("{written} of {all} bytes were appended, then: {error}")))
        }
    }

    fn done(&self, size: u64, created: bool, durable: bool) -> Report {
        Report::Done(json!({
            "path": self.path.to_string_lossy(), "bytes": self.content.len(), "size": size,
            "sha256": hex(&Sha256::digest(&self.content)), "created": created, "durable": durable,
        }))
    }

    fn exists(&self) -> Report {
        failed("exists", format!("{} is there already, and mode is create", self.path.display()))
    }

    fn no_file(&self, kind: Kind) -> Report {
        not_opened(&NotOpened::NotAFile { path: self.path.clone(), kind: kind.with_article() })
    }
}

fn refused(path: &Path, error: io::Error) -> Report {
    not_opened(&NotOpened::Refused { path: path.to_owned(), error })
}

fn not_opened(why: &NotOpened) -> Report {
    let code = match why {
        NotOpened::NotCanonical(_) => "not_canonical",
        NotOpened::Link(_) => "path_changed",
        NotOpened::NotAFile { .. } => "not_a_file",
        NotOpened::Refused { error, .. } => code(error.kind()),
    };
    failed(code, why.to_string())
}

fn code(kind: ErrorKind) -> &'static str {
    const CODES: &[(ErrorKind, &str)] = &[
        (ErrorKind::NotFound, "no_such_file"),
        (ErrorKind::NotADirectory, "no_such_file"),
        (ErrorKind::PermissionDenied, "permission_denied"),
        (ErrorKind::ReadOnlyFilesystem, "read_only"),
        (ErrorKind::StorageFull, "disk_full"),
        (ErrorKind::QuotaExceeded, "disk_full"),
        (ErrorKind::FileTooLarge, "too_large"),
        (ErrorKind::IsADirectory, "not_a_file"),
        (ErrorKind::InvalidFilename, "name_too_long"),
        (ErrorKind::AlreadyExists, "exists"),
    ];
    CODES.iter().find(|(known, _)| *known == kind).map_or("io_error", |(_, code)| code)
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|half| char::from(DIGITS[usize::from(half)])).collect()
}
