//! `interlock support-bundle`: what somebody far away needs to help, without secrets.
//!
//! Every text that goes in is scrubbed (`record::scrub`); what cannot be had is said by name in `about.json`, so that a
//! bundle from a broken box still tells which parts are broken. Nothing here needs the daemon, and nothing is sent.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use super::args::BundleArgs;
use super::client::Client;
use super::error::{CliError, Exit};
use super::out::Out;
use super::{doctor, keep, places};
use crate::config;
use crate::record::{rfc3339, scrub};
use crate::store::{read, verify};
use crate::sys::clock;

/// The journal is cut at this many lines and bytes: a week of a quiet box.
const JOURNAL_LINES: &str = "5000";
const JOURNAL_LEN_MAX: usize = 4 << 20;
/// A configuration that is longer was not written by a person.
const CONFIG_LEN_MAX: u64 = 4 << 20;

struct Bundle {
    tar: tar::Builder<GzEncoder<File>>,
    about: Vec<Value>,
}

impl Bundle {
    fn put(&mut self, name: &str, text: &str) -> io::Result<()> {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        self.tar.append_data(&mut header, format!("interlock-support/{name}"), text.as_bytes())
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
    out.line(&match out.lang_word() {
        "zh-CN" => format!("{file}：口令、密钥等已去除；发出之前请自行再看一遍"),
        _ => format!("{file}: passwords, keys and the like are removed; look through it before you send it"),
    })
}

fn fill(bundle: &mut Bundle, args: &BundleArgs, state: &Path, socket: Option<&Path>, out: &Out) -> io::Result<()> {
    let facts = doctor::examine(state, &places::client_socket(socket), crate::store::sqlite_version());
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
    let shown = |error: io::Error| format!("{}: {error}", path.display());
    if fs::metadata(&path).map_err(shown)?.len() > CONFIG_LEN_MAX {
        return Err(format!("{} is longer than {CONFIG_LEN_MAX} bytes", path.display()));
    }
    let text = fs::read_to_string(&path).map_err(shown)?;
    // As a value, never as text: a scrubbed text could still have the secret on the next line.
    let parsed: Value = config::as_value(&text).map_err(|why| format!("{}: {why}", path.display()))?;
    Ok(format!("{:#}\n", scrub::scrubbed(&parsed)))
}

fn rows(state: &Path, most: u32) -> Result<String, String> {
    let rows = read::tail(state, most as usize).map_err(|error| error.to_string())?;
    let mut lines = String::new();
    for row in rows {
        let mut row = row.to_json();
        if let Some(detail) = row.get_mut("detail") {
            *detail = scrub::scrubbed(detail);
        }
        lines.push_str(&row.to_string());
        lines.push('\n');
    }
    Ok(lines)
}

fn journal() -> Result<String, String> {
    let read = Command::new("journalctl")
        .args(["--unit", "interlock", "--lines", JOURNAL_LINES, "--no-pager", "--output", "short-iso-precise"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let output = read.map_err(|error| format!("journalctl: {error}"))?;
    if !output.status.success() {
        return Err(format!("journalctl: {}", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let from = text.ceil_char_boundary(text.len().saturating_sub(JOURNAL_LEN_MAX));
    Ok(scrub::text_of(&text[from..]))
}
