//! Numbers that are set aside before they are used, so that none is used twice, also not after a crash.

use super::{State, take};
use crate::store::error::StoreError;

impl State {
    /// Sets `count` numbers of `counter` aside, durably, and gives the first of them.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn set_aside(&mut self, counter: &'static str, count: u64) -> Result<u64, StoreError> {
        self.transact(|transaction| take(transaction, counter, count))
    }
}
