//! The laws of the levels over random histories, and the cases that others met.
#![expect(clippy::wildcard_enum_match_arm, reason = "a test: what is not expected is a failure")]

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::*;
use crate::block::{Block, CallKind, Ids, Image, ImageSource, Kept, Provider, Role, ToolUse};

fn call(ids: &mut Ids, name: &str) -> ToolUse {
    ToolUse {
        id: ids.take(""),
        provider_id: String::new(),
        name: name.to_owned(),
        input: Arc::new(json!({ "path": name })),
        kind: CallKind::Function,
        kept: Kept::none(),
    }
}

/// Text of so many tokens.
fn words(tokens: usize) -> String {
    "abcd".repeat(tokens)
}

fn picture() -> Image {
    Image { media_type: "image/png".into(), source: ImageSource::Base64("AAAA".into()) }
}

/// A run as it happens: a request, then rounds of calls and results, now and then an answer and another request.
fn random(rng: &mut fastrand::Rng) -> Vec<Message> {
    let mut ids = Ids::new();
    let first = if rng.u8(0..4) == 0 { rng.usize(2000..4000) } else { rng.usize(1..60) };
    let mut history = vec![Message::user(words(first))];
    for _ in 0..rng.usize(0..12) {
        let mut said = Vec::new();
        if rng.bool() {
            let signature = Some(words(rng.usize(1..30)));
            said.push(Block::Thinking {
                text: words(rng.usize(0..80)),
                signature,
                from: Provider::Anthropic,
                kept: Kept::none(),
            });
        }
        let calls: Vec<ToolUse> = (0..rng.usize(0..4)).map(|_| call(&mut ids, "read")).collect();
        if calls.is_empty() || rng.bool() {
            said.push(Block::text(words(rng.usize(1..200))));
        }
        said.extend(calls.iter().cloned().map(Block::ToolUse));
        history.push(Message { role: Role::Assistant, blocks: said });
        let mut back: Vec<Block> = Vec::new();
        for call in &calls {
            let size = *rng.choice(&[1, 50, 500, 1500, 4000, 8000]).unwrap();
            let text = if rng.bool() { words(size) } else { "联锁".repeat(size / 2) };
            let mut result = call.answer(text, rng.bool());
            if rng.u8(0..5) == 0 {
                result.images.push(picture());
            }
            back.push(Block::ToolResult(result));
        }
        if calls.is_empty() || rng.u8(0..6) == 0 {
            back.push(Block::text(words(rng.usize(1..300))));
        }
        if rng.u8(0..8) == 0 {
            back.push(Block::Image(picture()));
        }
        history.push(Message { role: Role::User, blocks: back });
    }
    history
}

/// What every provider wants: the asker begins, roles take turns, nothing is empty, and each call has its result in the
/// very next message, results first and in call order.
fn breach(history: &[Message]) -> Option<String> {
    for (at, message) in history.iter().enumerate() {
        let role = if at % 2 == 0 { Role::User } else { Role::Assistant };
        if message.role != role || message.blocks.is_empty() {
            return Some(format!("message {at} has the wrong role, or is empty"));
        }
        let results: Vec<_> = message
            .blocks
            .iter()
            .enumerate()
            .filter_map(|(at, block)| match block {
                Block::ToolResult(result) => Some((at, result.call.clone())),
                _ => None,
            })
            .collect();
        let calls: Vec<_> = match at.checked_sub(1) {
            Some(before) => history[before].calls().map(|call| call.id.clone()).collect(),
            None => Vec::new(),
        };
        let answered: Vec<_> = results.iter().map(|(_, call)| call.clone()).collect();
        if message.role == Role::User && answered != calls {
            return Some(format!("message {at} answers {answered:?}, the calls were {calls:?}"));
        }
        if results.iter().enumerate().any(|(nth, (at, _))| nth != *at) {
            return Some(format!("message {at} does not begin with its results"));
        }
    }
    let last = history.last().map(|message| message.calls().count());
    (last != Some(0)).then(|| "the last calls are open".to_owned())
}

fn has(history: &[Message], block: &Block) -> bool {
    history.iter().flat_map(|message| &message.blocks).any(|other| other == block)
}

/// A history may end with the model's word; what is sent to it ends with the asker's.
fn laws(what: &str, seed: u64, before: &[Message], after: &[Message], keeps_images: bool) {
    assert_eq!(breach(after), None, "{what}, seed {seed}");
    assert!(estimate::history(after) <= estimate::history(before), "{what}, seed {seed}: it grew");
    for anchor in anchored(before) {
        let gone = matches!(anchor, Block::Image(_)) && !keeps_images;
        assert!(gone || has(after, &anchor), "{what}, seed {seed}: an anchor is gone: {anchor:?}");
    }
    for message in after.iter().filter(|message| message.role == Role::Assistant) {
        assert!(before.contains(message), "{what}, seed {seed}: a turn of the model was changed");
    }
}

/// Runs a check to its end, with a disk and a model that do what the closures say.
fn settle(
    keeper: &mut Keeper,
    history: Vec<Message>,
    place: &mut dyn FnMut(&Spilled) -> Option<String>,
    summary: &mut dyn FnMut(&[Message]) -> Option<String>,
) -> Result<(Vec<Message>, Option<Done>), Stuck> {
    let mut step = keeper.check(history, false);
    loop {
        step = match step {
            Step::Ready(history, done) => return Ok((history, done)),
            Step::Stop(stuck) => return Err(stuck),
            Step::Spill(files) => {
                let places = files.iter().map(&mut *place).collect();
                keeper.spilled(places)
            }
            Step::Summarize(request) => {
                let text = summary(&request);
                keeper.summary(text.as_deref())
            }
        };
    }
}

fn on_disk(file: &Spilled) -> Option<String> {
    Some(format!("/state/spill/run/{}", file.name))
}

#[test]
fn each_level_keeps_the_laws() {
    for seed in 0..80 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let before = random(&mut rng);
        let need = rng.usize(1..30_000);
        type Level = fn(&mut Vec<Message>, usize);
        let levels: [(&str, bool, Level); 5] = [
            ("images", false, |history, need| {
                cut::prune_images(history, need);
            }),
            ("snip", true, |history, need| {
                cut::snip(history, need);
            }),
            ("spill", true, |history, need| {
                let files = cut::to_spill(history, need, 3000);
                let kept: Vec<_> = files.into_iter().map(|file| (file.clone(), on_disk(&file))).collect();
                cut::point(history, &kept, 3000);
            }),
            ("no room to spill", true, |history, need| {
                let files = cut::to_spill(history, need, 256);
                let kept: Vec<_> = files.into_iter().map(|file| (file, None)).collect();
                cut::point(history, &kept, 256);
            }),
            ("cap", true, |history, need| cut::cap(history, need.clamp(64, 4000))),
        ];
        for (what, keeps_images, level) in levels {
            let mut once = before.clone();
            level(&mut once, need);
            laws(what, seed, &before, &once, keeps_images);
            // All that it can take, and nothing more the next time.
            let mut all = before.clone();
            let most = if what == "cap" { need } else { usize::MAX };
            level(&mut all, most);
            let twice = {
                let mut again = all.clone();
                level(&mut again, most);
                again
            };
            assert_eq!(twice, all, "{what}, seed {seed}: not idempotent");
        }
        for cut in [fold::cut(&before, need), fold::last_round(&before)].into_iter().flatten() {
            let folded = fold::folded(&before, cut, "s");
            assert_eq!(breach(&folded), None, "fold, seed {seed}");
            for anchor in anchored(&before) {
                assert!(has(&folded, &anchor), "fold, seed {seed}: {anchor:?}");
            }
            assert!(estimate::text(&fold::plain(&before, cut, 300)) <= 300, "plain, seed {seed}");
            let tokens = rng.usize(400..20_000);
            let request = fold::request(&before, cut, tokens);
            assert!(estimate::history(&request) <= tokens, "request, seed {seed}");
        }
    }
}

#[test]
fn the_whole_walk_keeps_the_laws_and_ends() {
    let mut met = std::collections::BTreeSet::new();
    for seed in 0..120 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let before = random(&mut rng);
        let window = *rng.choice(&[2048, 8192, 32_768]).unwrap();
        let mut keeper = Keeper::new(Budget::of(window, window / 8), window / 10);
        if rng.bool() {
            keeper.counted(&before, rng.u64(0..100_000));
        }
        let mut answers = rng.clone();
        let walked = settle(
            &mut keeper,
            before.clone(),
            &mut |file| if rng.u8(0..4) > 0 { on_disk(file) } else { None },
            &mut |_| match answers.u8(0..4) {
                0 => None,
                1 => Some(String::new()),
                2 => Some(words(10_000)),
                _ => Some("the summary".to_owned()),
            },
        );
        match walked {
            Err(stuck) => {
                met.insert(stuck.code().to_owned());
            }
            Ok((after, done)) => {
                laws("walk", seed, &before, &after, false);
                assert_eq!(done.is_none(), after == before, "seed {seed}");
                assert!(keeper.total(&after) <= window - window / 8, "seed {seed}: it does not fit");
                met.extend(done.iter().flat_map(|done| &done.levels).map(|level| level.word().to_owned()));
                // What fits is left alone.
                let again = settle(&mut keeper, after.clone(), &mut on_disk, &mut |_| Some("s".into()));
                if keeper.total(&after) <= keeper.budget.trigger {
                    assert_eq!(again, Ok((after, None)), "seed {seed}: not idempotent");
                }
            }
        }
    }
    let all = ["cap", "compact", "fold", "images", "no_room", "snip", "spill"].map(str::to_owned);
    assert!(all.iter().all(|word| met.contains(word)), "{met:?}");
}

/// A row of `cases/mediation.jsonl`.
fn case(id: &str) -> (Value, Value) {
    let rows = include_str!("../../../tests/cases/mediation.jsonl").lines();
    let mut rows = rows.map(|row| serde_json::from_str::<Value>(row).unwrap());
    let row = rows.find(|row| row["id"] == id).unwrap_or_else(|| panic!("there is no case {id}"));
    (row["input"].clone(), row["expected"].clone())
}

fn number(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap()).unwrap()
}

/// A request, then one call with a result of each of these sizes, in tokens.
fn rounds(sizes: &[usize]) -> Vec<Message> {
    let mut ids = Ids::new();
    let mut history = vec![Message::user("go")];
    for size in sizes {
        let call = call(&mut ids, "read");
        let result = call.answer(words(*size), false);
        history.push(Message { role: Role::Assistant, blocks: vec![Block::ToolUse(call)] });
        history.push(Message { role: Role::User, blocks: vec![Block::ToolResult(result)] });
    }
    history
}

#[test]
fn k01_a_fixed_part_that_is_too_large_is_an_error_and_no_loop() {
    let (input, expected) = case("K01");
    let budget = Budget::of(number(&input["window"]), number(&input["output_reserve"]));
    let mut keeper = Keeper::new(budget, number(&input["system_plus_tools"]));
    let mut asked = 0;
    let ended = settle(&mut keeper, vec![Message::user(words(500))], &mut on_disk, &mut |_| {
        asked += 1;
        None
    });
    assert_eq!(ended.unwrap_err().code(), expected["error"]);
    assert_eq!(asked, number(&expected["compactions"]));
}

#[test]
fn k02_three_compactions_without_progress_are_the_end() {
    let (input, expected) = case("K02");
    let summary = number(&input["summary_returns_tokens"]);
    let budget = Budget { trigger: number(&input["trigger"]), ..Budget::of(number(&input["window"]), 4000) };
    let mut keeper = Keeper::new(budget, 0);
    // What a compaction leaves is as large as the summary of the case: here, a request that must stay.
    let mut history = vec![Message::user(words(summary - 50))];
    let (mut compactions, mut ids) = (0, Ids::new());
    for _ in 0..number(&input["turns"]) {
        let call = call(&mut ids, "read");
        let result = call.answer(words(number(&input["next_turn_adds"])), false);
        history.push(Message { role: Role::Assistant, blocks: vec![Block::ToolUse(call)] });
        history.push(Message { role: Role::User, blocks: vec![Block::ToolResult(result)] });
        match settle(&mut keeper, history, &mut on_disk, &mut |_| Some(words(40))) {
            Ok((after, done)) => {
                compactions += usize::from(done.is_some());
                history = after;
            }
            Err(stuck) => {
                assert_eq!(format!("stopped:{}", stuck.code()), expected["then"]);
                assert_eq!(compactions, number(&expected["max_compactions_without_progress"]));
                return;
            }
        }
    }
    panic!("it went on");
}

#[test]
fn k04_the_request_for_a_summary_fits_itself() {
    let (input, expected) = case("K04");
    let window = number(&input["window"]);
    let mut keeper =
        Keeper::new(Budget::of(window, number(&input["summary_reserve"])), number(&input["summary_prompt"]));
    let history = rounds(&vec![1900; number(&input["history_tokens"]) / 1900 + 1]);
    let mut largest = 0;
    let ended = settle(&mut keeper, history, &mut |_| None, &mut |request| {
        largest = largest.max(estimate::history(request));
        Some("s".into())
    });
    assert!(largest <= number(&expected["summary_request_tokens_max"]), "{largest}");
    assert!(ended.is_ok_and(|(_, done)| done.is_some()), "{expected}");
}

#[test]
fn k05_it_is_looked_at_inside_a_turn() {
    let (input, _) = case("K05");
    let budget = Budget { trigger: number(&input["trigger"]), ..Budget::of(number(&input["window"]), 4000) };
    let mut keeper = Keeper::new(budget, 1000);
    let sizes: Vec<usize> = input["one_turn_tool_results"].as_array().unwrap().iter().map(number).collect();
    let mut history = vec![Message::user("go")];
    let (mut ids, mut changed) = (Ids::new(), 0);
    for size in sizes {
        let call = call(&mut ids, "read");
        let result = call.answer(words(size), false);
        history.push(Message { role: Role::Assistant, blocks: vec![Block::ToolUse(call)] });
        history.push(Message { role: Role::User, blocks: vec![Block::ToolResult(result)] });
        let (after, done) = settle(&mut keeper, history, &mut |_| None, &mut |_| None).unwrap();
        assert!(keeper.total(&after) <= budget.room());
        changed += usize::from(done.is_some());
        history = after;
    }
    assert!(changed > 0);
}

#[test]
fn k07_one_huge_result_is_clipped_with_a_way_back() {
    let (input, expected) = case("K07");
    let budget = Budget { trigger: number(&input["trigger"]), ..Budget::of(number(&input["window"]), 2000) };
    let mut keeper = Keeper::new(budget, 500);
    let history = rounds(&[number(&input["messages"][1]["tokens"])]);
    let (after, done) = settle(&mut keeper, history.clone(), &mut on_disk, &mut |_| None).unwrap();
    assert_eq!(after[0], history[0]);
    let Block::ToolResult(result) = &after[2].blocks[0] else { panic!("{after:?}") };
    assert!(estimate::text(&result.text) <= number(&expected["tool_result_tokens_max"]));
    assert!(result.text.contains("read_file /state/spill/run/"), "{}", result.text);
    assert_eq!(done.unwrap().levels, [Level::Spill]);
}

#[test]
fn k08_a_cut_never_tears_a_turn() {
    let (_, expected) = case("K08");
    let mut history = rounds(&[100]);
    history[1].blocks.insert(
        0,
        Block::Thinking {
            text: "t".into(),
            signature: Some("S==".into()),
            from: Provider::Anthropic,
            kept: Kept::of(Provider::Anthropic, Map::new()),
        },
    );
    history.push(Message { role: Role::Assistant, blocks: vec![Block::text("done")] });
    history.push(Message::user("and now"));
    let allowed: Vec<usize> = expected["cut_at_in"].as_array().unwrap().iter().map(number).collect();
    for tail in 0..400 {
        if let Some(cut) = fold::cut(&history, tail) {
            assert!(allowed.contains(&cut.tail), "{tail}: {cut:?}");
            assert_eq!(breach(&fold::folded(&history, cut, "s")), None, "{tail}");
        }
    }
}

#[test]
fn old_requests_do_not_pile_up() {
    let mut history = rounds(&[10, 10]);
    for turn in 0..5 {
        history.push(Message { role: Role::Assistant, blocks: vec![Block::text("ok")] });
        history.push(Message::user(format!("request {turn}")));
        history.push(Message { role: Role::Assistant, blocks: vec![Block::text("working")] });
        history.push(Message::user(format!("request {turn} again")));
        let cut = fold::last_round(&history).unwrap();
        history = fold::folded(&history, cut, "s");
        assert!(history[0].blocks.len() <= 3, "{:?}", history[0]);
    }
    assert_eq!(history[0].blocks[0], Block::text("go"));
}
