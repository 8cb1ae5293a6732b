//! What the daemon says about itself to the service manager's journal, or to standard error.
//!
//! Nothing depends on these lines being whole: what has to be kept is in the evidence log.

use std::io::IsTerminal;

/// Lines go to standard error; systemd's journal takes them from there and adds the time.
pub fn start() {
    let builder = tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false);
    let in_journal = std::env::var_os("JOURNAL_STREAM").is_some();
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    // A second start in one process (tests) keeps the first subscriber.
    let _ = if in_journal {
        builder.without_time().with_ansi(false).try_init()
    } else {
        builder.with_ansi(colour).try_init()
    };
}
