//! What Interlock itself puts into the root of an image, and whether a binary fits it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use super::Recipe;
use crate::board::{Board, is_for, newest_glibc};
use crate::machine;
use crate::package::{Item, Stage};

/// The newest glibc that the image's own Debian has.
const GLIBC: (u32, u32) = (2, 36);

/// What MCP clients need is asked for from the first start on; the token is made there.
const CLIENT: &str = "
# The token is made at the first start of the box (interlock-provision.service).
[[mcp.client]]
name = \"site\"
token-file = \"/etc/interlock/mcp.token\"
";

/// Puts what the packages hold into a root, and what only an image has.
pub(super) fn put(recipe: &Recipe<'_>, root: &Path) -> Result<(), String> {
    for Item { from, to, mode } in Stage::fill(recipe.places, recipe.board, &recipe.binary)?.items()? {
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
    is_for(board, binary)?;
    let name = binary.to_string_lossy();
    let symbols = machine::said("readelf", &["--version-info", "--wide", &name])?;
    match newest_glibc(&symbols) {
        Some(newest) if newest > GLIBC => Err(format!(
            "{name}: asks for GLIBC_{}.{}; the image has {}.{}\nhint: cargo xtask build --board {}",
            newest.0, newest.1, GLIBC.0, GLIBC.1, board.name
        )),
        _ => Ok(()),
    }
}
