//! Commands from the plant: what a message on the command topic is, and whether it may be listened to.
//!
//! Pure. A message is a sentence, alone or as `{"text": …, "id": …, "expires": …}`. One that the broker kept, that came
//! before, that is too late or that is not whole is answered and written down, and never done: an order is for now.

use std::collections::VecDeque;

use interlock_domain::request::shown::plain;
use interlock_domain::time::Wall;
use serde::Deserialize;
use serde_json::Value;

/// The longest message that is read, in bytes, and the longest sentence, in characters.
const MESSAGE_LEN_MAX: usize = 4096;
const TEXT_LEN_MAX: usize = 500;
/// The longest id, in bytes.
const ID_LEN_MAX: usize = 128;
/// Ids that are remembered; the oldest is forgotten first.
const IDS_KEPT: usize = 1024;

/// A sentence that may be listened to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) text: String,
    pub(super) id: Option<String>,
}

/// Why a message is not listened to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Declined {
    pub(super) code: &'static str,
    pub(super) why: String,
    pub(super) id: Option<String>,
}

impl Declined {
    fn new(code: &'static str, why: impl Into<String>) -> Declined {
        Declined { code, why: why.into(), id: None }
    }
}

/// A message as it came.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message<'a> {
    pub(super) payload: &'a [u8],
    /// The broker kept it for whoever subscribes.
    pub(super) is_retained: bool,
    /// It may have been delivered before.
    pub(super) is_repeated: bool,
}

/// What is remembered of earlier messages.
#[derive(Debug, Default)]
pub(super) struct Desk {
    ids: VecDeque<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    text: String,
    id: Option<Value>,
    expires: Option<Value>,
}

impl Desk {
    /// Reads a message.
    pub(super) fn read(&self, message: Message<'_>, now: Wall) -> Result<Order, Declined> {
        if message.payload.len() > MESSAGE_LEN_MAX {
            let found = message.payload.len();
            return Err(Declined::new("too_large", format!("{found} bytes; {MESSAGE_LEN_MAX} are read at most")));
        }
        let Ok(text) = std::str::from_utf8(message.payload) else {
            return Err(Declined::new("malformed", "the message is not UTF-8"));
        };
        let text = text.trim();
        let written = if text.starts_with('{') {
            serde_json::from_str::<Written>(text)
                .map_err(|error| Declined::new("malformed", plain(&format!("the message is no order: {error}"), 200)))?
        } else {
            Written { text: text.to_owned(), id: None, expires: None }
        };
        let id = written.id.as_ref().map(id).transpose()?;
        let declined = |code, why: String| Err(Declined { code, why, id: id.clone() });
        if message.is_retained {
            return declined(
                "retained",
                "a retained message is no order: it would be one again at each start".to_owned(),
            );
        }
        // A broker that delivers again cannot say whether the first one was taken.
        if message.is_repeated && id.is_none() {
            return declined("repeated", "delivered again, and without an id that tells what it is".to_owned());
        }
        if id.as_ref().is_some_and(|id| self.ids.contains(id)) {
            return declined("repeated", "an order with this id came before".to_owned());
        }
        match &written.expires {
            None => {}
            Some(at) => match at.as_i64() {
                Some(at) if at > now.0 => {}
                Some(at) => return declined("expired", format!("it was good until {at}; now is {}", now.0)),
                None => return declined("malformed", "expires is a time in milliseconds since 1970".to_owned()),
            },
        }
        let sentence = written.text.trim();
        if sentence.is_empty() {
            return declined("malformed", "there is no text".to_owned());
        }
        if sentence.chars().count() > TEXT_LEN_MAX {
            return declined("too_large", format!("the text has more than {TEXT_LEN_MAX} characters"));
        }
        Ok(Order { text: sentence.to_owned(), id })
    }

    /// Remembers an order that is done: it does not come a second time. One that found no room may.
    pub(super) fn remember(&mut self, order: &Order) {
        let Some(id) = &order.id else { return };
        if self.ids.len() == IDS_KEPT {
            self.ids.pop_front();
        }
        self.ids.push_back(id.clone());
    }
}

fn id(value: &Value) -> Result<String, Declined> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => String::new(),
    };
    if text.is_empty() || text.len() > ID_LEN_MAX || text.chars().any(char::is_control) {
        return Err(Declined::new("malformed", format!("an id is a text or a number of at most {ID_LEN_MAX} bytes")));
    }
    Ok(text)
}

/// Where the answer goes. A sender may name a topic; it may not make us say something on our own topics, on those of
/// the broker, or on the one that we take orders from.
pub(super) fn answer_topic(wanted: Option<&str>, prefix: &str, commands: &str) -> String {
    let usual = format!("{prefix}/answer");
    let Some(wanted) = wanted else { return usual };
    let ours = wanted == prefix || wanted.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'));
    let is_wrong = wanted.is_empty()
        || wanted.len() > 512
        || wanted.starts_with('$')
        || wanted.contains(['+', '#'])
        || wanted.chars().any(char::is_control)
        || wanted == commands
        || (ours && !wanted.starts_with(&usual));
    if is_wrong { usual } else { wanted.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Wall = Wall(1_000);

    fn take(desk: &mut Desk, message: Message<'_>) -> Result<(String, Option<String>), &'static str> {
        let order = desk.read(message, NOW).map_err(|declined| declined.code)?;
        desk.remember(&order);
        Ok((order.text, order.id))
    }

    fn read(desk: &mut Desk, payload: &str) -> Result<(String, Option<String>), &'static str> {
        take(desk, Message { payload: payload.as_bytes(), is_retained: false, is_repeated: false })
    }

    #[test]
    fn an_order_is_a_sentence_alone_or_with_an_id_and_an_end() {
        let desk = &mut Desk::default();
        let order = |text: &str, id: Option<&str>| Ok((text.to_owned(), id.map(str::to_owned)));
        assert_eq!(read(desk, " 停止二号泵\n"), order("停止二号泵", None));
        assert_eq!(read(desk, r#"{"text": "停止二号泵"}"#), order("停止二号泵", None));
        assert_eq!(read(desk, r#"{"text": "a", "id": "x", "expires": 1001}"#), order("a", Some("x")));
        assert_eq!(read(desk, r#"{"text": "a", "id": 7}"#), order("a", Some("7")));
    }

    #[test]
    fn what_is_not_whole_or_not_for_now_is_no_order() {
        let desk = &mut Desk::default();
        let mut check = |payload: &str, code: &str| assert_eq!(read(desk, payload), Err(code), "{payload}");
        check("", "malformed");
        check("{", "malformed");
        check(r#"{"id": 1}"#, "malformed");
        check(r#"{"text": "a", "device": "pump-1"}"#, "malformed");
        check(r#"{"text": "a", "id": {}}"#, "malformed");
        check(r#"{"text": "a", "id": ""}"#, "malformed");
        check(r#"{"text": "a", "expires": "soon"}"#, "malformed");
        check(r#"{"text": "a", "expires": 1000}"#, "expired");
        check(r#"{"text": "a", "expires": 999, "id": 3}"#, "expired");
        check(&"泵".repeat(501), "too_large");
        check(&"a".repeat(4097), "too_large");
        let odd = Message { payload: &[0xff, 0xfe], is_retained: false, is_repeated: false };
        assert_eq!(desk.read(odd, NOW).unwrap_err().code, "malformed");
    }

    #[test]
    fn the_same_order_is_taken_once_and_a_kept_one_never() {
        let desk = &mut Desk::default();
        let message = |payload: &'static str, is_retained, is_repeated| Message {
            payload: payload.as_bytes(),
            is_retained,
            is_repeated,
        };
        let with_id = r#"{"text": "a", "id": "1"}"#;
        assert!(desk.read(message(with_id, false, false), NOW).is_ok(), "one that finds no room may come again");
        let mut code = |message| take(desk, message).map(|_| ());
        assert_eq!(code(message(with_id, true, false)), Err("retained"));
        assert_eq!(code(message(with_id, false, true)), Ok(()), "the first was never taken");
        assert_eq!(code(message(with_id, false, false)), Err("repeated"));
        assert_eq!(code(message(with_id, false, true)), Err("repeated"));
        assert_eq!(code(message("a", false, true)), Err("repeated"));
        assert_eq!(code(message("a", true, false)), Err("retained"));
        assert_eq!(code(message("a", false, false)), Ok(()));
        for n in 0..IDS_KEPT {
            let text = format!("{{\"text\": \"a\", \"id\": \"n{n}\"}}");
            assert!(read(desk, &text).is_ok());
        }
        assert_eq!(desk.ids.len(), IDS_KEPT);
    }

    #[test]
    fn an_answer_goes_where_it_is_wanted_but_not_onto_topics_that_say_something_else() {
        let check = |wanted: Option<&str>, want: &str| assert_eq!(answer_topic(wanted, "hall/3", "hall/do"), want);
        check(None, "hall/3/answer");
        check(Some("scada/7/replies"), "scada/7/replies");
        check(Some("hall/3/answer/7"), "hall/3/answer/7");
        check(Some("hall/31"), "hall/31");
        for wrong in ["", "$SYS/x", "a/#", "a/+", "hall/do", "hall/3", "hall/3/evidence", "hall/3/checkpoint", "a\u{0}"]
        {
            check(Some(wrong), "hall/3/answer");
        }
    }
}
