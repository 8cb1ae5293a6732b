//! `interlock support-bundle`: what somebody far away needs to help, without secrets.
//!
//! Every text that goes in is scrubbed (`scrub`); what cannot be had is said by name in `about.json`, so that a
//! bundle from a broken box still tells which parts are broken. Nothing here needs the daemon, and nothing is sent.

mod scrub;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use super::args::{BundleArgs, Lang};
use super::client::Client;
use super::error::{CliError, Exit};
use super::out::Out;
use super::{doctor, keep, places};
use crate::config;
use crate::record::rfc3339;
use crate::store::backup::append;
use crate::store::{read, verify};
use crate::sys::clock;

/// The journal is cut at this many lines, and at least this many bytes of its end are kept: a week of a quiet box, and
/// the newest lines are what a case is about.
const JOURNAL_LINES: &str = "5000";
const JOURNAL_LEN_MAX: usize = 4 << 20;
/// Members of a row that only tie it to others.
const TIES: [&str; 6] = ["hash", "boot_id", "run", "call", "task", "time"];

struct Bundle {
    tar: tar::Builder<GzEncoder<File>>,
    about: Vec<Value>,
}

impl Bundle {
    fn put(&mut self, name: &str, text: &str) -> io::Result<()> {
        let name = format!("interlock-support/{name}");
        append(&mut self.tar, &name, text.len() as u64, 0o600, &mut text.as_bytes())
    }

    /// A part, or why it is not there.
    fn part(&mut self, name: &str, part: Result<String, String>) -> io::Result<()> {
        match part {
            Ok(text) => {
                self.about.push(json!({ "part": name, "bytes": text.len() }));
                self.put(name, &text)
            }
            Err(why) => {
                self.about.push(json!({ "part": name, "missing": scrub::text_of(&why) }));
                Ok(())
            }
        }
    }
}

pub(super) fn support_bundle(args: &BundleArgs, socket: Option<&Path>, out: &Out) -> Result<(), CliError> {
    let state = keep::state(args.state.as_deref())?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&args.file).map_err(|error| {
        let shown = CliError::new(Exit::CannotWrite, format!("{}: {error}", args.file.display()));
        if error.kind() == io::ErrorKind::AlreadyExists {
            shown.hint("name a file that is not there yet")
        } else {
            shown
        }
    })?;
    let mut bundle = Bundle { tar: tar::Builder::new(GzEncoder::new(file, Compression::default())), about: Vec::new() };
    let filled = fill(&mut bundle, args, &state, socket, out).and_then(|()| {
        let about =
            json!({ "version": env!("CARGO_PKG_VERSION"), "made": rfc3339(clock::wall()), "parts": bundle.about });
        bundle.put("about.json", &format!("{about:#}\n"))?;
        bundle.tar.into_inner()?.finish()?.sync_all()?;
        Ok(about)
    });
    let about = filled.map_err(|error| {
        let _gone = fs::remove_file(&args.file);
        CliError::new(Exit::CannotWrite, format!("{}: {error}", args.file.display()))
    })?;
    if args.json {
        return out.json(&json!({ "file": args.file, "parts": about["parts"] }));
    }
    for part in about["parts"].as_array().into_iter().flatten() {
        let name = part["part"].as_str().unwrap_or_default();
        out.line(&match part["missing"].as_str() {
            None => format!("  {name:<20} {} bytes", part["bytes"]),
            Some(why) => format!("  {name:<20} - {why}"),
        })?;
    }
    let file = args.file.display();
    out.line(&match out.lang() {
        Lang::Zh => format!("{file}：口令、密钥等已去除；发出之前请自行再看一遍"),
        Lang::En => format!("{file}: passwords, keys and the like are removed; look through it before you send it"),
    })
}

fn fill(bundle: &mut Bundle, args: &BundleArgs, state: &Path, socket: Option<&Path>, out: &Out) -> io::Result<()> {
    let config = places::config(args.config.as_deref());
    let facts =
        doctor::examine(state, &places::client_socket(socket), config.as_deref(), crate::store::sqlite_version());
    let lines =
        doctor::lines(&facts).iter().map(|line| scrub::scrubbed(&line.json(out.lang())).to_string() + "\n").collect();
    bundle.part("doctor.jsonl", Ok(lines))?;
    for (name, verb, what) in [
        ("status.json", "status", json!({})),
        ("tasks.json", "task.list", json!({ "all": true })),
        ("questions.json", "ask.list", json!({})),
    ] {
        bundle.part(name, asked(socket, verb, what))?;
    }
    bundle.part("config.json", settings(args.config.as_deref()))?;
    let stats = read::stats(state).map(|stats| stats.to_json().to_string()).map_err(|error| error.to_string());
    bundle.part("evidence-stats.json", stats)?;
    let verified =
        verify::verify(state).map(|verified| verified.to_json().to_string()).map_err(|error| error.to_string());
    bundle.part("evidence-verify.json", verified)?;
    bundle.part("evidence-tail.jsonl", rows(state, args.rows))?;
    bundle.part("journal.txt", journal())
}

fn asked(socket: Option<&Path>, verb: &str, args: Value) -> Result<String, String> {
    let client = Client::connect(&places::client_socket(socket)).map_err(|error| error.message)?;
    let mut lines = String::new();
    client
        .each(verb, args, |value| {
            lines.push_str(&scrub::scrubbed(&value).to_string());
            lines.push('\n');
            Ok(())
        })
        .map_err(|error| error.message)?;
    Ok(lines)
}

fn settings(named: Option<&Path>) -> Result<String, String> {
    let path = places::config(named).ok_or("there is no configuration: the embedded default is in force")?;
    let text = config::read(&path).map_err(|error| error.to_string())?;
    // As a value, never as text: a scrubbed text could still have the secret on the next line.
    let parsed: Value = config::as_value(&text).map_err(|why| format!("{}: {why}", path.display()))?;
    Ok(format!("{:#}\n", scrub::scrubbed(&parsed)))
}

fn rows(state: &Path, most: u32) -> Result<String, String> {
    let rows = read::tail(state, most as usize).map_err(|error| error.to_string())?;
    let mut lines = String::new();
    for row in rows {
        let row = row.to_json();
        let mut cleaned = scrub::scrubbed(&row);
        for tie in TIES {
            if let (Some(place), Some(kept)) = (cleaned.get_mut(tie), row.get(tie)) {
                *place = kept.clone();
            }
        }
        lines.push_str(&cleaned.to_string());
        lines.push('\n');
    }
    Ok(lines)
}

fn journal() -> Result<String, String> {
    let shown = |error: io::Error| format!("journalctl: {error}");
    let mut child = Command::new("journalctl")
        .args(["--unit", "interlock", "--lines", JOURNAL_LINES, "--no-pager", "--output", "short-iso-precise"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(shown)?;
    let mut from = child.stdout.take().ok_or("journalctl: no output")?;
    let (mut kept, mut piece, mut is_cut) = (Vec::new(), vec![0; 64 << 10], false);
    let read = loop {
        match from.read(&mut piece) {
            Ok(0) => break Ok(()),
            Ok(length) => kept.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Err(error),
        }
        if kept.len() > 2 * JOURNAL_LEN_MAX {
            kept.drain(..kept.len() - JOURNAL_LEN_MAX);
            is_cut = true;
        }
    };
    drop(from);
    let status = child.wait().map_err(shown)?;
    read.map_err(shown)?;
    if !status.success() {
        return Err(format!("journalctl: {status}"));
    }
    let text = String::from_utf8_lossy(&kept);
    // A line that was cut may begin in the middle of a secret.
    let whole = if is_cut { text.split_once('\n').map_or("", |(_, rest)| rest) } else { &text };
    Ok(scrub::text_of(whole))
}
