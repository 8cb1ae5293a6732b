//! Configuration files: no panic, and a wrong one is refused with a message.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;

#[expect(dead_code, reason = "the target reads a part of the configuration")]
#[path = "../../../src/config/mod.rs"]
mod config;

fuzz_target!(|text: &str| {
    if let Err(error) = config::check(Path::new("f.toml"), text) {
        assert!(!error.to_string().is_empty());
    }
});
