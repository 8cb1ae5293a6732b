//! The process model: values, their registers, and how they move. A pure step function: the server owns time.
//!
//! The same writes between the same steps give the same registers, bit by bit: there is no clock and no chance in
//! here. What holds still holds what was written, raw; what moves is encoded from its value after each step.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use interlock_domain::device::codec::{Raw, Reading};
use interlock_domain::device::plan::{READ_BITS_MAX, READ_REGISTERS_MAX};
use interlock_domain::device::point::{Point, Table};
use interlock_domain::device::table::Devices;

use super::law::{self, At, Condition, How, Law, Places, Sum};
use crate::config::{ConfigError, device, interlock};

/// Most registers that one write may carry (Modbus application protocol V1.1b3, section 6.12).
pub const WRITE_REGISTERS_MAX: usize = 123;
/// Most coils that one write may carry (section 6.11).
pub const WRITE_COILS_MAX: usize = 1968;

/// Why the plant refuses a request; the codes of Modbus exceptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// 2: no point lies there.
    Address,
    /// 3: the count, or a value outside of its range.
    Value,
    /// 11: no such unit behind this gateway.
    Unit,
}

/// The simulated plant.
#[derive(Debug)]
pub struct Model {
    places: Vec<Place>,
    values: Vec<f64>,
    laws: Vec<(Law, Memory)>,
    /// The registers, bits as 0 and 1.
    image: BTreeMap<Address, u16>,
    /// Whose registers they are; several bits may share one.
    owners: BTreeMap<Address, Vec<At>>,
    units: BTreeSet<u8>,
    steps: u64,
}

/// Unit, table, address.
type Address = (u8, Table, u16);

#[derive(Debug)]
struct Place {
    unit: u8,
    point: Arc<Point>,
}

/// What a law remembers besides the value that it drives: the value without ripple, or seconds.
type Memory = f64;

impl Model {
    /// Reads devices and laws of a plant file. `file` is its name in messages.
    ///
    /// # Errors
    /// With the first mistake, its line and its key.
    pub fn parse(text: &str, file: &Path) -> Result<(Model, Devices), ConfigError> {
        let devices = interlock::bind(device::parse(text, file)?, &interlock::parse(text, file)?)?;
        let mut names = Places::new();
        let mut places = Vec::new();
        let mut owners: BTreeMap<Address, Vec<At>> = BTreeMap::new();
        for device in devices.iter() {
            for point in device.points.values() {
                for offset in 0..point.repr.addresses() {
                    owners.entry((device.unit, point.table, point.address + offset)).or_default().push(places.len());
                }
                names.insert((device.name.clone(), point.name.clone()), places.len());
                places.push(Place { unit: device.unit, point: Arc::clone(point) });
            }
        }
        let laws = law::parse(text, file, &devices, &names)?;
        let mut model = Model {
            values: vec![0.0; places.len()],
            image: owners.keys().map(|address| (*address, 0)).collect(),
            units: owners.keys().map(|(unit, _, _)| *unit).collect(),
            laws: laws.into_iter().map(|law| (law, 0.0)).collect(),
            places,
            owners,
            steps: 0,
        };
        for (law, memory) in &mut model.laws {
            model.values[law.drives] = law.start;
            *memory = match law.how {
                How::Lag { .. } | How::Ramp { .. } | How::Gain { .. } => law.start,
                How::Switch { .. }
                | How::Latch { .. }
                | How::Count { .. }
                | How::Take { .. }
                | How::Pulse { .. }
                | How::Travel { .. }
                | How::Rest => 0.0,
            };
        }
        for at in 0..model.places.len() {
            model.publish(at);
        }
        // A lamp that shows how a contact stands at the start shows it from the first read on.
        model.step(0.0);
        Ok((model, devices))
    }

    /// Lets `dt` seconds pass.
    pub fn step(&mut self, dt: f64) {
        if dt > 0.0 {
            self.steps = self.steps.wrapping_add(1);
        }
        for at in 0..self.laws.len() {
            let (law, memory) = &self.laws[at];
            let (drives, before) = (law.drives, self.values[law.drives]);
            let (value, memory) = self.moved(law, *memory, dt, at);
            self.laws[at].1 = memory;
            if value.to_bits() != before.to_bits() {
                self.values[drives] = value;
                self.publish(drives);
            }
        }
    }

    /// The value and the memory of a law after `dt` seconds.
    fn moved(&self, law: &Law, memory: Memory, dt: f64, salt: usize) -> (f64, Memory) {
        let before = self.values[law.drives];
        match &law.how {
            How::Switch { all, or, hold, level, differ } => {
                if !hold.is_empty() && self.hold(hold) {
                    return (before, memory);
                }
                let level = level.is_none_or(|level| {
                    let value = self.values[level.from];
                    level.above.is_none_or(|limit| value > limit) && level.below.is_none_or(|limit| value < limit)
                });
                let differ = differ.is_none_or(|[one, other]| (self.values[one] - self.values[other]).abs() > 1e-9);
                let on = level && differ && (self.hold(all) || (!or.is_empty() && self.hold(or)));
                (f64::from(u8::from(on)), memory)
            }
            How::Latch { all, or, .. } => (if self.set(all, or) { 1.0 } else { before }, memory),
            How::Lag { tau, ripple, target } => {
                let target_now = self.sum(target);
                let plain = memory + (target_now - memory) * (1.0 - (-dt / tau).exp());
                // Close enough counts as there: an exponential never arrives, and a plant at rest stands still.
                let plain = if (target_now - plain).abs() < 1e-6 { target_now } else { plain };
                let wave = if dt > 0.0 { ripple * (plain - target.base) * self.noise(salt) } else { before - plain };
                (plain + if *ripple == 0.0 { 0.0 } else { wave }, plain)
            }
            How::Ramp { rate, target } => {
                let way = self.sum(target) - memory;
                let plain = memory + way.clamp(-rate * dt, rate * dt);
                (plain, plain)
            }
            How::Gain { per_second } => {
                let plain = self.within(law.drives, memory + self.sum(per_second) * dt);
                (plain, plain)
            }
            How::Pulse { .. } => {
                let left = (memory - dt).max(0.0);
                (f64::from(u8::from(left > 0.0)), left)
            }
            How::Travel { from, seconds, all } => {
                let there = self.values[*from];
                let gone = if self.hold(all) { memory + dt } else { memory };
                if (there - before).abs() < 1e-9 {
                    (before, 0.0)
                } else if gone + 1e-9 >= *seconds {
                    (there, 0.0)
                } else {
                    (before, gone)
                }
            }
            How::Count { .. } | How::Take { .. } | How::Rest => (before, memory),
        }
    }

    /// What the laws make of a write to `written`. A pulse coil acts on each write of true, not on an edge: the coil
    /// holds what was written, and the next jog is a write of true again.
    fn written(&mut self, written: At) {
        let pressed = self.values[written] != 0.0;
        for at in 0..self.laws.len() {
            let (law, _) = &self.laws[at];
            let drives = law.drives;
            let (value, memory) = match &law.how {
                How::Latch { all, or, on } if on.contains(&written) && !self.set(all, or) => (0.0, 0.0),
                How::Count { on, step, wrap } if pressed && on.contains(&written) => {
                    (self.counted(drives, *step, *wrap), 0.0)
                }
                How::Take { on, from, add } if pressed && on.contains(&written) => {
                    (add + from.map_or(0.0, |from| self.values[from]), 0.0)
                }
                How::Pulse { on, seconds } if pressed && on.contains(&written) => (1.0, *seconds),
                How::Latch { .. }
                | How::Count { .. }
                | How::Take { .. }
                | How::Pulse { .. }
                | How::Switch { .. }
                | How::Lag { .. }
                | How::Ramp { .. }
                | How::Gain { .. }
                | How::Travel { .. }
                | How::Rest => continue,
            };
            self.laws[at].1 = memory;
            self.values[drives] = value;
            self.publish(drives);
        }
    }

    fn hold(&self, conditions: &[Condition]) -> bool {
        conditions.iter().all(|(at, wanted)| (self.values[*at] != 0.0) == *wanted)
    }

    fn set(&self, all: &[Condition], or: &[Condition]) -> bool {
        (!all.is_empty() && self.hold(all)) || (!or.is_empty() && self.hold(or))
    }

    fn sum(&self, sum: &Sum) -> f64 {
        let terms = sum.terms.iter().filter(|term| self.hold(&term.all));
        sum.base + terms.map(|term| term.gain * term.from.map_or(1.0, |from| self.values[from])).sum::<f64>()
    }

    fn within(&self, at: At, value: f64) -> f64 {
        self.places[at].point.limits().map_or(value, |(min, max)| value.clamp(min, max))
    }

    fn counted(&self, at: At, step: f64, wrap: bool) -> f64 {
        let next = self.values[at] + step;
        match self.places[at].point.limits() {
            Some((min, max)) if wrap && next > max => min,
            Some((min, max)) if wrap && next < min => max,
            Some((min, max)) => next.clamp(min, max),
            None => next,
        }
    }

    /// From -1 to 1, the same for the same step and law (splitmix64).
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    fn noise(&self, salt: usize) -> f64 {
        let mut x = self.steps.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (salt as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }

    /// Puts a value into its registers. What they cannot hold is cut to what they can: a simulated value may run
    /// over its own instrument.
    fn publish(&mut self, at: At) {
        let Place { unit, point } = &self.places[at];
        let value = if point.repr.is_bit() {
            Reading::Bit(self.values[at] != 0.0)
        } else {
            Reading::Number(self.within(at, self.values[at]))
        };
        let Ok(raw) = point.encode(value) else { return };
        let (unit, table, address) = (*unit, point.table, point.address);
        match raw {
            Raw::Bit(bit) => self.poke((unit, table, address), u16::from(bit)),
            Raw::BitOf(bit_at, bit) => {
                let word = self.image.get(&(unit, table, address)).copied().unwrap_or(0);
                let word = point.with_bit(word, bit_at, bit);
                self.poke((unit, table, address), word);
            }
            Raw::Word(word) => self.poke((unit, table, address), word),
            Raw::Pair([first, second]) => {
                self.poke((unit, table, address), first);
                self.poke((unit, table, address.saturating_add(1)), second);
            }
        }
    }

    fn poke(&mut self, address: Address, word: u16) {
        self.image.insert(address, word);
    }

    /// The registers or bits (0, 1) from `address` on.
    ///
    /// # Errors
    /// No such unit; a count of none or too many; an address where nothing lies.
    pub fn read(&self, unit: u8, table: Table, address: u16, count: u16) -> Result<Vec<u16>, Refusal> {
        let count_max = if table.is_bits() { READ_BITS_MAX } else { READ_REGISTERS_MAX };
        self.addresses(unit, address, usize::from(count), usize::from(count_max))?
            .map(|address| self.image.get(&(unit, table, address)).copied().ok_or(Refusal::Address))
            .collect()
    }

    /// Writes registers or bits (0, 1) from `address` on: all of them or none.
    ///
    /// # Errors
    /// As [`Model::read`], and a value outside of the range of its point.
    pub fn write(&mut self, unit: u8, table: Table, address: u16, words: &[u16]) -> Result<(), Refusal> {
        let count_max = if table.is_bits() { WRITE_COILS_MAX } else { WRITE_REGISTERS_MAX };
        let addresses = self.addresses(unit, address, words.len(), count_max)?.collect::<Vec<_>>();
        let mut touched = BTreeSet::new();
        let mut before = Vec::with_capacity(words.len());
        for address in &addresses {
            let key = (unit, table, *address);
            let owners = self.owners.get(&key).ok_or(Refusal::Address)?;
            if owners.iter().any(|at| !self.places[*at].point.writable) {
                return Err(Refusal::Address);
            }
            touched.extend(owners.iter().copied());
            before.push((key, self.image.get(&key).copied().unwrap_or(0)));
        }
        for ((key, _), word) in before.iter().zip(words) {
            self.image.insert(*key, *word);
        }
        let values = touched.iter().map(|at| Some((*at, self.value_in_image(*at)?))).collect::<Option<Vec<_>>>();
        let Some(values) = values else {
            self.image.extend(before);
            return Err(Refusal::Value);
        };
        for (at, value) in &values {
            self.values[*at] = *value;
        }
        for (at, _) in &values {
            self.written(*at);
        }
        // What follows at once (a contactor, a lamp) is seen by the next read.
        self.step(0.0);
        Ok(())
    }

    /// `None` when it is no value that this point takes.
    fn value_in_image(&self, at: At) -> Option<f64> {
        let Place { unit, point } = &self.places[at];
        let word = |offset: u16| self.image.get(&(*unit, point.table, point.address.checked_add(offset)?)).copied();
        let raw = match (point.table.is_bits(), point.repr.addresses()) {
            (true, _) => Raw::Bit(word(0)? != 0),
            (false, 1) => Raw::Word(word(0)?),
            (false, _) => Raw::Pair([word(0)?, word(1)?]),
        };
        let value = point.decode(raw).ok()?;
        let fits = point.limits().is_none_or(|(min, max)| (min..=max).contains(&value.number()));
        fits.then(|| value.number())
    }

    fn addresses(
        &self,
        unit: u8,
        address: u16,
        count: usize,
        count_max: usize,
    ) -> Result<impl Iterator<Item = u16> + use<>, Refusal> {
        if !self.units.contains(&unit) {
            return Err(Refusal::Unit);
        }
        if count == 0 || count > count_max {
            return Err(Refusal::Value);
        }
        if usize::from(address) + count - 1 > usize::from(u16::MAX) {
            return Err(Refusal::Address);
        }
        Ok((address..=u16::MAX).take(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plant::{BUILT_IN, BUILT_IN_NAME};

    fn built_in() -> (Model, Devices) {
        Model::parse(BUILT_IN, Path::new(BUILT_IN_NAME)).expect("the built-in plant")
    }

    /// A plant with names instead of addresses, for the tests.
    struct Bench {
        model: Model,
        devices: Devices,
    }

    impl Bench {
        fn new() -> Bench {
            let (model, devices) = built_in();
            Bench { model, devices }
        }

        fn place(&self, name: &str) -> (u8, Arc<Point>) {
            let (device, point) = name.split_once('/').expect("device/point");
            let device = self.devices.get(device).expect("a device");
            (device.unit, Arc::clone(&device.points[point]))
        }

        fn raw(&self, name: &str) -> u16 {
            let (unit, point) = self.place(name);
            self.model.read(unit, point.table, point.address, 1).expect("a register")[0]
        }

        fn write(&mut self, name: &str, raw: u16) -> Result<(), Refusal> {
            let (unit, point) = self.place(name);
            self.model.write(unit, point.table, point.address, &[raw])
        }

        fn set(&mut self, name: &str, raw: u16) {
            self.write(name, raw).expect("a good write");
        }

        fn seconds(&mut self, seconds: u32) {
            (0..seconds * 5).for_each(|_| self.model.step(0.2));
        }
    }

    #[test]
    fn everything_stands_still_until_somebody_acts() {
        let mut bench = Bench::new();
        let before = bench.model.image.clone();
        bench.seconds(600);
        let moved = before.iter().filter(|(at, word)| bench.model.image.get(at) != Some(word)).collect::<Vec<_>>();
        assert!(moved.is_empty(), "{moved:?}");
        assert_eq!(bench.raw("pump-1/frequency-set"), 5_000);
        assert_eq!(bench.raw("agv-3/position"), 12);
        assert_eq!(bench.raw("dc-panel-1/voltage"), 2_200);
    }

    #[test]
    fn a_pump_runs_up_holds_its_set_point_and_runs_down() {
        let mut bench = Bench::new();
        bench.set("pump-2/run", 1);
        assert_eq!((bench.raw("pump-2/running"), bench.raw("pump-2/starts"), bench.raw("pump-1/running")), (1, 1, 0));
        bench.seconds(20);
        assert_eq!(bench.raw("pump-2/frequency"), 5_000);
        assert!((1_400..1_500).contains(&bench.raw("pump-2/speed")), "{}", bench.raw("pump-2/speed"));
        assert!((570..630).contains(&bench.raw("pump-2/pressure")), "{}", bench.raw("pump-2/pressure"));
        let warm = bench.raw("pump-2/bearing-temperature");
        bench.seconds(60);
        assert!(bench.raw("pump-2/bearing-temperature") > warm);
        bench.set("pump-2/run", 0);
        bench.seconds(30);
        assert_eq!(
            (bench.raw("pump-2/speed"), bench.raw("pump-2/current"), bench.raw("pump-2/frequency-set")),
            (0, 0, 5_000)
        );
    }

    #[test]
    fn an_emergency_stop_stops_and_its_release_starts_nothing() {
        let mut bench = Bench::new();
        for name in ["pump-1/run", "conveyor-1/run", "boiler-1/run", "fan-2/run", "fire-pump-1/run"] {
            bench.set(name, 1);
        }
        bench.seconds(10);
        assert_eq!(bench.raw("boiler-1/flame"), 1);
        bench.set("safety-1/estop", 1);
        let running =
            ["pump-1/running", "conveyor-1/running", "boiler-1/flame", "fan-2/running", "fire-pump-1/running"];
        assert_eq!(running.map(|name| bench.raw(name)), [0, 0, 0, 0, 1]);
        // The coil holds what was written.
        assert_eq!(bench.raw("pump-1/run"), 1);
        // No start while it is pressed.
        bench.set("boiler-1/run", 1);
        bench.seconds(20);
        assert_eq!((bench.raw("boiler-1/flame"), bench.raw("pump-1/speed"), bench.raw("conveyor-1/speed")), (0, 0, 0));
        bench.set("safety-1/estop", 0);
        bench.seconds(5);
        assert_eq!(running.map(|name| bench.raw(name)), [0, 0, 0, 0, 1]);
        bench.set("pump-1/run", 1);
        assert_eq!(running.map(|name| bench.raw(name)), [1, 0, 0, 0, 1]);
        assert_eq!((bench.raw("trip-log-1/trips"), bench.raw("trip-log-1/last-cause")), (1, 1));
    }

    #[test]
    fn interlocks_hold() {
        let mut bench = Bench::new();
        // No isolator moves under load, no earth switch closes on a closed isolator.
        for name in ["isolator-1/close", "breaker-1/close", "earth-switch-1/close"] {
            bench.set(name, 1);
        }
        let closed = ["isolator-1/closed", "breaker-1/closed", "earth-switch-1/closed"];
        assert_eq!(closed.map(|name| bench.raw(name)), [1, 1, 0]);
        bench.set("isolator-1/close", 0);
        bench.seconds(2);
        assert_eq!(closed.map(|name| bench.raw(name)), [1, 1, 0]);
        assert!(bench.raw("line-1/current") > 1_000);
        bench.set("breaker-1/close", 0);
        bench.seconds(1);
        assert_eq!(closed.map(|name| bench.raw(name)), [0, 0, 1]);
        // No machining with an open door, no flow through a cut valve.
        bench.set("cnc-1/run", 1);
        assert_eq!(bench.raw("cnc-1/running"), 1);
        bench.set("cnc-1/door-lock", 0);
        assert_eq!(bench.raw("cnc-1/running"), 0);
        bench.set("valve-1/opening-set", 1_000);
        bench.seconds(12);
        assert_eq!(bench.raw("valve-1/opening"), 1_000);
        bench.set("shutoff-valve-1/cut", 1);
        bench.seconds(12);
        assert_eq!((bench.raw("valve-1/opening"), bench.raw("valve-1/opening-set")), (0, 1_000));
    }

    #[test]
    fn a_pulse_acts_on_each_write_of_true() {
        let mut bench = Bench::new();
        bench.set("conveyor-1/jog", 1);
        assert_eq!(bench.raw("conveyor-1/running"), 1);
        bench.seconds(2);
        assert_eq!((bench.raw("conveyor-1/running"), bench.raw("conveyor-1/jog")), (0, 1));
        bench.set("conveyor-1/jog", 1);
        assert_eq!(bench.raw("conveyor-1/running"), 1);
        for expected in [10, 11] {
            bench.set("tap-changer-1/raise", 1);
            assert_eq!(bench.raw("tap-changer-1/position"), expected);
        }
        (0..20).for_each(|_| bench.set("tap-changer-1/lower", 1));
        assert_eq!(bench.raw("tap-changer-1/position"), 1);
        bench.set("cnc-1/tool-set", 8);
        bench.set("cnc-1/change-tool", 1);
        assert_eq!(bench.raw("cnc-1/tool"), 8);
        bench.set("cnc-1/next-tool", 1);
        assert_eq!(bench.raw("cnc-1/tool"), 1);
    }

    #[test]
    fn a_vehicle_arrives() {
        let mut bench = Bench::new();
        bench.set("agv-2/target", 10);
        assert_eq!((bench.raw("agv-2/moving"), bench.raw("agv-2/position")), (1, 12));
        bench.seconds(5);
        bench.set("agv-2/hold", 1);
        bench.seconds(30);
        assert_eq!((bench.raw("agv-2/moving"), bench.raw("agv-2/position")), (0, 12));
        bench.set("agv-2/hold", 0);
        bench.seconds(6);
        assert_eq!((bench.raw("agv-2/moving"), bench.raw("agv-2/position"), bench.raw("agv-1/position")), (0, 10, 12));
        assert!(bench.raw("agv-2/battery") < 800);
    }

    #[test]
    fn the_same_writes_and_steps_give_the_same_registers() {
        let run = || {
            let mut bench = Bench::new();
            bench.set("pump-1/run", 1);
            bench.set("breaker-2/close", 1);
            bench.seconds(37);
            bench.model.image
        };
        assert_eq!(run(), run());
    }

    #[test]
    fn a_bad_request_is_refused_and_changes_nothing() {
        let (mut model, _) = built_in();
        let before = model.image.clone();
        let reads = [
            ((1, Table::Coil, 0, 0), Refusal::Value),
            ((1, Table::Coil, 0, 2001), Refusal::Value),
            ((1, Table::Input, 0, 126), Refusal::Value),
            ((1, Table::Input, 8, 1), Refusal::Address),
            ((1, Table::Input, 7, 2), Refusal::Address),
            ((1, Table::Input, 65_535, 2), Refusal::Address),
            ((99, Table::Coil, 0, 1), Refusal::Unit),
        ];
        for ((unit, table, address, count), expected) in reads {
            assert_eq!(model.read(unit, table, address, count), Err(expected), "{unit} {table} {address} {count}");
        }
        let mut refused = |unit, table, address, words: &[u16], expected| {
            let found = model.write(unit, table, address, words);
            assert_eq!(found, Err(expected), "{unit} {table} {address} {words:?}");
        };
        refused(1, Table::Holding, 0, &[5_001], Refusal::Value);
        refused(1, Table::Holding, 0, &[], Refusal::Value);
        refused(1, Table::Holding, 0, &[1, 2], Refusal::Address);
        refused(1, Table::Input, 0, &[1], Refusal::Address);
        refused(1, Table::Coil, 2, &[1], Refusal::Address);
        refused(0, Table::Coil, 0, &[1], Refusal::Unit);
        assert_eq!(model.image, before);
    }

    #[test]
    fn a_law_that_names_what_is_not_there_is_a_mistake_with_a_line() {
        let law = |law: &str| {
            let head =
                "[[bus]]\nname = \"b\"\ntcp = \"a\"\n[[device]]\nname = \"p-1\"\nkind = \"p\"\nbus = \"b\"\nunit = 1\n";
            let points = "[device.points]\nrun = { coil = 0 }\nspeed = { input = 0 }\n[process]\nlaws = [\n";
            let text = format!("{head}{points}{law},\n]\n");
            Model::parse(&text, Path::new("p.toml")).map_or_else(|error| error.to_string(), |_| String::new())
        };
        let rows = [
            ("{ of = [\"p\"], point = \"speed\", law = \"rest\", start = 1.0 }", ""),
            (
                "{ of = [\"q\"], point = \"speed\", law = \"rest\", start = 1.0 }",
                "there is no device and no kind named \"q\"",
            ),
            ("{ of = [\"p\"], point = \"level\", law = \"rest\", start = 1.0 }", "there is no point p-1/level"),
            ("{ of = [\"p\"], point = \"speed\", law = \"lag\" }", "lag of speed needs tau"),
            ("{ of = [\"p\"], point = \"speed\", law = \"lag\", tau = 0.0 }", "tau of speed is not above 0"),
            ("{ of = [\"p\"], point = \"speed\", law = \"jump\" }", "\"jump\" is not a law"),
            (
                "{ of = [\"p\"], point = \"run\", law = \"switch\" }",
                "p-1/run holds what was written: only `rest` may drive it",
            ),
            (
                "{ of = [\"p\"], point = \"speed\", law = \"sum\", terms = [{ gain = 1.0, when = [\"q-*/run\"] }] }",
                "there is no device q-1/run",
            ),
        ];
        for (text, expected) in rows {
            let found = law(text);
            let expected =
                if expected.is_empty() { String::new() } else { format!("p.toml:14:1: process.laws: {expected}") };
            assert_eq!(found.replace("process.{ of", "process.laws"), expected, "{text}");
        }
    }
}
