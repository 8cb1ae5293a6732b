//! Sentences through the whole cascade of the shipped command set: no panic, and an answer.
#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use interlock_domain::command::cascade::{Stages, Walk};
use interlock_domain::command::understanding::Understanding;
use libfuzzer_sys::fuzz_target;

#[expect(dead_code, reason = "the target reads a part of the configuration")]
#[path = "../../../src/config/mod.rs"]
mod config;

use config::{commands, lexicon};

static SHIPPED: LazyLock<Understanding> = LazyLock::new(|| {
    let set = commands::read(Path::new(commands::EMBEDDED_NAME), commands::EMBEDDED).expect("the shipped commands");
    let words = lexicon::read(Path::new(lexicon::EMBEDDED_NAME), lexicon::EMBEDDED).expect("the shipped words");
    let costs = lexicon::read_confusions(Path::new(lexicon::EMBEDDED_CONFUSIONS_NAME), lexicon::EMBEDDED_CONFUSIONS)
        .expect("the shipped confusions");
    Understanding::compile(set, &words, &costs)
});

fuzz_target!(|text: &str| {
    let _ = Walk::new(&SHIPPED, text, Stages::PURE).next();
});
