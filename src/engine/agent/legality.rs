//! Whatever the levels of the context leave of a history is legal for each provider, as its own `validate` judges.
#![cfg(test)]

use std::collections::BTreeSet;
use std::sync::Arc;

use interlock_domain::block::{Block, CallKind, Ids, Image, ImageSource, Kept, Message, Provider, Role, ToolUse};
use interlock_domain::context::{Budget, Keeper, Step, anchored, estimate};
use interlock_domain::repair::history::{Journal, repair};
use interlock_domain::repair::legality::breaches;
use serde_json::{Value, json};

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

fn of(provider: Provider, members: Value) -> Kept {
    Kept::of(provider, members.as_object().cloned().unwrap_or_default())
}

/// A thought as this provider sends it: signed, where it signs. No two are alike.
fn thought(dice: &mut Dice, provider: Provider, turn: u64) -> Block {
    let text = format!("{turn}: {}", dice.words(20));
    let signature = || Some(format!("c2lnbmF0dXJl{turn}"));
    let (signature, kept) = match provider {
        Provider::Anthropic | Provider::Gemini => (signature(), Kept::none()),
        Provider::Chat => (None, of(provider, json!({ "field": "reasoning_content" }))),
        Provider::Responses => {
            let item = json!({
                "id": format!("rs_{turn}"), "type": "reasoning", "encrypted_content": format!("c2lnbmF0dXJl{turn}"),
                "summary": [{ "type": "summary_text", "text": text }],
            });
            (signature(), of(provider, json!({ "item": item })))
        }
    };
    Block::Thinking { text, signature, from: provider, kept }
}

/// A thought that is kept stands where it stood: in an answer with all that the answer said.
fn whole(before: &[Message], after: &[Message]) -> Result<(), String> {
    for said in before.iter().filter(|message| message.role == Role::Assistant) {
        for thought in said.blocks.iter().filter(|block| matches!(block, Block::Thinking { .. })) {
            let Some(kept) = after.iter().find(|message| message.blocks.contains(thought)) else { continue };
            if !kept.blocks.windows(said.blocks.len()).any(|blocks| *blocks == *said.blocks) {
                return Err(format!("{said:?} became {kept:?}"));
            }
        }
    }
    Ok(())
}

/// A run as a model of this provider leaves it.
fn history(dice: &mut Dice, provider: Provider) -> Vec<Message> {
    let mut ids = Ids::new();
    let mut history = vec![Message::user(dice.words(40))];
    for turn in 0..dice.below(9) + 1 {
        let mut said = Vec::new();
        let signed = dice.below(2) == 0;
        if signed {
            said.push(thought(dice, provider, turn));
        }
        let calls: Vec<ToolUse> = (0..dice.below(4))
            .map(|_| ToolUse {
                id: ids.take(""),
                provider_id: String::new(),
                name: "read_file".to_owned(),
                input: Arc::new(json!({ "path": "a" })),
                kind: CallKind::Function,
                // Gemini signs the first call of an answer, too.
                kept: match provider {
                    Provider::Gemini if signed => of(provider, json!({ "thoughtSignature": format!("c2ln{turn}") })),
                    Provider::Gemini | Provider::Anthropic | Provider::Chat | Provider::Responses => Kept::none(),
                },
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
    let (mut met, mut settled) = (BTreeSet::new(), 0);
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
            whole(&before, &after).unwrap_or_else(|torn| panic!("{provider:?} {seed}: {torn}"));
            // What fits is left alone.
            if let Step::Ready(again, None) = keeper.check(after.clone(), false) {
                assert_eq!(again, after, "{provider:?} {seed}");
                settled += 1;
            }
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
    assert!(met.len() >= 5 && settled > 100, "{met:?} {settled}");
}
