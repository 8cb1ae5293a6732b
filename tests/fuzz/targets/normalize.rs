//! Bytes of every provider, cut somewhere: no panic, one end, the same for every cut, and no call without it.
#![no_main]

use interlock_domain::block::{Ids, Provider};
use libfuzzer_sys::fuzz_target;

#[expect(dead_code, reason = "the target calls a part of the module")]
#[path = "../../../src/provider/mod.rs"]
mod provider;

use provider::end::{End, Terminal};
use provider::{Dialect, Normalizer, TextCalls};

fn end(dialect: &Dialect, pieces: &[&[u8]]) -> End {
    let mut normalizer = Normalizer::new(dialect, Ids::new());
    pieces.iter().for_each(|piece| normalizer.feed(piece, &mut |_| {}));
    normalizer.finish().0
}

// The first two bytes choose the provider and the cut.
fuzz_target!(|bytes: &[u8]| {
    let [which, cut, bytes @ ..] = bytes else { return };
    let provider = Provider::ALL[usize::from(*which) % 4];
    let text_calls = if which & 4 == 0 { TextCalls::Off } else { TextCalls::Of(vec!["t".to_owned()]) };
    let dialect = Dialect { text_calls, ..Dialect::plain(provider) };
    let whole = end(&dialect, &[bytes]);
    let (left, right) = bytes.split_at(bytes.len() * usize::from(*cut) / 256);
    assert_eq!(end(&dialect, &[left, right]), whole);
    assert_eq!(whole.terminal == Terminal::Complete, whole.fault.is_none());
    assert!(whole.terminal == Terminal::Complete || whole.calls().count() == 0);
    let mut ids: Vec<&str> = whole.calls().map(|call| call.id.as_str()).collect();
    let calls = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), calls);
    // What came goes out, and is legal there.
    let message = interlock_domain::block::Message { role: interlock_domain::block::Role::Assistant, blocks: whole.blocks };
    let sent = provider::request::history(&dialect, std::slice::from_ref(&message));
    assert_eq!(interlock_domain::repair::legality::breaches(provider, &sent), []);
    for block in &message.blocks {
        assert_eq!(provider::form::from_json(&provider::form::to_json(block)).as_ref(), Ok(block));
    }
});
