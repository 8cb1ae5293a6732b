//! Any list of JSON values as a history: what is mended is legal, mending twice changes nothing, and what was legal
//! stays as it was.
#![no_main]

use interlock_domain::block::Provider;
use interlock_domain::repair::history::{Journal, repair};
use interlock_domain::repair::legality::breaches;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let [which, bytes @ ..] = bytes else { return };
    let provider = Provider::ALL[usize::from(*which) % 4];
    let Ok(Value::Array(messages)) = serde_json::from_slice(bytes) else { return };
    let legal = breaches(provider, &messages).is_empty();
    let once = repair(provider, messages.clone(), &Journal::new());
    assert_eq!(breaches(provider, &once.messages), [], "{provider:?} {}", Value::Array(messages));
    if legal {
        assert_eq!(once.messages, messages);
    }
    let twice = repair(provider, once.messages.clone(), &Journal::new());
    assert_eq!(twice.messages, once.messages);
});
