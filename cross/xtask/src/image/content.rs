//! What Interlock itself puts into the root of an image, and whether a binary fits it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use super::Recipe;
use crate::board::{Board, newest_glibc};
use crate::machine;

/// The newest glibc that the image's own Debian has.
const GLIBC: (u32, u32) = (2, 36);

/// What MCP clients need is asked for from the first start on; the token is made there.
const CLIENT: &str = "
# The token is made at the first start of the box (interlock-provision.service).
[[mcp.client]]
name = \"site\"
token-file = \"/etc/interlock/mcp.token\"
";

/// A file of the product: where it comes from, where it goes, its mode.
struct Item {
    from: PathBuf,
    to: String,
    mode: u32,
}

/// The whole list: a package of Interlock has the same one.
fn items(recipe: &Recipe<'_>) -> Result<Vec<Item>, String> {
    let root = &recipe.places.root;
    let of_systemd = |name: &str| root.join("systemd").join(name);
    let item = |from: PathBuf, to: &str, mode: u32| Item { from, to: to.to_owned(), mode };
    let mut items = vec![
        item(recipe.binary.clone(), "usr/bin/interlock", 0o755),
        item(of_systemd("sysusers.conf"), "usr/lib/sysusers.d/interlock.conf", 0o644),
        item(of_systemd("tmpfiles.conf"), "usr/lib/tmpfiles.d/interlock.conf", 0o644),
        item(of_systemd("interlock.toml"), "etc/interlock/interlock.toml", 0o640),
        item(of_systemd("interlock-npu.conf"), "usr/share/interlock/interlock-npu.conf", 0o644),
        item(of_systemd("README.zh-CN.md"), "usr/share/doc/interlock/README.zh-CN.md", 0o644),
        item(root.join("LICENSE"), "usr/share/doc/interlock/copyright", 0o644),
    ];
    for unit in ["interlock.service", "interlock-retry.service", "interlock-retry.timer"] {
        items.push(item(of_systemd(unit), &format!("usr/lib/systemd/system/{unit}"), 0o644));
    }
    // The larger providers' library is of no use on a processor alone; the licences go with the library.
    let runtime = crate::board::runtime(recipe.places, recipe.board)?;
    let files = fs::read_dir(&runtime).map_err(|e| format!("{}: {e}", runtime.display()))?;
    for file in files.flatten().map(|entry| entry.path()) {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("libonnxruntime") {
            items.push(item(file, &format!("usr/lib/interlock/{name}"), 0o644));
        } else if name != "made-from.txt" {
            items.push(item(file, &format!("usr/share/doc/interlock/onnxruntime/{name}"), 0o644));
        }
    }
    Ok(items)
}

/// Puts all of it into a root.
pub(super) fn put(recipe: &Recipe<'_>, root: &Path) -> Result<(), String> {
    for Item { from, to, mode } in items(recipe)? {
        place(&from, &root.join(to), mode)?;
    }
    place(&recipe.slots, &root.join("usr/lib/interlock/interlock-slots"), 0o755)?;
    let config = root.join("etc/interlock/interlock.toml");
    let told = |e: std::io::Error| format!("{}: {e}", config.display());
    let text = fs::read_to_string(&config).map_err(told)?;
    fs::write(&config, text + CLIENT).map_err(told)
}

/// The user exists from the image on, so that ids are the same in both slots; what belongs to it is given to it.
pub(super) fn own(root: &Path) -> Result<(), String> {
    let users = root.join("etc/group");
    let text = fs::read_to_string(&users).map_err(|e| format!("{}: {e}", users.display()))?;
    let group = text.lines().find_map(|line| line.strip_prefix("interlock:x:")?.split(':').next()?.parse().ok());
    let group = group.ok_or_else(|| format!("{}: no group interlock", users.display()))?;
    for name in ["etc/interlock", "etc/interlock/interlock.toml"] {
        chown(root.join(name), Some(0), Some(group)).map_err(|e| format!("{name}: {e}"))?;
    }
    Ok(())
}

fn place(from: &Path, to: &Path, mode: u32) -> Result<(), String> {
    let told = |e: std::io::Error| format!("{} to {}: {e}", from.display(), to.display());
    fs::create_dir_all(to.parent().unwrap_or(to)).map_err(told)?;
    fs::copy(from, to).map_err(told)?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).map_err(told)
}

/// A binary of another processor, or one that wants a newer C library, would only be found out on the box.
pub(super) fn fits(board: &Board, binary: &Path) -> Result<(), String> {
    let name = binary.to_string_lossy();
    let head = machine::said("readelf", &["--file-header", "--wide", &name])?;
    let wanted = match board.machine() {
        "aarch64" => "AArch64",
        "x86_64" => "X86-64",
        other => return Err(format!("{other}: no image is known for this processor")),
    };
    let found = head.lines().find_map(|line| line.trim().strip_prefix("Machine:")).unwrap_or("unknown").trim();
    if !found.contains(wanted) {
        return Err(format!("{name}: made for {found}; {} is {wanted}", board.name));
    }
    let symbols = machine::said("readelf", &["--version-info", "--wide", &name])?;
    match newest_glibc(&symbols) {
        Some(newest) if newest > GLIBC => Err(format!(
            "{name}: asks for GLIBC_{}.{}; the image has {}.{}\nhint: cargo xtask build --board {}",
            newest.0, newest.1, GLIBC.0, GLIBC.1, board.name
        )),
        _ => Ok(()),
    }
}
