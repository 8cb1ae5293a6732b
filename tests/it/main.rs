//! The integration tests: one binary, a module for each subject.

mod causes;
mod remedies;
mod supervision;
mod watch;
