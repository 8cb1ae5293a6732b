//! How one simulated value moves: the `[process]` table of a plant file, read and checked.
//!
//! Every name in a law is resolved here, once: a law that reaches the model cannot name a point that is not there.

use std::collections::BTreeMap;
use std::path::Path;

use interlock_domain::device::point::Table;
use interlock_domain::device::table::{Device, Devices};
use serde::Deserialize;
use toml::Spanned;

use crate::config::ConfigError;

/// The place of a point in the model's list of values.
pub(super) type At = usize;

/// A point that has to be true, or with `false` false.
pub(super) type Condition = (At, bool);

/// One law, for one point.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Law {
    pub(super) drives: At,
    pub(super) start: f64,
    pub(super) how: How,
}

/// See the comments in `models/plant/plant.toml`.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum How {
    Switch {
        all: Vec<Condition>,
        or: Vec<Condition>,
        hold: Vec<Condition>,
        level: Option<Level>,
        differ: Option<[At; 2]>,
    },
    Latch {
        all: Vec<Condition>,
        or: Vec<Condition>,
        on: Vec<At>,
    },
    Lag {
        tau: f64,
        ripple: f64,
        target: Sum,
    },
    Ramp {
        rate: f64,
        target: Sum,
    },
    Gain {
        per_second: Sum,
    },
    Count {
        on: Vec<At>,
        step: f64,
        wrap: bool,
    },
    Take {
        on: Vec<At>,
        from: Option<At>,
        add: f64,
    },
    Pulse {
        on: Vec<At>,
        seconds: f64,
    },
    Travel {
        from: At,
        seconds: f64,
        all: Vec<Condition>,
    },
    Rest,
}

/// A number that is above or below a limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Level {
    pub(super) from: At,
    pub(super) above: Option<f64>,
    pub(super) below: Option<f64>,
}

/// `base` and the terms whose conditions hold.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sum {
    pub(super) base: f64,
    pub(super) terms: Vec<Term>,
}

/// `gain`, or `gain` times a value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Term {
    pub(super) from: Option<At>,
    pub(super) gain: f64,
    pub(super) all: Vec<Condition>,
}

#[derive(Deserialize)]
struct File {
    process: Option<ProcessTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProcessTable {
    laws: Vec<Spanned<LawTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LawTable {
    of: Vec<String>,
    point: String,
    law: String,
    start: Option<f64>,
    base: Option<f64>,
    tau: Option<f64>,
    rate: Option<f64>,
    ripple: Option<f64>,
    #[serde(default)]
    terms: Vec<TermTable>,
    #[serde(default)]
    when: Vec<String>,
    #[serde(default)]
    or: Vec<String>,
    #[serde(default)]
    hold: Vec<String>,
    #[serde(default)]
    on: Vec<String>,
    from: Option<String>,
    above: Option<f64>,
    below: Option<f64>,
    differ: Option<[String; 2]>,
    step: Option<f64>,
    #[serde(default)]
    wrap: bool,
    add: Option<f64>,
    seconds: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TermTable {
    from: Option<String>,
    gain: f64,
    #[serde(default)]
    when: Vec<String>,
}

/// Where each point stands in the list of values, by `device/point`.
pub(super) type Places = BTreeMap<(String, String), At>;

/// The laws of `text`, in its order.
///
/// # Errors
/// With the first law that names what is not there or lacks a number that it needs.
pub(super) fn parse(text: &str, file: &Path, devices: &Devices, places: &Places) -> Result<Vec<Law>, ConfigError> {
    let wire: File = toml::from_str(text).map_err(|error| ConfigError::from_toml(file, text, &error))?;
    let mut laws = Vec::new();
    for table in wire.process.iter().flat_map(|process| &process.laws) {
        let wrong = |message: String| ConfigError::at(file, text, table.span(), message);
        let wire = table.get_ref();
        for of in &wire.of {
            let named = devices.get(of);
            let of_kind = devices.of_kind(of).filter(|_| named.is_none());
            let owners = named.into_iter().chain(of_kind).collect::<Vec<_>>();
            if owners.is_empty() {
                return Err(wrong(format!("there is no device and no kind named {of:?}")));
            }
            for device in owners {
                let reader = Reader { device, devices, places };
                laws.push(reader.law(wire).map_err(&wrong)?);
            }
        }
    }
    Ok(laws)
}

struct Reader<'a> {
    device: &'a Device,
    devices: &'a Devices,
    places: &'a Places,
}

impl Reader<'_> {
    fn law(&self, wire: &LawTable) -> Result<Law, String> {
        let needs = |key: &str, value: Option<f64>| {
            value.filter(|value| value.is_finite()).ok_or_else(|| format!("{} of {} needs {key}", wire.law, wire.point))
        };
        let positive = |key: &str, value: Option<f64>| {
            needs(key, value).and_then(|value| {
                if value > 0.0 { Ok(value) } else { Err(format!("{key} of {} is not above 0", wire.point)) }
            })
        };
        let on = || {
            self.some_at(&wire.on).and_then(|on| {
                if on.is_empty() { Err(format!("{} of {} needs on", wire.law, wire.point)) } else { Ok(on) }
            })
        };
        let base = wire.base.unwrap_or(0.0);
        let sum = || {
            Ok::<_, String>(Sum {
                base,
                terms: wire.terms.iter().map(|term| self.term(term)).collect::<Result<_, _>>()?,
            })
        };
        let from = wire.from.as_deref().map(|name| self.at(name)).transpose()?;
        let mut start = wire.start.unwrap_or(0.0);
        let how = match wire.law.as_str() {
            "switch" => How::Switch {
                all: self.conditions(&wire.when)?,
                or: self.conditions(&wire.or)?,
                hold: self.conditions(&wire.hold)?,
                level: from.map(|from| Level { from, above: wire.above, below: wire.below }),
                differ: match &wire.differ {
                    None => None,
                    Some([one, other]) => Some([self.at(one)?, self.at(other)?]),
                },
            },
            "latch" => How::Latch { all: self.conditions(&wire.when)?, or: self.conditions(&wire.or)?, on: on()? },
            "lag" => {
                start = wire.start.unwrap_or(base);
                How::Lag { tau: positive("tau", wire.tau)?, ripple: wire.ripple.unwrap_or(0.0), target: sum()? }
            }
            "ramp" => {
                start = wire.start.unwrap_or(base);
                How::Ramp { rate: positive("rate", wire.rate)?, target: sum()? }
            }
            "sum" => How::Gain { per_second: sum()? },
            "count" => How::Count { on: on()?, step: needs("step", wire.step)?, wrap: wire.wrap },
            "take" => How::Take { on: on()?, from, add: wire.add.unwrap_or(0.0) },
            "pulse" => How::Pulse { on: on()?, seconds: positive("seconds", wire.seconds)? },
            "travel" => How::Travel {
                from: from.ok_or_else(|| format!("travel of {} needs from", wire.point))?,
                seconds: positive("seconds", wire.seconds)?,
                all: self.conditions(&wire.when)?,
            },
            "rest" => {
                start = needs("start", wire.start)?;
                How::Rest
            }
            other => return Err(format!("{other:?} is not a law")),
        };
        let moves = how != How::Rest;
        let table = self.device.points.get(&wire.point).map(|point| point.table);
        if moves && matches!(table, Some(Table::Coil | Table::Holding)) {
            return Err(format!(
                "{}/{} holds what was written: only `rest` may drive it",
                self.device.name, wire.point
            ));
        }
        Ok(Law { drives: self.at(&wire.point)?, start, how })
    }

    fn term(&self, wire: &TermTable) -> Result<Term, String> {
        let from = wire.from.as_deref().map(|name| self.at(name)).transpose()?;
        Ok(Term { from, gain: wire.gain, all: self.conditions(&wire.when)? })
    }

    fn conditions(&self, names: &[String]) -> Result<Vec<Condition>, String> {
        names
            .iter()
            .map(|name| match name.strip_prefix('!') {
                None => Ok((self.at(name)?, true)),
                Some(name) => Ok((self.at(name)?, false)),
            })
            .collect()
    }

    fn some_at(&self, names: &[String]) -> Result<Vec<At>, String> {
        names.iter().map(|name| self.at(name)).collect()
    }

    /// A point of this device, or `device/point`, where * is this device's number.
    fn at(&self, name: &str) -> Result<At, String> {
        let number = self.device.number.map(|number| number.to_string()).unwrap_or_default();
        let (device, point) = match name.split_once('/') {
            None => (self.device.name.clone(), name),
            Some((device, point)) => (device.replace('*', &number), point),
        };
        let key = (device, point.to_owned());
        self.places.get(&key).copied().ok_or_else(|| {
            let what = if self.devices.get(&key.0).is_some() { "point" } else { "device" };
            format!("there is no {what} {}/{}", key.0, key.1)
        })
    }
}
