//! The loop, step by step: what goes in and which action comes out.
#![expect(clippy::wildcard_enum_match_arm, reason = "a test: what is not expected is a failure")]

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::block::{CallKind, Ids, Kept};
use crate::closure::Ending;
use crate::effect::outcome::{Known, WayOut};
use crate::effect::report::{Failure, Loss};
use crate::request::why::Why;

fn calls_of(names: &[&str]) -> Vec<Block> {
    let mut ids = Ids::new();
    names
        .iter()
        .map(|name| {
            Block::ToolUse(ToolUse {
                id: ids.take(name),
                provider_id: (*name).to_owned(),
                name: (*name).to_owned(),
                input: Arc::new(json!({})),
                kind: CallKind::Function,
                kept: Kept::none(),
            })
        })
        .collect()
}

fn told(action: Option<Action>) -> String {
    match action {
        None => "-".to_owned(),
        Some(Action::Prepare { history, forced }) => {
            format!("prepare {}{}", history.len(), if forced { " forced" } else { "" })
        }
        Some(Action::Ask { attempt }) => format!("ask {attempt}"),
        Some(Action::Wait(wait)) => format!("wait {}", wait.as_secs()),
        Some(Action::Write(message)) => format!("write {}", message.blocks.len()),
        Some(Action::Dispatch(calls)) => format!("dispatch {}", calls.len()),
        Some(Action::StopBatch) => "stop batch".to_owned(),
        Some(Action::End(ended)) => format!("end {}", ended.code()),
    }
}

/// What may be said to the loop in a row, in short words.
fn inputs(word: &str, history: &mut Vec<Message>) -> Input {
    let refused = |retryable, after| Trouble::Refused { retryable, after, message: "m".into() };
    let message = || "m".to_owned();
    match word {
        "ready" => Input::Ready(std::mem::take(history)),
        "stuck" => Input::Stuck(std::mem::take(history), Stuck::NoProgress),
        "text" => Input::Answer(vec![Block::text("hello")], Said::All),
        "cut" => Input::Answer(vec![Block::text("hello")], Said::Cut),
        "pause" => Input::Answer(vec![Block::text("hello")], Said::Pause),
        "refusal" => Input::Answer(vec![Block::text("no")], Said::Refusal),
        "nothing" => Input::Answer(vec![], Said::All),
        "two calls" => Input::Answer(calls_of(&["a", "b"]), Said::All),
        "busy" => Input::Trouble(refused(true, None)),
        "busy 7" => Input::Trouble(refused(true, Some(Duration::from_secs(7)))),
        "busy an hour" => Input::Trouble(refused(true, Some(Duration::from_secs(3600)))),
        "bad key" => Input::Trouble(refused(false, None)),
        "too long" => Input::Trouble(Trouble::TooLong { message: message() }),
        "broke off" => Input::Trouble(Trouble::BrokeOff { message: message() }),
        "output cut" => Input::Trouble(Trouble::OutputCut { message: message() }),
        "malformed" => Input::Trouble(Trouble::Malformed { message: message() }),
        "waited" => Input::Waited,
        "written" => Input::Written,
        "not written" => Input::NotWritten,
        "results" => {
            let results = calls_of(&["a", "b"]);
            Input::Results(calls(&results).map(|call| call.answer("ok", false)).collect())
        }
        "one result" => {
            let results = calls_of(&["b"]);
            Input::Results(calls(&results).map(|call| call.answer("ok", false)).collect())
        }
        "too often" => {
            let results = calls_of(&["a", "b"]);
            let results = calls(&results).map(|call| call.answer("denied", true)).collect();
            Input::TooOften { results, message: message() }
        }
        "cancel" => Input::Cancel,
        other => panic!("{other}"),
    }
}

/// Runs a script, and tells the actions and the history at the end: each message by its blocks.
fn run(turns_max: u32, script: &[&str]) -> (Vec<String>, String) {
    let (mut machine, first) = Loop::new(Vec::new(), vec![Block::text("go")], turns_max);
    let mut away = Vec::new();
    let mut actions = Vec::new();
    let mut take = |action: Option<Action>, away: &mut Vec<Message>| {
        if let Some(Action::Prepare { history, .. }) = &action {
            away.clone_from(history);
        }
        actions.push(told(action));
    };
    take(Some(first), &mut away);
    for word in script {
        let action = machine.step(inputs(word, &mut away));
        take(action, &mut away);
    }
    let block = |block: &Block| match block {
        Block::Text { text, .. } => text.clone(),
        Block::ToolUse(call) => format!("{}()", call.id),
        Block::ToolResult(result) => format!("{}={}", result.call, &result.text[..2]),
        other => panic!("{other:?}"),
    };
    let history = if away.is_empty() { machine.into_history() } else { away };
    let messages = history.iter().map(|message| message.blocks.iter().map(block).collect::<Vec<_>>().join("+"));
    (actions, messages.collect::<Vec<_>>().join(" / "))
}

fn check(script: &[&str], actions: &[&str], history: &str) {
    let (told, left) = run(8, script);
    assert_eq!(told[1..], *actions, "{script:?}");
    assert_eq!(left, history, "{script:?}");
}

#[test]
fn the_four_phases_follow_one_another_until_nothing_is_called() {
    check(&["ready", "text", "written"], &["ask 1", "write 1", "end done"], "go / hello");
    check(
        &["ready", "two calls", "written", "results", "ready", "text", "written"],
        &["ask 1", "write 2", "dispatch 2", "prepare 3", "ask 1", "write 1", "end done"],
        "go / a()+b() / a=ok+b=ok / hello",
    );
    check(&["ready", "nothing"], &["ask 1", "end done"], "go");
    check(&["ready", "cut", "written"], &["ask 1", "write 1", "end length"], "go / hello");
    check(&["ready", "refusal", "written"], &["ask 1", "write 1", "end refused"], "go / no");
    check(
        &["ready", "pause", "written", "ready", "text", "written"],
        &["ask 1", "write 1", "prepare 2", "ask 1", "write 1", "end done"],
        "go / hello / hello",
    );
}

#[test]
fn what_is_not_whole_is_never_written_and_asked_for_again_within_bounds() {
    check(
        &["ready", "busy", "waited", "text", "written"],
        &["ask 1", "wait 1", "ask 2", "write 1", "end done"],
        "go / hello",
    );
    check(
        &["ready", "busy", "waited", "busy", "waited", "busy", "waited", "busy 7", "waited", "busy"],
        &["ask 1", "wait 1", "ask 2", "wait 2", "ask 3", "wait 4", "ask 4", "wait 7", "ask 5", "end provider_error"],
        "go",
    );
    check(&["ready", "busy an hour"], &["ask 1", "end provider_error"], "go");
    check(&["ready", "bad key"], &["ask 1", "end provider_error"], "go");
    check(&["ready", "output cut"], &["ask 1", "end output_truncated"], "go");
    check(
        &["ready", "broke off", "waited", "malformed", "waited", "broke off"],
        &["ask 1", "wait 1", "ask 2", "wait 2", "ask 3", "end stream_truncated"],
        "go",
    );
    check(
        &["ready", "too long", "ready", "too long", "ready", "too long"],
        &["ask 1", "prepare 1 forced", "ask 1", "prepare 1 forced", "ask 1", "end context_overflow"],
        "go",
    );
    check(&["stuck"], &["end no_progress"], "go");
    check(&["not written"], &["end history_not_written"], "go");
    check(&["ready", "two calls", "not written"], &["ask 1", "write 2", "end history_not_written"], "go");
}

#[test]
fn every_way_out_leaves_one_result_for_each_call() {
    check(&["cancel"], &["end cancelled"], "go");
    check(&["ready", "cancel"], &["ask 1", "end cancelled"], "go");
    check(&["ready", "busy", "cancel", "waited"], &["ask 1", "wait 1", "end cancelled", "-"], "go");
    check(
        &["ready", "two calls", "cancel", "written"],
        &["ask 1", "write 2", "end cancelled", "-"],
        "go / a()+b() / a=[n+b=[n",
    );
    check(
        &["ready", "two calls", "written", "cancel", "cancel", "results", "results"],
        &["ask 1", "write 2", "dispatch 2", "stop batch", "-", "end cancelled", "-"],
        "go / a()+b() / a=ok+b=ok",
    );
    // A result that never came is not known, and the others keep their places.
    check(
        &["ready", "two calls", "written", "one result"],
        &["ask 1", "write 2", "dispatch 2", "prepare 3"],
        "go / a()+b() / a=[o+b=ok",
    );
    // What comes late changes nothing.
    check(&["ready", "results", "written", "ready"], &["ask 1", "-", "-", "-"], "go");
}

#[test]
fn turns_are_bounded_and_the_last_calls_have_their_results() {
    let script = ["ready", "two calls", "written", "results", "ready", "two calls", "written", "results", "ready"];
    let (told, history) = run(2, &script);
    assert_eq!(told.last().unwrap(), "end turn_limit");
    assert_eq!(history, "go / a()+b() / a=ok+b=ok / a()+b() / a=ok+b=ok");
}

#[test]
fn a_history_goes_on_where_it_was_left() {
    let mut history = vec![Message::user("go")];
    history.push(Message { role: Role::Assistant, blocks: calls_of(&["a"]) });
    let (_, action) = Loop::new(history, vec![Block::text("and now")], 3);
    let Action::Prepare { history, .. } = action else { panic!("{action:?}") };
    assert_eq!(history.len(), 3);
    let Block::ToolResult(result) = &history[2].blocks[0] else { panic!("{history:?}") };
    assert!(result.is_error && result.text == Stub::NotStarted.text());
    assert_eq!(history[2].blocks[1], Block::text("and now"));
}

#[test]
fn a_model_reads_what_became_of_its_call() {
    let blocks = calls_of(&["a"]);
    let call = calls(&blocks).next().unwrap();
    let check = |ending: Ending, expected: &str, is_error: bool| {
        let result = result::of(call, &ending);
        assert!(result.text.starts_with(expected), "{}", result.text);
        assert_eq!(result.is_error, is_error);
        if ending.word() == "unknown" {
            let lower = result.text.to_lowercase();
            for never in ["did not run", "not executed", "reissue", "re-issue", "retry"] {
                assert!(!lower.contains(never), "{}", result.text);
            }
        }
    };
    check(Ending::Ran(Known::Done(Arc::new(json!({"a": 1})))), "{\"a\":1}", false);
    let failure = Failure { code: "no_such_file", message: "x is not there".into() };
    check(Ending::Ran(Known::Failed(failure)), "failed (no_such_file): x is not there", true);
    for way_out in [WayOut::Hold, WayOut::QueryFirst] {
        check(Ending::Ran(Known::Unknown { loss: Loss::TimedOut, way_out }), "outcome unknown (timed_out)", true);
    }
    check(Ending::NotStarted(Why::AskTimedOut), "denied (ask_timed_out)", true);
    check(Ending::NotStarted(Why::Cancelled), "not started (cancelled)", true);
}

#[test]
fn a_wish_that_was_denied_too_often_ends_the_turn_with_all_its_results() {
    check(
        &["ready", "two calls", "written", "too often"],
        &["ask 1", "write 2", "dispatch 2", "end denied_repeatedly"],
        "go / a()+b() / a=de+b=de",
    );
    // Whoever cancelled hears that it was cancelled.
    check(
        &["ready", "two calls", "written", "cancel", "too often"],
        &["ask 1", "write 2", "dispatch 2", "stop batch", "end cancelled"],
        "go / a()+b() / a=de+b=de",
    );
    check(&["ready", "too often", "text", "written"], &["ask 1", "-", "write 1", "end done"], "go / hello");
}

#[test]
fn after_a_restart_a_call_is_told_as_what_the_log_knows() {
    use super::result::{Kept as End, after_restart};
    let call = calls_of(&["a"]);
    let call = calls(&call).next().unwrap();
    let check = |kept: End, text: &str, is_error: bool| {
        let result = after_restart(call, &kept);
        assert!(result.text.starts_with(text), "{kept:?}: {}", result.text);
        assert_eq!(result.is_error, is_error, "{kept:?}");
    };
    let said = || "(x): y".to_owned();
    check(End::Done { output: Some(json!({"n": 1})), cut: false }, "{\"n\":1}", false);
    check(End::Done { output: Some(json!("ab")), cut: true }, "done; of its output only the beginning", false);
    check(End::Done { output: None, cut: false }, "done; its output was not kept", false);
    check(End::Failed { said: said() }, "failed (x): y", true);
    check(End::Denied { said: said() }, "[denied]", true);
    check(End::NotStarted { said: String::new() }, "[not_started]", true);
    check(End::Unknown { said: said(), found: None }, "[outcome_unknown]", true);
    check(End::Unknown { said: said(), found: Some("done, by li".into()) }, "its outcome was unknown at first", true);
}
