//! Holds the house together: who may import what, which crates the centre may have, how large a file may grow.
//!
//! These are rules that review alone did not hold elsewhere. Each check is a function over the tree as text, so that
//! the same check runs on a doctored tree and must find what was put there: a check that cannot fail guards nothing.
//! When the code teaches a better table, change the table in the commit that needs it and say why.
#![cfg(test)]

mod rust;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use rust::{Named, blanked, lines_of_code, paths, tokens};
use toml::{Table, Value};

/// The files of the work tree: path from the root, with forward slashes, and text.
type Tree = BTreeMap<String, String>;

// ---- The tables ------------------------------------------------------------------------------------------------

/// Crates that everyone in the root package may name: plain data, errors and log lines.
const EVERYONE: &[&str] = &["interlock_domain", "serde_json", "thiserror", "tracing"];

/// A module of the root package, the other modules of ours that it may name, and the crates besides [`EVERYONE`]'s.
/// A module that is not in here is refused: it says where it stands first.
const MODULES: &[(&str, &[&str], &[&str])] = &[
    // Written forms, no I/O.
    ("record", &[], &["serde"]),
    ("provider", &[], &["serde"]),
    // Its words between a tool and its caller carry their way back, and lines are read from a stream.
    ("mcp", &[], &["serde", "tokio"]),
    // Adapters: the only code that touches the world.
    ("sys", &[], &["libc", "nix"]),
    (
        "store",
        &["record"],
        &["rusqlite", "ed25519_dalek", "getrandom", "sha2", "sm3", "tokio", "base64", "tar", "flate2", "serde"],
    ),
    (
        "tool",
        &["sys", "mcp"],
        &["tokio", "reqwest", "rustls", "tokio_modbus", "tokio_serial", "sha2", "base64", "getrandom"],
    ),
    // Its library of passages is SQLite (FTS5); a model is loaded by its hash.
    ("infer", &[], &["ort", "rusqlite", "sha2"]),
    // Owners.
    // Its journal says where log lines go.
    ("engine", &["store", "tool", "infer", "sys", "provider", "record", "mcp"], &["tokio", "tracing_subscriber"]),
    // Surfaces: bytes <-> domain words.
    // Its own HTTP front, closer to the wire than axum lets it be; tokens of its sessions are random and hashed.
    (
        "agents",
        &["mcp", "record", "engine::handle", "engine::servers", "engine::supervisor", "engine::tasks", "sys::clock"],
        &["tokio", "tokio_rustls", "axum", "futures_util", "serde", "hyper", "hyper_util", "getrandom", "sha2"],
    ),
    // The socket asks the kernel who is at the other end, hands `interlock mcp` to the front for agents, and reads what
    // the owners publish.
    (
        "control",
        &[
            "record",
            "engine::agent",
            "engine::handle",
            "engine::learner",
            "engine::listener",
            "engine::log",
            "engine::keeper",
            "engine::people",
            "engine::servers",
            "engine::tasks",
            "engine::workflow",
            "agents::core",
            "agents::front::stdio",
            // `status` says how the export goes.
            "export::Receiver",
            "sys::family",
            "sys::peer",
        ],
        &["tokio", "axum", "serde", "nix"],
    ),
    // Voice front ends: their peers are placed as those of the socket are.
    ("wyoming", &["engine::handle", "engine::listener", "sys::family", "sys::peer"], &["tokio"]),
    // What it shows and does are the verbs of the socket; its door knows names as the one for agents does. Closer to the
    // wire than axum lets it be: heads and readers are waited for within bounds.
    (
        "console",
        &[
            "record",
            "control",
            "engine::log",
            "engine::people",
            "agents::front::door",
            "agents::front::body",
            "sys::clock",
        ],
        &["tokio", "tokio_rustls", "axum", "hyper", "hyper_util"],
    ),
    // It reads the log beside the writer and keeps how far each receiver has come, both through their owners.
    // The figures are those that the owners publish, and the process's own.
    (
        "export",
        &[
            "record",
            "engine::handle",
            "engine::keeper",
            // A topic of the plant speaks to whom voice front ends speak.
            "engine::listener",
            "engine::log",
            "engine::servers",
            "engine::tasks",
            "sys::clock",
            "sys::journal",
            "sys::machine",
        ],
        &["tokio", "rumqttc", "reqwest", "sha2", "base64", "serde"],
    ),
    // Around them. `cli` has the offline verbs, which act without a daemon; `doctor` asks `sys` about this machine.
    ("config", &[], &["toml", "serde", "saphyr_parser"]),
    // The plant's process model is a file that a person may write: its mistakes are told as those of the configuration.
    ("plant", &["config"], &["tokio", "tokio_modbus", "toml", "serde"]),
    // The figures of the log stand beside raw SQLite, in one run.
    ("bench", &["engine", "store", "infer", "sys", "record", "provider"], &["tokio", "serde", "rusqlite"]),
    (
        "cli",
        &[
            "config",
            "control",
            "boot",
            "provider",
            "record",
            "store",
            "infer",
            "bench",
            "sys",
            "engine::supervisor",
            "engine::watch",
        ],
        &["anyhow", "clap", "clap_complete", "clap_mangen", "nix", "serde", "tokio", "tar", "flate2"],
    ),
    (
        "boot",
        &[
            "agents", "bench", "config", "console", "control", "engine", "export", "infer", "mcp", "plant", "provider",
            "record", "store", "sys", "tool", "wyoming",
        ],
        &["anyhow", "axum", "nix", "rustls", "tokio", "tokio_rustls", "tracing_subscriber"],
    ),
];

/// The rooms of the domain and what each may name. The call's chain is `request` to `mediator`: there, each may name
/// only what stands before it.
const ROOMS: &[(&str, &[&str])] = &[
    ("id", &[]),
    ("risk", &[]),
    ("time", &[]),
    // Passports for the tests of the stations, made through the stations.
    ("sample", &["risk", "id", "time", "request", "surface", "gate"]),
    ("block", &["id"]),
    ("device", &["risk", "id"]),
    ("request", &["id", "time"]),
    ("surface", &["risk", "sample", "id", "time", "request"]),
    ("gate", &["risk", "sample", "id", "time", "request", "surface"]),
    ("schedule", &["risk", "sample", "id", "time", "request", "surface", "gate"]),
    ("effect", &["risk", "sample", "id", "time", "request", "surface", "gate", "schedule"]),
    ("closure", &["risk", "sample", "id", "time", "request", "surface", "gate", "schedule", "effect"]),
    (
        "event",
        &[
            "risk", "id", "time", "request", "surface", "gate", "schedule", "effect", "closure", "liveness", "command",
            "learn",
        ],
    ),
    (
        "repair",
        // The blocks of a history, which it closes and mends.
        &[
            "block", "risk", "sample", "id", "time", "request", "surface", "gate", "schedule", "effect", "closure",
            "event",
        ],
    ),
    (
        "mediator",
        &[
            "risk", "sample", "id", "time", "request", "surface", "gate", "schedule", "effect", "closure", "event",
            "repair",
        ],
    ),
    ("context", &["id", "time", "block", "request", "closure", "event", "repair"]),
    ("trace", &["id", "time", "event"]),
    (
        "agent",
        &["id", "time", "block", "request", "surface", "gate", "effect", "closure", "event", "repair", "context"],
    ),
    ("liveness", &["id", "time"]),
    ("command", &["risk", "id", "time", "device", "request"]),
    ("learn", &["risk", "id", "time", "command"]),
];

/// What the domain may depend on. Nothing in here reads a clock, opens a file or waits.
const DOMAIN_CRATES: &[&str] =
    &["globset", "jsonschema", "pinyin", "regex", "serde_json", "sha2", "thiserror", "ulid", "unicode-normalization"];

/// What may lie at the top of the tree.
const TOP_LEVEL: &[&str] = &[
    ".cargo",
    ".ci",
    ".clippy.toml",
    ".gitignore",
    ".rustfmt.toml",
    "CHANGELOG.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "cross",
    "models",
    "src",
    "systemd",
    "tests",
];

/// Lines of code without tests: from here on, a file is reported …
const LINES_REPORTED: usize = 400;
/// … and from here on there is a second subject in it.
const LINES_MAX: usize = 700;

// ---- The checks ------------------------------------------------------------------------------------------------

fn imports(tree: &Tree) -> Vec<String> {
    let mut wrong = Vec::new();
    let crates = dependencies(tree, "Cargo.toml");
    for (file, text) in rust_files(tree, "src/").filter(|(file, _)| !file.starts_with("src/domain/")) {
        let module = module_path(file, "src/");
        let Some(top) = module.first() else { continue };
        let Some((_, ours, outside)) = MODULES.iter().find(|(name, ..)| name == top) else {
            wrong.push(format!("{file}: module `{top}` is not in the import table"));
            continue;
        };
        for Named { line, path, of_ours } in paths(text, &module) {
            let fits = if of_ours {
                // Paths to a macro or an item at the root of the crate are paths to no module.
                let known = MODULES.iter().any(|(name, ..)| *name == path[0]);
                !known || path[0] == *top || ours.iter().any(|allowed| is_within(&path, allowed))
            } else {
                !crates.contains(&path[0])
                    || EVERYONE.contains(&path[0].as_str())
                    || outside.contains(&path[0].as_str())
            };
            if !fits {
                wrong.push(format!("{file}:{line}: `{top}` may not name `{}`", path.join("::")));
            }
        }
    }
    wrong
}

fn rooms(tree: &Tree) -> Vec<String> {
    let mut wrong = Vec::new();
    for (file, text) in rust_files(tree, "src/domain/") {
        let module = module_path(file, "src/domain/");
        let Some(top) = module.first() else { continue };
        let Some((_, allowed)) = ROOMS.iter().find(|(name, _)| name == top) else {
            wrong.push(format!("{file}: room `{top}` is not in the table of the domain"));
            continue;
        };
        for Named { line, path, of_ours } in paths(text, &module) {
            let is_room = of_ours && ROOMS.iter().any(|(name, _)| *name == path[0]);
            if is_room && path[0] != *top && !allowed.contains(&path[0].as_str()) {
                wrong.push(format!("{file}:{line}: room `{top}` may not name `{}`", path.join("::")));
            }
        }
    }
    wrong
}

fn domain_crates(tree: &Tree) -> Vec<String> {
    let named = dependencies(tree, "src/domain/Cargo.toml");
    let allowed: BTreeSet<String> = DOMAIN_CRATES.iter().map(|name| name.replace('-', "_")).collect();
    named.difference(&allowed).map(|name| format!("src/domain/Cargo.toml: `{name}` is not on the allow-list")).collect()
}

fn names(tree: &Tree) -> Vec<String> {
    let without_subject = ["util", "utils", "common", "helper", "helpers", "misc"];
    let parts = |file: &String| file.split('/').map(|part| part.trim_end_matches(".rs").to_owned()).collect::<Vec<_>>();
    tree.keys()
        .filter(|file| parts(file).iter().any(|part| without_subject.contains(&part.as_str())))
        .map(|file| format!("{file}: a name without a subject; a function lives where its words live"))
        .collect()
}

fn lengths(tree: &Tree) -> Vec<String> {
    let mut wrong = Vec::new();
    for (file, text) in rust_files(tree, "src/").chain(rust_files(tree, "cross/")) {
        let lines = lines_of_code(text);
        if lines > LINES_MAX {
            wrong.push(format!("{file}: {lines} lines of code; look for the second subject in it"));
        }
    }
    wrong
}

fn top_level(tree: &Tree) -> Vec<String> {
    let tops: BTreeSet<&str> = tree.keys().filter_map(|file| file.split('/').next()).collect();
    tops.into_iter()
        .filter(|top| !TOP_LEVEL.contains(top))
        .map(|top| format!("{top}: no place for it at the top of the tree"))
        .collect()
}

fn attributes(tree: &Tree) -> Vec<String> {
    let mut wrong = Vec::new();
    // Read with its strings: reasons are strings.
    for (file, text) in tree.iter().filter(|(file, _)| file.ends_with(".rs") && *file != "tests/tidy/main.rs") {
        for (number, line) in text.lines().enumerate() {
            let attribute = line.trim_start();
            let place = format!("{file}:{}", number + 1);
            let whole = || text.lines().skip(number).take(12).collect::<String>();
            let until_closed = || whole().split(")]").next().unwrap_or_default().to_owned();
            let lowers = ["#[allow(", "#![allow(", "#[expect(", "#![expect("];
            if lowers.iter().any(|start| attribute.starts_with(start)) && !until_closed().contains("reason = \"") {
                wrong.push(format!("{place}: a lint is switched off without a reason"));
            }
            if attribute.starts_with("#[ignore") && !names_an_issue(attribute) {
                wrong.push(format!("{place}: an ignored test names its issue, `#[ignore = \"#7: why\"]`"));
            }
            if attribute.starts_with("#[should_panic") {
                wrong.push(format!("{place}: no #[should_panic]; compare what came out"));
            }
        }
    }
    wrong
}

fn names_an_issue(attribute: &str) -> bool {
    let after = attribute.split('#').nth(2).unwrap_or_default();
    after.starts_with(|c: char| c.is_ascii_digit())
}

fn unsafe_code(tree: &Tree) -> Vec<String> {
    let mut wrong = Vec::new();
    for (file, text) in rust_files(tree, "src/") {
        if file.starts_with("src/sys/") || file == "src/sys.rs" || file == "src/infer/runtime.rs" {
            continue;
        }
        for (line, word) in tokens(&blanked(text)) {
            if word == "unsafe" {
                wrong.push(format!("{file}:{line}: `unsafe` lives in sys"));
            }
        }
    }
    wrong
}

/// The tree is for every machine: nothing in it knows the one that it was written on.
fn machine_words(tree: &Tree) -> Vec<String> {
    // Put together here, so that this file does not hold what it looks for.
    let folders = ["shared", "main", "wt", "brief", "target", ".library"].map(|folder| format!("/{}/{folder}", "work"));
    let homes = [".cargo", ".pyenv", ".rustup"].map(|folder| format!("/{}/{folder}", "root"));
    let indexes = ["index-url", "replace-with", "_authToken", "trusted-host"].map(str::to_owned);
    let words: Vec<String> = folders.into_iter().chain(homes).chain(indexes).collect();
    let mut wrong = Vec::new();
    for (file, text) in tree.iter().filter(|(file, _)| *file != "tests/tidy/main.rs") {
        for (number, line) in text.lines().enumerate() {
            if let Some(word) = words.iter().find(|word| line.contains(word.as_str())) {
                wrong.push(format!("{file}:{}: {word:?} belongs to one machine", number + 1));
            }
        }
    }
    wrong
}

fn module_docs(tree: &Tree) -> Vec<String> {
    rust_files(tree, "src/")
        .chain(rust_files(tree, "cross/"))
        .chain(rust_files(tree, "tests/it/"))
        .filter(|(_, text)| !text.starts_with("//!"))
        .map(|(file, _)| format!("{file}: opens without `//!`: what it is for, what it must never do, and why"))
        .collect()
}

/// Each sample configuration is one that the daemon would take: as it is shipped, and with every commented setting
/// switched on.
fn samples(tree: &Tree) -> Vec<String> {
    let mut wrong = Vec::new();
    let samples = tree.iter().filter(|(file, _)| file.starts_with("systemd/") && file.ends_with(".toml"));
    for (file, text) in samples {
        for (how, text) in [("as shipped", text.clone()), ("with all of it switched on", switched_on(text))] {
            if let Err(why) = load(file, &text) {
                wrong.push(format!("{file}, {how}: {why}"));
            }
        }
    }
    wrong
}

/// As `interlock check` does.
fn load(file: &str, text: &str) -> Result<(), String> {
    interlock::config::check(Path::new(file), text).map(drop).map_err(|error| error.to_string())
}

/// A setting that is commented out has no blank after its `#`; prose has one.
fn switched_on(text: &str) -> String {
    let lines = text.lines().map(|line| match line.strip_prefix('#') {
        Some(setting) if !setting.starts_with(' ') => setting,
        Some(_) | None => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn rust_files<'t>(tree: &'t Tree, under: &'static str) -> impl Iterator<Item = (&'t String, &'t String)> {
    tree.iter().filter(move |(file, _)| file.starts_with(under) && file.ends_with(".rs"))
}

fn module_path(file: &str, root: &str) -> Vec<String> {
    let inside = file.trim_start_matches(root).trim_end_matches(".rs");
    let parts = inside.split('/').filter(|part| !matches!(*part, "lib" | "main" | "mod"));
    parts.map(str::to_owned).collect()
}

fn is_within(path: &[String], allowed: &str) -> bool {
    let allowed: Vec<&str> = allowed.split("::").collect();
    path.len() >= allowed.len() && allowed.iter().zip(path).all(|(a, b)| a == b)
}

/// The crates under `[dependencies]`, as code writes them.
fn dependencies(tree: &Tree, manifest: &str) -> BTreeSet<String> {
    let text = tree.get(manifest).map_or("", String::as_str);
    let table: Table = text.parse().expect("a manifest is TOML");
    let mut found = BTreeSet::new();
    for key in ["dependencies", "build-dependencies"] {
        let named = table.get(key).and_then(Value::as_table);
        found.extend(named.into_iter().flat_map(|named| named.keys()).map(|name| name.replace('-', "_")));
    }
    for (_, target) in table.get("target").and_then(Value::as_table).into_iter().flatten() {
        let named = target.get("dependencies").and_then(Value::as_table);
        found.extend(named.into_iter().flat_map(|named| named.keys()).map(|name| name.replace('-', "_")));
    }
    found
}

// ---- The tree as it is -----------------------------------------------------------------------------------------

/// What git tracks, and what it would track; binary files are left out.
fn the_tree() -> Tree {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .expect("git lists the files of this tree");
    assert!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    let listed = String::from_utf8(listed.stdout).expect("the names of our files are UTF-8");
    let mut tree = Tree::new();
    for file in listed.split('\0').filter(|file| !file.is_empty()) {
        // A file that was deleted but not yet committed is listed too.
        if let Ok(text) = std::fs::read_to_string(root.join(file)) {
            tree.insert(file.to_owned(), text);
        }
    }
    tree
}

fn holds(check: fn(&Tree) -> Vec<String>) {
    let wrong = check(&the_tree());
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// Makes a tree of our manifests and one file, and expects the check to say exactly this about it.
fn finds(check: fn(&Tree) -> Vec<String>, file: &str, text: &str, expected: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifests = ["Cargo.toml", "src/domain/Cargo.toml"];
    let manifest = |name: &str| (name.to_owned(), std::fs::read_to_string(root.join(name)).expect("a manifest"));
    let mut tree: Tree = manifests.map(manifest).into();
    tree.insert(file.to_owned(), text.to_owned());
    assert_eq!(check(&tree), expected, "for {text:?}");
}

#[test]
fn modules_import_only_what_the_table_allows() {
    holds(imports);
}

#[test]
fn an_import_outside_of_the_table_is_found() {
    let check = |file, text, expected: &[&str]| finds(imports, file, text, expected);
    let storing = "src/store/odd.rs:1: `store` may not name `tool::files`";
    check("src/store/odd.rs", "use crate::tool::files;", &[storing]);
    check("src/store/odd.rs", "use crate::{record, tool::{files}};", &[storing]);
    check("src/store/odd.rs", "use super::super::tool::files as f;", &[storing]);
    check("src/store/odd.rs", "fn f() { crate::tool::files(); }", &[storing]);
    check("src/store/odd.rs", "mod a { use super::super::super::tool::files; }", &[storing]);
    check("src/store/odd.rs", "mod a {} mod b { use super::super::super::tool::files; }", &[storing]);
    check("src/store/odd.rs", "use reqwest::Client;", &["src/store/odd.rs:1: `store` may not name `reqwest::Client`"]);
    check("src/agents/odd.rs", "\n\nuse crate::store;", &["src/agents/odd.rs:3: `agents` may not name `store`"]);
    check(
        "src/agents/odd.rs",
        "use crate::engine::mediator::X;",
        &["src/agents/odd.rs:1: `agents` may not name `engine::mediator::X`"],
    );
    check("src/attic/mod.rs", "", &["src/attic/mod.rs: module `attic` is not in the import table"]);
}

#[test]
fn what_the_table_allows_and_what_is_no_path_is_not_found() {
    let check = |file, text| finds(imports, file, text, &[]);
    check("src/tool/odd.rs", "use crate::sys::open; use super::files; use tokio::fs;");
    check("src/agents/odd.rs", "use crate::engine::handle::Handle;");
    check("src/store/odd.rs", "// crate::tool::files\n/* crate::tool */ const A: &str = \"crate::tool\";");
    check("src/store/odd.rs", "const A: &str = r#\"\" crate::tool::files\"#; const B: char = '\"'; fn f<'a>() {}");
    check("src/store/odd.rs", "const A: &[u8] = br#\"}\"}\"#; const B: &[u8] = b\"}\\\"}\"; const C: u8 = b'}';");
    check("src/store/odd.rs", "mod tests { use super::*; use super::super::writer; }");
}

#[test]
fn rooms_of_the_domain_name_only_what_stands_before_them() {
    holds(rooms);
    let check = |file, text, expected: &[&str]| finds(rooms, file, text, expected);
    check(
        "src/domain/request/odd.rs",
        "use crate::gate::Permit;",
        &["src/domain/request/odd.rs:1: room `request` may not name `gate::Permit`"],
    );
    check("src/domain/gate/odd.rs", "use crate::request::Request; use super::policy;", &[]);
    check("src/domain/attic.rs", "", &["src/domain/attic.rs: room `attic` is not in the table of the domain"]);
}

#[test]
fn the_domain_depends_on_nothing_beyond_its_list() {
    holds(domain_crates);
    let doctored = "[dependencies]\nregex = \"1\"\ntokio = \"1\"\n[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n";
    let expected = ["libc", "tokio"].map(|name| format!("src/domain/Cargo.toml: `{name}` is not on the allow-list"));
    finds(domain_crates, "src/domain/Cargo.toml", doctored, &expected.each_ref().map(String::as_str));
}

#[test]
fn files_and_folders_have_names_with_a_subject() {
    holds(names);
    let expected = "src/tool/utils.rs: a name without a subject; a function lives where its words live";
    finds(names, "src/tool/utils.rs", "", &[expected]);
    finds(names, "src/common/mod.rs", "", &[&expected.replace("src/tool/utils.rs", "src/common/mod.rs")]);
    finds(names, "src/tool/commonly.rs", "", &[]);
}

#[test]
fn files_stay_short_enough_to_have_one_subject() {
    holds(lengths);
    for (file, text) in the_tree().iter().filter(|(file, _)| file.starts_with("src/") && file.ends_with(".rs")) {
        let lines = lines_of_code(text);
        if lines > LINES_REPORTED {
            // Past the test runner's capture: a report that nobody sees is none.
            drop(writeln!(std::io::stderr(), "note: {file} has {lines} lines of code; the aim is {LINES_REPORTED}"));
        }
    }
    let long = "fn f() {}\n".repeat(LINES_MAX + 1);
    let expected = "src/tool/long.rs: 701 lines of code; look for the second subject in it";
    finds(lengths, "src/tool/long.rs", &long, &[expected]);
    finds(lengths, "src/tool/long.rs", &format!("\n// a\n#[cfg(test)]\nmod tests {{\n{long}}}\n"), &[]);
}

#[test]
fn the_top_of_the_tree_has_only_what_belongs_there() {
    holds(top_level);
    finds(top_level, "notes/a.md", "", &["notes: no place for it at the top of the tree"]);
}

#[test]
fn lints_and_tests_are_switched_off_only_with_a_reason() {
    holds(attributes);
    let check = |text, expected: &[&str]| finds(attributes, "src/tool/odd.rs", text, expected);
    let off = "src/tool/odd.rs:1: a lint is switched off without a reason";
    check("#[allow(dead_code)]", &[off]);
    check("    #[expect(dead_code)]", &[off]);
    check("#![allow(\n  dead_code,\n)]\n// reason = \"\"", &[off]);
    check("#[expect(\n  dead_code,\n  reason = \"why\"\n)]", &[]);
    let ignored = "src/tool/odd.rs:1: an ignored test names its issue, `#[ignore = \"#7: why\"]`";
    check("#[ignore]", &[ignored]);
    check("#[ignore = \"slow\"]", &[ignored]);
    check("#[ignore = \"#12: the board is not here\"]", &[]);
    check("#[should_panic]", &["src/tool/odd.rs:1: no #[should_panic]; compare what came out"]);
}

#[test]
fn unsafe_code_lives_in_sys() {
    holds(unsafe_code);
    finds(unsafe_code, "src/tool/odd.rs", "\nunsafe { }", &["src/tool/odd.rs:2: `unsafe` lives in sys"]);
    finds(unsafe_code, "src/tool/odd.rs", "// unsafe\nconst unsafe_name: u8 = 0;", &[]);
    finds(unsafe_code, "src/sys/odd.rs", "unsafe { }", &[]);
}

#[test]
fn nothing_in_the_tree_knows_the_machine_it_was_written_on() {
    holds(machine_words);
    let place = format!("/{}/shared", "work");
    let expected = format!("README.md:2: {place:?} belongs to one machine");
    finds(machine_words, "README.md", &format!("a\nsee {place}/x"), &[&expected]);
}

#[test]
fn each_module_says_what_it_is_for() {
    holds(module_docs);
    let expected = "src/tool/odd.rs: opens without `//!`: what it is for, what it must never do, and why";
    finds(module_docs, "src/tool/odd.rs", "use std::fs;\n", &[expected]);
}

#[test]
fn each_sample_configuration_loads() {
    holds(samples);
    assert!(the_tree().keys().any(|file| file == "systemd/interlock.toml"), "there is no sample configuration");
    let odd = |text| {
        let mut tree = Tree::new();
        tree.insert("systemd/odd.toml".to_owned(), text);
        samples(&tree).len()
    };
    assert_eq!(odd("version = 1\n# prose\n#[mcp]\n#enabled = true\n".to_owned()), 0);
    assert_eq!(odd("version = 2\n".to_owned()), 2);
    assert_eq!(odd("version = 1\n#[mcp\n".to_owned()), 1, "a commented setting must be one that loads");
}
