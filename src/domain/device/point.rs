//! One value of a device, and where it lies in the device's registers.
//!
//! Plain data: what a configuration says. [`super::table::Devices::new`] is the only check, and a point that did not
//! pass it never reaches a bus.

use crate::risk::Risk;
use std::fmt;

/// The four address spaces of Modbus (application protocol V1.1b3, section 4.3). Addresses are 0-based here, as on
/// the wire: "register 40001" of a manual is [`Table::Holding`] 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// One bit, can be written.
    Coil,
    /// One bit, moves by itself.
    Discrete,
    /// 16 bits, can be written.
    Holding,
    /// 16 bits, moves by itself.
    Input,
}

impl Table {
    /// Every table, for tables of words in schemas and tests.
    pub const ALL: [Table; 4] = [Table::Coil, Table::Discrete, Table::Holding, Table::Input];

    /// As configuration and `device list` write it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Table::Coil => "coil",
            Table::Discrete => "discrete",
            Table::Holding => "holding",
            Table::Input => "input",
        }
    }

    /// Whether one address is one bit, and not a register of 16.
    #[must_use]
    pub fn is_bits(self) -> bool {
        match self {
            Table::Coil | Table::Discrete => true,
            Table::Holding | Table::Input => false,
        }
    }

    /// Whether a Modbus client can write to it at all.
    #[must_use]
    pub fn is_writable(self) -> bool {
        match self {
            Table::Coil | Table::Holding => true,
            Table::Discrete | Table::Input => false,
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// How a value is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Repr {
    /// A coil or a discrete input.
    Bit,
    /// One bit of a register, from 0 (the lowest) to 15.
    BitOf(u8),
    /// One register, without a sign.
    U16,
    /// One register, two's complement.
    I16,
    /// Two registers, without a sign.
    U32,
    /// Two registers, two's complement.
    I32,
    /// Two registers, IEEE 754 single precision.
    F32,
}

impl Repr {
    /// How many addresses the value takes.
    #[must_use]
    pub fn addresses(self) -> u16 {
        match self {
            Repr::Bit | Repr::BitOf(_) | Repr::U16 | Repr::I16 => 1,
            Repr::U32 | Repr::I32 | Repr::F32 => 2,
        }
    }

    /// Whether the value is true or false, and not a number.
    #[must_use]
    pub fn is_bit(self) -> bool {
        match self {
            Repr::Bit | Repr::BitOf(_) => true,
            Repr::U16 | Repr::I16 | Repr::U32 | Repr::I32 | Repr::F32 => false,
        }
    }

    /// As configuration and `device list` write it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Repr::Bit | Repr::BitOf(_) => "bit",
            Repr::U16 => "u16",
            Repr::I16 => "i16",
            Repr::U32 => "u32",
            Repr::I32 => "i32",
            Repr::F32 => "f32",
        }
    }

    /// The smallest and the greatest raw number; `None` for bits, which have none.
    #[must_use]
    pub fn raw_limits(self) -> Option<(f64, f64)> {
        match self {
            Repr::Bit | Repr::BitOf(_) => None,
            Repr::U16 => Some((0.0, f64::from(u16::MAX))),
            Repr::I16 => Some((f64::from(i16::MIN), f64::from(i16::MAX))),
            Repr::U32 => Some((0.0, f64::from(u32::MAX))),
            Repr::I32 => Some((f64::from(i32::MIN), f64::from(i32::MAX))),
            Repr::F32 => Some((f64::from(f32::MIN), f64::from(f32::MAX))),
        }
    }
}

/// The order of the two bytes inside one register. Modbus says big; some devices did not read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ByteOrder {
    /// High byte first (the standard).
    #[default]
    Big,
    /// Low byte first.
    Little,
}

/// Which of two registers holds the high half. Modbus leaves this open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WordOrder {
    /// The lower address holds the high half.
    #[default]
    HighFirst,
    /// The lower address holds the low half.
    LowFirst,
}

/// The Modbus function that writes one coil or one register. Some devices know only one of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WriteBy {
    /// 5 and 6.
    #[default]
    Single,
    /// 15 and 16.
    Multiple,
}

/// One value of a device. `value = raw x scale + offset`, in `unit`.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Its name within the device: `run`, `frequency-set`.
    pub name: String,
    /// The address space.
    pub table: Table,
    /// The first address, from 0.
    pub address: u16,
    /// The layout.
    pub repr: Repr,
    /// The order of bytes in a register; not used for coils and discrete inputs.
    pub bytes: ByteOrder,
    /// The order of registers in a value of two.
    pub words: WordOrder,
    /// What one raw step is worth; never 0.
    pub scale: f64,
    /// What raw 0 is worth.
    pub offset: f64,
    /// The unit of the value as people write it: `Hz`, `MPa`; empty when it has none.
    pub unit: String,
    /// The values that may be written, both ends included, in `unit`. `None`: all that the layout can hold.
    pub range: Option<(f64, f64)>,
    /// Names of values, for points whose numbers stand for things: `泵房` = 10.
    pub labels: Vec<(String, f64)>,
    /// Whether it may be written; only coils and holding registers can be.
    pub writable: bool,
    /// Each write of true is a press of its own (jog, home, next tool): twice is two times, and what it holds says
    /// nothing about whether it was pressed.
    pub pulse: bool,
    /// How it is written.
    pub function: WriteBy,
    /// The risk of writing it directly; an action that writes it can only raise this.
    pub risk: Risk,
}

impl Point {
    /// A point with nothing special about it: no scale, no offset, no unit, no range, writable where its table is.
    #[must_use]
    pub fn plain(name: &str, table: Table, address: u16, repr: Repr) -> Point {
        Point {
            name: name.to_owned(),
            table,
            address,
            repr,
            bytes: ByteOrder::Big,
            words: WordOrder::HighFirst,
            scale: 1.0,
            offset: 0.0,
            unit: String::new(),
            range: None,
            labels: Vec::new(),
            writable: table.is_writable(),
            pulse: false,
            function: WriteBy::Single,
            risk: Risk::Operate,
        }
    }

    /// The values that may be written, both ends included: the range, or all that the layout can hold. `None` for
    /// bits.
    #[must_use]
    pub fn limits(&self) -> Option<(f64, f64)> {
        let (low, high) = self.repr.raw_limits()?;
        let (a, b) = (low * self.scale + self.offset, high * self.scale + self.offset);
        Some(self.range.unwrap_or((a.min(b), a.max(b))))
    }

    /// The name that stands for `value`, if one does.
    #[must_use]
    pub fn label(&self, value: f64) -> Option<&str> {
        self.labels.iter().find(|(_, number)| (number - value).abs() < LABEL_CLOSE).map(|(name, _)| name.as_str())
    }
}

/// Two label values are one when they differ by less: labels stand for whole numbers.
const LABEL_CLOSE: f64 = 1e-6;
