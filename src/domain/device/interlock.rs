//! Process interlocks: what must be read before a value may be written.
//!
//! A rule is about a written point, not about an action or about whoever asked: whatever writes the point (an action,
//! an action of another device, a direct write) meets it, and so do voice, agents, MCP and the command line. It
//! says what other points must read; a reading that cannot be had counts as one that is not so. It is judged here from
//! plain values; reading them is the bus's business, right before the first write of the call.
//!
//! A protective action is not held up: it brings the plant into its safe state, and a sensor that is broken must not
//! keep it from that. A rule that must hold even then says so.
//!
//! None of this replaces hard-wired safety. Between the reading and the write the world may move, and a process
//! computer may stop.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use thiserror::Error;

use super::codec::{Reading, ValueError};
use super::plan::{Plan, Step};
use super::point::Point;
use super::table::{Device, Devices};

/// Most rules of one configuration, and most readings of one rule: each is read before the write.
pub const RULES_MAX: usize = 1000;
/// See [`RULES_MAX`].
pub const READINGS_MAX: usize = 32;

/// A rule as a person writes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Its name, for messages.
    pub name: String,
    /// What it says to the operator, in their own words; empty for none.
    pub message: String,
    /// The devices that it is about: a name, or one with a single `*`.
    pub device: String,
    /// The point that is written.
    pub point: String,
    /// Which values it is about; `None` for all.
    pub values: Option<Test>,
    /// All of these must be so; of each, one reading is enough.
    pub needs: Vec<Vec<Need>>,
    /// It holds for protective actions too.
    pub protective: bool,
}

/// One reading that must be so.
#[derive(Debug, Clone, PartialEq)]
pub struct Need {
    /// The device; a `*` stands for what the rule's own `*` stood for.
    pub device: String,
    /// The point.
    pub point: String,
    /// How it must read.
    pub test: Test,
}

/// How a value must be.
#[derive(Debug, Clone, PartialEq)]
pub enum Test {
    /// Just so: true, false, a number, or the name of a value.
    Is(Value),
    /// From `min` to `max`, both included; one of them may be open.
    Within {
        /// The least.
        min: Option<f64>,
        /// The most.
        max: Option<f64>,
    },
}

/// A [`Test`] with the point that it is about.
#[derive(Debug, Clone, PartialEq)]
enum Holds {
    Is(Reading),
    Within { min: f64, max: f64 },
}

impl Holds {
    fn new(point: &Point, test: &Test) -> Result<Holds, Why> {
        match test {
            Test::Is(value) => Ok(Holds::Is(point.meant(value)?)),
            Test::Within { .. } if point.repr.is_bit() => Err(Why::BitRange { point: point.name.clone() }),
            Test::Within { min, max } => {
                let (min, max) = (min.unwrap_or(f64::NEG_INFINITY), max.unwrap_or(f64::INFINITY));
                if min.is_nan() || max.is_nan() || min > max {
                    return Err(Why::Empty { min, max });
                }
                Ok(Holds::Within { min, max })
            }
        }
    }

    fn of(&self, point: &Point, reading: Reading) -> bool {
        match self {
            // Half a step of the register: 42.5 written is 42.5 read, whatever the arithmetic in between.
            Holds::Is(wanted) => (wanted.number() - reading.number()).abs() <= point.scale.abs() / 2.0,
            Holds::Within { min, max } => (*min..=*max).contains(&reading.number()),
        }
    }

    fn told(&self, point: &Point) -> String {
        let shown = |value: f64| shown(point, Reading::Number(value));
        match self {
            Holds::Is(wanted) => format!("it must be {}", self::shown(point, *wanted)),
            Holds::Within { min, max } if max.is_infinite() => format!("it must be at least {}", shown(*min)),
            Holds::Within { min, max } if min.is_infinite() => format!("it must be at most {}", shown(*max)),
            Holds::Within { min, max } => format!("it must be {} to {}", shown(*min), shown(*max)),
        }
    }
}

fn shown(point: &Point, reading: Reading) -> String {
    match (reading, point.label(reading.number())) {
        (Reading::Bit(bit), _) => bit.to_string(),
        (Reading::Number(_), Some(label)) => label.to_owned(),
        (Reading::Number(_), None) if point.unit.is_empty() => reading.json().to_string(),
        (Reading::Number(_), None) => format!("{} {}", reading.json(), point.unit),
    }
}

/// A reading that a rule asks for, found in the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// The device.
    pub device: String,
    /// Its bus.
    pub bus: String,
    /// Its unit.
    pub unit: u8,
    /// The point.
    pub point: Arc<Point>,
    holds: Holds,
}

/// A rule as it stands before one point of one device.
#[derive(Debug, Clone, PartialEq)]
pub struct Interlock {
    rule: String,
    message: String,
    protective: bool,
    values: Option<Holds>,
    needs: Vec<Vec<Asked>>,
}

/// All rules, by device and point.
#[derive(Debug, Clone, Default)]
pub(super) struct Interlocks {
    count: usize,
    before: BTreeMap<(String, String), Vec<Arc<Interlock>>>,
}

impl Interlocks {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// What stands before the writes of a plan.
    pub(super) fn guard(&self, plan: &Plan) -> Vec<Arc<Interlock>> {
        let mut guard: Vec<Arc<Interlock>> = Vec::new();
        for step in &plan.steps {
            let Step::Write(put) = step else { continue };
            let key = (put.device.clone(), put.point.name.clone());
            for interlock in self.before.get(&key).into_iter().flatten() {
                // What cannot be decoded cannot have been encoded; if it could, the rule had better hold.
                let about = interlock.values.as_ref().is_none_or(|values| {
                    put.point.decode(put.raw).map_or(true, |reading| values.of(&put.point, reading))
                });
                let bound = !plan.protective || interlock.protective;
                if about && bound && !guard.iter().any(|known| Arc::ptr_eq(known, interlock)) {
                    guard.push(Arc::clone(interlock));
                }
            }
        }
        guard
    }
}

/// Why a rule cannot be.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum Why {
    /// No device fits.
    #[error("no device is named {pattern:?}")]
    NoDevice {
        /// The name or pattern.
        pattern: String,
    },
    /// More than one star.
    #[error("{pattern:?} has more than one *")]
    Stars {
        /// The pattern.
        pattern: String,
    },
    /// A device has no such point.
    #[error("{device} has no point named {point:?}; there are {}", .known.join(", "))]
    NoSuchPoint {
        /// The device.
        device: String,
        /// The point.
        point: String,
        /// Those that it has.
        known: Vec<String>,
    },
    /// The point cannot be written, so nothing would ever meet the rule.
    #[error("{device}/{point} cannot be written: nothing would meet the rule")]
    NeverWritten {
        /// The device.
        device: String,
        /// The point.
        point: String,
    },
    /// It asks for nothing.
    #[error("it needs nothing: a write that must never be is a deny rule of the policy")]
    NeedsNothing,
    /// It asks for too much.
    #[error("it needs {count} readings, at most {READINGS_MAX} are read before a write")]
    TooMany {
        /// How many.
        count: usize,
    },
    /// There are too many rules.
    #[error("there are more than {RULES_MAX} rules")]
    TooManyRules,
    /// A limit on true or false.
    #[error("{point} is true or false: write is = true")]
    BitRange {
        /// The point.
        point: String,
    },
    /// No number fits.
    #[error("no value is from {min} to {max}")]
    Empty {
        /// The least.
        min: f64,
        /// The most.
        max: f64,
    },
    /// A value that the point cannot have.
    #[error("{0}")]
    Value(#[from] ValueError),
}

impl Devices {
    /// Adds a rule.
    ///
    /// # Errors
    /// When it names what is not there, or could never hold or never be met.
    pub fn interlock(&mut self, rule: &Rule) -> Result<(), Why> {
        if self.interlocks.count >= RULES_MAX {
            return Err(Why::TooManyRules);
        }
        let count = rule.needs.iter().map(Vec::len).sum::<usize>();
        if rule.needs.is_empty() || rule.needs.iter().any(Vec::is_empty) {
            return Err(Why::NeedsNothing);
        }
        if count > READINGS_MAX {
            return Err(Why::TooMany { count });
        }
        if rule.device.matches('*').count() > 1 {
            return Err(Why::Stars { pattern: rule.device.clone() });
        }
        let mut made = Vec::new();
        for device in self.iter() {
            let Some(star) = star(&rule.device, &device.name) else { continue };
            let point = point_of(device, &rule.point)?;
            if !point.writable {
                return Err(Why::NeverWritten { device: device.name.clone(), point: point.name.clone() });
            }
            let values = rule.values.as_ref().map(|test| Holds::new(point, test)).transpose()?;
            let needs: Result<Vec<Vec<Asked>>, Why> =
                rule.needs.iter().map(|any| any.iter().map(|need| self.asked(need, star)).collect()).collect();
            let interlock = Interlock {
                rule: rule.name.clone(),
                message: rule.message.clone(),
                protective: rule.protective,
                values,
                needs: needs?,
            };
            made.push(((device.name.clone(), point.name.clone()), Arc::new(interlock)));
        }
        if made.is_empty() {
            return Err(Why::NoDevice { pattern: rule.device.clone() });
        }
        for (key, interlock) in made {
            self.interlocks.before.entry(key).or_default().push(interlock);
        }
        self.interlocks.count += 1;
        Ok(())
    }

    fn asked(&self, need: &Need, star: &str) -> Result<Asked, Why> {
        if need.device.matches('*').count() > 1 {
            return Err(Why::Stars { pattern: need.device.clone() });
        }
        let name = need.device.replace('*', star);
        let device = self.get(&name).ok_or(Why::NoDevice { pattern: name })?;
        let point = point_of(device, &need.point)?;
        Ok(Asked {
            device: device.name.clone(),
            bus: device.bus.clone(),
            unit: device.unit,
            point: Arc::clone(point),
            holds: Holds::new(point, &need.test)?,
        })
    }
}

/// What the `*` of a pattern stands for in a name; nothing for a pattern without one.
fn star<'n>(pattern: &str, name: &'n str) -> Option<&'n str> {
    match pattern.split_once('*') {
        None => (pattern == name).then_some(""),
        Some((before, after)) => name.strip_prefix(before)?.strip_suffix(after),
    }
}

fn point_of<'d>(device: &'d Device, name: &str) -> Result<&'d Arc<Point>, Why> {
    device.points.get(name).ok_or_else(|| Why::NoSuchPoint {
        device: device.name.clone(),
        point: name.to_owned(),
        known: device.points.keys().cloned().collect(),
    })
}

/// A rule that does not let a write through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    /// `interlock`: a reading is not as it must be; `interlock_unread`: none of them is, and one could not be had.
    pub code: &'static str,
    /// The rule and the readings, for a person.
    pub text: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// All readings that a guard asks for, each once.
#[must_use]
pub fn asked(guard: &[Arc<Interlock>]) -> Vec<&Asked> {
    let mut all: Vec<&Asked> = Vec::new();
    for asked in guard.iter().flat_map(|interlock| &interlock.needs).flatten() {
        if !all.iter().any(|known| known.device == asked.device && known.point.name == asked.point.name) {
            all.push(asked);
        }
    }
    all
}

/// Whether the readings let the writes through. `read` gives what was read of a device's point, or why nothing was.
///
/// # Errors
/// The first rule that does not.
pub fn judge(guard: &[Arc<Interlock>], read: impl Fn(&Asked) -> Result<Reading, String>) -> Result<(), Breach> {
    for interlock in guard {
        for any in &interlock.needs {
            let mut unread = false;
            let mut facts: Vec<String> = Vec::new();
            for asked in any {
                let place = format!("{}/{}", asked.device, asked.point.name);
                match read(asked) {
                    Ok(reading) if asked.holds.of(&asked.point, reading) => {
                        facts.clear();
                        break;
                    }
                    Ok(reading) => {
                        let now = shown(&asked.point, reading);
                        facts.push(format!("{place} is {now}, {}", asked.holds.told(&asked.point)));
                    }
                    Err(why) => {
                        unread = true;
                        facts.push(format!("{place} cannot be read ({why}), {}", asked.holds.told(&asked.point)));
                    }
                }
            }
            if facts.is_empty() {
                continue;
            }
            let message = if interlock.message.is_empty() { String::new() } else { format!("{}; ", interlock.message) };
            let text = format!("{message}interlock {:?}: {}", interlock.rule, facts.join("; or "));
            return Err(Breach { code: if unread { "interlock_unread" } else { "interlock" }, text });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::device::plan::Call;
    use crate::device::point::{Repr, Table};
    use crate::device::table::{Action, Bus, Does, Link, Write};
    use crate::risk::Risk;

    fn devices() -> Devices {
        let bus = |name: &str| Bus {
            name: name.to_owned(),
            link: Link::Tcp { host: "::1".to_owned(), port: 502 },
            timeout: Duration::from_secs(1),
        };
        let device = |name: &str, bus: &str, unit, points: Vec<Point>, actions: Vec<Action>| Device {
            name: name.to_owned(),
            kind: name.split('-').next().unwrap_or_default().to_owned(),
            number: None,
            zone: None,
            title: String::new(),
            bus: bus.to_owned(),
            unit,
            points: points.into_iter().map(|point| (point.name.clone(), Arc::new(point))).collect(),
            actions: actions.into_iter().map(|action| (action.name.clone(), action)).collect(),
        };
        let write = |device: Option<&str>, point: &str, value| Write {
            device: device.map(str::to_owned),
            point: point.to_owned(),
            value: Some(value),
        };
        let action = |name: &str, protective, writes| Action {
            name: name.to_owned(),
            risk: Risk::Operate,
            protective,
            inverse: None,
            does: Does::Writes(writes),
        };
        let coil = |name: &str, at| Point::plain(name, Table::Coil, at, Repr::Bit);
        let isolators = ["isolator-1", "isolator-2"].map(|name| {
            let unit = if name.ends_with('1') { 1 } else { 2 };
            let open = action("open", false, vec![write(None, "close", json!(false))]);
            let cut = action("cut", true, vec![write(None, "close", json!(false))]);
            device(name, "b", unit, vec![coil("close", 0)], vec![open, cut])
        });
        let breakers = ["breaker-1", "breaker-2"].map(|name| {
            let unit = if name.ends_with('1') { 3 } else { 4 };
            let closed = Point::plain("closed", Table::Discrete, 0, Repr::Bit);
            let current =
                Point { scale: 0.1, unit: "A".to_owned(), ..Point::plain("current", Table::Input, 0, Repr::U16) };
            let all = action("all", false, vec![write(Some("isolator-1"), "close", json!(true))]);
            device(name, "b", unit, vec![closed, current], vec![all])
        });
        let far = device("meter", "far", 1, vec![Point::plain("volts", Table::Input, 0, Repr::U16)], vec![]);
        let all = isolators.into_iter().chain(breakers).chain([far]).collect();
        Devices::new(vec![bus("b"), bus("far")], all).unwrap()
    }

    fn need(device: &str, point: &str, test: Test) -> Need {
        Need { device: device.to_owned(), point: point.to_owned(), test }
    }

    fn rule() -> Rule {
        Rule {
            name: "no load".to_owned(),
            message: String::new(),
            device: "isolator-*".to_owned(),
            point: "close".to_owned(),
            values: None,
            needs: vec![
                vec![need("breaker-*", "closed", Test::Is(json!(false)))],
                vec![need("breaker-*", "current", Test::Within { min: None, max: Some(5.0) })],
            ],
            protective: false,
        }
    }

    fn guarded(devices: &Devices, input: Value) -> Vec<Arc<Interlock>> {
        devices.plan(&Call::parse(&input).unwrap()).unwrap().guard
    }

    /// What is said when the points read so; what is missing cannot be read.
    fn said(guard: &[Arc<Interlock>], readings: &[(&str, Reading)]) -> Result<(), String> {
        let read = |asked: &Asked| {
            let place = format!("{}/{}", asked.device, asked.point.name);
            let found = readings.iter().find(|(name, _)| *name == place);
            found.map(|(_, reading)| *reading).ok_or_else(|| "no answer in time".to_owned())
        };
        judge(guard, read).map_err(|breach| format!("{}: {}", breach.code, breach.text))
    }

    #[test]
    fn whatever_writes_the_point_meets_the_rule() {
        let mut devices = devices();
        devices.interlock(&rule()).unwrap();
        let count = |input| guarded(&devices, input).len();
        assert_eq!(count(json!({ "device": "isolator-1", "action": "open" })), 1);
        assert_eq!(count(json!({ "device": "isolator-1", "action": "write", "point": "close", "value": true })), 1);
        assert_eq!(count(json!({ "device": "breaker-2", "action": "all" })), 1, "by way of another device");
        assert_eq!(count(json!({ "device": "isolator-1", "action": "read" })), 0);
        assert_eq!(count(json!({ "device": "isolator-1", "action": "cut" })), 0, "a protective action goes first");
        devices.interlock(&Rule { protective: true, ..rule() }).unwrap();
        assert_eq!(guarded(&devices, json!({ "device": "isolator-1", "action": "cut" })).len(), 1);
        let closing = Rule { values: Some(Test::Is(json!(true))), ..rule() };
        devices.interlock(&closing).unwrap();
        assert_eq!(guarded(&devices, json!({ "device": "isolator-2", "action": "open" })).len(), 2);
        assert_eq!(devices.interlocks.len(), 3);
    }

    #[test]
    fn a_breach_says_what_was_read_and_what_cannot_be_read_refuses_too() {
        let mut devices = devices();
        let told = Rule { message: "不得带负荷操作".to_owned(), ..rule() };
        devices.interlock(&told).unwrap();
        let guard = guarded(&devices, json!({ "device": "isolator-2", "action": "open" }));
        let (closed, current) = ("breaker-2/closed", "breaker-2/current");
        let open = (closed, Reading::Bit(false));
        let check = |readings: &[(&str, Reading)], want: Result<(), &str>| {
            assert_eq!(said(&guard, readings), want.map_err(str::to_owned), "{readings:?}");
        };
        check(&[open, (current, Reading::Number(5.0))], Ok(()));
        let over =
            "interlock: 不得带负荷操作; interlock \"no load\": breaker-2/current is 5.1 A, it must be at most 5 A";
        check(&[open, (current, Reading::Number(5.1))], Err(over));
        let shut = "interlock: 不得带负荷操作; interlock \"no load\": breaker-2/closed is true, it must be false";
        check(&[(closed, Reading::Bit(true)), (current, Reading::Number(0.0))], Err(shut));
        let unread = "interlock_unread: 不得带负荷操作; interlock \"no load\": breaker-2/current cannot be read (no answer \
                      in time), it must be at most 5 A";
        check(&[open], Err(unread));
        // The readings of the other device do not count.
        check(
            &[("breaker-1/closed", Reading::Bit(false))],
            Err(&unread.replace("current", "closed").replace("at most 5 A", "false")),
        );
    }

    #[test]
    fn one_of_several_readings_can_be_enough() {
        let mut devices = devices();
        let either = Rule {
            needs: vec![vec![
                need("breaker-*", "closed", Test::Is(json!(false))),
                need("meter", "volts", Test::Within { min: None, max: Some(9.0) }),
            ]],
            ..rule()
        };
        devices.interlock(&either).unwrap();
        let guard = guarded(&devices, json!({ "device": "isolator-1", "action": "open" }));
        assert_eq!(asked(&guard).iter().map(|asked| asked.bus.as_str()).collect::<Vec<_>>(), ["b", "far"]);
        assert_eq!(said(&guard, &[("breaker-1/closed", Reading::Bit(false))]), Ok(()));
        assert_eq!(said(&guard, &[("meter/volts", Reading::Number(9.0))]), Ok(()));
        let neither = said(&guard, &[("breaker-1/closed", Reading::Bit(true)), ("meter/volts", Reading::Number(10.0))]);
        let text = "interlock: interlock \"no load\": breaker-1/closed is true, it must be false; or meter/volts is 10, \
                    it must be at most 9";
        assert_eq!(neither, Err(text.to_owned()));
    }

    #[test]
    fn a_rule_that_could_never_be_met_is_refused() {
        let check = |rule: Rule, want: &str| {
            assert_eq!(devices().interlock(&rule).map_err(|why| why.to_string()), Err(want.to_owned()));
        };
        let named = |device: &str| Rule { device: device.to_owned(), ..rule() };
        check(named("isolater-*"), "no device is named \"isolater-*\"");
        check(named("*-*"), "\"*-*\" has more than one *");
        check(Rule { point: "clos".to_owned(), ..rule() }, "isolator-1 has no point named \"clos\"; there are close");
        let read_only = Rule { device: "breaker-1".to_owned(), point: "closed".to_owned(), ..rule() };
        check(read_only, "breaker-1/closed cannot be written: nothing would meet the rule");
        let nothing = "it needs nothing: a write that must never be is a deny rule of the policy";
        check(Rule { needs: vec![], ..rule() }, nothing);
        let one = |device: &str, point: &str, test| Rule { needs: vec![vec![need(device, point, test)]], ..rule() };
        let limit = Test::Within { min: None, max: Some(1.0) };
        check(one("breaker-*", "closed", limit.clone()), "closed is true or false: write is = true");
        check(one("line-*", "current", limit), "no device is named \"line-1\"");
        let empty = Test::Within { min: Some(2.0), max: Some(1.0) };
        check(one("breaker-*", "current", empty), "no value is from 2 to 1");
        check(one("breaker-*", "closed", Test::Is(json!(3))), "closed takes true or false, not 3");
        let many = Rule { needs: vec![rule().needs.concat(); 20], ..rule() };
        check(many, "it needs 40 readings, at most 32 are read before a write");
    }
}
