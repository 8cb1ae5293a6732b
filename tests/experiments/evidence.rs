//! What the evidence log costs, and what it survives.

use crate::asked;

#[test]
fn figures() {
    if !asked("evidence-figures") {
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let figures = interlock::bench::evidence::run(dir.path()).unwrap();
    println!("{:#}", figures.to_json());
}
