//! Hostile streams: each has a typed end, nothing is dispatched, and what is held stays bounded.

use interlock_domain::block::{Ids, Provider};

use super::super::{Dialect, Normalizer};
use super::{plain, shown};

/// Feeds a stream that is made piece by piece, and never held as a whole.
fn check(provider: Provider, pieces: impl IntoIterator<Item = String>, want: &str) {
    let mut normalizer = Normalizer::new(&Dialect::plain(provider), Ids::new());
    for piece in pieces {
        normalizer.feed(piece.as_bytes(), &mut |_| {});
    }
    let (end, ids) = normalizer.finish();
    assert_eq!(shown(&end), want);
    assert_eq!(ids, Ids::new(), "no id is used up");
}

fn chat_call(index: usize, arguments: &str) -> String {
    format!(
        "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"index\":{index},\"id\":\"c{index}\",\"function\":{{\"name\":\"t\",\"arguments\":{arguments}}}}}]}}}}]}}\n\n"
    )
}

const MIB: usize = 1 << 20;
const END: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n";

#[test]
fn ten_mebibytes_of_arguments() {
    let whole = chat_call(0, &format!("\"{{\\\"p\\\":\\\"{}\\\"}}\"", "x".repeat(10 * MIB)));
    check(Provider::Chat, [whole, END.to_owned()], "malformed ! too_large");
    let object = chat_call(0, &format!("{{\"p\":\"{}\"}}", "x".repeat(10 * MIB)));
    check(Provider::Chat, [object, END.to_owned()], "malformed ! too_large");
    let pieces = (0..160).map(|_| chat_call(0, &format!("\"{}\"", "x".repeat(MIB / 16))));
    check(Provider::Chat, pieces.chain([END.to_owned()]), "malformed ! too_large");
    // In place of a tool's largest input, as text and as an object.
    let fits = format!("{{\"p\":\"{}\"}}", "x".repeat(MIB - 1));
    let end = plain(Provider::Chat, format!("{}{END}", chat_call(0, &fits)).as_bytes());
    assert_eq!(end.calls().count(), 1);
}

#[test]
fn ten_thousand_calls_in_one_message() {
    let many = (0..10_000).map(|index| chat_call(index, "\"{}\"")).chain([END.to_owned()]);
    check(Provider::Chat, many, "malformed ! too_large");
    let start = |index| {
        format!(
            "data: {{\"type\":\"content_block_start\",\"index\":{index},\"content_block\":{{\"type\":\"tool_use\",\"id\":\"c{index}\",\"name\":\"t\",\"input\":{{}}}}}}\n\n"
        )
    };
    check(Provider::Anthropic, (0..10_000).map(start), "malformed ! too_large");
    let item = |index| {
        format!(
            "data: {{\"type\":\"response.output_item.done\",\"output_index\":{index},\"item\":{{\"type\":\"function_call\",\"call_id\":\"c{index}\",\"name\":\"t\",\"arguments\":\"{{}}\"}}}}\n\n"
        )
    };
    check(Provider::Responses, (0..10_000).map(item), "malformed ! too_large");
    let part =
        |_| "data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"t\"}}]}}]}\n\n".to_owned();
    check(Provider::Gemini, (0..10_000).map(part), "malformed ! too_large");
}

#[test]
fn deep_and_wide_json() {
    for provider in Provider::ALL {
        let deep = format!("data: {}{}\n\n", "[".repeat(100_000), "]".repeat(100_000));
        check(provider, [deep], "malformed ! malformed_frame");
        let wide = format!("data: {{\"x\":[{}0]}}\n\n", "0,".repeat(4 * MIB));
        check(provider, [wide], "malformed ! malformed_frame");
    }
    let deep = format!("\"{}{}\"", "{\\\"a\\\":".repeat(1000), "}".repeat(1000));
    check(Provider::Chat, [chat_call(0, &deep), END.to_owned()], "malformed ! malformed_arguments");
}

#[test]
fn lines_and_messages_without_an_end() {
    for provider in Provider::ALL {
        let line = || (0..40).map(|_| "x".repeat(MIB));
        check(provider, std::iter::once("data: ".to_owned()).chain(line()), "malformed ! too_large");
        check(provider, std::iter::once("{\"a\":\"".to_owned()).chain(line()), "malformed ! too_large");
        check(provider, std::iter::once("event: ".to_owned()).chain(line()), "malformed ! too_large");
    }
    let text = |_| format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n", "x".repeat(MIB));
    let mut normalizer = Normalizer::new(&Dialect::plain(Provider::Chat), Ids::new());
    for piece in (0..40).map(text) {
        normalizer.feed(piece.as_bytes(), &mut |_| {});
    }
    assert!(normalizer.is_over());
    let end = normalizer.finish().0;
    assert_eq!(end.fault.as_ref().map(|fault| fault.word()), Some("too_large"));
    assert!(end.text().len() <= 32 * MIB);
}

#[test]
fn bytes_that_are_no_text() {
    for provider in Provider::ALL {
        let frame =
            [b"data: {\"choices\":[{\"delta\":{\"content\":\"".as_slice(), &[0xff, 0xc0], b"\"}}]}\n\n"].concat();
        assert_eq!(shown(&plain(provider, &frame)), "malformed ! malformed_frame");
        assert_eq!(shown(&plain(provider, &[0; 64])), "malformed ! malformed_frame");
        assert_eq!(shown(&plain(provider, b"\xef\xbb\xbf")), "truncated ! stream_truncated");
    }
}

/// The messages of the other side are shown to a person: nothing in them may move the cursor.
#[test]
fn a_message_of_the_other_side_has_no_control_characters() {
    let end = plain(Provider::Chat, b"data: {\"error\":{\"message\":\"a\\u001b[2J\\u0007b\"}}\n\n");
    assert_eq!(end.to_json()["error"]["message"], "the provider reports error: a[2Jb");
}
