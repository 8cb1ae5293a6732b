//! Says early that the disk has too little room for what is about to be built: a compiler that runs out of it in the
//! middle says something else.

use std::path::Path;

use crate::machine;

/// What a directory that was never built in may come to hold with all tests and lints: `du -sh` said 4.4 GB for lints and
/// tests without line tables, and line tables, documentation and the tests' tools come on top.
pub(crate) const TESTS: u64 = 10 << 30;
/// A release with whole-program LTO, its tools, and ONNX Runtime. An allowance, not measured.
pub(crate) const RELEASE: u64 = 3 << 30;
/// Debug builds of the library and its tests for one board, without debug information: likewise an allowance.
pub(crate) const EMULATED: u64 = 4 << 30;
/// A root with its packages, two slots, the disk (sparse) and its compressed copy: likewise.
pub(crate) const IMAGE: u64 = 6 << 30;
/// What is built again beside what is there: changed crates, linked anew.
const AGAIN: u64 = 1 << 30;

/// Whether there is room for `bytes` at `place`, which may not be there yet. Where something was built before, only that
/// much more is wanted as a build of what changed takes.
pub(crate) fn wanted(place: &Path, bytes: u64, what: &str) -> Result<(), String> {
    let nearest = place.ancestors().find(|at| at.is_dir()).unwrap_or(Path::new("/"));
    let said = machine::said("df", &["--output=avail", "-B1", &nearest.to_string_lossy()])?;
    let Some(free) = free(&said) else { return Err(format!("df of {}: {said:?}", nearest.display())) };
    let was_built = place.join("CACHEDIR.TAG").is_file() && place.join(".room-was-enough").is_file();
    judged(free, if was_built { AGAIN } else { bytes }, nearest, what)?;
    if place.is_dir() {
        // Without it the next run asks for the whole again, which is all that happens.
        let _noted = std::fs::write(place.join(".room-was-enough"), "");
    }
    Ok(())
}

fn judged(free: u64, needed: u64, place: &Path, what: &str) -> Result<(), String> {
    if free >= needed {
        return Ok(());
    }
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    Err(format!(
        "{}: {:.1} GiB are free; {what} takes up to {:.1}\nhint: free some, or set CARGO_TARGET_DIR to a place on another disk",
        place.display(),
        gib(free),
        gib(needed)
    ))
}

/// The figure below its heading.
fn free(said: &str) -> Option<u64> {
    said.lines().nth(1)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_room_is_told_with_the_figure_and_enough_is_not() {
        assert_eq!(judged(3 << 30, 3 << 30, Path::new("/t"), "a build"), Ok(()));
        let why = judged((3 << 30) - 1, 3 << 30, Path::new("/t"), "a build").expect_err("one byte is missing");
        assert!(why.starts_with("/t: 3.0 GiB are free; a build takes up to 3.0\nhint: "), "{why}");
    }

    #[test]
    fn the_figure_of_df_is_read() {
        assert_eq!(free("     Avail\n 123456789\n"), Some(123_456_789));
        assert_eq!((free("Avail\n"), free("Avail\n-\n")), (None, None));
        // This very machine has a figure, and a place that is not there yet has that of the nearest.
        assert_eq!(wanted(Path::new("/nowhere/at/all"), 0, "nothing"), Ok(()));
        assert!(wanted(Path::new("/nowhere"), u64::MAX, "everything").is_err());
    }
}
