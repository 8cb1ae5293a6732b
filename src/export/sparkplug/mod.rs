//! Sparkplug B 3.0: the values of devices to an existing broker, as an edge node says them.
//!
//! A connection of its own, because its will is the node's death. Each reading goes through the gate like anybody's and
//! stands in the evidence; what cannot be read is said to be so. It takes one command, the rebirth: whatever would
//! write to a device is refused and written down, since a number in a topic is no wish that a gate could judge.

mod node;
mod payload;

use std::collections::VecDeque;
use std::time::Duration;

use interlock_domain::gate::policy::Mode;
use interlock_domain::id::{Seq, ToolName};
use interlock_domain::request::shown::plain;
use interlock_domain::request::{Asker, Via};
use rumqttc::v5::AsyncClient;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::LastWill;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::feed::{Backoff, Receiver, Standing};
use super::mqtt::link::{Broken, Heard, SILENCE_MAX, carry, options};
use super::pace::Pace;
use super::{mqtt, told};
use crate::engine::handle::{Mediator, Wanted, Who};
use crate::engine::keeper::{Keeper, Position};
use crate::engine::listener::{Declined, Listener};
use crate::sys::clock;
use node::{Message, Node, REBIRTH, Read, death};
use payload::Content;

/// The name of this receiver; its position is the number of its connections.
const SINK: &str = "sparkplug";

/// How long after a cut link the next one is tried: at first, and at last.
const RETRY: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// Messages and events that may wait between us and the library.
const REQUESTS_MAX: usize = 64;

/// How often everything is said again at most, however often it is asked for.
const REBIRTH_EVERY: Duration = Duration::from_secs(1);

/// Refused commands that are written down in a second: a flood must not fill the log.
const REFUSED_PER_SECOND: u32 = 5;

/// Names of metrics of one refused command that are written down.
const NAMED_MAX: usize = 8;

/// How long the end of the daemon waits until the broker has heard of it.
const PARTING: Duration = Duration::from_secs(1);

/// The tool that reads, and for whom.
const DEVICE: &str = "device";
const ASKER: &str = "sparkplug@mqtt";

/// What the node is called, and how often devices are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The broker.
    pub group: String,
    /// The edge node.
    pub node: String,
    /// From one reading to the next.
    pub every: Duration,
}

/// What the exporter works with.
pub struct Parts {
    /// What it is called.
    pub settings: Settings,
    /// How the broker is reached.
    pub mqtt: mqtt::Settings,
    /// Who reads.
    pub mediator: Mediator,
    /// Where the number of connections is kept.
    pub keeper: Keeper,
    /// Where a refused command is written down.
    pub ears: Listener,
    /// The daemon stops.
    pub stop: watch::Receiver<bool>,
}

/// One edge node.
pub struct Exporter {
    parts: Parts,
    node: Node,
    /// What was made to be said and has found no place with the library yet. Nothing is read before it has.
    waiting: VecDeque<Message>,
    standing: watch::Sender<Standing>,
    refused: Pace,
}

impl Exporter {
    /// An exporter, which the caller runs, and how it goes.
    #[must_use]
    pub fn new(parts: Parts) -> (Exporter, Receiver) {
        let (standing, watched) = watch::channel(Standing::default());
        let refused = Pace::at_once(REFUSED_PER_SECOND, clock::now());
        (
            Exporter { parts, node: Node::default(), waiting: VecDeque::new(), standing, refused },
            Receiver { sink: SINK, standing: watched },
        )
    }

    /// Runs until the daemon stops.
    pub async fn run(mut self) {
        let mut stop = self.parts.stop.clone();
        // Where it cannot be read, the count begins anew: a receiver sees births and deaths that fit all the same.
        let kept = self.parts.keeper.with(|state| state.position(SINK)).await;
        let mut connections = kept.map_or(0, |position| position.seq.0);
        let mut backoff = Backoff::new(RETRY, RETRY_MAX);
        loop {
            // One of 256; each connection has the next, so that a late death does not end a later life.
            let bd_seq = u8::try_from(connections % 256).unwrap_or(0);
            connections += 1;
            let (position, at) = (Position { seq: Seq(connections), dropped: 0 }, clock::wall());
            if let Err(error) = self.parts.keeper.later(move |state| state.keep_position(SINK, position, at)) {
                tracing::warn!(%error, sink = SINK, "the number of connections is not kept");
            }
            let before = self.standing.borrow().connections;
            let Err(broken) = self.serve(bd_seq, &mut stop).await else { break };
            let mut is_new = false;
            self.standing.send_modify(|standing| {
                is_new = standing.failed(&broken.to_string());
                if standing.connections > before {
                    backoff.went_well();
                }
            });
            if is_new {
                tracing::warn!(kind = "EXPORT_CUT", sink = SINK, "the broker is not reached: {broken}");
            }
            let until = Instant::now() + backoff.wait(None);
            tokio::select! {
                () = told(&mut stop) => break,
                () = tokio::time::sleep_until(until) => {}
            }
        }
        self.standing.send_modify(|standing| standing.connected = false);
    }

    /// One connection; `Ok` when the daemon stops.
    async fn serve(&mut self, bd_seq: u8, stop: &mut watch::Receiver<bool>) -> Result<(), Broken> {
        let Settings { group, node, every } = self.parts.settings.clone();
        let mut options = options(&self.parts.mqtt, &format!("{}-sparkplug", self.parts.mqtt.client_id)).await?;
        let end = death(bd_seq, at());
        let topic = end.kind.topic(&group, &node);
        options.set_last_will(LastWill::new(topic, end.payload, QoS::AtLeastOnce, false, None));
        let (client, events) = AsyncClient::new(options, REQUESTS_MAX);
        let (tell, mut heard) = mpsc::channel(REQUESTS_MAX);
        let mut pump = JoinSet::new();
        pump.spawn(carry(events, tell));
        self.node.connected(bd_seq);
        self.waiting.clear();
        let mut reading: JoinSet<Result<Vec<Read>, String>> = JoinSet::new();
        let (mut to_subscribe, mut is_born) = (2, false);
        let mut silent_at = Instant::now() + SILENCE_MAX;
        let (mut read_at, mut born_at, mut rebirth) = (Instant::now(), Instant::now(), false);
        loop {
            // Whoever waits for a place here must go on listening: the library gives none to one who does not.
            self.hand_over(&client);
            tokio::select! {
                () = told(stop) => break,
                event = heard.recv() => {
                    silent_at = Instant::now() + SILENCE_MAX;
                    match event {
                        None => return Err(Broken::Library("its task ended".to_owned())),
                        Some(Heard::Ended(why)) => return Err(Broken::Library(why)),
                        Some(Heard::Connected(_)) => {
                            for filter in [format!("spBv1.0/{group}/NCMD/{node}"), format!("spBv1.0/{group}/DCMD/{node}/+")] {
                                client.try_subscribe(filter, QoS::AtLeastOnce).map_err(library)?;
                            }
                        }
                        // Whoever answers a birth with a command must be heard: the birth comes after.
                        Some(Heard::Subscribed(_)) => {
                            to_subscribe -= 1;
                            if to_subscribe == 0 {
                                (is_born, born_at, read_at) = (true, Instant::now(), Instant::now());
                                self.birth();
                                self.standing.send_modify(Standing::reached);
                            }
                        }
                        Some(Heard::Message(message)) => {
                            rebirth |= self.command(&String::from_utf8_lossy(&message.topic), &message.payload);
                        }
                        Some(Heard::Numbered(_) | Heard::Acknowledged(..) | Heard::Alive) => {}
                    }
                }
                () = tokio::time::sleep_until(born_at + REBIRTH_EVERY), if rebirth && is_born => {
                    (rebirth, born_at) = (false, Instant::now());
                    self.birth();
                }
                () = tokio::time::sleep_until(read_at), if is_born && reading.is_empty() && self.waiting.is_empty() => {
                    read_at = Instant::now() + every;
                    reading.spawn(read(self.parts.mediator.clone()));
                }
                Some(read) = reading.join_next() => {
                    let reads = match read.unwrap_or_else(|error| Err(error.to_string())) {
                        Ok(reads) => reads,
                        Err(why) => {
                            // Nothing can be read: no device is known to be there.
                            if self.standing.borrow().last_error.as_ref().is_none_or(|(_, last)| **last != *why) {
                                tracing::warn!(kind = "EXPORT_UNREAD", sink = SINK, "no device can be read: {why}");
                            }
                            self.standing.send_modify(|standing| {
                                standing.failed(&why);
                                standing.connected = true;
                            });
                            Vec::new()
                        }
                    };
                    self.waiting.extend(self.node.read(reads, at()));
                }
                () = tokio::time::sleep_until(silent_at) => return Err(Broken::Silent),
            }
        }
        let parting = async {
            let end = death(bd_seq, at());
            let topic = end.kind.topic(&group, &node);
            client.publish(topic, QoS::AtLeastOnce, false, end.payload).await.map_err(library)?;
            // Its acknowledgement, or the end of the link.
            while !matches!(heard.recv().await, None | Some(Heard::Acknowledged(..) | Heard::Ended(_))) {}
            client.disconnect().await.map_err(library)?;
            while heard.recv().await.is_some() {}
            Ok::<(), Broken>(())
        };
        if is_born && !matches!(tokio::time::timeout(PARTING, parting).await, Ok(Ok(()))) {
            tracing::warn!(sink = SINK, "the broker has not taken the node's death, and tells of it by itself");
        }
        Ok(())
    }

    /// Everything is said again; what was not said yet is in it.
    fn birth(&mut self) {
        self.waiting = self.node.birth(at()).into();
    }

    /// Gives the library what it has room for. Data is at most once: the next birth says all of it.
    fn hand_over(&mut self, client: &AsyncClient) {
        let Settings { group, node, .. } = &self.parts.settings;
        let mut count = 0;
        while let Some(message) = self.waiting.front() {
            let topic = message.kind.topic(group, node);
            if client.try_publish(topic, QoS::AtMostOnce, false, message.payload.clone()).is_err() {
                break;
            }
            self.waiting.pop_front();
            count += 1;
        }
        if count > 0 {
            self.standing.send_modify(|standing| standing.arrived(count));
        }
        let waiting = u64::try_from(self.waiting.len()).unwrap_or(u64::MAX);
        self.standing.send_if_modified(|standing| std::mem::replace(&mut standing.waiting, waiting) != waiting);
    }

    /// A command; true where it asks for the rebirth. Everything else is refused, and written down.
    fn command(&mut self, topic: &str, payload: &[u8]) -> bool {
        let is_of_node = topic.contains("/NCMD/");
        let heard = payload::decode(payload);
        let is_rebirth = |metric: &payload::Heard| metric.is_true && metric.name.as_deref() == Some(REBIRTH);
        if let Some(metrics) = &heard
            && is_of_node
            && !metrics.is_empty()
            && metrics.iter().all(is_rebirth)
        {
            return true;
        }
        if self.refused.take(clock::now()).is_ok() {
            let names: Vec<String> = heard
                .iter()
                .flatten()
                .take(NAMED_MAX)
                .map(|metric| match (&metric.name, metric.alias) {
                    (Some(name), _) => plain(name, 64),
                    (None, Some(alias)) => format!("alias {alias}"),
                    (None, None) => String::new(),
                })
                .collect();
            let why = if heard.is_some() { "sparkplug_write" } else { "malformed" };
            let detail = json!({ "topic": plain(topic, 200), "metrics": names, "bytes": payload.len() });
            self.parts.ears.decline(Declined { speaker: ASKER.to_owned(), via: Via::Plant, why, detail });
            tracing::warn!(kind = "COMMAND_REFUSED", sink = SINK, topic, "a Sparkplug command other than the rebirth");
        }
        false
    }
}

/// All points of all devices, read through the gate by somebody who may only read.
async fn read(mediator: Mediator) -> Result<Vec<Read>, String> {
    let asker = Asker { via: Via::Plant, name: ASKER.to_owned() };
    let who = Who { mode: Some(Mode::Plan), ..Who::of(asker, false) };
    let run = mediator.open(who).await.map_err(|error| error.to_string())?;
    let read = read_in(&mediator, run).await;
    mediator.close_run(run).await;
    read
}

async fn read_in(mediator: &Mediator, run: interlock_domain::id::RunId) -> Result<Vec<Read>, String> {
    let tool = ToolName::new(DEVICE).map_err(|error| error.to_string())?;
    let input = json!({ "device": "*", "action": "list" });
    let wanted = Wanted { tool, input, protective: false };
    let submitted = mediator.submit(run, vec![wanted]).await.map_err(|error| error.to_string())?;
    if !submitted.questions.is_empty() {
        mediator.cancel(submitted.batch).await;
        return Err("a rule has a person asked before devices are read".to_owned());
    }
    let answered = submitted.replies.await.map_err(|_| "the daemon is stopping".to_owned())?;
    let ending = answered.into_iter().next().map(|answered| answered.reply.ending);
    let output = ending.as_ref().and_then(|ending| ending.output());
    let Some(points) = output.and_then(|output| output["points"].as_array()) else {
        let why = ending.map(|ending| ending.message(interlock_domain::request::why::Lang::En));
        return Err(why.unwrap_or_else(|| "no reply".to_owned()));
    };
    Ok(points.iter().filter_map(point).collect())
}

fn point(row: &Value) -> Option<Read> {
    let text = |key: &str| Some(row.get(key)?.as_str()?.to_owned());
    let value = &row["value"];
    Some(Read {
        device: text("device")?,
        point: text("point")?,
        unit: text("measure").unwrap_or_default(),
        is_bit: row["type"] == "bit",
        content: value.as_bool().map(Content::Boolean).or_else(|| value.as_f64().map(Content::Double)),
    })
}

fn at() -> u64 {
    clock::wall().0.max(0).unsigned_abs()
}

fn library(error: rumqttc::v5::ClientError) -> Broken {
    Broken::Library(error.to_string())
}
