//! What the evidence log costs, and what it survives.

use crate::asked;

#[test]
fn figures() {
    if !asked("evidence-figures") {
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let figures = interlock::bench::evidence::run(dir.path()).unwrap();
    #[expect(clippy::print_stdout, reason = "an experiment prints what it measured")]
    {
        println!("{:#}", figures.to_json());
    }
}
