//! Blocks through the kept form and into the next request.

use interlock_domain::block::{Block, Image, ImageSource, Message, Provider, Role};
use serde_json::{Value, json};

use super::super::request::{self, Ask, Tool};
use super::super::{Dialect, ThoughtsBack, form};
use super::{events, plain};

/// One answer of a provider, with everything that must go back as it came.
fn answer(provider: Provider) -> Vec<Block> {
    let frames: &[&str] = match provider {
        Provider::Anthropic => &[
            r#"{"type":"message_start","message":{}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":" a ","signature":"S=="}}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":"hm","citations":[{"url":"u"}]}}"#,
            r#"{"type":"content_block_start","index":2,"content_block":{"type":"server_tool_use","id":"s","name":"web_search","input":{"q":1}}}"#,
            r#"{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"c1","name":"t","input":{"n":1},"caller":{"type":"direct"}}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#,
            r#"{"type":"message_stop"}"#,
        ],
        Provider::Chat => &[
            r#"{"choices":[{"delta":{"reasoning_content":" a "}}]}"#,
            r#"{"choices":[{"delta":{"content":"hm","reasoning_details":[{"type":"reasoning.encrypted","data":"E","index":0}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"t","arguments":"{\"n\":1}"},"extra_content":{"google":{"thought_signature":"S"}}}]},"finish_reason":"tool_calls"}]}"#,
        ],
        Provider::Responses => &[
            r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"r","encrypted_content":"E","summary":[]}}"#,
            r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"message","id":"m","role":"assistant","phase":"commentary","content":[{"type":"output_text","text":"h","annotations":[]},{"type":"output_text","text":"m","annotations":[{"url":"u"}]}]}}"#,
            r#"{"type":"response.output_item.done","output_index":2,"item":{"type":"web_search_call","id":"w"}}"#,
            r#"{"type":"response.output_item.done","output_index":3,"item":{"type":"function_call","id":"fc","call_id":"c1","name":"t","arguments":"{\"n\":1}"}}"#,
            r#"{"type":"response.output_item.done","output_index":4,"item":{"type":"custom_tool_call","id":"ct","call_id":"c2","name":"sql","input":"SELECT"}}"#,
            r#"{"type":"response.completed","response":{}}"#,
        ],
        Provider::Gemini => &[
            r#"{"candidates":[{"content":{"parts":[{"text":" a ","thought":true,"thoughtSignature":"S1"},{"text":"hm","thoughtSignature":"S2"},{"executableCode":{"code":"1"}},{"functionCall":{"id":"c1","name":"t","args":{"n":1}},"thoughtSignature":"S3"}]},"finishReason":"STOP"}]}"#,
        ],
    };
    let end = plain(provider, &events(frames));
    assert!(end.fault.is_none(), "{:?}", end.fault);
    end.blocks
}

/// A whole history: a question, the answer, the results, one with a picture.
fn history(provider: Provider) -> Vec<Message> {
    let blocks = answer(provider);
    let results = interlock_domain::block::calls(&blocks).map(|call| {
        let mut result = call.answer("{\"ok\":1}", false);
        result.images.push(Image { media_type: "image/png".to_owned(), source: ImageSource::Base64("AA".to_owned()) });
        Block::ToolResult(result)
    });
    let results = results.collect();
    vec![Message::user("go"), Message { role: Role::Assistant, blocks }, Message { role: Role::User, blocks: results }]
}

#[test]
fn what_is_kept_comes_back_the_same() {
    for provider in Provider::ALL {
        let history = history(provider);
        let kept: Vec<Value> = history.iter().map(form::message_to_json).collect();
        let text = serde_json::to_string(&kept).unwrap();
        let back: Vec<Value> = serde_json::from_str(&text).unwrap();
        let back: Vec<Message> = back.iter().map(|message| form::message_from_json(message).unwrap()).collect();
        assert_eq!(back, history);
    }
    for wrong in [json!({}), json!({"type": "x"}), json!({"type": "tool_use", "id": "a", "name": "t", "input": 1})] {
        assert!(form::from_json(&wrong).is_err(), "{wrong}");
    }
}

#[test]
fn the_next_request_says_it_as_it_was_said() {
    let picture = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}});
    let table = [
        (
            Provider::Anthropic,
            json!([
                {"role": "user", "content": [{"type": "text", "text": "go"}]},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": " a ", "signature": "S=="},
                    {"type": "text", "text": "hm", "citations": [{"url": "u"}]},
                    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": 1}},
                    {"type": "tool_use", "id": "c1", "name": "t", "input": {"n": 1}, "caller": {"type": "direct"}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": [
                        {"type": "text", "text": "{\"ok\":1}"},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}},
                    ]},
                ]},
            ]),
        ),
        (
            Provider::Chat,
            json!([
                {"role": "user", "content": "go"},
                {
                    "role": "assistant",
                    "content": "hm",
                    "reasoning_content": " a ",
                    "reasoning_details": [{"type": "reasoning.encrypted", "data": "E", "index": 0}],
                    "tool_calls": [{
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "t", "arguments": "{\"n\":1}"},
                        "extra_content": {"google": {"thought_signature": "S"}},
                    }],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "{\"ok\":1}"},
                {"role": "user", "content": [picture]},
            ]),
        ),
        (
            Provider::Responses,
            json!([
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
                {"type": "reasoning", "id": "r", "encrypted_content": "E", "summary": []},
                {"type": "message", "role": "assistant", "id": "m", "phase": "commentary", "content": [
                    {"type": "output_text", "text": "h", "annotations": []},
                    {"type": "output_text", "text": "m", "annotations": [{"url": "u"}]},
                ]},
                {"type": "web_search_call", "id": "w"},
                {"type": "function_call", "id": "fc", "call_id": "c1", "name": "t", "arguments": "{\"n\":1}"},
                {"type": "custom_tool_call", "id": "ct", "call_id": "c2", "name": "sql", "input": "SELECT"},
                {"type": "function_call_output", "call_id": "c1", "output": "{\"ok\":1}"},
                {"type": "custom_tool_call_output", "call_id": "c2", "output": "{\"ok\":1}"},
                {"type": "message", "role": "user", "content": [
                    {"type": "input_image", "image_url": "data:image/png;base64,AA"},
                    {"type": "input_image", "image_url": "data:image/png;base64,AA"},
                ]},
            ]),
        ),
        (
            Provider::Gemini,
            json!([
                {"role": "user", "parts": [{"text": "go"}]},
                {"role": "model", "parts": [
                    {"text": " a ", "thought": true, "thoughtSignature": "S1"},
                    {"text": "hm", "thoughtSignature": "S2"},
                    {"executableCode": {"code": "1"}},
                    {"functionCall": {"id": "c1", "name": "t", "args": {"n": 1}}, "thoughtSignature": "S3"},
                ]},
                {"role": "user", "parts": [
                    {"functionResponse": {"id": "c1", "name": "t", "response": {"ok": 1}}},
                    {"inlineData": {"mimeType": "image/png", "data": "AA"}},
                ]},
            ]),
        ),
    ];
    for (provider, want) in table {
        let got = request::history(&Dialect::plain(provider), &history(provider));
        assert_eq!(Value::Array(got), want, "{provider:?}");
    }
}

/// Whatever way the last turn ended, what leaves is legal: a missing result, a late one, an answer that stands alone.
#[test]
fn what_leaves_is_legal() {
    use interlock_domain::repair::legality::breaches;
    for from in Provider::ALL {
        let whole = history(from);
        for to in Provider::ALL {
            for damaged in [
                whole.clone(),
                whole[..2].to_vec(),
                whole[1..].to_vec(),
                whole[2..].to_vec(),
                [&whole[..2], &[Message::user("and now?")], &whole[2..]].concat(),
                [&whole[..], &whole[1..]].concat(),
            ] {
                let sent = request::history(&Dialect::plain(to), &damaged);
                assert_eq!(breaches(to, &sent), [], "{from:?} to {to:?}: {}", Value::Array(sent.clone()));
            }
        }
    }
}

/// Signatures, thoughts and items of one provider are nothing to another.
#[test]
fn what_one_provider_attached_does_not_reach_another() {
    for from in Provider::ALL {
        for to in Provider::ALL.into_iter().filter(|to| *to != from) {
            let sent = Value::Array(request::history(&Dialect::plain(to), &history(from))).to_string();
            for mark in
                ["S==", "S1", "S2", "S3", "\"E\"", "web_search", "executableCode", "citations", " a ", "fc", "phase"]
            {
                assert!(!sent.contains(mark), "{mark} of {from:?} went to {to:?}: {sent}");
            }
            assert!(sent.contains("\"t\"") && sent.contains("hm") || from == Provider::Responses, "{sent}");
        }
    }
}

#[test]
fn thoughts_of_a_chat_dialect_go_back_within_the_turn() {
    let mut history = history(Provider::Chat);
    let asked = |history: &[Message], thoughts_back| {
        let dialect = Dialect { thoughts_back, ..Dialect::plain(Provider::Chat) };
        Value::Array(request::history(&dialect, history)).to_string().contains("reasoning_content")
    };
    // The picture of a result is not something that the asker said.
    assert!(asked(&history, ThoughtsBack::WithinTurn));
    assert!(!asked(&history, ThoughtsBack::Never));
    history.push(Message::user("and now?"));
    assert!(!asked(&history, ThoughtsBack::WithinTurn));
    assert!(asked(&history, ThoughtsBack::Always));
}

#[test]
fn a_body_asks_for_a_stream_with_its_tools() {
    let tools = [Tool { name: "t".to_owned(), description: "d".to_owned(), schema: json!({"type": "object"}) }];
    let history = [Message::user("go")];
    let ask = Ask { model: "m", system: "s", tools: &tools, history: &history, output_max: 9 };
    let table = [
        (
            Provider::Anthropic,
            json!({
                "model": "m", "max_tokens": 9, "stream": true, "system": "s",
                "messages": [{"role": "user", "content": [{"type": "text", "text": "go"}]}],
                "tools": [{"name": "t", "description": "d", "input_schema": {"type": "object"}}],
            }),
        ),
        (
            Provider::Chat,
            json!({
                "model": "m", "max_tokens": 9, "stream": true, "stream_options": {"include_usage": true},
                "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "go"}],
                "tools": [{"type": "function", "function": {"name": "t", "description": "d", "parameters": {"type": "object"}}}],
            }),
        ),
        (
            Provider::Responses,
            json!({
                "model": "m", "max_output_tokens": 9, "stream": true, "instructions": "s", "store": false,
                "include": ["reasoning.encrypted_content"],
                "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]}],
                "tools": [{"type": "function", "name": "t", "description": "d", "parameters": {"type": "object"}, "strict": false}],
            }),
        ),
        (
            Provider::Gemini,
            json!({
                "contents": [{"role": "user", "parts": [{"text": "go"}]}],
                "generationConfig": {"maxOutputTokens": 9},
                "systemInstruction": {"parts": [{"text": "s"}]},
                "tools": [{"functionDeclarations": [{"name": "t", "description": "d", "parametersJsonSchema": {"type": "object"}}]}],
            }),
        ),
    ];
    for (provider, want) in table {
        assert_eq!(request::body(&Dialect::plain(provider), &ask), want, "{provider:?}");
    }
}
