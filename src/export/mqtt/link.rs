//! One connection to a broker, from CONNECT to its end.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use interlock_domain::id::Seq;
use interlock_domain::request::Via;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{
    ConnAck, ConnectProperties, LastWill, PubAckReason, Publish, PublishProperties, SubscribeReasonCode,
};
use rumqttc::v5::{AsyncClient, ConnectionError, Event, EventLoop, Incoming, MqttOptions};
use rumqttc::{Outgoing, Transport};
use serde_json::json;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use super::super::feed::{Next, Standing};
use super::super::outbox::Gap;
use super::super::pace::{Orders, Pace};
use super::super::{post, told};
use super::command::{self, answer_topic};
use super::message::{self, ALARMS, CHECKPOINT, EVIDENCE, HEAD, STATE};
use super::{Exporter, UPKEEP};
use crate::engine::listener::{Declined, Lang, Said};
use crate::record::Recorded;
use crate::sys::clock;

/// Messages under way at once. More do not make it faster over a link of a millisecond; fewer are repeated after a cut.
const WINDOW: usize = 128;

/// Rows that are read from the log at once: a row has up to 64 KiB.
const READ_MAX: usize = 64;

/// Requests and events that may wait between us and the library.
const REQUESTS_MAX: usize = 2 * WINDOW;

/// How long CONNECT may take, with DNS and TLS, in seconds.
const CONNECT_S: u64 = 10;

/// How often the broker is asked whether it is there, and after which silence it is not.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
pub(in super::super) const SILENCE_MAX: Duration = Duration::from_secs(40);

/// The longest message that is taken from the broker, in bytes: it is told so, and holds back what is longer.
const INCOMING_MAX: u32 = 256 * 1024;

/// How often the head is said at most: after each commit would be a message for a message.
const HEAD_EVERY: Duration = Duration::from_secs(5);

/// How long the end of the daemon waits until the broker has heard that the box goes.
const PARTING: Duration = Duration::from_secs(1);

/// Why a connection ended.
#[derive(Debug, Error)]
pub(in super::super) enum Broken {
    #[error("{0}")]
    Password(String),
    #[error("{0}")]
    Library(String),
    #[error("the broker was silent for {} s", SILENCE_MAX.as_secs())]
    Silent,
    #[error("the broker refused a message: {0:?}")]
    Refused(PubAckReason),
    #[error("the broker acknowledged a message that was not sent")]
    OutOfStep,
}

/// What a message was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cargo {
    /// Rows, by the name that the outbox gave them.
    Rows(u64),
    /// Something that is told anew with each connection.
    Other,
    /// That the box goes: nothing comes after it.
    LastWord,
}

/// A connection.
pub(super) struct Link<'a> {
    exporter: &'a mut Exporter,
    client: AsyncClient,
    /// Handed to the library, in order; it has not given them a number yet.
    handed: VecDeque<Cargo>,
    /// With the number under which they are acknowledged.
    numbered: BTreeMap<u16, Cargo>,
    batch: VecDeque<Recorded>,
    /// The last row that there was when the broker came: what is not newer is the past.
    past: Seq,
    pace: Pace,
    packet_max: Option<u32>,
    checkpoint: String,
    head: String,
    /// When the next head may be said.
    head_at: Instant,
    /// A batch could not be read; the next turn tries again.
    unread: bool,
    /// Commands that are under way: where each answer goes, and what it says.
    orders: JoinSet<Answer>,
    room: Orders,
}

/// An answer on its way.
struct Answer {
    topic: String,
    properties: PublishProperties,
    text: String,
}

/// What of the library's events concerns us.
pub(in super::super) enum Heard {
    Connected(ConnAck),
    Numbered(u16),
    Acknowledged(u16, PubAckReason),
    Subscribed(Vec<SubscribeReasonCode>),
    Message(Publish),
    Alive,
    Ended(String),
}

impl Link<'_> {
    /// Connects and sends until the link breaks; `Ok` when the daemon stops.
    pub(super) async fn serve(exporter: &mut Exporter) -> Result<(), Broken> {
        let mut options = options(&exporter.settings, &exporter.settings.client_id).await?;
        let offline = message::state(&exporter.settings.device, false);
        let topic = format!("{}/{STATE}", exporter.settings.topic);
        options.set_last_will(LastWill::new(topic, offline, QoS::AtLeastOnce, true, None));
        let (client, events) = AsyncClient::new(options, REQUESTS_MAX);
        let (tell, heard) = mpsc::channel(REQUESTS_MAX);
        // Ends with this connection. It is a task of its own because its waiting must not be cut in the middle.
        let mut pump = JoinSet::new();
        pump.spawn(carry(events, tell));
        let past = exporter.feed.last();
        let pace = Pace::even(exporter.settings.rate, clock::now());
        let mut link = Link {
            exporter,
            client,
            handed: VecDeque::new(),
            numbered: BTreeMap::new(),
            batch: VecDeque::new(),
            past,
            pace,
            packet_max: None,
            checkpoint: String::new(),
            head: String::new(),
            head_at: Instant::now(),
            unread: false,
            orders: JoinSet::new(),
            room: Orders::new(clock::now()),
        };
        link.run(heard).await
    }

    async fn run(&mut self, mut heard: mpsc::Receiver<Heard>) -> Result<(), Broken> {
        let mut stop = self.exporter.feed.stop();
        let mut upkeep = tokio::time::interval(UPKEEP);
        upkeep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut silent_at = Instant::now() + SILENCE_MAX;
        let mut connected = false;
        loop {
            let pause = if connected { self.send().await? } else { None };
            // Without a pause it waits for an acknowledgement, a new row, or the next turn.
            let again = Instant::now() + pause.unwrap_or(UPKEEP);
            tokio::select! {
                () = told(&mut stop) => break,
                event = heard.recv() => {
                    silent_at = Instant::now() + SILENCE_MAX;
                    match event {
                        None => return Err(Broken::Library("its task ended".to_owned())),
                        Some(Heard::Connected(connack)) => {
                            connected = true;
                            self.welcome(&connack).await?;
                        }
                        Some(event) => self.hear(event)?,
                    }
                    while let Ok(event) = heard.try_recv() {
                        self.hear(event)?;
                    }
                    self.exporter.feed.tell();
                }
                true = self.exporter.feed.committed() => self.exporter.feed.tell(),
                Ok(()) = self.exporter.notices.changed(), if connected && self.handed.len() < WINDOW => {
                    self.send_alarms()?;
                }
                Some(Ok(answer)) = self.orders.join_next() => self.answer(answer)?,
                () = tokio::time::sleep_until(again), if pause.is_some() => {}
                () = tokio::time::sleep_until(silent_at) => return Err(Broken::Silent),
                _ = upkeep.tick() => {
                    self.unread = false;
                    self.exporter.feed.keep();
                    if connected {
                        self.send_checkpoint().await?;
                        self.send_head().await?;
                    }
                }
            }
        }
        if connected {
            self.part(&mut heard).await;
        }
        Ok(())
    }

    /// The broker is there. The session is new, whatever it says: all that it should know is told again.
    async fn welcome(&mut self, connack: &ConnAck) -> Result<(), Broken> {
        self.packet_max = connack.properties.as_ref().and_then(|properties| properties.max_packet_size);
        self.past = self.exporter.feed.last();
        let broker = self.exporter.settings.broker();
        tracing::info!(broker, waiting = self.exporter.feed.outbox.waiting(self.past), "MQTT broker");
        self.exporter.feed.standing.send_modify(Standing::reached);
        let online = message::state(&self.exporter.settings.device, true);
        self.publish(STATE, true, online, Cargo::Other)?;
        self.send_alarms()?;
        if let Some((topic, _)) = &self.exporter.settings.commands {
            self.client.try_subscribe(topic, QoS::AtLeastOnce).map_err(|error| Broken::Library(error.to_string()))?;
        }
        self.send_checkpoint().await?;
        self.send_head().await
    }

    fn hear(&mut self, event: Heard) -> Result<(), Broken> {
        match event {
            Heard::Numbered(number) => {
                let cargo = self.handed.pop_front().ok_or(Broken::OutOfStep)?;
                match self.numbered.insert(number, cargo) {
                    None => Ok(()),
                    Some(_) => Err(Broken::OutOfStep),
                }
            }
            Heard::Acknowledged(number, reason) => {
                let cargo = self.numbered.remove(&number).ok_or(Broken::OutOfStep)?;
                match reason {
                    PubAckReason::Success | PubAckReason::NoMatchingSubscribers => {}
                    PubAckReason::UnspecifiedError
                    | PubAckReason::ImplementationSpecificError
                    | PubAckReason::NotAuthorized
                    | PubAckReason::TopicNameInvalid
                    | PubAckReason::PacketIdentifierInUse
                    | PubAckReason::QuotaExceeded
                    | PubAckReason::PayloadFormatInvalid => return Err(Broken::Refused(reason)),
                }
                if let Cargo::Rows(id) = cargo {
                    self.exporter.feed.outbox.arrived(id);
                    self.exporter.feed.standing.send_modify(|standing| standing.arrived(1));
                }
                Ok(())
            }
            Heard::Subscribed(codes) => {
                for code in codes {
                    if !matches!(code, SubscribeReasonCode::Success(_)) {
                        tracing::error!(kind = "COMMANDS_OFF", "the broker gives no commands: {code:?}");
                    }
                }
                Ok(())
            }
            Heard::Message(message) => self.order(message),
            Heard::Connected(_) | Heard::Alive => Ok(()),
            Heard::Ended(why) => Err(Broken::Library(why)),
        }
    }

    /// Sends what fits into the window; gives how long to wait where the pace holds it.
    async fn send(&mut self) -> Result<Option<Duration>, Broken> {
        loop {
            if self.handed.len() + self.numbered.len() >= WINDOW || self.unread {
                return Ok(None);
            }
            let Some(recorded) = self.batch.front() else {
                if self.read().await? {
                    continue;
                }
                return Ok(None);
            };
            let (seq, is_past) = (recorded.seq, recorded.seq <= self.past);
            if self.exporter.feed.outbox.missing_before(seq).is_some() {
                // Read from a log that is not there any more.
                self.batch.clear();
                continue;
            }
            if is_past && let Err(pause) = self.pace.take(clock::now()) {
                return Ok(Some(pause));
            }
            let text = message::row(&self.exporter.settings.device, recorded, is_past, self.packet_max);
            self.batch.pop_front();
            let id = self.exporter.feed.outbox.send(seq);
            self.publish(EVIDENCE, false, text, Cargo::Rows(id))?;
        }
    }

    fn send_gap(&mut self, gap: &Gap) -> Result<(), Broken> {
        let (first, last, why) = (gap.first.0, gap.last.0, gap.why.word());
        tracing::warn!(kind = "EXPORT_GAP", first, last, why, "rows are not exported over MQTT");
        let id = self.exporter.feed.outbox.send_gap(gap);
        let text = message::gap(&self.exporter.settings.device, gap);
        self.publish(EVIDENCE, false, text, Cargo::Rows(id))
    }

    /// Reads the next rows; false when there are none now.
    async fn read(&mut self) -> Result<bool, Broken> {
        match self.exporter.feed.next(READ_MAX).await {
            Next::Rows(rows) => self.batch.extend(rows),
            Next::Gap(gap) => self.send_gap(&gap)?,
            Next::Nothing => return Ok(false),
            Next::Later => {
                self.unread = true;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What stands, kept by the broker as a whole: a list that is replaced leaves nothing behind that is over.
    fn send_alarms(&mut self) -> Result<(), Broken> {
        // What is not known yet must not replace what the broker keeps.
        let Some(standing) = self.exporter.notices.borrow_and_update().clone() else { return Ok(()) };
        let text = message::alarms(&self.exporter.settings.device, &standing, self.packet_max);
        self.publish(ALARMS, true, text, Cargo::Other)
    }

    /// The newest signed checkpoint, kept by the broker: a head outside of this box.
    async fn send_checkpoint(&mut self) -> Result<(), Broken> {
        match self.exporter.feed.log().checkpoint().await {
            Ok(Some(note)) if note != self.checkpoint && self.handed.len() < WINDOW => {
                self.checkpoint.clone_from(&note);
                self.publish(CHECKPOINT, true, note, Cargo::Other)
            }
            Ok(_) => Ok(()),
            Err(error) => {
                tracing::warn!(%error, "no checkpoint can be exported");
                Ok(())
            }
        }
    }

    /// The newest signed head, kept by the broker: how far the log had come, for whoever asks later where its end is.
    async fn send_head(&mut self) -> Result<(), Broken> {
        if Instant::now() < self.head_at || self.handed.len() >= WINDOW {
            return Ok(());
        }
        match self.exporter.feed.log().head().await {
            Ok(Some(head)) if head != self.head => {
                self.head_at = Instant::now() + HEAD_EVERY;
                self.head.clone_from(&head);
                self.publish(HEAD, true, head, Cargo::Other)
            }
            Ok(_) => Ok(()),
            Err(error) => {
                tracing::warn!(%error, "no head can be exported");
                Ok(())
            }
        }
    }

    /// A message on the command topic. What is no order is answered and written down.
    fn order(&mut self, message: Publish) -> Result<(), Broken> {
        let Some((topic, reins)) = self.exporter.settings.commands.clone() else { return Ok(()) };
        let properties = message.properties.unwrap_or_default();
        let answer_to = Answer {
            topic: answer_topic(properties.response_topic.as_deref(), &self.exporter.settings.topic, &topic),
            properties: PublishProperties { correlation_data: properties.correlation_data, ..Default::default() },
            text: String::new(),
        };
        let device = self.exporter.settings.device.clone();
        let read =
            command::Message { payload: &message.payload, is_retained: message.retain, is_repeated: message.dup };
        let read = self.exporter.desk.read(read, clock::wall());
        let makes_safe = || read.as_ref().is_ok_and(|order| self.exporter.ears.makes_safe(&order.text));
        if !self.room.take(self.orders.len(), makes_safe, clock::now()) {
            // Not written down: a flood must not fill the log.
            let id = read.as_ref().map_or_else(|declined| declined.id.as_deref(), |order| order.id.as_deref());
            let text = message::declined(&device, id, "busy", "too many orders at once");
            return self.answer(Answer { text, ..answer_to });
        }
        let speaker = format!("{topic}@mqtt");
        match read {
            Ok(order) => {
                self.exporter.desk.remember(&order);
                let said = Said {
                    text: order.text,
                    speaker,
                    place: order.id.clone(),
                    via: Via::Plant,
                    lang: Lang::of_word("zh"),
                    wait: false,
                    reins,
                };
                let ears = self.exporter.ears.clone();
                self.orders.spawn(async move {
                    let text = match ears.hear(said).await {
                        Ok(answer) => message::answered(&device, order.id.as_deref(), answer),
                        Err(error) => message::declined(&device, order.id.as_deref(), "busy", &error.to_string()),
                    };
                    Answer { text, ..answer_to }
                });
                Ok(())
            }
            Err(declined) => {
                let detail = json!({ "id": declined.id, "bytes": message.payload.len(), "why": declined.why });
                self.exporter.ears.decline(Declined { speaker, via: Via::Plant, why: declined.code, detail });
                let text = message::declined(&device, declined.id.as_deref(), declined.code, &declined.why);
                self.answer(Answer { text, ..answer_to })
            }
        }
    }

    fn answer(&mut self, answer: Answer) -> Result<(), Broken> {
        if self.handed.len() >= WINDOW {
            // The broker takes nothing now. What was done stands in the log.
            tracing::warn!(topic = answer.topic, "an answer over MQTT was left out");
            return Ok(());
        }
        self.client
            .try_publish_with_properties(answer.topic, QoS::AtLeastOnce, false, answer.text, answer.properties)
            .map_err(|error| Broken::Library(error.to_string()))?;
        self.handed.push_back(Cargo::Other);
        Ok(())
    }

    fn publish(&mut self, topic: &str, retain: bool, text: String, cargo: Cargo) -> Result<(), Broken> {
        let topic = format!("{}/{topic}", self.exporter.settings.topic);
        // There is room: what was handed over and has no number yet is fewer than the window and a few.
        self.client
            .try_publish(topic, QoS::AtLeastOnce, retain, text)
            .map_err(|error| Broken::Library(error.to_string()))?;
        self.handed.push_back(cargo);
        Ok(())
    }

    /// Says that the box goes, in order. A broker that does not hear it within a moment says it by itself.
    async fn part(&mut self, heard: &mut mpsc::Receiver<Heard>) {
        let why = match tokio::time::timeout(PARTING, self.say_last(heard)).await {
            Ok(Ok(())) => return,
            Ok(Err(broken)) => broken.to_string(),
            Err(_) => format!("no answer for {} s", PARTING.as_secs()),
        };
        tracing::warn!("the MQTT broker has not taken the last word, and tells of the end by itself: {why}");
    }

    async fn say_last(&mut self, heard: &mut mpsc::Receiver<Heard>) -> Result<(), Broken> {
        let offline = message::state(&self.exporter.settings.device, false);
        self.publish(STATE, true, offline, Cargo::LastWord)?;
        while self.handed.iter().chain(self.numbered.values()).any(|cargo| *cargo == Cargo::LastWord) {
            match heard.recv().await {
                None => return Err(Broken::Library("its task ended".to_owned())),
                // An order that comes now comes too late: nobody listens any more.
                Some(Heard::Message(_)) => {}
                Some(event) => self.hear(event)?,
            }
        }
        self.client.disconnect().await.map_err(|error| Broken::Library(error.to_string()))?;
        // The broker hangs up on whoever has taken leave: that ends the task.
        while heard.recv().await.is_some() {}
        Ok(())
    }
}

/// Carries the library's events; ends with the connection, so that nothing of it lives on.
pub(in super::super) async fn carry(mut events: EventLoop, tell: mpsc::Sender<Heard>) {
    loop {
        let heard = match events.poll().await {
            Ok(Event::Incoming(Incoming::ConnAck(connack))) => Heard::Connected(connack),
            Ok(Event::Incoming(Incoming::PubAck(ack))) => Heard::Acknowledged(ack.pkid, ack.reason),
            Ok(Event::Incoming(Incoming::SubAck(ack))) => Heard::Subscribed(ack.return_codes),
            Ok(Event::Incoming(Incoming::Publish(message))) => Heard::Message(message),
            Ok(Event::Incoming(_)) => Heard::Alive,
            Ok(Event::Outgoing(Outgoing::Publish(number))) => Heard::Numbered(number),
            Ok(Event::Outgoing(_)) => continue,
            Err(error) => Heard::Ended(why(&error)),
        };
        let is_end = matches!(heard, Heard::Ended(_));
        if tell.send(heard).await.is_err() || is_end {
            return;
        }
    }
}

fn why(error: &ConnectionError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    message::reason(&text)
}

/// How the broker is reached by a client of this name. What it says of the client's end is the caller's to set.
pub(in super::super) async fn options(settings: &super::Settings, client_id: &str) -> Result<MqttOptions, Broken> {
    let mut options = MqttOptions::new(client_id, &settings.host, settings.port);
    options
        .set_keep_alive(KEEP_ALIVE)
        .set_clean_start(true)
        .set_connection_timeout(CONNECT_S)
        .set_outgoing_inflight_upper_limit(u16::try_from(WINDOW).unwrap_or(u16::MAX));
    let properties = ConnectProperties { max_packet_size: Some(INCOMING_MAX), ..ConnectProperties::new() };
    options.set_connect_properties(properties);
    if let Some(tls) = &settings.tls {
        options.set_transport(Transport::tls_with_config(rumqttc::TlsConfiguration::Rustls(tls.clone())));
    }
    if let Some((name, password)) = &settings.login {
        let password = match password {
            None => String::new(),
            Some(path) => post::secret("password", path).await.map_err(Broken::Password)?,
        };
        options.set_credentials(name, password);
    }
    Ok(options)
}
