//! What the dialects do differently, one row a habit. Most were seen in the wild; each could join arguments to a wrong
//! call, lose one, or make one up.

use interlock_domain::block::Provider;

use super::super::{Dialect, TextCalls};
use super::{end_of, events, plain, shown};

fn check(provider: Provider, frames: &[&str], want: &str) {
    let end = plain(provider, &events(frames));
    assert_eq!(shown(&end), want, "{frames:#?}\n{}", end.to_json());
}

/// Chat chunks, given as their deltas; a finish reason and `[DONE]` follow.
fn chat(deltas: &[&str], finish: &str, want: &str) {
    let chunk = |delta: &str, finish: &str| {
        format!(r#"{{"id":"x","choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]}}"#)
    };
    let mut frames: Vec<String> = deltas.iter().map(|delta| chunk(delta, "null")).collect();
    frames.push(chunk("{}", &format!("\"{finish}\"")));
    frames.push("[DONE]".to_owned());
    check(Provider::Chat, &frames.iter().map(String::as_str).collect::<Vec<_>>(), want);
}

fn calls(pieces: &[&str], want: &str) {
    let deltas: Vec<String> = pieces.iter().map(|piece| format!(r#"{{"tool_calls":[{piece}]}}"#)).collect();
    chat(&deltas.iter().map(String::as_str).collect::<Vec<_>>(), "tool_calls", want);
}

#[test]
fn chat_names_its_calls_in_many_ways() {
    // An empty id on each continuation; a name that is empty or said again.
    calls(
        &[
            r#"{"index":0,"id":"c1","type":"function","function":{"name":"read","arguments":""}}"#,
            r#"{"index":0,"id":"","type":"function","function":{"name":"","arguments":"{\"p\":"}}"#,
            r#"{"index":0,"id":"","function":{"name":"read","arguments":"1}"}}"#,
            r#"{"index":0,"id":"","type":"function","function":{"arguments":""}}"#,
        ],
        r#"complete tool_use | c1=read{"p":1}"#,
    );
    // The id and the name again with each piece; an id that comes late; null members.
    calls(
        &[
            r#"{"index":0,"id":"c1","function":{"name":"read","arguments":"{\"p\":"}}"#,
            r#"{"index":0,"id":"c1","function":{"name":"read","arguments":"1}"}}"#,
        ],
        r#"complete tool_use | c1=read{"p":1}"#,
    );
    calls(
        &[
            r#"{"index":0,"id":null,"type":null,"function":{"name":"read","arguments":null}}"#,
            r#"{"index":0,"id":"c1","function":{"name":null,"arguments":"{}"}}"#,
        ],
        r#"complete tool_use | c1=read{}"#,
    );
    // A name in pieces, and one that grows.
    calls(
        &[
            r#"{"index":0,"id":"c1","function":{"name":"get_"}}"#,
            r#"{"index":0,"function":{"name":"weather"}}"#,
            r#"{"index":0,"function":{"arguments":"{}"}}"#,
        ],
        r#"complete tool_use | c1=get_weather{}"#,
    );
    // Indices that jump, that are text, that start at one, and come in another order.
    calls(
        &[
            r#"{"index":7,"id":"b","function":{"name":"t","arguments":"{\"n\":7}"}}"#,
            r#"{"index":"2","id":"a","function":{"name":"t","arguments":"{\"n\":2}"}}"#,
        ],
        r#"complete tool_use | a=t{"n":2} | b=t{"n":7}"#,
    );
    // One index for all, with ids and without.
    calls(
        &[
            r#"{"index":0,"id":"a","function":{"name":"t","arguments":"{\"n\":1}"}}"#,
            r#"{"index":0,"id":"b","function":{"name":"t","arguments":"{\"n\":"}}"#,
            r#"{"index":0,"id":"b","function":{"arguments":"2}"}}"#,
        ],
        r#"complete tool_use | a=t{"n":1} | b=t{"n":2}"#,
    );
    calls(
        &[
            r#"{"index":0,"id":"","function":{"name":"t","arguments":"{\"n\":1}"}}"#,
            r#"{"index":0,"id":"","function":{"name":"t","arguments":"{\"n\":2}"}}"#,
            r#"{"index":0,"id":"","function":{"name":"u","arguments":"{}"}}"#,
        ],
        r#"complete tool_use | call00001=t{"n":1} | call00002=t{"n":2} | call00003=u{}"#,
    );
    // Pieces that say nothing are no calls.
    calls(
        &[
            r#"{"index":0,"id":"a","function":{"name":"t","arguments":"{}"}}"#,
            r#"{"index":1,"id":"","type":"function","function":{"name":"","arguments":""}}"#,
            r#"{"function":null}"#,
        ],
        "complete tool_use | a=t{}",
    );
    // No index and no id, several whole calls, in one chunk and in several.
    calls(
        &[
            r#"{"function":{"name":"t","arguments":"{\"n\":1}"}},{"function":{"name":"t","arguments":{"n":2}}}"#,
            r#"{"function":{"name":"u","arguments":""}}"#,
        ],
        r#"complete tool_use | call00001=t{"n":1} | call00002=t{"n":2} | call00003=u{}"#,
    );
    // No index and no id: the name again with each piece, then a nameless piece for the only open call.
    calls(
        &[
            r#"{"function":{"name":"t","arguments":"{\"n\""}}"#,
            r#"{"function":{"name":"t","arguments":":"}}"#,
            r#"{"function":{"arguments":"1}"}}"#,
            r#"{"function":{"arguments":""}}"#,
        ],
        r#"complete tool_use | call00001=t{"n":1}"#,
    );
    // The same id twice is two calls; said twice in the same place with the same input, it is one.
    calls(
        &[
            r#"{"index":0,"id":"bash","function":{"name":"bash","arguments":"{\"n\":1}"}}"#,
            r#"{"index":1,"id":"bash","function":{"name":"bash","arguments":"{\"n\":1}"}}"#,
        ],
        r#"complete tool_use | bash=bash{"n":1} | call00002=bash{"n":1}"#,
    );
    calls(
        &[
            r#"{"id":"bash","function":{"name":"bash","arguments":"{\"n\":1}"}}"#,
            r#"{"id":"bash","function":{"name":"bash","arguments":"{\"n\":2}"}}"#,
        ],
        r#"complete tool_use | bash=bash{"n":1} | call00002=bash{"n":2}"#,
    );
    calls(
        &[
            r#"{"index":0,"id":"a","function":{"name":"t","arguments":"{\"n\":1}"}}"#,
            r#"{"index":0,"id":"a","function":{"name":"t","arguments":"{\"n\":1}"}}"#,
        ],
        r#"complete tool_use | a=t{"n":1}"#,
    );
    // Ids that are numbers; a call that is no list; arguments in a text in a text; members without `function`.
    chat(
        &[r#"{"tool_calls":{"index":0,"id":17,"function":{"name":"t","arguments":"\"{\\\"n\\\":1}\""}}}"#],
        "stop",
        r#"complete tool_use | 17=t{"n":1}"#,
    );
    calls(&[r#"{"id":"a","name":"t","arguments":{"n":1}}"#], r#"complete tool_use | a=t{"n":1}"#);
    // Without an index, order is that of completion.
    calls(
        &[
            r#"{"id":"a","function":{"name":"t","arguments":"{\"n\":"}}"#,
            r#"{"id":"b","function":{"name":"t","arguments":"{}"}}"#,
            r#"{"id":"a","function":{"arguments":"1}"}}"#,
        ],
        r#"complete tool_use | b=t{} | a=t{"n":1}"#,
    );
    // The old form of calls, and custom tools.
    chat(
        &[r#"{"function_call":{"name":"t","arguments":""}}"#, r#"{"function_call":{"arguments":"{\"n\":1}"}}"#],
        "function_call",
        r#"complete tool_use | call00001=t{"n":1}"#,
    );
    calls(
        &[
            r#"{"index":0,"id":"a","type":"custom","custom":{"name":"sql","input":"SELECT"}}"#,
            r#"{"index":0,"custom":{"input":" 1"}}"#,
        ],
        r#"complete tool_use | a=sql{"input":"SELECT 1"}"#,
    );
}

#[test]
fn chat_pieces_that_could_belong_to_two_calls_belong_to_none() {
    for pieces in [
        // Nameless and with two open calls; with none.
        [
            r#"{"id":"a","function":{"name":"t","arguments":"{"}},{"id":"b","function":{"name":"t","arguments":"{"}}"#,
            r#"{"function":{"arguments":"}"}}"#,
        ],
        [r#"{"id":"a","function":{"name":"t","arguments":"{}"}}"#, r#"{"function":{"arguments":"{\"x\":1}"}}"#],
        // A call that changes its name, one without any.
        [
            r#"{"index":0,"id":"a","function":{"name":"read","arguments":"{"}}"#,
            r#"{"index":0,"function":{"name":"write","arguments":"}"}}"#,
        ],
        [r#"{"index":0,"id":"a","function":{"arguments":"{}"}}"#, r#"{"index":0,"id":"a"}"#],
    ] {
        calls(&pieces, "malformed ! malformed_call");
    }
    for arguments in [r#""{\"p\":""#, r#""[1]""#, r#""{}{}""#, r#""nonsense""#] {
        let piece = format!(r#"{{"index":0,"id":"a","function":{{"name":"t","arguments":{arguments}}}}}"#);
        calls(&[&piece], "malformed ! malformed_arguments");
    }
}

#[test]
fn chat_thinks_in_many_places() {
    for field in ["reasoning_content", "reasoning", "thinking"] {
        let deltas = [
            format!(r#"{{"role":"assistant","content":null,"{field}":""}}"#),
            format!(r#"{{"content":null,"{field}":"hm"}}"#),
            format!(r#"{{"content":"","{field}":" so"}}"#),
            format!(r#"{{"content":"yes","{field}":null}}"#),
        ];
        chat(&deltas.each_ref().map(String::as_str), "stop", "complete end | (hm so) | yes");
    }
    // Two fields with one thought.
    chat(
        &[r#"{"reasoning":"hm","reasoning_content":"hm"}"#, r#"{"content":"yes"}"#],
        "stop",
        "complete end | (hm) | yes",
    );
    // Parts of the content.
    chat(
        &[
            r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"h"}]}]}"#,
            r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"m"}]}]}"#,
            r#"{"content":[{"type":"text","text":"y"},{"type":"text","text":"es"},{"type":"reference","reference_ids":[1]}]}"#,
            r#"{"content":"!"}"#,
        ],
        "stop",
        "complete end | (hm) | yes!",
    );
    chat(&[r#"{"refusal":"no"}"#], "stop", "complete end | no");
}

#[test]
fn chat_ends_in_many_ways() {
    let text = r#"{"choices":[{"index":0,"delta":{"content":"a"}}]}"#;
    let ended = |reason: &str| -> &'static str {
        format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":{reason}}}]}}"#).leak()
    };
    let call = r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"t","arguments":"{}"}}]}}]}"#;
    let table = [
        (vec![text, "[DONE]"], "complete end | a"),
        (vec![text, ended("\"stop\"")], "complete end | a"),
        (vec![text], "truncated | a ! stream_truncated"),
        (vec![text, ended("\"\"")], "truncated | a ! stream_truncated"),
        (vec![text, ended("\"null\"")], "truncated | a ! stream_truncated"),
        (vec![], "truncated ! stream_truncated"),
        (vec![text, ended("\"length\"")], "complete length | a"),
        (vec![call, ended("\"length\"")], "complete length | c=t{}"),
        (vec![call, ended("\"stop\"")], "complete tool_use | c=t{}"),
        (vec![text, ended("\"tool_calls\"")], "complete end | a"),
        (vec![text, ended("\"content_filter\"")], "complete end | a"),
        (vec![call, ended("\"content_filter\"")], "provider_error ! provider_error"),
        (vec![call, ended("\"sensitive\"")], "provider_error ! provider_error"),
        (vec![call, ended("\"network_error\"")], "provider_error retryable ! provider_error"),
        (vec![call, ended("\"insufficient_system_resource\"")], "provider_error retryable ! provider_error"),
        (vec![call, ended("\"abort\"")], "truncated ! stream_truncated"),
        (vec![text, ended("\"eos\""), ended("null")], "complete end | a"),
        // Usage alone, before and after; other choices; chunks without a choice.
        (
            vec![
                r#"{"choices":[],"prompt_filter_results":[],"id":"","object":"","model":""}"#,
                text,
                r#"{"choices":[{"index":1,"delta":{"content":"other"}}]}"#,
                ended("\"stop\""),
                r#"{"choices":null,"usage":{"prompt_tokens":1}}"#,
                "[DONE]",
                text,
            ],
            "complete end | a",
        ),
        // Errors inside the stream.
        (
            vec![text, r#"{"error":{"message":"x","type":"server_error"}}"#],
            "provider_error retryable | a ! provider_error",
        ),
        (vec![call, r#"{"error":{"message":"x","code":429}}"#, "[DONE]"], "provider_error retryable ! provider_error"),
        (
            vec![
                r#"{"id":"g","choices":[{"delta":{"content":""},"finish_reason":"error","error":{"code":502,"message":"x"}}]}"#,
            ],
            "provider_error retryable ! provider_error",
        ),
        (vec![text, r#"{"object":"error","message":"x","code":400}"#], "provider_error | a ! provider_error"),
        // The whole message once more at the end; a stream of messages; a wrapped chunk whose delta is text.
        (
            vec![
                text,
                r#"{"object":"chat.completion","choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}]}"#,
            ],
            "complete end | a",
        ),
        (
            vec![
                r#"{"choices":[{"index":0,"message":{"content":"a"}}]}"#,
                r#"{"choices":[{"index":0,"message":{"content":"b"},"finish_reason":"stop"}]}"#,
            ],
            "complete end | ab",
        ),
        (vec![r#"{"choices":[{"index":0,"message":{"content":"a"}}]}"#], "truncated | a ! stream_truncated"),
        (
            vec![
                r#"{"data":{"choices":[{"index":0,"role":"assistant","delta":"a","finish_reason":""}]},"status":{"code":0}}"#,
                r#"{"data":{"choices":[{"index":0,"delta":"b","finish_reason":"stop"}]},"status":{"code":0}}"#,
            ],
            "complete end | ab",
        ),
        (vec!["nonsense"], "malformed ! malformed_frame"),
        (vec![text, "17"], "malformed | a ! malformed_frame"),
    ];
    for (frames, want) in table {
        check(Provider::Chat, &frames, want);
    }
}

#[test]
fn a_body_that_is_no_stream_is_read_too() {
    let table = [
        (
            Provider::Chat,
            r#"{ "id": "x", "object": "chat.completion", "choices": [ { "index": 0, "message": { "role": "assistant",
                "content": null, "reasoning_content": "hm", "tool_calls": [ { "id": "c", "type": "function",
                "function": { "name": "t", "arguments": "{\"n\":1}" } } ] }, "finish_reason": "tool_calls" } ] }"#,
            r#"complete tool_use | (hm) | c=t{"n":1}"#,
        ),
        (
            Provider::Chat,
            "{\"error\": {\"message\": \"x\",\n \"code\": 503}}\n",
            "provider_error retryable ! provider_error",
        ),
        (Provider::Chat, r#"{"detail":[{"msg":"field required"}]}"#, "provider_error ! provider_error"),
        (Provider::Chat, r#"{"error":"model 'x' not found"}"#, "provider_error ! provider_error"),
        (Provider::Chat, "<html>502 Bad Gateway</html>\n", "malformed ! malformed_frame"),
        (Provider::Chat, "upstream connect error", "malformed ! malformed_frame"),
        (
            Provider::Chat,
            "{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"hm\"},\"done\":false}\n\
             {\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"t\",\"arguments\":{\"n\":1}}}]},\"done\":false}\n\
             {\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\",\"eval_count\":3}\n",
            r#"complete tool_use | (hm) | call00001=t{"n":1}"#,
        ),
        (
            Provider::Anthropic,
            r#"{"type":"message","role":"assistant","content":[{"type":"text","text":"a"},{"type":"tool_use","id":"c","name":"t","input":{"n":1}}],"stop_reason":"tool_use","usage":{"output_tokens":3}}"#,
            r#"complete tool_use | a | c=t{"n":1}"#,
        ),
        (
            Provider::Anthropic,
            r#"{"type":"error","error":{"type":"rate_limit_error","message":"x"}}"#,
            "provider_error retryable ! provider_error",
        ),
        (
            Provider::Responses,
            r#"{"object":"response","status":"completed","error":null,"output":[{"type":"function_call","call_id":"c","name":"t","arguments":"{}"}]}"#,
            "complete tool_use | c=t{}",
        ),
        (
            Provider::Responses,
            r#"{"error":{"message":"x","type":"invalid_request_error"}}"#,
            "provider_error ! provider_error",
        ),
        (
            Provider::Gemini,
            "[{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]}}]}\n,\n{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"b\"}]},\"finishReason\":\"STOP\"}]}\n]",
            "complete end | ab",
        ),
        (
            Provider::Gemini,
            "[{\n\"error\": {\"code\": 429, \"message\": \"x\", \"status\": \"RESOURCE_EXHAUSTED\"}\n}]",
            "provider_error retryable ! provider_error",
        ),
    ];
    for (provider, body, want) in table {
        assert_eq!(shown(&plain(provider, body.as_bytes())), want, "{body}");
    }
}

/// Anthropic events, between the start and the end of a message.
fn anthropic(middle: &[&str], stop: &str, want: &str) {
    let delta =
        format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"{stop}"}},"usage":{{"output_tokens":5}}}}"#);
    let mut frames =
        vec![r#"{"type":"message_start","message":{"role":"assistant","content":[],"usage":{"input_tokens":3}}}"#];
    frames.extend(middle);
    frames.extend([delta.as_str(), r#"{"type":"message_stop"}"#]);
    check(Provider::Anthropic, &frames, want);
}

#[test]
fn anthropic_blocks() {
    let start = r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c","name":"t","input":{}}}"#;
    let stop = r#"{"type":"content_block_stop","index":0}"#;
    let piece = |text: &str| {
        let delta = serde_json::json!({"type": "input_json_delta", "partial_json": text});
        serde_json::json!({"type": "content_block_delta", "index": 0, "delta": delta}).to_string()
    };
    anthropic(
        &[start, &piece(""), &piece("{\"n\":"), &piece("1}"), stop],
        "tool_use",
        r#"complete tool_use | c=t{"n":1}"#,
    );
    anthropic(&[start, stop], "end_turn", "complete tool_use | c=t{}");
    // The input on the start block counts if no piece follows.
    let full = r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c","name":"t","input":{"n":1}}}"#;
    anthropic(&[full, stop], "tool_use", r#"complete tool_use | c=t{"n":1}"#);
    anthropic(&[full, &piece("{\"n\":2}"), stop], "tool_use", r#"complete tool_use | c=t{"n":2}"#);
    // Cut by length, inside and outside of a call.
    anthropic(&[start, &piece("{\"n\":"), stop], "max_tokens", "truncated length ! output_truncated");
    anthropic(&[start, stop], "max_tokens", "truncated length ! output_truncated");
    anthropic(&[start, &piece("{\"n\":"), stop], "tool_use", "malformed ! malformed_arguments");
    // Lost frames.
    anthropic(&[&piece("{}")], "tool_use", "malformed ! malformed_frame");
    anthropic(&[start, stop, &piece("{}")], "tool_use", "malformed ! malformed_frame");
    anthropic(&[start], "tool_use", "malformed ! malformed_frame");
    // The last block's end may be missing when the call is whole.
    anthropic(&[start, &piece("{\"n\":1}")], "tool_use", r#"complete tool_use | c=t{"n":1}"#);
    // Their own tools are kept and not run.
    anthropic(
        &[
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"s","name":"web_search","input":{}}}"#,
            &piece("{\"query\":"),
            &piece("\"x\"}"),
            stop,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"web_search_tool_result","tool_use_id":"s","content":[]}}"#,
            r#"{"type":"content_block_stop","index":1}"#,
            r#"{"type":"content_block_start","index":2,"content_block":{"type":"text","text":"so"}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"citations_delta","citation":{"url":"u"}}}"#,
            r#"{"type":"content_block_stop","index":2}"#,
        ],
        "end_turn",
        "complete end | opaque server_tool_use | opaque web_search_tool_result | so",
    );
    anthropic(&[], "pause_turn", "complete end");
    anthropic(&[], "refusal", "complete end");
    anthropic(&[start, stop], "refusal", "provider_error ! provider_error");
    anthropic(&[r#"{"type":"ping"}"#, r#"{"type":"vendor_event","x":1}"#], "end_turn", "complete end");
    anthropic(
        &[
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"a","signature":"S"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":" b "}}"#,
            stop,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"R"}}"#,
            r#"{"type":"content_block_start","index":2,"content_block":{"type":"thinking","thinking":"lost","signature":""}}"#,
        ],
        "end_turn",
        "complete end | (a b  #S) | (#R)",
    );
    // No terminal event, errors with a name of their own.
    check(
        Provider::Anthropic,
        &[r#"{"type":"message_start","message":{}}"#, start, stop],
        "truncated ! stream_truncated",
    );
    let named =
        b"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}\n\n";
    assert_eq!(shown(&plain(Provider::Anthropic, named)), "provider_error retryable ! provider_error");
    let text = b"event: error\ndata: service temporarily down\n\n";
    assert_eq!(shown(&plain(Provider::Anthropic, text)), "provider_error retryable ! provider_error");
    // The type only in the event's name.
    let bare = b"event: message_start\ndata: {\"message\":{}}\n\nevent: message_stop\ndata: {}\n\n";
    assert_eq!(shown(&plain(Provider::Anthropic, bare)), "complete end");
}

#[test]
fn responses_items() {
    let done = r#"{"type":"response.completed","response":{"status":"completed","error":null,"output":[],"usage":{"input_tokens":1}}}"#;
    let added = r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"fc","call_id":"c","name":"t","arguments":""}}"#;
    let piece =
        r#"{"type":"response.function_call_arguments.delta","item_id":"fc","output_index":0,"delta":"{\"n\":"}"#;
    let rest = r#"{"type":"response.function_call_arguments.delta","item_id":"fc","delta":"1}"}"#;
    let item = r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","id":"fc","call_id":"c","name":"t","arguments":"{\"n\":1}"}}"#;
    let message = r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"message","id":"m","role":"assistant","content":[{"type":"output_text","text":"a"},{"type":"output_text","text":"b"}]}}"#;
    let table = [
        (vec![added, piece, rest, item, done], r#"complete tool_use | c=t{"n":1}"#),
        (vec![added, piece, rest, done], r#"complete tool_use | c=t{"n":1}"#),
        (vec![item, message, done], r#"complete tool_use | c=t{"n":1} | a | b"#),
        (vec![message, item, done], r#"complete tool_use | c=t{"n":1} | a | b"#),
        (vec![added, piece, rest, item], "truncated ! stream_truncated"),
        (vec![added, piece, done], "malformed ! malformed_arguments"),
        (vec![added, done], "malformed ! malformed_frame"),
        (vec![piece, done], "malformed ! malformed_frame"),
        // What the end alone says.
        (
            vec![
                r#"{"type":"response.completed","response":{"output":[{"type":"function_call","call_id":"c","name":"t","arguments":"{}"}]}}"#,
            ],
            "complete tool_use | c=t{}",
        ),
        (
            vec![
                added,
                piece,
                r#"{"type":"response.incomplete","response":{"incomplete_details":{"reason":"max_output_tokens"},"output":[{"type":"function_call","call_id":"c","name":"t","arguments":"{\"n\":","status":"incomplete"}]}}"#,
            ],
            "truncated length ! output_truncated",
        ),
        (
            vec![
                message,
                r#"{"type":"response.incomplete","response":{"incomplete_details":{"reason":"max_output_tokens"}}}"#,
            ],
            "complete length | a | b",
        ),
        (
            vec![
                item,
                r#"{"type":"response.incomplete","response":{"incomplete_details":{"reason":"content_filter"}}}"#,
            ],
            "provider_error ! provider_error",
        ),
        (
            vec![
                item,
                r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"x"}}}"#,
            ],
            "provider_error retryable ! provider_error",
        ),
        (
            vec![item, r#"{"type":"error","code":"rate_limit_exceeded","message":"x"}"#],
            "provider_error retryable ! provider_error",
        ),
        (
            vec![item, r#"{"type":"response.cancelled","response":{"status":"cancelled"}}"#],
            "truncated ! stream_truncated",
        ),
        // Their own tools, and those that the client runs.
        (
            vec![
                r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"web_search_call","id":"w","status":"completed"}}"#,
                r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"local_shell_call","id":"l","call_id":"lc","action":{"type":"exec","command":["ls"]}}}"#,
                r#"{"type":"response.output_item.done","output_index":2,"item":{"type":"shell_call","id":"s","call_id":"sc","action":{"commands":["ls"]}}}"#,
                r#"{"type":"response.output_item.done","output_index":3,"item":{"type":"shell_call_output","id":"so","call_id":"sc","output":[]}}"#,
                done,
            ],
            r#"complete tool_use | opaque web_search_call | lc=local_shell{"command":["ls"],"type":"exec"} | opaque shell_call | opaque shell_call_output"#,
        ),
        // A thought, encrypted, with its summary.
        (
            vec![
                r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning","id":"r","summary":[]}}"#,
                r#"{"type":"response.reasoning_summary_text.delta","item_id":"r","output_index":0,"summary_index":0,"delta":"hm"}"#,
                r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"r","encrypted_content":"E","summary":[{"type":"summary_text","text":"hm"}]}}"#,
                r#"{"type":"response.output_text.delta","item_id":"m","output_index":1,"content_index":0,"delta":"yes"}"#,
                r#"{"type":"keepalive"}"#,
                done,
            ],
            "complete end | (hm #E) | yes",
        ),
    ];
    for (frames, want) in table {
        check(Provider::Responses, &frames, want);
    }
}

#[test]
fn gemini_parts() {
    let parts = |parts: &str, finish: &str| {
        format!(r#"{{"candidates":[{{"content":{{"role":"model","parts":[{parts}]}}{finish},"index":0}}]}}"#)
    };
    let stop = r#","finishReason":"STOP""#;
    let one = |inner: &str, finish: &str, want: &str| check(Provider::Gemini, &[&parts(inner, finish)], want);
    one(r#"{"functionCall":{"name":"t","args":{"n":1}}}"#, stop, r#"complete tool_use | call00001=t{"n":1}"#);
    one(r#"{"functionCall":{"name":"t"}}"#, stop, "complete tool_use | call00001=t{}");
    one(r#"{"functionCall":{"id":"g","name":"t","args":null}}"#, stop, "complete tool_use | g=t{}");
    one(
        r#"{"functionCall":{"name":"t","args":{}}},{"functionCall":{"name":"t","args":{}}}"#,
        stop,
        "complete tool_use | call00001=t{} | call00002=t{}",
    );
    one(r#"{"text":"hm","thought":true},{"text":"a"},{"text":"b"}"#, stop, "complete end | (hm) | ab");
    // Parts with a signature stay by themselves.
    one(
        r#"{"text":"a"},{"text":"b","thoughtSignature":"S"},{"text":"c"},{"text":"","thoughtSignature":"T"}"#,
        stop,
        "complete end | a | b | c | ",
    );
    one(
        r#"{"executableCode":{"code":"1"}},{"codeExecutionResult":{"outcome":"OK"}},{"inlineData":{"mimeType":"image/png","data":"AA"}}"#,
        stop,
        "complete end | opaque - | opaque - | image image/png",
    );
    one(r#"{"text":"a"}"#, "", "truncated | a ! stream_truncated");
    one(r#"{"text":"a"}"#, r#","finishReason":"MAX_TOKENS""#, "complete length | a");
    one(r#"{"text":"a"}"#, r#","finishReason":"SAFETY""#, "complete end | a");
    one(r#"{"functionCall":{"name":"t"}}"#, r#","finishReason":"SAFETY""#, "provider_error ! provider_error");
    one("", r#","finishReason":"MALFORMED_FUNCTION_CALL","finishMessage":"x""#, "malformed ! malformed_call");
    check(Provider::Gemini, &[r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#], "provider_error ! provider_error");
    check(
        Provider::Gemini,
        &[r#"{"candidates":[{"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":1}}"#],
        "complete end",
    );
    check(
        Provider::Gemini,
        &[r#"{"error":{"code":503,"message":"x","status":"UNAVAILABLE"}}"#],
        "provider_error retryable ! provider_error",
    );
    check(
        Provider::Gemini,
        &[r#"{"response":{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}}"#],
        "complete end | a",
    );
}

#[test]
fn gemini_arguments_by_path() {
    let chunk = |call: &str, finish: &str| {
        format!(r#"{{"candidates":[{{"content":{{"parts":[{{"functionCall":{call}}}]}}{finish}}}]}}"#)
    };
    let stream = |calls: &[&str], want: &str| {
        let last = calls.len() - 1;
        let finish = |at: usize| if at == last { r#","finishReason":"STOP""# } else { "" };
        let frames: Vec<String> = calls.iter().enumerate().map(|(at, call)| chunk(call, finish(at))).collect();
        check(Provider::Gemini, &frames.iter().map(String::as_str).collect::<Vec<_>>(), want);
    };
    let open = r#"{"name":"t","willContinue":true}"#;
    let x = r#"{"partialArgs":[{"jsonPath":"$.a.b","stringValue":"x","willContinue":true}],"willContinue":true}"#;
    let y = r#"{"partialArgs":[{"jsonPath":"$.a.b","stringValue":"y"},{"jsonPath":"$.n","numberValue":2}],"willContinue":true}"#;
    stream(&[open, x, y, "{}"], r#"complete tool_use | call00001=t{"a":{"b":"xy"},"n":2}"#);
    // All in one piece; and with ids on each piece.
    stream(
        &[r#"{"name":"t","partialArgs":[{"jsonPath":"$.n","boolValue":true}]}"#],
        r#"complete tool_use | call00001=t{"n":true}"#,
    );
    stream(
        &[
            r#"{"id":"g","name":"t","willContinue":true}"#,
            r#"{"id":"g","name":"t","partialArgs":[{"jsonPath":"$.n","numberValue":1}]}"#,
        ],
        r#"complete tool_use | g=t{"n":1}"#,
    );
    // A call that does not end, a text that does not end, another call in the middle, pieces of nothing.
    stream(&[open, x], "truncated ! output_truncated");
    stream(&[open, x, "{}"], "malformed ! malformed_arguments");
    stream(&[open, x, open, "{}"], "malformed ! malformed_call");
    stream(&[x], "malformed ! malformed_call");
    stream(&[open, r#"{"partialArgs":[{"jsonPath":"$.l[4]","stringValue":"x"}]}"#], "malformed ! malformed_arguments");
}

#[test]
fn calls_in_text_count_only_where_they_are_switched_on() {
    let text = |content: &str| {
        let chunk = serde_json::json!({"choices": [{"delta": {"content": content}, "finish_reason": "stop"}]});
        events(&[chunk.to_string()])
    };
    let on = Dialect { text_calls: TextCalls::Of(vec!["read".to_owned()]), ..Dialect::plain(Provider::Chat) };
    let call = r#"<tool_call>{"name":"read","arguments":{"p":"a"}}</tool_call>"#;
    let table = [
        (call.to_owned(), r#"complete tool_use | call00001=read{"p":"a"}"#.to_owned()),
        (
            format!("so: {call} and {call}"),
            r#"complete tool_use | so:  and  | call00001=read{"p":"a"} | call00002=read{"p":"a"}"#.to_owned(),
        ),
        (format!("```\n{call}\n```"), format!("complete end | ```\n{call}\n```")),
        (
            format!("~~~\n{call}\n~~~\n{call}"),
            format!("complete tool_use | ~~~\n{call}\n~~~\n | call00001=read{{\"p\":\"a\"}}"),
        ),
        (call.replace("read", "rm"), format!("complete end | {}", call.replace("read", "rm"))),
        (call.replace("}}", "}"), format!("complete end | {}", call.replace("}}", "}"))),
        (call.replace("</tool_call>", ""), format!("complete end | {}", call.replace("</tool_call>", ""))),
    ];
    for (content, want) in table {
        assert_eq!(shown(&end_of(&on, [text(&content).as_slice()])), want);
        let off = plain(Provider::Chat, &text(&content));
        assert_eq!(shown(&off), format!("complete end | {content}"));
        assert_eq!(off.to_json()["diagnostics"][0], "text_tool_call_seen");
    }
}

/// What is shown while a stream runs is what it is worth in the end.
#[test]
fn what_is_shown_live_is_the_text() {
    use super::super::Normalizer;
    use super::super::end::Live;
    use interlock_domain::block::Ids;
    let bytes = events(&[
        r#"{"choices":[{"delta":{"reasoning_content":"h"}}]}"#,
        r#"{"choices":[{"delta":{"content":"a"}}]}"#,
        r#"{"choices":[{"delta":{"content":"b","tool_calls":[{"index":0,"function":{"name":"t","arguments":"{}"}}]},"finish_reason":"stop"}]}"#,
    ]);
    let mut seen = Vec::new();
    let mut normalizer = Normalizer::new(&Dialect::plain(Provider::Chat), Ids::new());
    normalizer.feed(&bytes, &mut |live| {
        seen.push(match live {
            Live::Text(text) => format!("text {text}"),
            Live::Thinking(text) => format!("thinking {text}"),
            Live::Call(name) => format!("call {name}"),
        });
    });
    assert_eq!(seen, ["thinking h", "text a", "text b", "call t"]);
}
