//! MQTT 5: the log to an existing broker, row by row, until the broker has each.
//!
//! The position is moved only by a PUBACK. The library's own queue counts for nothing: each connection begins with a
//! new client, a clean session, and what is not acknowledged is read from the log again. A message that the broker
//! refuses has not arrived either; the rows behind it wait for it, as far as the backlog reaches.

mod command;
pub(super) mod link;
mod message;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rumqttc::tokio_rustls::rustls::ClientConfig;
use tokio::sync::watch;

use super::feed::{self, Backoff, Feed, Receiver};
use super::notice::Board;
use crate::engine::keeper::Keeper;
use crate::engine::listener::{Listener, Reins};
use crate::engine::log::{Acks, Log};
use command::Desk;
use link::Link;

/// The name of this receiver among the positions.
const SINK: &str = "mqtt";

/// How long after a cut link the next one is tried: at first, and at last.
const RETRY: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// How often the position is kept while rows arrive, and other things are looked after. A kill in between repeats rows.
const UPKEEP: Duration = Duration::from_secs(1);

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
    pub notices: watch::Receiver<Board>,
    /// The daemon stops.
    pub stop: watch::Receiver<bool>,
}

/// One receiver.
pub struct Exporter {
    settings: Settings,
    feed: Feed,
    ears: Listener,
    desk: Desk,
    notices: watch::Receiver<Board>,
}

impl Exporter {
    /// An exporter, which the caller runs, and how it goes.
    #[must_use]
    pub fn new(parts: Parts) -> (Exporter, Receiver) {
        let Parts { settings, log, keeper, acks, ears, notices, stop } = parts;
        let backlog_max = settings.backlog_max;
        let (feed, receiver) = Feed::new(feed::Parts { sink: SINK, log, keeper, acks, stop, backlog_max });
        (Exporter { settings, feed, ears, desk: Desk::default(), notices }, receiver)
    }

    /// Runs until the daemon stops.
    pub async fn run(mut self) {
        if !self.feed.remember().await {
            return;
        }
        let mut backoff = Backoff::new(RETRY, RETRY_MAX);
        let broker = self.settings.broker();
        loop {
            let before = self.feed.outbox.position().seq;
            let broken = Link::serve(&mut self).await;
            self.feed.outbox.link_ended();
            self.feed.keep();
            let Err(broken) = broken else { break };
            self.feed.failed(&broker, &broken.to_string());
            if self.feed.outbox.position().seq > before {
                backoff.went_well();
            }
            if self.feed.stopped_within(backoff.wait(None)).await {
                break;
            }
        }
        self.feed.standing.send_modify(|standing| standing.connected = false);
        self.feed.end().await;
    }
}
