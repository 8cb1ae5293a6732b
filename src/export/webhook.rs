//! Notices to a webhook, signed after Standard Webhooks 1.0.0: a ZOMBIE, a DEAD, a question that waits, a lost head.
//!
//! Each is told once, with its end, in the order in which it came; a message counts as told when the receiver has
//! answered with 2xx, and is sent again under the same `webhook-id` until then. One that the receiver has read and
//! refuses is not sent again: it would hold back those behind it for ever.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio::time::Instant;

use super::feed::{Backoff, Receiver, Standing};
use super::notice::ledger::{self, Ledger, Message};
use super::notice::{Board, Kind, Notice};
use super::{post, told};
use crate::engine::keeper::Keeper;
use crate::record::rfc3339;
use crate::sys::clock;

/// The name of this receiver.
const SINK: &str = "webhook";

/// How long after a failure the next attempt follows: at first, and at last.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(300);

/// How soon a ledger that could not be read is asked for again.
const REMEMBER_AGAIN: Duration = Duration::from_secs(10);

/// What stands before a secret in the form of Standard Webhooks.
const SECRET_PREFIX: &str = "whsec_";

/// The bounds of a key, in bytes, as the standard has them.
const KEY_LENS: std::ops::RangeInclusive<usize> = 24..=64;

/// How the receiver is reached, and what it is told.
#[derive(Clone)]
pub struct Settings {
    /// Where.
    pub post: post::Settings,
    /// What this box is called.
    pub device: String,
    /// Where the key lies that messages are signed with. It is read for each message.
    pub secret: PathBuf,
    /// What it is told of.
    pub kinds: Vec<Kind>,
}

/// What the webhook works with.
pub struct Parts {
    /// How it is reached.
    pub settings: Settings,
    /// Where what was told is kept.
    pub keeper: Keeper,
    /// What stands.
    pub notices: watch::Receiver<Board>,
    /// The daemon stops.
    pub stop: watch::Receiver<bool>,
}

/// One webhook.
pub struct Exporter {
    parts: Parts,
    receiver: post::Receiver,
    ledger: Ledger,
    standing: watch::Sender<Standing>,
}

/// What became of an attempt.
enum Attempt {
    Taken,
    Refused(String),
    Failed(String, Option<Duration>),
}

impl Exporter {
    /// An exporter, which the caller runs, and how it goes.
    ///
    /// # Errors
    /// When the HTTP client cannot be set up.
    pub fn new(parts: Parts) -> Result<(Exporter, Receiver), String> {
        let receiver = post::Receiver::new(&parts.settings.post)?;
        let (standing, watched) = watch::channel(Standing::default());
        let exporter = Exporter { parts, receiver, ledger: Ledger::default(), standing };
        Ok((exporter, Receiver { sink: SINK, standing: watched }))
    }

    /// Runs until the daemon stops.
    pub async fn run(mut self) {
        let mut stop = self.parts.stop.clone();
        if !self.remember(&mut stop).await {
            return;
        }
        let mut backoff = Backoff::new(RETRY, RETRY_MAX);
        let mut not_before = Instant::now();
        loop {
            self.look();
            let message = self.ledger.next();
            let is_due = message.is_some() && not_before <= Instant::now();
            let Some(message) = message.filter(|_| is_due) else {
                let waits = self.ledger.next().is_some();
                tokio::select! {
                    () = told(&mut stop) => return,
                    changed = self.parts.notices.changed() => if changed.is_err() {
                        return;
                    },
                    () = tokio::time::sleep_until(not_before), if waits => {}
                }
                continue;
            };
            // What is under way at the end of the daemon is sent again, under the same name.
            let attempt = tokio::select! {
                () = told(&mut stop) => return,
                attempt = self.send(&message) => attempt,
            };
            match attempt {
                Attempt::Taken => {
                    self.ledger.taken(&message.notice.id, message.turn);
                    self.standing.send_modify(|standing| {
                        standing.reached();
                        standing.arrived(1);
                    });
                    backoff.went_well();
                }
                Attempt::Refused(why) => {
                    tracing::error!(kind = "EXPORT_REFUSED", sink = SINK, notice = message.notice.id, "{why}");
                    self.ledger.refused(&message.notice.id, message.turn);
                    self.standing.send_modify(|standing| {
                        standing.failed(&why);
                        standing.reached();
                    });
                    backoff.went_well();
                }
                Attempt::Failed(why, asked_for) => {
                    let mut is_new = false;
                    self.standing.send_modify(|standing| is_new = standing.failed(&why));
                    if is_new {
                        let receiver = &self.parts.settings.post.url;
                        tracing::warn!(kind = "EXPORT_CUT", sink = SINK, receiver, "not reached; notices wait: {why}");
                    }
                    not_before = Instant::now() + backoff.wait(asked_for);
                }
            }
        }
    }

    /// What an earlier life told; false when the daemon stops. Without it, an end could be missed.
    async fn remember(&mut self, stop: &mut watch::Receiver<bool>) -> bool {
        loop {
            match ledger::kept(&self.parts.keeper, SINK).await {
                Ok(ledger) => {
                    self.ledger = ledger;
                    return true;
                }
                Err(error) => tracing::error!(%error, sink = SINK, "what was told before cannot be read"),
            }
            tokio::select! {
                () = told(stop) => return false,
                () = tokio::time::sleep_until(Instant::now() + REMEMBER_AGAIN) => {}
            }
        }
    }

    /// What stands now goes into the ledger, and the ledger into `state.db`.
    fn look(&mut self) {
        // Before anybody has looked, nothing is known to be over.
        if let Some(board) = self.parts.notices.borrow_and_update().clone() {
            let ours: Vec<Notice> =
                board.iter().filter(|notice| self.parts.settings.kinds.contains(&notice.kind)).cloned().collect();
            self.ledger.look(&ours, clock::wall());
        }
        if let Err(error) = self.ledger.keep(&self.parts.keeper, SINK) {
            tracing::warn!(%error, sink = SINK, "what was told is not kept: it may be told again");
        }
        let now = (self.ledger.waiting(), self.ledger.dropped());
        self.standing.send_if_modified(|standing| {
            let before = (standing.waiting, standing.dropped);
            (standing.waiting, standing.dropped) = now;
            before != now
        });
    }

    async fn send(&self, message: &Message) -> Attempt {
        let body = body(&self.parts.settings.device, message);
        let id = id(&self.parts.settings.device, message);
        let signed = post::secret("secret", &self.parts.settings.secret).await.and_then(|text| key(&text));
        let key = match signed {
            Ok(key) => key,
            Err(why) => return Attempt::Failed(why, None),
        };
        // When this attempt was made: the receiver refuses what is old, so that nobody can replay it.
        let timestamp = clock::wall().0.div_euclid(1000).to_string();
        let signature = format!("v1,{}", sign(&key, &id, &timestamp, &body));
        let headers = [("webhook-id", id), ("webhook-timestamp", timestamp), ("webhook-signature", signature)];
        match self.receiver.post("", &headers, body).await {
            Err(why) => Attempt::Failed(why, None),
            Ok(answer) => match answer.status {
                200..=299 => Attempt::Taken,
                // It was read, and is none that this receiver takes.
                status @ (400 | 413 | 415 | 422) => {
                    Attempt::Refused(format!("refused with {status}: {}", answer.told()))
                }
                status => Attempt::Failed(format!("answered {status}: {}", answer.told()), answer.retry_after),
            },
        }
    }
}

/// The name of a message: the same in every attempt, and no other's.
fn id(device: &str, message: &Message) -> String {
    format!("msg_{device}_{}_{}_{}", message.notice.id, message.seen.0, message.turn.word())
}

fn body(device: &str, message: &Message) -> String {
    let mut data = message.notice.to_json();
    data["device"] = device.into();
    data["state"] = message.turn.word().into();
    let kind = format!("interlock.{}.{}", message.notice.kind.word(), message.turn.word());
    json!({ "type": kind, "timestamp": rfc3339(message.at), "data": data }).to_string()
}

/// The bytes of a key.
fn key(text: &str) -> Result<Vec<u8>, String> {
    let written = text.trim().strip_prefix(SECRET_PREFIX).unwrap_or(text.trim());
    let key =
        STANDARD.decode(written).map_err(|error| format!("secret: {SECRET_PREFIX} and base64 are wanted: {error}"))?;
    if KEY_LENS.contains(&key.len()) {
        return Ok(key);
    }
    Err(format!("secret: it has {} bytes, and {} to {} are wanted", key.len(), KEY_LENS.start(), KEY_LENS.end()))
}

fn sign(key: &[u8], id: &str, timestamp: &str, body: &str) -> String {
    STANDARD.encode(hmac(key, &[id.as_bytes(), b".", timestamp.as_bytes(), b".", body.as_bytes()]))
}

/// HMAC-SHA256 (RFC 2104) over the parts, one after the other.
fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    const BLOCK: usize = 64;
    let mut block = [0_u8; BLOCK];
    if key.len() > BLOCK {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let keyed = |pad: u8| {
        let mut hash = Sha256::new();
        hash.update(block.map(|byte| byte ^ pad));
        hash
    };
    let mut inner = keyed(0x36);
    parts.iter().for_each(|part| inner.update(part));
    let mut outer = keyed(0x5c);
    outer.update(inner.finalize());
    outer.finalize().into()
}

#[cfg(test)]
mod tests {
    use interlock_domain::time::Wall;

    use super::super::notice::ledger::Turn;
    use super::*;
    use crate::record::hex;

    #[test]
    fn the_signature_is_that_of_the_standards() {
        // RFC 4231, cases 1, 2 and 6.
        let check = |key: &[u8], text: &[u8], want: &str| assert_eq!(hex(&hmac(key, &[text])), want);
        check(&[0x0b; 20], b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
        check(
            b"Jefe",
            b"what do ya want for nothing?",
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        );
        check(
            &[0xaa; 131],
            b"Test Using Larger Than Block-Size Key - Hash Key First",
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
        );
        // The example of the Standard Webhooks specification's libraries.
        let key = key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        let signed = sign(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", "{\"test\": 2432232314}");
        assert_eq!(signed, "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_key_that_is_none_is_named() {
        let check = |text: &str, want: &str| assert!(key(text).unwrap_err().contains(want), "{text}");
        check("whsec_***", "base64");
        check("whsec_AAAA", "it has 3 bytes, and 24 to 64 are wanted");
        check("", "it has 0 bytes");
        assert_eq!(key("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap().len(), 24);
    }

    #[test]
    fn a_message_has_the_same_name_in_every_attempt_and_says_what_and_since_when() {
        let notice = Notice {
            id: "a3".into(),
            kind: Kind::Dead,
            source: "task:t1".into(),
            text: "t1 is DEAD: GONE".into(),
            raised: Some(Wall(0)),
        };
        let message = Message { notice, turn: Turn::Over, seen: Wall(5), at: Wall(1_000) };
        assert_eq!(id("box-1", &message), "msg_box-1_a3_5_over");
        let told: serde_json::Value = serde_json::from_str(&body("box-1", &message)).unwrap();
        let want = json!({
            "type": "interlock.dead.over",
            "timestamp": "1970-01-01T00:00:01.000Z",
            "data": {
                "device": "box-1", "id": "a3", "kind": "dead", "state": "over", "source": "task:t1",
                "text": "t1 is DEAD: GONE", "raised": "1970-01-01T00:00:00.000Z",
            },
        });
        assert_eq!(told, want);
    }
}
