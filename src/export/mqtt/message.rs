//! What is said to a broker, in JSON, and on which topic.

use interlock_domain::request::shown::plain;
use serde_json::{Value, json};

use super::super::notice::Notice;
use super::super::outbox::Gap;
use crate::record::Recorded;

/// The topics below the configured one.
pub(super) const EVIDENCE: &str = "evidence";
pub(super) const CHECKPOINT: &str = "checkpoint";
pub(super) const HEAD: &str = "head";
pub(super) const STATE: &str = "state";
pub(super) const ALARMS: &str = "alarms";

/// Room for the topic and the properties of a message, beside what it says.
const AROUND: usize = 1024;

/// What one message may say.
fn room(packet_max: Option<u32>) -> usize {
    packet_max.map_or(usize::MAX, |max| usize::try_from(max).unwrap_or(usize::MAX).saturating_sub(AROUND))
}

/// A row: the object that `interlock evidence export` writes, with the device that it is of. (device, boot_id, seq) is
/// its key, which stays the same however often it is sent.
pub(super) fn row(device: &str, recorded: &Recorded, is_past: bool, packet_max: Option<u32>) -> String {
    let mut object = recorded.to_json();
    object["device"] = device.into();
    if is_past {
        object["historical"] = true.into();
    }
    let text = object.to_string();
    if text.len() <= room(packet_max) {
        return text;
    }
    // The broker takes no message of this length: the row arrives with its hash, and says what is not in it.
    object["detail"] = json!({ "left_out": recorded.row.detail.as_ref().map_or(0, String::len) });
    object.to_string()
}

/// Rows that will not come.
pub(super) fn gap(device: &str, gap: &Gap) -> String {
    json!({
        "device": device,
        "kind": "export_gap",
        "cause": gap.why.word(),
        "first": gap.first.0,
        "last": gap.last.0,
        "count": gap.count(),
    })
    .to_string()
}

/// What became of an order, as `say --json` answers, with the order's id.
pub(super) fn answered(device: &str, id: Option<&str>, mut answer: Value) -> String {
    answer["device"] = device.into();
    answer["id"] = id.into();
    answer.to_string()
}

/// A message that was not listened to.
pub(super) fn declined(device: &str, id: Option<&str>, code: &str, why: &str) -> String {
    json!({ "device": device, "id": id, "outcome": "declined", "code": code, "message": why }).to_string()
}

/// What stands now: alarms, and questions that wait. What the broker's longest message has no room for is counted.
pub(super) fn alarms(device: &str, standing: &[Notice], packet_max: Option<u32>) -> String {
    let mut room = room(packet_max);
    let shown: Vec<Value> = standing
        .iter()
        .map(Notice::to_json)
        .take_while(|notice| {
            // With the comma behind it.
            let length = notice.to_string().len() + 1;
            let fits = length <= room;
            room = room.saturating_sub(length);
            fits
        })
        .collect();
    let left_out = standing.len() - shown.len();
    json!({ "device": device, "standing": shown, "left_out": left_out }).to_string()
}

/// Whether the box is there; the broker says the second when it is not.
pub(super) fn state(device: &str, is_online: bool) -> String {
    let state = if is_online { "online" } else { "offline" };
    json!({ "device": device, "state": state, "version": env!("CARGO_PKG_VERSION") }).to_string()
}

/// What a broker said, for a person: bounded, and nothing that could act on a terminal.
pub(super) fn reason(text: &str) -> String {
    plain(text, 200)
}

#[cfg(test)]
mod tests {
    use super::super::super::notice::Kind;
    use super::*;

    #[test]
    fn a_list_that_is_too_long_for_the_broker_says_how_many_it_leaves_out() {
        let notice = |n: usize| Notice {
            id: format!("a{n}"),
            kind: Kind::Alarm,
            source: "disk".into(),
            text: "满".repeat(100),
            raised: None,
        };
        let standing: Vec<Notice> = (0..9).map(notice).collect();
        let told = |packet_max: Option<u32>| {
            let text = alarms("box-1", &standing, packet_max);
            assert!(packet_max.is_none_or(|max| text.len() + 512 < max as usize), "{}", text.len());
            let list: Value = serde_json::from_str(&text).unwrap();
            (list["standing"].as_array().unwrap().len(), list["left_out"].as_u64().unwrap())
        };
        assert_eq!((told(None), told(Some(1024 + 1200)), told(Some(700))), ((9, 0), (3, 6), (0, 9)));
    }
}
