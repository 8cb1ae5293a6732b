//! `[export]`: the plant's own systems that are told what happens here.
//!
//! ```toml
//! [export.mqtt]
//! broker = "mqtts://broker.plant:8883"
//! device = "box-1"                          # tells this box from the others; part of each message's key
//! ca = "/etc/interlock/plant-ca.pem"
//! username = "interlock"
//! password-credential = "mqtt-password"     # named, never written
//! ```
//!
//! As for MCP, a secret never stands in the file.

mod http;

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use super::ConfigError;
use super::mcp::{Secret, Wrong, secret};
pub use http::{Otlp, Reach, Webhook};

/// Rows of the past that are sent in a second, where the file does not say: a week of a quiet box in minutes, and
/// little beside what a plant's broker carries anyway.
const RATE: u32 = 1_000;
const RATES: RangeInclusive<u32> = 1..=100_000;

/// Rows that wait for the broker at most, where the file does not say.
const BACKLOG_MAX: u64 = 100_000;
/// Below, a broker that restarts costs rows; above is more than any evidence log holds.
const BACKLOGS: RangeInclusive<u64> = 1_000..=100_000_000;

/// Seconds between two readings of the devices, where the file does not say: each is a row of evidence.
const SPARKPLUG_EVERY: u32 = 30;
const SPARKPLUG_EVERIES: RangeInclusive<u32> = 1..=3_600;
/// The group of an edge node, where the file does not say.
const SPARKPLUG_GROUP: &str = "interlock";
const SPARKPLUG_OFF: &str = "this is for Sparkplug, which is not switched on";

/// Longest name of a device or a client: it stands in each message and in topics.
const NAME_LEN_MAX: usize = 64;
/// What we say stands on these, below the topic of the file.
const OWN_TOPICS: [&str; 6] = ["evidence", "checkpoint", "head", "state", "answer", "alarms"];
/// Longest topic, in bytes; the protocol's own bound is 65,535, and the words of ours follow it.
const TOPIC_LEN_MAX: usize = 512;

/// The plant's own systems that are told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exports {
    /// The broker.
    pub mqtt: Option<Mqtt>,
    /// The collector.
    pub otlp: Option<Otlp>,
    /// The alarm desk.
    pub webhook: Option<Webhook>,
}

/// A broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mqtt {
    /// Its host name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How TLS is spoken; `None` for none.
    pub tls: Option<Tls>,
    /// What this box is called.
    pub device: String,
    /// What the client is called; the broker ends an older connection of the same name.
    pub client_id: String,
    /// What stands before each topic of ours.
    pub topic: String,
    /// The name to log in with.
    pub username: Option<String>,
    /// Its password.
    pub password: Option<Secret>,
    /// Rows of the past in a second, at most.
    pub rate: u32,
    /// Rows that wait, at most; when there are more, the oldest are left out and a gap is told.
    pub backlog_max: u64,
    /// Where the plant's systems may command.
    pub commands: Option<Commands>,
    /// The edge node that says the values of devices.
    pub sparkplug: Option<Sparkplug>,
}

/// An edge node of Sparkplug B.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sparkplug {
    /// Its group.
    pub group: String,
    /// Its name within the group.
    pub node: String,
    /// Seconds from one reading to the next.
    pub every: u32,
}

/// A topic on which the plant's systems may command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commands {
    /// It.
    pub topic: String,
    /// What comes of it at most.
    pub authority: Authority,
}

/// What a message may bring about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authority {
    /// It reads, and makes safe.
    Protective,
    /// What rules of the policy allow besides; nobody is asked.
    Rules,
    /// A person is asked about the rest.
    Ask,
}

/// How the broker is known, and how we are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// Who signs for the broker, PEM. It is named also where it is a public one: what the broker says is acted upon.
    pub ca: PathBuf,
    /// Our own certificate, PEM, and its key.
    pub certificate: Option<(PathBuf, Secret)>,
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    export: Export,
}

/// `[metrics]` as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Metrics {
    listen: Option<Spanned<SocketAddr>>,
    open_network: Option<bool>,
}

/// Where `/metrics` listens, if it does.
pub(super) fn metrics(text: &str, path: &Path, written: &Metrics) -> Result<Option<SocketAddr>, ConfigError> {
    match &written.listen {
        Some(address) if !address.get_ref().ip().is_loopback() && written.open_network != Some(true) => {
            let fact = "whoever reaches this address can read the figures without a password";
            let hint = "use 127.0.0.1:PORT, or say open-network = true when the network is closed";
            Err(ConfigError::at(path, text, address.span(), fact).hint(hint))
        }
        address => Ok(address.as_ref().map(|address| *address.get_ref())),
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Export {
    mqtt: Option<Spanned<WrittenMqtt>>,
    otlp: Option<Spanned<http::WrittenOtlp>>,
    webhook: Option<Spanned<http::WrittenWebhook>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WrittenMqtt {
    broker: Spanned<String>,
    device: Spanned<String>,
    client_id: Option<Spanned<String>>,
    topic: Option<Spanned<String>>,
    username: Option<Spanned<String>>,
    password_credential: Option<String>,
    password_file: Option<PathBuf>,
    ca: Option<Spanned<PathBuf>>,
    certificate: Option<Spanned<PathBuf>>,
    key_credential: Option<String>,
    key_file: Option<PathBuf>,
    open_network: Option<bool>,
    rate: Option<Spanned<u32>>,
    backlog_max: Option<Spanned<u64>>,
    command_topic: Option<Spanned<String>>,
    command_authority: Option<Spanned<String>>,
    sparkplug: Option<Spanned<bool>>,
    sparkplug_group: Option<Spanned<String>>,
    sparkplug_node: Option<Spanned<String>>,
    sparkplug_every: Option<Spanned<u32>>,
}

/// Reads `[export]`; other tables are not looked at.
///
/// # Errors
/// With the first mistake, its line and its key.
pub fn read(text: &str, path: &Path) -> Result<Exports, ConfigError> {
    let file: File = toml::from_str(text).map_err(|error| ConfigError::from_toml(path, text, &error))?;
    let wrong = |wrong: Wrong| wrong.of(path, text);
    Ok(Exports {
        mqtt: file.export.mqtt.as_ref().map(mqtt).transpose().map_err(wrong)?,
        otlp: file.export.otlp.as_ref().map(http::otlp).transpose().map_err(wrong)?,
        webhook: file.export.webhook.as_ref().map(http::webhook).transpose().map_err(wrong)?,
    })
}

/// Where a key of `[export.TABLE]` stands, or the table where it has no such key; for what shows only when the files
/// that are named are read.
#[must_use]
pub fn mistake(text: &str, path: &Path, table: &str, key: &str, fact: String) -> ConfigError {
    let read = toml::de::DeTable::parse(text).ok();
    let found = read.as_ref().and_then(|file| {
        let table = file.get_ref().get("export")?.get_ref().get(table)?;
        Some(table.get_ref().get(key).map_or_else(|| table.span(), Spanned::span))
    });
    match found {
        Some(span) => ConfigError::at(path, text, span, fact),
        None => ConfigError::of_file(path, format!("export.{table}.{key}: {fact}")),
    }
}

fn mqtt(table: &Spanned<WrittenMqtt>) -> Result<Mqtt, Wrong> {
    let written = table.get_ref();
    let Broker { is_tls, host, port } = broker(&written.broker)?;
    let device = name(&written.device)?;
    let password = secret("password", written.password_credential.as_ref(), written.password_file.as_ref())
        .map_err(|fact| Wrong::at(table, fact))?;
    if let (None, Some(_)) = (&written.username, &password) {
        return Err(Wrong::at(table, "a password needs the username that it belongs to"));
    }
    let files = WrittenTls {
        ca: written.ca.as_ref(),
        certificate: written.certificate.as_ref(),
        key_credential: written.key_credential.as_ref(),
        key_file: written.key_file.as_ref(),
    };
    let tls = tls(table, &written.broker, &files, is_tls, "mqtts://HOST:8883")?;
    if tls.is_none() && !is_loopback(&host) && written.open_network != Some(true) {
        let fact = "without TLS, whoever is on the way reads and writes what is said here";
        let hint = "mqtts://HOST:8883, or open-network = true when the network is closed";
        return Err(Wrong::at(&written.broker, fact).hint(hint));
    }
    let prefix = match &written.topic {
        None => format!("interlock/{device}"),
        Some(prefix) => topic(prefix)?,
    };
    Ok(Mqtt {
        commands: commands(written, &prefix)?,
        sparkplug: sparkplug(written, &device)?,
        tls,
        client_id: match &written.client_id {
            None => format!("interlock-{device}"),
            Some(id) => name(id)?,
        },
        topic: prefix,
        username: written.username.as_ref().map(|name| name.get_ref().clone()),
        password,
        rate: within(written.rate.as_ref(), RATE, &RATES)?,
        backlog_max: within(written.backlog_max.as_ref(), BACKLOG_MAX, &BACKLOGS)?,
        host,
        port,
        device,
    })
}

fn commands(written: &WrittenMqtt, prefix: &str) -> Result<Option<Commands>, Wrong> {
    let authority = match written.command_authority.as_ref().map(|word| (word, word.get_ref().as_str())) {
        None | Some((_, "protective")) => Authority::Protective,
        Some((_, "rules")) => Authority::Rules,
        Some((_, "ask")) => Authority::Ask,
        Some((word, _)) => {
            return Err(Wrong::at(word, "there is no such authority").hint("\"protective\", \"rules\" or \"ask\""));
        }
    };
    let Some(place) = &written.command_topic else {
        return match &written.command_authority {
            None => Ok(None),
            Some(word) => Err(Wrong::at(word, "command-authority needs the command-topic that has it")),
        };
    };
    let topic = topic(place)?;
    // What we say ourselves must not come back as a command.
    let said = topic.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/'));
    if said.is_some_and(|word| OWN_TOPICS.contains(&word)) {
        return Err(Wrong::at(place, "this box speaks on that topic itself")
            .hint("command-topic = \"interlock/box-1/command\""));
    }
    Ok(Some(Commands { topic, authority }))
}

fn sparkplug(written: &WrittenMqtt, device: &str) -> Result<Option<Sparkplug>, Wrong> {
    if !written.sparkplug.as_ref().is_some_and(|on| *on.get_ref()) {
        let group = written.sparkplug_group.as_ref().map(|one| Wrong::at(one, SPARKPLUG_OFF));
        let node = written.sparkplug_node.as_ref().map(|one| Wrong::at(one, SPARKPLUG_OFF));
        let every = written.sparkplug_every.as_ref().map(|one| Wrong::at(one, SPARKPLUG_OFF));
        return group.or(node).or(every).map_or(Ok(None), |wrong| Err(wrong.hint("sparkplug = true")));
    }
    Ok(Some(Sparkplug {
        group: written.sparkplug_group.as_ref().map_or_else(|| Ok(SPARKPLUG_GROUP.to_owned()), name)?,
        node: written.sparkplug_node.as_ref().map_or_else(|| Ok(device.to_owned()), name)?,
        every: within(written.sparkplug_every.as_ref(), SPARKPLUG_EVERY, &SPARKPLUG_EVERIES)?,
    }))
}

struct Broker {
    is_tls: bool,
    host: String,
    port: u16,
}

fn broker(written: &Spanned<String>) -> Result<Broker, Wrong> {
    const FORM: &str = "mqtts://HOST, mqtts://HOST:PORT, mqtt://127.0.0.1:1883";
    let wrong = |fact: &str| Wrong::at(written, fact).hint(FORM);
    let url = written.get_ref();
    let (is_tls, place) = match url.split_once("://") {
        Some(("mqtts", place)) => (true, place),
        Some(("mqtt", place)) => (false, place),
        Some(_) | None => return Err(wrong("a broker begins with mqtts:// or mqtt://")),
    };
    if place.contains('@') {
        return Err(wrong("a broker has no name or password in it; username and password-credential name them"));
    }
    let place = place.strip_suffix('/').unwrap_or(place);
    // A colon inside of [::1] is no port.
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        Some(_) | None => (place, None),
    };
    let port = match port {
        None if is_tls => 8883,
        None => 1883,
        Some(port) => match port.parse() {
            Ok(port) if port > 0 => port,
            Ok(_) | Err(_) => return Err(wrong("the port is no number from 1 to 65535")),
        },
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match bare {
        // A certificate is for a name.
        Some(_) if is_tls => return Err(wrong("with TLS a broker has a host name, or an address of IPv4")),
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_')),
    };
    if !is_host {
        return Err(wrong("there is no host name in it"));
    }
    Ok(Broker { is_tls, host: host.to_owned(), port })
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The files of TLS, as they are written.
struct WrittenTls<'a> {
    ca: Option<&'a Spanned<PathBuf>>,
    certificate: Option<&'a Spanned<PathBuf>>,
    key_credential: Option<&'a String>,
    key_file: Option<&'a PathBuf>,
}

fn tls<T>(
    table: &Spanned<T>,
    address: &Spanned<String>,
    written: &WrittenTls<'_>,
    is_tls: bool,
    form: &'static str,
) -> Result<Option<Tls>, Wrong> {
    let key = secret("key", written.key_credential, written.key_file).map_err(|fact| Wrong::at(table, fact))?;
    let certificate = match (written.certificate, key) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some((absolute(certificate)?, key)),
        (Some(certificate), None) => {
            return Err(Wrong::at(certificate, "a certificate needs key-credential or key-file beside it"));
        }
        (None, Some(_)) => return Err(Wrong::at(table, "a key needs the certificate beside it")),
    };
    let ca = written.ca.map(absolute).transpose()?;
    match (is_tls, ca) {
        (true, Some(ca)) => Ok(Some(Tls { ca, certificate })),
        (true, None) => {
            let hint = "ca = \"/etc/interlock/plant-ca.pem\", or the machine's own, /etc/ssl/certs/ca-certificates.crt";
            Err(Wrong::at(address, "TLS needs ca: who signs for the other side").hint(hint))
        }
        (false, None) if certificate.is_none() => Ok(None),
        (false, _) => {
            let fact = "ca and certificate are for TLS, and this address is reached without";
            Err(Wrong::at(address, fact).hint(form))
        }
    }
}

fn absolute(path: &Spanned<PathBuf>) -> Result<PathBuf, Wrong> {
    if path.get_ref().is_absolute() {
        return Ok(path.get_ref().clone());
    }
    Err(Wrong::at(path, format!("{:?} is not an absolute path", path.get_ref())))
}

fn name(written: &Spanned<String>) -> Result<String, Wrong> {
    let name = written.get_ref();
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    if name.is_empty() || name.len() > NAME_LEN_MAX || !name.bytes().all(fits) {
        let fact = format!("{name:?} is no name: 1 to {NAME_LEN_MAX} of A-Z a-z 0-9 . _ -");
        return Err(Wrong::at(written, fact));
    }
    Ok(name.clone())
}

/// A topic that one can publish to: no wildcards, and no `$` of the broker's own.
fn topic(written: &Spanned<String>) -> Result<String, Wrong> {
    let topic = written.get_ref();
    let is_wrong = topic.is_empty()
        || topic.len() > TOPIC_LEN_MAX
        || topic.starts_with(['$', '/'])
        || topic.ends_with('/')
        || topic.contains(['+', '#'])
        || topic.chars().any(char::is_control);
    if is_wrong {
        let fact = format!("{topic:?} is no topic: at most {TOPIC_LEN_MAX} bytes, without + and #");
        return Err(Wrong::at(written, fact).hint("topic = \"plant/hall-3/interlock\""));
    }
    Ok(topic.clone())
}

fn within<T: Copy + PartialOrd + std::fmt::Display>(
    written: Option<&Spanned<T>>,
    usual: T,
    bounds: &RangeInclusive<T>,
) -> Result<T, Wrong> {
    match written {
        None => Ok(usual),
        Some(value) if bounds.contains(value.get_ref()) => Ok(*value.get_ref()),
        Some(value) => {
            let fact = format!("{} is outside {} to {}", value.get_ref(), bounds.start(), bounds.end());
            Err(Wrong::at(value, fact))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<Option<Mqtt>, String> {
        let text = format!("[export.mqtt]\n{body}\n");
        super::read(&text, Path::new("x.toml")).map(|read| read.mqtt).map_err(|error| error.to_string())
    }

    #[test]
    fn a_broker_is_read_whole_and_what_is_not_said_has_its_usual_value() {
        let least = Mqtt {
            host: "127.0.0.1".into(),
            port: 1883,
            tls: None,
            device: "box-1".into(),
            client_id: "interlock-box-1".into(),
            topic: "interlock/box-1".into(),
            username: None,
            password: None,
            rate: 1_000,
            backlog_max: 100_000,
            commands: None,
            sparkplug: None,
        };
        assert_eq!(read("broker = \"mqtt://127.0.0.1\"\ndevice = \"box-1\"").unwrap(), Some(least));
        let all = Mqtt {
            host: "broker.plant".into(),
            port: 9000,
            tls: Some(Tls {
                ca: "/ca.pem".into(),
                certificate: Some(("/c.pem".into(), Secret::Credential("k".into()))),
            }),
            device: "b".into(),
            client_id: "c".into(),
            topic: "hall/3".into(),
            username: Some("u".into()),
            password: Some(Secret::File("/p".into())),
            rate: 5,
            backlog_max: 2_000,
            commands: Some(Commands { topic: "hall/3/do".into(), authority: Authority::Rules }),
            sparkplug: Some(Sparkplug { group: "plant".into(), node: "n".into(), every: 5 }),
        };
        let text = "broker = \"mqtts://broker.plant:9000/\"\ndevice = \"b\"\nclient-id = \"c\"\ntopic = \"hall/3\"\n\
                    username = \"u\"\npassword-file = \"/p\"\nca = \"/ca.pem\"\ncertificate = \"/c.pem\"\n\
                    key-credential = \"k\"\nrate = 5\nbacklog-max = 2000\ncommand-topic = \"hall/3/do\"\n\
                    command-authority = \"rules\"\nsparkplug = true\nsparkplug-group = \"plant\"\n\
                    sparkplug-node = \"n\"\nsparkplug-every = 5";
        assert_eq!(read(text).unwrap(), Some(all));
        assert_eq!(super::read("version = 1\n", Path::new("x.toml")).unwrap(), Exports::default());
    }

    #[test]
    fn a_mistake_is_named_with_its_line() {
        let check = |body: &str, want: &str| {
            let error = read(body).expect_err(body);
            assert!(error.contains(want), "{body}\n{error}");
        };
        let good = "device = \"b\"\nbroker = \"mqtts://h\"\nca = \"/ca.pem\"\n";
        check("device = \"b\"\nbroker = \"mqtts://h\"", "TLS needs ca");
        check("device = \"b\"\nbroker = \"mqtts://[::1]\"", "with TLS a broker has a host name");
        check(
            "device = \"b\"\nbroker = \"http://h\"",
            "x.toml:3:10: export.mqtt.broker: a broker begins with mqtts://",
        );
        check("device = \"b\"\nbroker = \"mqtt://h\"", "without TLS, whoever is on the way reads");
        check("device = \"b\"\nbroker = \"mqtts://u:p@h\"", "a broker has no name or password in it");
        check("device = \"b\"\nbroker = \"mqtts://h:0\"", "the port is no number");
        check("device = \"b\"\nbroker = \"mqtts://a b\"", "there is no host name in it");
        check("device = \"a/b\"\nbroker = \"mqtts://h\"", "\"a/b\" is no name");
        check("device = \"b\"\nbroker = \"mqtt://localhost\"\nca = \"/x\"", "ca and certificate are for TLS");
        check(&format!("{good}password-file = \"/p\""), "a password needs the username");
        check(&format!("{good}password = \"secret\""), "unknown field `password`");
        check(&format!("{good}username = \"u\"\npassword-file = \"p\""), "password-file is an absolute path");
        check(
            &format!("{good}key-file = \"/k\"\nkey-credential = \"k\""),
            "a key comes from a credential or from a file",
        );
        check("device = \"b\"\nbroker = \"mqtts://h\"\nca = \"x\"", "\"x\" is not an absolute path");
        check(&format!("{good}key-file = \"/k\""), "a key needs the certificate");
        check(&format!("{good}certificate = \"/k\""), "a certificate needs key-credential or key-file");
        check(&format!("{good}topic = \"a/#\""), "\"a/#\" is no topic");
        check(&format!("{good}topic = \"$SYS\""), "\"$SYS\" is no topic");
        check(&format!("{good}command-topic = \"interlock/b/state\""), "this box speaks on that topic itself");
        check(&format!("{good}command-authority = \"ask\""), "command-authority needs the command-topic");
        check(&format!("{good}command-topic = \"x\"\ncommand-authority = \"all\""), "there is no such authority");
        check(&format!("{good}sparkplug-node = \"n\""), "this is for Sparkplug, which is not switched on");
        check(&format!("{good}sparkplug = true\nsparkplug-group = \"a/b\""), "\"a/b\" is no name");
        check(&format!("{good}sparkplug = true\nsparkplug-every = 0"), "0 is outside 1 to 3600");
        check(&format!("{good}rate = 0"), "0 is outside 1 to 100000");
        check(&format!("{good}backlog-max = 10"), "10 is outside 1000 to 100000000");
    }
}
