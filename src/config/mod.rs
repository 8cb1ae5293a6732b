//! TOML files into checked settings. Unknown keys are refused, and a file is taken whole or not at all.

mod error;

pub use error::ConfigError;
