//! What the service says: `describe`, `ping`, `transcript`, `recognize`. Unknown events are read past and ignored.
//!
//! Only `handle` is advertised. A front end that finds intents runs them itself, and then nothing has passed the gate
//! (Home Assistant does so: `components/wyoming/conversation.py`).

use interlock_domain::request::Via;
use interlock_domain::request::shown::plain;
use serde_json::{Value, json};

use super::frame::{Broken, Event, VERSION};
use crate::engine::handle::NotTaken;
use crate::engine::listener::{Lang, Listener, Reins, Said};

/// The longest name of a conversation or a satellite that is kept, in characters: it becomes a row of the log.
const NAME_LEN_MAX: usize = 64;

/// The answers to one event, in order.
pub(super) async fn answer(ears: &Listener, from: &str, event: Event) -> Vec<Event> {
    match event.kind.as_str() {
        "describe" => vec![info()],
        "ping" => vec![Event::new("pong", event.text("text").map_or(json!({}), |text| json!({ "text": text })))],
        "transcript" => vec![transcript(ears, from, &event).await],
        "recognize" => vec![recognize(ears, &event).await],
        // select-program chooses among models, and there is one; audio and the rest are not ours.
        _ => Vec::new(),
    }
}

pub(super) fn not_allowed() -> Event {
    let text = "this process was started by a tool of the daemon: what is mediated cannot speak for a person";
    Event::new("error", json!({ "text": text, "code": "not-allowed" }))
}

pub(super) fn broken(why: &Broken) -> Event {
    Event::new("error", json!({ "text": why.to_string(), "code": "bad-event" }))
}

fn info() -> Event {
    let attribution = json!({ "name": "Interlock", "url": "" });
    let model = json!({
        "name": "interlock", "attribution": attribution, "installed": true, "version": env!("CARGO_PKG_VERSION"),
        "description": "Chinese operator commands", "languages": ["zh-CN", "zh"],
    });
    let program = json!({
        "name": "interlock", "attribution": attribution, "installed": true, "version": env!("CARGO_PKG_VERSION"),
        "description": "Understands operator commands and carries them out through one gate", "models": [model],
        "supports_handled_streaming": false, "supports_home_control": true,
    });
    Event::new(
        "info",
        json!({
            "version": VERSION, "handle": [program], "intent": [], "asr": [], "tts": [], "wake": [], "mic": [], "snd": [],
        }),
    )
}

async fn transcript(ears: &Listener, from: &str, event: &Event) -> Event {
    let context = event.data.get("context").cloned().unwrap_or(Value::Null);
    let named = |key: &str| context[key].as_str().filter(|name| !name.is_empty()).map(|name| plain(name, NAME_LEN_MAX));
    let place = named("satellite_id").or(named("device_id"));
    // A confirmation comes with the conversation of its question, on a connection of its own.
    let speaker = named("conversation_id").or(place.clone()).unwrap_or_else(|| from.to_owned());
    let said = Said {
        text: event.text("text").unwrap_or_default().to_owned(),
        speaker: format!("{speaker}@wyoming"),
        place: Some(place.unwrap_or_else(|| from.to_owned())),
        via: Via::Voice,
        lang: Lang::of_word(event.text("language").unwrap_or("zh")),
        wait: false,
        reins: Reins::OF_A_PERSON,
    };
    let (kind, text) = match ears.hear(said).await {
        Ok(answer) => {
            let text = answer["message"].as_str().unwrap_or_default().to_owned();
            let kind =
                if answer["outcome"] == "rejected" && answer["decision"].is_null() { "not-handled" } else { "handled" };
            (kind, text)
        }
        Err(NotTaken::Busy) => {
            return Event::new("error", json!({ "text": "too many sentences wait", "code": "busy" }));
        }
        Err(error) => return Event::new("error", json!({ "text": error.to_string(), "code": "stopping" })),
    };
    let mut data = json!({ "text": text });
    if !context.is_null() {
        data["context"] = context;
    }
    Event::new(kind, data)
}

/// What a sentence would mean. Nothing is executed, and nothing is written down: nobody has asked for anything.
async fn recognize(ears: &Listener, event: &Event) -> Event {
    let context = event.data.get("context").cloned();
    let with = |mut data: Value| {
        if let Some(context) = &context {
            data["context"] = context.clone();
        }
        data
    };
    match ears.understand(event.text("text").unwrap_or_default().to_owned()).await {
        Ok(Some((command, slots))) => {
            let entities: Vec<Value> =
                slots.iter().map(|(name, value)| json!({ "name": name, "value": value.to_json() })).collect();
            Event::new("intent", with(json!({ "name": command, "entities": entities })))
        }
        Ok(None) => Event::new("not-recognized", with(json!({ "text": event.text("text") }))),
        Err(error) => Event::new("error", json!({ "text": error.to_string(), "code": "busy" })),
    }
}
