//! The payload of Sparkplug B in protobuf, as much of it as is said and listened to here.
//!
//! Pure, and by hand: a payload is a dozen fields, and a library for them would bring a code generator. Field numbers
//! are those of `sparkplug_b.proto` (Sparkplug 3.0, chapter 6). What was heard is read within the bytes that came; a
//! field that is not known is stepped over, and bytes that are none are no payload.

/// Data types (Sparkplug 3.0, 6.4.16).
const INT32: u32 = 3;
const INT64: u32 = 4;
const DOUBLE: u32 = 10;
const BOOLEAN: u32 = 11;
const STRING: u32 = 12;

/// Metrics of one payload that are listened to.
const METRICS_MAX: usize = 64;

/// What a metric says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Content {
    Boolean(bool),
    Double(f64),
    Int64(u64),
}

/// The type of a metric that has no value now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Boolean,
    Double,
    Int64,
}

impl Type {
    fn number(self) -> u32 {
        match self {
            Type::Boolean => BOOLEAN,
            Type::Double => DOUBLE,
            Type::Int64 => INT64,
        }
    }
}

/// A metric that is said.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Metric<'a> {
    /// Its name, in births.
    pub(super) name: Option<&'a str>,
    /// The number that stands for its name.
    pub(super) alias: Option<u64>,
    pub(super) is: Type,
    /// `None` where there is no value now.
    pub(super) content: Option<Content>,
    /// Whether it can be relied on, where that is said.
    pub(super) quality: Option<Quality>,
    /// Its unit, in births.
    pub(super) unit: Option<&'a str>,
}

/// As far as a value can be relied on (Sparkplug 3.0, 6.4.23).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quality {
    Bad,
    Good,
}

impl Quality {
    fn number(self) -> u64 {
        match self {
            Quality::Bad => 0,
            Quality::Good => 192,
        }
    }
}

/// The bytes of a payload.
pub(super) fn encode(at_ms: u64, metrics: &[Metric<'_>], seq: Option<u8>) -> Vec<u8> {
    let mut bytes = Vec::new();
    number(&mut bytes, 1, at_ms);
    for metric in metrics {
        message(&mut bytes, 2, |bytes| put(bytes, at_ms, metric));
    }
    if let Some(seq) = seq {
        number(&mut bytes, 3, seq.into());
    }
    bytes
}

fn put(bytes: &mut Vec<u8>, at_ms: u64, metric: &Metric<'_>) {
    if let Some(name) = metric.name {
        text(bytes, 1, name);
    }
    if let Some(alias) = metric.alias {
        number(bytes, 2, alias);
    }
    number(bytes, 3, at_ms);
    number(bytes, 4, metric.is.number().into());
    if metric.content.is_none() {
        number(bytes, 7, 1);
    }
    if metric.quality.is_some() || metric.unit.is_some() {
        message(bytes, 9, |bytes| properties(bytes, metric));
    }
    match metric.content {
        None => {}
        Some(Content::Int64(value)) => number(bytes, 11, value),
        Some(Content::Double(value)) => {
            key(bytes, 13, 1);
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        Some(Content::Boolean(value)) => number(bytes, 14, value.into()),
    }
}

/// Keys and values stand in two lists, one beside the other.
fn properties(bytes: &mut Vec<u8>, metric: &Metric<'_>) {
    if metric.quality.is_some() {
        text(bytes, 1, "Quality");
    }
    if metric.unit.is_some() {
        text(bytes, 1, "engUnit");
    }
    if let Some(quality) = metric.quality {
        message(bytes, 2, |bytes| {
            number(bytes, 1, INT32.into());
            number(bytes, 3, quality.number());
        });
    }
    if let Some(unit) = metric.unit {
        message(bytes, 2, |bytes| {
            number(bytes, 1, STRING.into());
            text(bytes, 8, unit);
        });
    }
}

fn key(bytes: &mut Vec<u8>, field: u32, wire: u32) {
    varint(bytes, u64::from(field << 3 | wire));
}

fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
        value >>= 7;
    }
    bytes.push(u8::try_from(value).unwrap_or(0));
}

fn number(bytes: &mut Vec<u8>, field: u32, value: u64) {
    key(bytes, field, 0);
    varint(bytes, value);
}

fn text(bytes: &mut Vec<u8>, field: u32, value: &str) {
    key(bytes, field, 2);
    varint(bytes, value.len() as u64);
    bytes.extend_from_slice(value.as_bytes());
}

fn message(bytes: &mut Vec<u8>, field: u32, write: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    write(&mut inner);
    key(bytes, field, 2);
    varint(bytes, inner.len() as u64);
    bytes.append(&mut inner);
}

/// A metric that was heard.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Heard {
    pub(super) name: Option<String>,
    pub(super) alias: Option<u64>,
    /// It is a yes.
    pub(super) is_true: bool,
}

/// One field as it stands on the wire.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Other,
}

/// The metrics of a payload; `None` where the bytes are none.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<Heard>> {
    let mut heard = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        if let (2, Field::Bytes(inner)) = field(&mut rest)?
            && heard.len() < METRICS_MAX
        {
            heard.push(metric(inner)?);
        }
    }
    Some(heard)
}

fn metric(mut rest: &[u8]) -> Option<Heard> {
    let mut heard = Heard::default();
    while !rest.is_empty() {
        match field(&mut rest)? {
            (1, Field::Bytes(name)) => heard.name = Some(std::str::from_utf8(name).ok()?.to_owned()),
            (2, Field::Number(alias)) => heard.alias = Some(alias),
            (14, Field::Number(value)) => heard.is_true = value != 0,
            (_, Field::Number(_) | Field::Bytes(_) | Field::Other) => {}
        }
    }
    Some(heard)
}

fn field<'a>(rest: &mut &'a [u8]) -> Option<(u64, Field<'a>)> {
    let key = read_varint(rest)?;
    let found = match key & 7 {
        0 => Field::Number(read_varint(rest)?),
        1 => {
            rest.split_off(..8)?;
            Field::Other
        }
        2 => {
            let length = usize::try_from(read_varint(rest)?).ok()?;
            Field::Bytes(rest.split_off(..length)?)
        }
        5 => {
            rest.split_off(..4)?;
            Field::Other
        }
        _ => return None,
    };
    Some((key >> 3, found))
}

fn read_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, left) = rest.split_first()?;
        *rest = left;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_these_bytes() {
        let metric = |content| Metric {
            name: Some("run"),
            alias: Some(300),
            is: Type::Boolean,
            content,
            quality: None,
            unit: None,
        };
        // Written out by the numbers of sparkplug_b.proto.
        let said = [
            0x08, 0x96, 0x01, 0x12, 0x0f, 0x0a, 0x03, b'r', b'u', b'n', 0x10, 0xac, 0x02, 0x18, 0x96, 0x01, 0x20, 0x0b,
            0x70, 0x01, 0x18, 0xff, 0x01,
        ];
        let bytes = encode(150, &[metric(Some(Content::Boolean(true)))], Some(255));
        // The length of the metric is that of what follows it.
        assert_eq!(bytes[..3], said[..3]);
        assert_eq!(usize::from(bytes[4]), bytes.len() - 5 - 3);
        assert_eq!(bytes[5..], said[5..]);
        let unknown = encode(150, &[metric(None)], None);
        assert!(unknown.ends_with(&[0x38, 0x01]), "{unknown:?}");
    }

    #[test]
    fn what_is_heard_is_read_and_bytes_that_are_none_are_no_payload() {
        let metric = Metric {
            name: Some("Node Control/Rebirth"),
            alias: None,
            is: Type::Boolean,
            content: Some(Content::Boolean(true)),
            quality: Some(Quality::Bad),
            unit: Some("Hz"),
        };
        let number = Metric {
            name: None,
            alias: Some(7),
            is: Type::Double,
            content: Some(Content::Double(1.5)),
            ..metric.clone()
        };
        let bytes = encode(1, &[metric, number], Some(3));
        let rebirth = Heard { name: Some("Node Control/Rebirth".into()), alias: None, is_true: true };
        let other = Heard { name: None, alias: Some(7), is_true: false };
        assert_eq!(decode(&bytes), Some(vec![rebirth, other]));
        for length in 0..bytes.len() {
            // Cut anywhere it is either none or fewer; it never reads beyond its end.
            let _ = decode(&bytes[..length]);
        }
        for none in
            [&b"\x0f"[..], b"\x12\x7f", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"\x12\x03\x0a\x01\xff"]
        {
            assert_eq!(decode(none), None, "{none:?}");
        }
        assert_eq!(decode(b""), Some(vec![]));
    }
}
