//! Whatever the levels of the context leave of a history is legal for each provider, as its own `validate` judges.
#![cfg(test)]

use std::collections::BTreeSet;
use std::sync::Arc;

use interlock_domain::block::{Block, CallKind, Ids, Image, ImageSource, Kept, Message, Provider, Role, ToolUse};
use interlock_domain::context::{Budget, Keeper, Step, anchored, estimate};
use interlock_domain::repair::history::{Journal, repair};
use interlock_domain::repair::legality::breaches;
use serde_json::json;

use crate::provider::{Dialect, request};

/// A small generator of pseudo-random numbers (xorshift): the seed of a failure can be typed in again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn words(&mut self, bound: u64) -> String {
        let count = usize::try_from(self.below(bound)).unwrap() + 1;
        if self.below(3) == 0 { "联锁".repeat(count) } else { "word ".repeat(count) }
    }
}

/// A run as a model of this provider leaves it.
fn history(dice: &mut Dice, provider: Provider) -> Vec<Message> {
    let mut ids = Ids::new();
    let mut history = vec![Message::user(dice.words(40))];
    for _ in 0..dice.below(9) + 1 {
        let mut said = Vec::new();
        if dice.below(2) == 0 && matches!(provider, Provider::Anthropic) {
            let signature = Some("c2lnbmF0dXJl".to_owned());
            said.push(Block::Thinking { text: dice.words(20), signature, from: provider, kept: Kept::none() });
        }
        let calls: Vec<ToolUse> = (0..dice.below(4))
            .map(|_| ToolUse {
                id: ids.take(""),
                provider_id: String::new(),
                name: "read_file".to_owned(),
                input: Arc::new(json!({ "path": "a" })),
                kind: CallKind::Function,
                kept: Kept::none(),
            })
            .collect();
        if calls.is_empty() || dice.below(2) == 0 {
            said.push(Block::text(dice.words(60)));
        }
        said.extend(calls.iter().cloned().map(Block::ToolUse));
        history.push(Message { role: Role::Assistant, blocks: said });
        let mut back: Vec<Block> = Vec::new();
        for call in &calls {
            let size = [10, 300, 1500, 6000][usize::try_from(dice.below(4)).unwrap()];
            let mut result = call.answer(dice.words(size), dice.below(3) == 0);
            if dice.below(5) == 0 {
                let source = ImageSource::Base64("AAAA".to_owned());
                result.images.push(Image { media_type: "image/png".to_owned(), source });
            }
            back.push(Block::ToolResult(result));
        }
        if calls.is_empty() || dice.below(5) == 0 {
            back.push(Block::text(dice.words(200)));
        }
        history.push(Message { role: Role::User, blocks: back });
    }
    history
}

#[test]
fn what_the_levels_leave_is_legal_for_each_provider() {
    let mut met = BTreeSet::new();
    for provider in Provider::ALL {
        let dialect = Dialect::plain(provider);
        for seed in 1..=60 {
            let mut dice = Dice(u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15));
            let before = history(&mut dice, provider);
            assert_eq!(breaches(provider, &request::history(&dialect, &before)), [], "{provider:?} {seed}: before");
            let window = [3000, 6000, 16_000][usize::try_from(dice.below(3)).unwrap()];
            let mut keeper = Keeper::new(Budget::of(window, window / 8), window / 10);
            let mut step = keeper.check(before.clone(), dice.below(4) == 0);
            let after = loop {
                step = match step {
                    Step::Ready(after, done) => {
                        met.extend(done.into_iter().flat_map(|done| done.levels));
                        break Some(after);
                    }
                    Step::Stop(_) => break None,
                    Step::Spill(files) => {
                        let places = files.iter().map(|file| Some(format!("/spill/{}", file.name)));
                        keeper.spilled(places.collect())
                    }
                    Step::Summarize(request) => {
                        assert_eq!(breaches(provider, &request::history(&dialect, &request)), [], "the request");
                        keeper.summary(Some("so far so good"))
                    }
                };
            };
            let Some(after) = after else { continue };
            let wire = request::history(&dialect, &after);
            assert_eq!(breaches(provider, &wire), [], "{provider:?} {seed}");
            // Of a legal history, repair changes nothing.
            assert_eq!(repair(provider, wire.clone(), &Journal::new()).messages, wire, "{provider:?} {seed}");
            assert!(estimate::history(&after) <= estimate::history(&before), "{provider:?} {seed}: it grew");
            for anchor in anchored(&before) {
                let there = after.iter().flat_map(|message| &message.blocks).any(|block| *block == anchor);
                assert!(there, "{provider:?} {seed}: {anchor:?}");
            }
        }
    }
    assert!(met.len() >= 5, "{met:?}");
}
