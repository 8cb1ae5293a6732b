//! Chance that can be repeated: the trial prints its seed and takes it again.

/// A small generator (xorshift64*); good enough for choosing moments and sectors.
#[derive(Debug, Clone)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn of(seed: u64) -> Chance {
        // The state must not be zero, and neighbouring seeds must not begin alike.
        let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03);
        chance.next();
        chance
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below the bound.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound.max(1)
    }

    /// Another one, for a part that must not change with how often this one was asked.
    pub(super) fn split(&mut self) -> Chance {
        Chance::of(self.next())
    }
}
