//! What a test says when something that it needs is not on the machine. Also used by `tests/experiments`.

use std::fs::OpenOptions;
use std::io::Write as _;

/// Says that a test did not run, and why; the list is printed at the end of `cargo xtask test`.
pub(crate) fn skipped(test: &str, why: &str) {
    // One line for one test, whatever a program said.
    let line = format!("{test}: {}\n", why.split_whitespace().collect::<Vec<_>>().join(" "));
    if let Some(list) = std::env::var_os("INTERLOCK_TEST_SKIPS") {
        let list = OpenOptions::new().append(true).create(true).open(list).expect("the list of skipped tests opens");
        // One write for one line: tests run beside one another.
        (&list).write_all(line.as_bytes()).expect("the list of skipped tests is written");
    }
}
