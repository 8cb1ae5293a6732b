//! Which effects are open: started once, and nobody knows what came of them.

use std::collections::BTreeSet;

use crate::request::why::Why;
use crate::surface::nature::Nature;

use super::outcome::OpKey;

/// How many effects may have an unknown outcome before nothing new is started. Somebody who lets a thousand questions
/// lie does not look at this box; more effects on top would only make it worse.
pub const UNRESOLVED_MAX: usize = 1000;

/// The open effects.
#[derive(Debug, Default)]
pub struct Ledger {
    unresolved: BTreeSet<OpKey>,
}

impl Ledger {
    /// May one more effect be started? What changes nothing always may, and so may what protects.
    ///
    /// # Errors
    /// The reason why not.
    pub fn admit(&self, nature: &Nature, protective: bool) -> Result<(), Why> {
        if nature.contract.changes() && !protective && self.unresolved.len() >= UNRESOLVED_MAX {
            return Err(Why::UnresolvedLimit { limit: UNRESOLVED_MAX });
        }
        Ok(())
    }

    /// Its outcome is unknown.
    pub fn opened(&mut self, op: OpKey) {
        self.unresolved.insert(op);
    }

    /// Somebody found out. False when it was not open.
    pub fn resolved(&mut self, op: OpKey) -> bool {
        self.unresolved.remove(&op)
    }

    /// Its outcome is unknown.
    #[must_use]
    pub fn is_open(&self, op: OpKey) -> bool {
        self.unresolved.contains(&op)
    }

    /// How many are open.
    #[must_use]
    pub fn len(&self) -> usize {
        self.unresolved.len()
    }

    /// None is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.unresolved.is_empty()
    }
}
