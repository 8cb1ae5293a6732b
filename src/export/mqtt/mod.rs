//! MQTT 5: the log to an existing broker, row by row, until the broker has each.
//!
//! The position is moved only by a PUBACK. The library's own queue counts for nothing: each connection begins with a
//! new client, a clean session, and what is not acknowledged is read from the log again. A message that the broker
//! refuses has not arrived either; the rows behind it wait for it, as far as the backlog reaches.

mod command;
mod link;
mod message;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use interlock_domain::time::Tick;
use rumqttc::tokio_rustls::rustls::ClientConfig;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::notice::Notice;
use super::outbox::Outbox;
use super::told;
use crate::engine::keeper::{Keeper, Position};
use crate::engine::listener::{Listener, Reins};
use crate::engine::log::{Acks, Health, Log};
use crate::sys::clock;
use command::Desk;
use link::{Broken, Link};

/// The name of this receiver among the positions.
const SINK: &str = "mqtt";

/// How long after a cut link the next one is tried: at first, and at last.
const RETRY: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// How often the position is kept while rows arrive, and other things are looked after. A kill in between repeats rows.
const UPKEEP: Duration = Duration::from_secs(1);

/// How long the end of the daemon waits for the position to be kept.
const LAST_PATIENCE: Duration = Duration::from_secs(2);

/// How the broker is reached, and what it is told.
#[derive(Clone)]
pub struct Settings {
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// TLS, where it is spoken.
    pub tls: Option<Arc<ClientConfig>>,
    /// What this box is called.
    pub device: String,
    /// What the client is called.
    pub client_id: String,
    /// What stands before each topic.
    pub topic: String,
    /// The name to log in with, and where its password lies. It is read with each connection.
    pub login: Option<(String, Option<PathBuf>)>,
    /// Rows of the past in a second.
    pub rate: u32,
    /// Rows that wait, at most.
    pub backlog_max: u64,
    /// Where the plant's systems may command, and what comes of it at most.
    pub commands: Option<(String, Reins)>,
}

impl Settings {
    /// The broker, for a person.
    fn broker(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// How it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// The broker is there.
    pub connected: bool,
    /// Rows that have not arrived and still may.
    pub waiting: u64,
    /// Rows that were left out, over all time.
    pub dropped: u64,
    /// Rows that arrived since the start.
    pub arrived: u64,
    /// Connections since the start.
    pub connections: u64,
}

impl Standing {
    /// For `status` and for scripts.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "connected": self.connected,
            "waiting": self.waiting,
            "dropped": self.dropped,
            "arrived": self.arrived,
            "connections": self.connections,
        })
    }
}

/// What an exporter works with.
pub struct Parts {
    /// How the broker is reached.
    pub settings: Settings,
    /// The log.
    pub log: Log,
    /// Where the position is kept.
    pub keeper: Keeper,
    /// What is durable.
    pub acks: watch::Receiver<Acks>,
    /// Who listens to commands.
    pub ears: Listener,
    /// What stands.
    pub standing: watch::Receiver<Arc<[Notice]>>,
    /// The daemon stops.
    pub stop: watch::Receiver<bool>,
}

/// One receiver.
pub struct Exporter {
    settings: Settings,
    log: Log,
    keeper: Keeper,
    acks: watch::Receiver<Acks>,
    ears: Listener,
    stop: watch::Receiver<bool>,
    desk: Desk,
    notices: watch::Receiver<Arc<[Notice]>>,
    outbox: Outbox,
    kept: Position,
    standing: watch::Sender<Standing>,
}

impl Exporter {
    /// An exporter, which the caller runs, and how it goes.
    #[must_use]
    pub fn new(parts: Parts) -> (Exporter, watch::Receiver<Standing>) {
        let Parts { settings, log, keeper, acks, ears, standing: notices, stop } = parts;
        let (standing, watched) = watch::channel(Standing::default());
        let outbox = Outbox::new(Position::BEGINNING, settings.backlog_max);
        let (desk, kept) = (Desk::default(), Position::BEGINNING);
        (Exporter { settings, log, keeper, acks, ears, stop, desk, notices, outbox, kept, standing }, watched)
    }

    /// Runs until the daemon stops.
    pub async fn run(mut self) {
        if !self.remember().await {
            return;
        }
        let mut wait = RETRY;
        let mut told = String::new();
        loop {
            let before = self.outbox.position().seq;
            let broken = Link::serve(&mut self).await;
            self.outbox.link_ended();
            self.tell(false);
            self.keep();
            let Err(broken) = broken else { break };
            self.say(&broken, &mut told);
            if self.outbox.position().seq > before {
                wait = RETRY;
                told.clear();
            }
            if self.stopped_within(wait).await {
                break;
            }
            wait = (wait * 2).min(RETRY_MAX);
        }
        let (position, at) = (self.outbox.position(), clock::wall());
        let kept = self.keeper.with(move |state| state.keep_position(SINK, position, at));
        if !matches!(tokio::time::timeout(LAST_PATIENCE, kept).await, Ok(Ok(()))) {
            tracing::warn!("the position of the MQTT export was not kept: some rows will be sent again");
        }
    }

    /// Where the last life stood. Without it nothing can be sent in order; the disk may come back.
    async fn remember(&mut self) -> bool {
        loop {
            match self.keeper.with(|state| state.position(SINK)).await {
                Ok(position) => {
                    (self.outbox, self.kept) = (Outbox::new(position, self.settings.backlog_max), position);
                    return true;
                }
                Err(error) => tracing::error!(%error, "the position of the MQTT export cannot be read"),
            }
            if self.stopped_within(RETRY_MAX).await {
                return false;
            }
        }
    }

    /// One line of the journal for each new reason: a broker that is away for a week is told of once.
    fn say(&self, broken: &Broken, told: &mut String) {
        let why = broken.to_string();
        if why != *told {
            let broker = self.settings.broker();
            tracing::warn!(kind = "EXPORT_CUT", broker, "the MQTT broker is not reached; rows wait in the log: {why}");
            *told = why;
        }
    }

    /// Waits, and counts what comes meanwhile; true when the daemon stops.
    async fn stopped_within(&mut self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut stop = self.stop.clone();
        loop {
            tokio::select! {
                () = told(&mut stop) => return true,
                () = tokio::time::sleep_until(until) => return false,
                Ok(()) = self.acks.changed() => self.tell(false),
            }
        }
    }

    /// The last row that may be told. A log that began anew has lower numbers than the position.
    fn last(&mut self) -> interlock_domain::id::Seq {
        let acks = *self.acks.borrow_and_update();
        if acks.seq < self.outbox.position().seq && acks.health == Health::Writing {
            tracing::warn!("the evidence log began anew: it is exported from its beginning");
            self.outbox.begin_anew();
        }
        acks.seq
    }

    fn tell(&mut self, connected: bool) {
        let last = self.last();
        let (waiting, dropped) = (self.outbox.waiting(last), self.outbox.dropped(last));
        self.standing.send_if_modified(|standing| {
            let now = Standing { connected, waiting, dropped, ..*standing };
            std::mem::replace(standing, now) != now
        });
    }

    /// Keeps the position, if it moved. When the keeper is busy, the next turn does it.
    fn keep(&mut self) {
        let (position, at) = (self.outbox.position(), clock::wall());
        if position != self.kept && self.keeper.later(move |state| state.keep_position(SINK, position, at)).is_ok() {
            self.kept = position;
        }
    }

    fn now() -> Tick {
        clock::now()
    }
}
