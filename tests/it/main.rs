//! The integration tests: one binary, a module for each subject.

mod remedies;
mod supervision;
