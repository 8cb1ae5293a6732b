//! What a package owes: the list of its parts (a CycloneDX bill of materials), their licences and the texts of these.
//!
//! All of it is read out of cargo's own resolution of what is linked for the target, so that nothing can be forgotten; a
//! part without a licence stops the packaging.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::{Places, steps};

/// The longest text of a licence that is taken along, bytes.
const TEXT_MAX: u64 = 256 << 10;

/// One crate of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) licence: String,
    pub(crate) authors: Vec<String>,
    /// Where its source lies.
    pub(crate) folder: PathBuf,
    /// Of the workspace.
    pub(crate) ours: bool,
    /// SHA-256 of its package, from the lock file.
    pub(crate) checksum: Option<String>,
    /// `name@version` of what it needs.
    pub(crate) needs: BTreeSet<String>,
}

impl Part {
    fn reference(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }
}

/// What is linked into the program for a target (build scripts and what they need are not), by name and version.
pub(crate) fn parts(places: &Places, target: &str) -> Result<Vec<Part>, String> {
    let mut cargo = steps::cargo_command(places);
    cargo.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", target]);
    let said = cargo.output().map_err(|e| format!("cargo metadata: {e}"))?;
    if !said.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&said.stderr)));
    }
    let metadata: Value = serde_json::from_slice(&said.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
    let lock = places.root.join("Cargo.lock");
    let lock = fs::read_to_string(&lock).map_err(|e| format!("{}: {e}", lock.display()))?;
    linked(&metadata, &checksums(&lock)?)
}

fn checksums(lock: &str) -> Result<BTreeMap<String, String>, String> {
    let table: toml::Table = lock.parse().map_err(|e| format!("Cargo.lock: {e}"))?;
    let packages = table.get("package").and_then(toml::Value::as_array).into_iter().flatten();
    let word = |package: &toml::Value, key: &str| package.get(key)?.as_str().map(str::to_owned);
    let rows = packages.filter_map(|package| {
        let (name, version) = (word(package, "name")?, word(package, "version")?);
        Some((format!("{name}@{version}"), word(package, "checksum")?))
    });
    Ok(rows.collect())
}

/// The program's package and everything that it needs at run time, out of what `cargo metadata` says.
fn linked(metadata: &Value, checksums: &BTreeMap<String, String>) -> Result<Vec<Part>, String> {
    let packages: BTreeMap<&str, &Value> =
        array(&metadata["packages"]).filter_map(|package| Some((package["id"].as_str()?, package))).collect();
    let nodes: BTreeMap<&str, &Value> =
        array(&metadata["resolve"]["nodes"]).filter_map(|node| Some((node["id"].as_str()?, node))).collect();
    let root = packages.iter().find(|(_, package)| package["name"] == "interlock").ok_or("no package interlock")?.0;
    let mut reached = BTreeSet::from([*root]);
    let mut open = vec![*root];
    while let Some(id) = open.pop() {
        for need in needed(nodes.get(id).copied().unwrap_or(&Value::Null)) {
            if reached.insert(need) {
                open.push(need);
            }
        }
    }
    let named =
        |id: &str| packages.get(id).and_then(|package| Some((text(&package["name"])?, text(&package["version"])?)));
    let reference = |id: &str| named(id).map(|(name, version)| format!("{name}@{version}"));
    let mut parts = Vec::new();
    for id in &reached {
        let package = packages.get(id).ok_or_else(|| format!("{id}: no such package"))?;
        let (name, version) = named(id).ok_or_else(|| format!("{id}: it has no name"))?;
        let licence = text(&package["license"]).ok_or_else(|| format!("{name} {version} names no licence"))?;
        let manifest = text(&package["manifest_path"]).unwrap_or_default();
        parts.push(Part {
            licence: licence.replace(" / ", " OR ").replace('/', " OR "),
            authors: array(&package["authors"]).filter_map(text).collect(),
            folder: Path::new(&manifest).parent().unwrap_or(Path::new("")).to_path_buf(),
            ours: package["source"].is_null(),
            checksum: checksums.get(&format!("{name}@{version}")).cloned(),
            needs: nodes.get(id).into_iter().flat_map(|node| needed(node)).filter_map(reference).collect(),
            name,
            version,
        });
    }
    parts.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(parts)
}

/// What a node needs at run time.
fn needed(node: &Value) -> Vec<&str> {
    let at_run_time = |dep: &&Value| array(&dep["dep_kinds"]).any(|kind| kind["kind"].is_null());
    array(&node["deps"]).filter(at_run_time).filter_map(|dep| dep["pkg"].as_str()).collect()
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// The version of the program.
pub(crate) fn version(parts: &[Part]) -> String {
    parts.iter().find(|part| part.name == "interlock").map(|part| part.version.clone()).unwrap_or_default()
}

/// A bill of materials, CycloneDX 1.5. It has no time and no serial number: the same parts give the same bytes.
/// `runtime` is the pin of ONNX Runtime's wheel.
pub(crate) fn sbom(parts: &[Part], runtime: &str) -> String {
    let component = |part: &Part| {
        let mut component = json!({
            "type": if part.name == "interlock" { "application" } else { "library" },
            "bom-ref": part.reference(),
            "name": part.name,
            "version": part.version,
            "licenses": [{ "expression": part.licence }],
        });
        if let Some(checksum) = &part.checksum {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
            component["purl"] = json!(format!("pkg:cargo/{}@{}", part.name, part.version));
        }
        component
    };
    let (name, version) = runtime.split_once("==").unwrap_or((runtime, ""));
    let library = json!({
        "type": "library", "bom-ref": format!("{name}@{version}"), "name": name, "version": version,
        "licenses": [{ "expression": "MIT" }], "purl": format!("pkg:pypi/{name}@{version}"), "scope": "optional",
    });
    let (program, others): (Vec<&Part>, Vec<&Part>) = parts.iter().partition(|part| part.name == "interlock");
    let components: Vec<Value> = others.into_iter().map(component).chain([library]).collect();
    let dependencies: Vec<Value> =
        parts.iter().map(|part| json!({ "ref": part.reference(), "dependsOn": part.needs })).collect();
    let bill = json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": { "component": program.first().map(|part| component(part)) },
        "components": components,
        "dependencies": dependencies,
    });
    format!("{bill:#}\n")
}

/// Debian's copyright file, with the licence of each part.
pub(crate) fn copyright(parts: &[Part]) -> String {
    let mut said = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
                    Upstream-Name: interlock\nComment:\n This program holds the parts below, each under its own licence. \
                    The texts are in\n third-party.txt.gz beside this file; those of ONNX Runtime are beside it, in\n \
                    /usr/lib/interlock. The source of each, unchanged, is in\n Rust's public crate registry under its name and version.\n .\n"
        .to_owned();
    for part in parts.iter().filter(|part| !part.ours) {
        // Writing into a String does not fail.
        let _ = writeln!(said, " {} {}: {}", part.name, part.version, part.licence);
    }
    said.push_str(
        "\nFiles: *\nCopyright: 2026 The Interlock authors\nLicense: Apache-2.0\n\nLicense: Apache-2.0\n On Debian systems, \
         the text is in /usr/share/common-licenses/Apache-2.0.\n",
    );
    said
}

/// The texts of the licences of all parts of others, each text once, with those that are under it.
pub(crate) fn third_party(parts: &[Part]) -> Result<String, String> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut without = Vec::new();
    for part in parts.iter().filter(|part| !part.ours) {
        let authors = if part.authors.is_empty() { String::new() } else { format!(", {}", part.authors.join(", ")) };
        let shown = format!("{} {} ({}{authors})", part.name, part.version, part.licence);
        let found = texts_in(&part.folder)?;
        if found.is_empty() {
            without.push(shown.clone());
        }
        for text in found {
            texts.entry(text).or_default().push(shown.clone());
        }
    }
    let mut said = "What others wrote, and under which licence.\n".to_owned();
    if !without.is_empty() {
        let _ = writeln!(said, "\nWithout a text in their packages, under what they name:\n  {}", without.join("\n  "));
    }
    for (text, owners) in texts {
        let _ = writeln!(said, "\n{}\n{}\n\n{}", "=".repeat(78), owners.join("\n"), text.trim());
    }
    Ok(said)
}

/// What a package has of licences and notices.
fn texts_in(folder: &Path) -> Result<Vec<String>, String> {
    let mut texts = Vec::new();
    for file in super::listed(folder)? {
        let name = file.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        let is_one =
            ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"].iter().any(|start| name.starts_with(start));
        let length = fs::metadata(&file).map(|file| if file.is_file() { file.len() } else { u64::MAX });
        if is_one && length.is_ok_and(|length| length <= TEXT_MAX) {
            let bytes = fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            texts.push(String::from_utf8_lossy(&bytes).replace("\r\n", "\n"));
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata() -> Value {
        let package = |name: &str, licence: Value, source: Value| {
            json!({ "id": name, "name": name, "version": "1.0.0", "license": licence, "source": source,
                "authors": [], "manifest_path": format!("/s/{name}/Cargo.toml") })
        };
        let dep = |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        json!({
            "packages": [
                package("interlock", json!("Apache-2.0"), Value::Null),
                package("linked", json!("MIT/Apache-2.0"), json!("registry")),
                package("below", json!("MIT"), json!("registry")),
                package("tests-only", Value::Null, json!("registry")),
                package("build-only", json!("MIT"), json!("registry")),
            ],
            "resolve": { "nodes": [
                { "id": "interlock", "deps": [dep("linked", Value::Null), dep("tests-only", json!("dev"))] },
                { "id": "linked", "deps": [dep("below", Value::Null), dep("build-only", json!("build"))] },
                { "id": "below", "deps": [] },
            ] },
        })
    }

    #[test]
    fn what_is_linked_is_a_part_and_what_only_builds_or_tests_is_none() {
        let lock = "[[package]]\nname = \"below\"\nversion = \"1.0.0\"\nchecksum = \"abc\"\n";
        let parts = linked(&metadata(), &checksums(lock).expect("a lock file")).expect("all have a licence");
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["below", "interlock", "linked"]);
        assert_eq!(parts[2].licence, "MIT OR Apache-2.0");
        let bill: Value = serde_json::from_str(&sbom(&parts, "onnxruntime==1.2")).expect("it is JSON");
        assert_eq!(bill["metadata"]["component"]["name"], "interlock");
        let below = &bill["components"][0];
        assert_eq!((&below["purl"], &below["hashes"][0]["content"]), (&json!("pkg:cargo/below@1.0.0"), &json!("abc")));
        assert_eq!(bill["components"][2]["purl"], "pkg:pypi/onnxruntime@1.2");
        assert_eq!(bill["dependencies"][2], json!({ "ref": "linked@1.0.0", "dependsOn": ["below@1.0.0"] }));
        assert!(copyright(&parts).contains("\n linked 1.0.0: MIT OR Apache-2.0\n"));
    }

    #[test]
    fn a_part_without_a_licence_is_not_packed() {
        let mut metadata = metadata();
        metadata["packages"][2]["license"] = Value::Null;
        assert_eq!(linked(&metadata, &BTreeMap::new()), Err("below 1.0.0 names no licence".to_owned()));
    }
}
