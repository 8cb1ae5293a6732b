//! The cases of repair, and its laws over seeded histories that were dropped, doubled and shuffled.
#![expect(clippy::wildcard_enum_match_arm, reason = "a test: what is not expected is a failure")]

use serde_json::{Value, json};

use super::*;
use crate::repair::legality::breaches;

const CASES: &str = include_str!("../../../../tests/cases/mediation.jsonl");

fn journal(case: &Value) -> Journal {
    let mut journal = Journal::new();
    for (id, word) in case["input"]["journal"].as_object().into_iter().flatten() {
        journal.note_word(id.as_str(), word.as_str().unwrap());
    }
    journal
}

/// A case says `<stub:kind>` where the text is ours.
fn same(got: &Value, want: &Value) -> bool {
    match (got, want) {
        (Value::String(got), Value::String(want)) if want.starts_with("<stub:") => {
            got.starts_with(&format!("[{}]", &want[6..want.len() - 1]))
        }
        (Value::Array(got), Value::Array(want)) => {
            got.len() == want.len() && got.iter().zip(want).all(|(got, want)| same(got, want))
        }
        (Value::Object(got), Value::Object(want)) => {
            got.len() == want.len() && want.iter().all(|(key, want)| got.get(key).is_some_and(|got| same(got, want)))
        }
        _ => got == want,
    }
}

#[test]
fn the_cases_that_others_had_wrong() {
    let mut seen = 0;
    for case in CASES.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        let (name, input, expected) = (&case["id"], &case["input"], &case["expected"]);
        if case["area"] != "repair" || input.get("property").is_some() {
            continue;
        }
        seen += 1;
        let (provider, key) = match input["target"].as_str().unwrap() {
            "anthropic" => (Provider::Anthropic, "messages"),
            "openai_responses" => (Provider::Responses, "items"),
            other => panic!("{other}"),
        };
        let mut messages = input[key].as_array().unwrap().clone();
        if let Some(text) = input.get("then_user") {
            messages.push(json!({"role": "user", "content": [{"type": "text", "text": text}]}));
        }
        let repaired = repair(provider, messages, &journal(&case));
        let got = Value::Array(repaired.messages.clone());
        if let Some(want) = expected.get("messages") {
            assert!(same(&got, want), "{name}: {got:#}");
        }
        if let Some(want) = expected.get("quarantined") {
            assert_eq!(json!(repaired.quarantined), *want, "{name}");
        }
        if let Some(want) = expected.get("n_stubs") {
            assert_eq!(json!(repaired.stubs.len()), *want, "{name}");
            assert_eq!(got[2]["content"][0]["content"], expected["first_result_content"], "{name}");
        }
        if let Some(want) = expected.get("items_kinds") {
            let kinds: Vec<String> = repaired
                .messages
                .iter()
                .map(|item| {
                    let kind = word(item, "type");
                    if kind.ends_with("_output") {
                        format!("{kind}({})", word(item, "call_id"))
                    } else {
                        kind.to_owned()
                    }
                })
                .collect();
            assert_eq!(json!(kinds), *want, "{name}");
        }
        assert_eq!(breaches(provider, &repaired.messages), [], "{name}");
    }
    assert_eq!(seen, 7);
}

#[test]
fn a_stub_of_an_unknown_outcome_invites_nobody_to_do_it_again() {
    let text = Stub::OutcomeUnknown.text().to_lowercase();
    for word in ["did not run", "not executed", "reissue", "re-issue", "retry", "again"] {
        assert!(!text.contains(word), "{word}");
    }
}

#[test]
fn the_journal_knows_calls_by_occurrence() {
    let mut journal = Journal::new();
    journal.note_word("a", "not_started");
    journal.note_word("a@2", "denied");
    journal.note_word("b", "started");
    journal.note_word("c", "terminal:ok");
    for (id, occurrence, want) in [
        ("a", 1, Stub::NotStarted),
        ("a", 2, Stub::Denied),
        ("a", 3, Stub::OutcomeUnknown),
        ("b", 1, Stub::OutcomeUnknown),
        ("c", 1, Stub::OutcomeUnknown),
        ("d", 1, Stub::OutcomeUnknown),
    ] {
        assert_eq!(journal.of(id, occurrence), want, "{id}@{occurrence}");
    }
}

/// Found by the fuzz target: a call that says not what it calls cannot be sent, and its result answers nothing.
#[test]
fn a_call_without_a_name_goes_with_its_result() {
    let user = json!({"role": "user", "content": "go"});
    let said = json!({"type": "text", "text": "x"});
    check(
        Provider::Anthropic,
        json!([user, {"role": "assistant", "content": [said, {"type": "tool_use", "id": "a", "input": {}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "1"}]}]),
        json!([user, {"role": "assistant", "content": [said]}]),
        &["a", "a"],
    );
    check(
        Provider::Chat,
        json!([user, {"role": "assistant", "content": null, "tool_calls": [{"id": "a", "function": {"arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "a", "content": "1"}]),
        json!([user]),
        &["a", "a"],
    );
    check(
        Provider::Responses,
        json!([user, {"type": "function_call", "call_id": "a"}, {"type": "function_call_output", "call_id": "a", "output": "1"}]),
        json!([user]),
        &["a", "a"],
    );
    let asked = json!({"role": "user", "parts": [{"text": "a"}]});
    check(
        Provider::Gemini,
        json!([asked, {"role": "model", "parts": [{"functionCall": {"id": "a"}}]}, {"role": "user", "parts": [{"functionResponse": {"id": "a"}}]}]),
        json!([asked]),
        &["a", "a"],
    );
}

/// One history, what becomes of it, and what leaves it.
fn check(provider: Provider, messages: Value, want: Value, quarantined: &[&str]) {
    let repaired = repair(provider, messages.as_array().unwrap().clone(), &Journal::new());
    let got = Value::Array(repaired.messages.clone());
    assert!(same(&got, &want), "{messages:#}\nbecame {got:#}");
    assert_eq!(repaired.quarantined, quarantined);
    assert_eq!(breaches(provider, &repaired.messages), []);
}

#[test]
fn chat_messages() {
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "t", "arguments": "{}"}});
    let calls = |ids: &[&str]| json!({"role": "assistant", "content": null, "tool_calls": ids.iter().map(|id| call(id)).collect::<Vec<_>>()});
    let tool = |id: &str, text: &str| json!({"role": "tool", "tool_call_id": id, "content": text});
    let user = |text: &str| json!({"role": "user", "content": text});
    let stub = "<stub:outcome_unknown>";
    // A missing result, one in the wrong order, text before results, an orphan, a late one.
    check(
        Provider::Chat,
        json!([
            user("go"),
            calls(&["a", "b"]),
            user("btw"),
            tool("b", "2"),
            tool("zz", "?"),
            tool("a", "1"),
            user("so")
        ]),
        json!([user("go"), calls(&["a", "b"]), tool("a", "1"), tool("b", "2"), user("btw"), user("so")]),
        &["zz"],
    );
    check(
        Provider::Chat,
        json!([
            calls(&["a"]),
            json!({"role": "assistant", "content": "x"}),
            user("y"),
            calls(&["b"]),
            tool("a", "late")
        ]),
        json!([
            calls(&["a"]),
            tool("a", stub),
            json!({"role": "assistant", "content": "x"}),
            user("y"),
            calls(&["b"]),
            tool("b", stub)
        ]),
        &["a"],
    );
    // The model's next message came before the result of its call.
    check(
        Provider::Chat,
        json!([calls(&["a"]), json!({"role": "assistant", "content": "x"}), tool("a", "1")]),
        json!([calls(&["a"]), tool("a", "1"), json!({"role": "assistant", "content": "x"})]),
        &[],
    );
    // Empty ids, a doubled id, a doubled result.
    check(
        Provider::Chat,
        json!([calls(&["", ""]), tool("", "1"), tool("", "2")]),
        json!([calls(&["call00001", "call00002"]), tool("call00001", "1"), tool("call00002", "2")]),
        &[],
    );
    check(
        Provider::Chat,
        json!([calls(&["a", "a"]), tool("a", "1"), tool("a", "2"), tool("a", "3")]),
        json!([calls(&["a", "call00002"]), tool("a", "1"), tool("call00002", "2")]),
        &["a"],
    );
    // Nothing to say, and no message at all.
    check(
        Provider::Chat,
        json!([user(""), {"role": "assistant", "content": ""}, {"role": "assistant", "content": "x", "tool_calls": []}, {"role": "robot"}, 7]),
        json!([{"role": "assistant", "content": "x"}]),
        &[],
    );
}

#[test]
fn gemini_contents() {
    let call = |name: &str| json!({"functionCall": {"name": name, "args": {}}});
    let answer = |name: &str, text: &str| json!({"functionResponse": {"name": name, "response": {"result": text}}});
    let unknown =
        |name: &str| json!({"functionResponse": {"name": name, "response": {"error": "<stub:outcome_unknown>"}}});
    let user = |parts: Value| json!({"role": "user", "parts": parts});
    let model = |parts: Value| json!({"role": "model", "parts": parts});
    check(
        Provider::Gemini,
        json!([user(json!([{"text": "go"}])), model(json!([call("a"), call("b")])), {"role": "function", "parts": [answer("b", "2")]}, user(json!([{"text": "so"}]))]),
        json!([
            user(json!([{"text": "go"}])),
            model(json!([call("a"), call("b")])),
            user(json!([unknown("a"), answer("b", "2"), {"text": "so"}]))
        ]),
        &[],
    );
    // The model first, an orphan, a call of the user.
    check(
        Provider::Gemini,
        json!([user(json!([answer("x", "?"), call("y")])), model(json!([{"text": "hm"}, {"text": ""}]))]),
        json!([user(json!([{"text": OPENING}])), model(json!([{"text": "hm"}]))]),
        &["y", ""],
    );
    // Ids where the provider gave them, and nowhere else.
    check(
        Provider::Gemini,
        json!([
            user(json!([{"text": "go"}])),
            model(json!([{"functionCall": {"id": "g", "name": "a"}}, call("a")])),
            user(
                json!([{"functionResponse": {"name": "a", "response": {}}}, {"functionResponse": {"id": "g", "name": "a", "response": {}}}])
            )
        ]),
        json!([
            user(json!([{"text": "go"}])),
            model(json!([{"functionCall": {"id": "g", "name": "a"}}, call("a")])),
            user(
                json!([{"functionResponse": {"id": "g", "name": "a", "response": {}}}, {"functionResponse": {"name": "a", "response": {}}}])
            )
        ]),
        &[],
    );
}

#[test]
fn responses_items() {
    let call = |id: &str| json!({"type": "function_call", "call_id": id, "name": "t", "arguments": "{}"});
    let out = |id: &str, text: &str| json!({"type": "function_call_output", "call_id": id, "output": text});
    let user = json!({"type": "message", "role": "user", "content": "go"});
    // An output may stand anywhere behind its call; one before it, a second one, and one of nothing go.
    check(
        Provider::Responses,
        json!([
            out("a", "early"),
            user,
            call("a"),
            call("b"),
            user,
            out("b", "2"),
            out("a", "1"),
            out("a", "1b"),
            out("z", "?")
        ]),
        json!([user, call("a"), call("b"), user, out("b", "2"), out("a", "1")]),
        &["a", "a", "z"],
    );
    // An id of an earlier turn; the newest turn that waits for it gets the output.
    check(
        Provider::Responses,
        json!([call("a"), user, call("a"), out("a", "2")]),
        json!([call("a"), out("a", "<stub:outcome_unknown>"), user, call("call00002"), out("call00002", "2")]),
        &[],
    );
    // The kind of an output follows its call; a thought that led to nothing goes.
    check(
        Provider::Responses,
        json!([{"type": "reasoning", "id": "r"}, {"type": "custom_tool_call", "call_id": "c", "name": "g", "input": "x"}, out("c", "1"), {"type": "reasoning", "id": "s"}, user]),
        json!([{"type": "reasoning", "id": "r"}, {"type": "custom_tool_call", "call_id": "c", "name": "g", "input": "x"}, {"type": "custom_tool_call_output", "call_id": "c", "output": "1"}, user]),
        &[],
    );
}

#[test]
fn anthropic_messages() {
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "t", "input": {}});
    let result = |id: &str, text: &str| json!({"type": "tool_result", "tool_use_id": id, "content": text});
    let unknown = |id: &str| json!({"type": "tool_result", "tool_use_id": id, "is_error": true, "content": "<stub:outcome_unknown>"});
    let text = |text: &str| json!({"type": "text", "text": text});
    let user = |parts: Value| json!({"role": "user", "content": parts});
    let model = |parts: Value| json!({"role": "assistant", "content": parts});
    // Text stays text where nothing changes, and joins a list where it must.
    check(
        Provider::Anthropic,
        json!([user(json!("a")), user(json!("b")), model(json!("c")), user(json!("d"))]),
        json!([user(json!([text("a"), text("b")])), model(json!("c")), user(json!("d"))]),
        &[],
    );
    // The model first; a late result; an id that Anthropic does not take.
    check(
        Provider::Anthropic,
        json!([
            model(json!([text("x"), call("functions.t:0")])),
            user(json!([result("functions.t:0", "1")])),
            model(json!("y")),
            user(json!([result("functions.t:0", "late")]))
        ]),
        json!([
            user(json!([text(OPENING)])),
            model(json!([text("x"), call("call00001")])),
            user(json!([result("call00001", "1")])),
            model(json!("y"))
        ]),
        &["functions.t:0"],
    );
    // Neighbours of the model are one turn, and its call is answered behind all of it.
    check(
        Provider::Anthropic,
        json!([
            user(json!("a")),
            model(json!([call("c")])),
            user(json!([result("gone", "?")])),
            model(json!([text("b")])),
            user(json!([result("c", "late")]))
        ]),
        json!([user(json!("a")), model(json!([call("c")])), user(json!([unknown("c")])), model(json!([text("b")]))]),
        &["gone", "c"],
    );
    // Thoughts without a signature, empty text, parts in the wrong place.
    check(
        Provider::Anthropic,
        json!([
            user(json!([text(" "), {"type": "thinking", "thinking": "x", "signature": "S"}, call("u"), text("a")])),
            model(
                json!([{"type": "thinking", "thinking": "x", "signature": ""}, {"type": "image", "source": {}}, result("r", "1"), text("b")])
            )
        ]),
        json!([user(json!([text("a")])), model(json!([text("b")]))]),
        &["u", "r"],
    );
    check(Provider::Anthropic, json!([user(json!([])), model(json!(""))]), json!([]), &[]);
}

// ---- The laws, over seeded histories ----

/// A legal history of `turns` turns.
fn legal(provider: Provider, turns: usize, random: &mut fastrand::Rng) -> Vec<Value> {
    let mut out = Vec::new();
    for turn in 0..turns {
        let ids: Vec<String> = (0..random.usize(0..4)).map(|call| format!("t{turn}c{call}")).collect();
        let says = random.bool() || ids.is_empty();
        match provider {
            Provider::Anthropic => {
                let mut content = vec![json!({"type": "text", "text": format!("u{turn}")})];
                if let Some(last) = out.last_mut().filter(|last: &&mut Value| last["role"] == "user") {
                    last["content"].as_array_mut().unwrap().append(&mut content);
                } else {
                    out.push(json!({"role": "user", "content": content}));
                }
                let mut content = vec![json!({"type": "thinking", "thinking": "hm", "signature": format!("S{turn}")})];
                content.extend(says.then(|| json!({"type": "text", "text": format!("a{turn}")})));
                content.extend(
                    ids.iter().map(|id| json!({"type": "tool_use", "id": id, "name": "t", "input": {"n": turn}})),
                );
                out.push(json!({"role": "assistant", "content": content}));
                let results =
                    ids.iter().map(|id| json!({"type": "tool_result", "tool_use_id": id, "content": format!("r{id}")}));
                if !ids.is_empty() {
                    out.push(json!({"role": "user", "content": results.collect::<Vec<_>>()}));
                }
            }
            Provider::Chat => {
                out.push(json!({"role": "user", "content": format!("u{turn}")}));
                let content = if says { json!(format!("a{turn}")) } else { Value::Null };
                let mut message = json!({"role": "assistant", "content": content});
                if !ids.is_empty() {
                    message["tool_calls"] = ids
                        .iter()
                        .map(|id| json!({"id": id, "type": "function", "function": {"name": "t", "arguments": "{}"}}))
                        .collect();
                }
                out.push(message);
                out.extend(
                    ids.iter().map(|id| json!({"role": "tool", "tool_call_id": id, "content": format!("r{id}")})),
                );
            }
            Provider::Responses => {
                out.push(json!({"type": "message", "role": "user", "content": format!("u{turn}")}));
                out.push(json!({"type": "reasoning", "id": format!("rs{turn}"), "summary": []}));
                out.push(json!({"type": "message", "role": "assistant", "content": format!("a{turn}")}));
                let kind = |at: usize| if at.is_multiple_of(2) { "function_call" } else { "custom_tool_call" };
                out.extend(
                    ids.iter().enumerate().map(|(at, id)| json!({"type": kind(at), "call_id": id, "name": "t"})),
                );
                out.extend(
                    ids.iter()
                        .enumerate()
                        .map(|(at, id)| json!({"type": format!("{}_output", kind(at)), "call_id": id, "output": "r"})),
                );
            }
            Provider::Gemini => {
                let with_id = random.bool();
                let mut parts = vec![json!({"text": format!("u{turn}")})];
                if let Some(last) = out.last_mut().filter(|last: &&mut Value| last["role"] == "user") {
                    last["parts"].as_array_mut().unwrap().append(&mut parts);
                } else {
                    out.push(json!({"role": "user", "parts": parts}));
                }
                let named = |id: &String, key: &str| {
                    let mut inner = json!({"name": "t", key: {}});
                    if with_id {
                        inner["id"] = id.as_str().into();
                    }
                    inner
                };
                let mut parts: Vec<Value> = says.then(|| json!({"text": format!("a{turn}")})).into_iter().collect();
                parts.extend(ids.iter().map(|id| json!({"functionCall": named(id, "args"), "thoughtSignature": "S"})));
                out.push(json!({"role": "model", "parts": parts}));
                let results = ids.iter().map(|id| json!({"functionResponse": named(id, "response")}));
                if !ids.is_empty() {
                    out.push(json!({"role": "user", "parts": results.collect::<Vec<_>>()}));
                }
            }
        }
    }
    out
}

/// Drops, doubles, moves, renames and empties messages and parts.
fn damage(messages: &mut Vec<Value>, random: &mut fastrand::Rng) {
    for _ in 0..random.usize(1..8) {
        if messages.is_empty() {
            return;
        }
        let at = random.usize(0..messages.len());
        let other = random.usize(0..messages.len());
        let list = ["content", "parts", "tool_calls"]
            .into_iter()
            .find(|key| messages[at].get(*key).is_some_and(Value::is_array));
        match (random.u8(0..10), list) {
            (0, _) => drop(messages.remove(at)),
            (1, _) => messages.insert(other, messages[at].clone()),
            (2, _) => messages.swap(at, other),
            (3, _) => messages.truncate(at.max(1)),
            (kind @ 4..=7, Some(key)) => {
                let parts = messages[at][key].as_array_mut().unwrap();
                if parts.is_empty() {
                    continue;
                }
                let part = parts[random.usize(0..parts.len())].clone();
                let len = parts.len();
                match kind {
                    4 => drop(parts.remove(random.usize(0..len))),
                    5 => parts.push(part),
                    6 => parts.swap(random.usize(0..len), random.usize(0..len)),
                    _ => {
                        if let Some(target) = messages[other].get_mut(key).and_then(Value::as_array_mut) {
                            target.insert(random.usize(0..=target.len()), part);
                        }
                    }
                }
            }
            (8, _) => {
                let text = messages[at].to_string();
                // Ids of other turns, empty ids, and ones that only some providers take.
                let to = ["t0c0", "", "t1c0", "fn.x:0"][random.usize(0..4)];
                let turn = random.usize(0..6);
                messages[at] =
                    serde_json::from_str(&text.replace(&format!("\"t{turn}c0\""), &format!("\"{to}\""))).unwrap();
            }
            (_, _) => match random.u8(0..4) {
                0 => messages[at]["content"] = Value::Null,
                1 => messages[at]["role"] = ["user", "assistant", "model", "tool"][random.usize(0..4)].into(),
                2 => messages[at]["content"] = "".into(),
                _ => messages[at] = Value::Null,
            },
        }
    }
}

/// How many histories: R10 asks for 3,000 of Anthropic's; the others share the algorithm.
fn seeds(provider: Provider) -> u64 {
    if provider == Provider::Anthropic { 3000 } else { 1000 }
}

#[test]
fn a_repaired_history_is_legal_and_stays_as_it_is() {
    for provider in Provider::ALL {
        for seed in 0..seeds(provider) {
            let mut random = fastrand::Rng::with_seed(seed);
            let whole = legal(provider, 6, &mut random);
            assert_eq!(breaches(provider, &whole), [], "{provider:?} seed {seed}: {}", json!(whole));
            let untouched = repair(provider, whole.clone(), &Journal::new());
            assert_eq!(untouched.messages, whole, "{provider:?} seed {seed}: a legal history was changed");
            let mut damaged = whole;
            damage(&mut damaged, &mut random);
            let mut journal = Journal::new();
            ["t0c0", "t1c0@2", "t2c1"].iter().for_each(|id| journal.note(*id, Stub::NotStarted));
            let once = repair(provider, damaged.clone(), &journal);
            let found = breaches(provider, &once.messages);
            assert_eq!(found, [], "{provider:?} seed {seed}: {}\nbecame {}", json!(damaged), json!(once.messages));
            let twice = repair(provider, once.messages.clone(), &journal);
            let bytes = |repaired: &Repaired| serde_json::to_string(&repaired.messages).unwrap();
            assert_eq!(bytes(&twice), bytes(&once), "{provider:?} seed {seed}: {}", json!(damaged));
            assert!(twice.stubs.is_empty() && twice.quarantined.is_empty(), "{provider:?} seed {seed}");
            // What is legal is not touched, and what is touched was not legal.
            let was_legal = breaches(provider, &damaged).is_empty();
            assert_eq!(was_legal, once.messages == damaged, "{provider:?} seed {seed}: {}", json!(damaged));
        }
    }
}

#[test]
fn the_way_out_of_the_loop_closes_the_last_turn() {
    let call = |id: &str| {
        Block::ToolUse(ToolUse {
            id: crate::block::UseId::read_back(id),
            provider_id: String::new(),
            name: "t".to_owned(),
            input: std::sync::Arc::new(json!({})),
            kind: crate::block::CallKind::Function,
            kept: crate::block::Kept::none(),
        })
    };
    let said = |history: &[Message]| -> String {
        let last = history.last().unwrap();
        let blocks = last.blocks.iter().map(|block| match block {
            Block::ToolResult(result) => format!("{}={} ", result.call, result.text.split(' ').next().unwrap()),
            Block::Text { text, .. } => format!("{text} "),
            other => format!("{other:?} "),
        });
        blocks.collect()
    };
    let assistant = Message { role: Role::Assistant, blocks: vec![Block::text("x"), call("a"), call("b")] };
    let mut history = vec![Message::user("go"), assistant.clone()];
    close(&mut history, |call| if call.id.as_str() == "a" { Stub::Denied } else { Stub::OutcomeUnknown });
    assert_eq!(said(&history), "a=[denied] b=[outcome_unknown] ");
    let closed = history.clone();
    close(&mut history, |_| Stub::NotStarted);
    assert_eq!(history, closed, "closing twice changes nothing");
    // Half of the results are there, in another order, and the asker has said something.
    let Block::ToolUse(second) = call("b") else { unreachable!() };
    let reply =
        Message { role: Role::User, blocks: vec![Block::text("so"), Block::ToolResult(second.answer("2", false))] };
    let mut history = vec![Message::user("go"), assistant, reply];
    close(&mut history, |_| Stub::NotStarted);
    assert_eq!(said(&history), "a=[not_started] b=2 so ");
    let mut nothing = vec![Message::user("go")];
    close(&mut nothing, |_| Stub::NotStarted);
    assert_eq!(nothing, [Message::user("go")]);
}
