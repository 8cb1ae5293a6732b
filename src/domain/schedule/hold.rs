//! What waits outside the line behind a composite call of its own batch.
//!
//! A composite acts only through wishes of its own, and those must find the line free of everything that waits for the
//! composite: else the parent would wait for its child, the child for what stands in line, and that for the parent. So
//! what the law of order puts behind a composite is not admitted before the composite has ended, and neither is what
//! the law puts behind something that is held. Then all waiting in the line is for earlier admissions, and no circle
//! can form. Nothing that is held is forgotten: it is released, or refused when its batch is.

use std::collections::{BTreeMap, BTreeSet};

use crate::gate::docket::Permit;
use crate::id::{BatchId, CallId};
use crate::request::Refusal;
use crate::request::why::Why;
use crate::surface::nature::{Class, Nature};

use super::{Place, must_follow};

/// How many composite calls may be under way, waiting or running, nested ones included. Each may hold what is left of a
/// batch, and a subagent that makes subagents without end is stopped here; more than these have lost their way.
pub const COMPOSITES_MAX: usize = 64;

/// The composites under way, and what waits behind them.
#[derive(Debug, Default)]
pub struct Hold {
    composites: BTreeMap<CallId, Place>,
    held: BTreeMap<CallId, Permit>,
}

impl Hold {
    /// Takes the permits of one batch in call order: gives back what may go to the line now.
    ///
    /// # Errors
    /// A refusal for a composite beyond the bound.
    pub fn pass(&mut self, permit: Permit) -> Result<Option<Permit>, Refusal> {
        let place = Place::of(&permit);
        if place.class == Class::Composite {
            if self.composites.len() >= COMPOSITES_MAX {
                return Err(permit.refuse(Why::Busy { limit: COMPOSITES_MAX }));
            }
            // A composite that is held itself holds what comes after it: it has not ended either.
            self.composites.insert(place.call, place.clone());
        }
        if self.blocks(&place) {
            self.held.insert(place.call, permit);
            return Ok(None);
        }
        Ok(Some(permit))
    }

    /// Something earlier in the batch has not ended and must have, or waits here itself. A protective action waits for
    /// nothing of this.
    fn blocks(&self, later: &Place) -> bool {
        let earlier = || CallId { position: 0, ..later.call }..later.call;
        !later.protective
            && (self.composites.range(earlier()).any(|(_, place)| must_follow(place, later))
                || self.held.range(earlier()).any(|(_, permit)| must_follow(&Place::of(permit), later)))
    }

    /// A composite has ended, or will not start. What it held may go on: see [`Hold::release`].
    pub fn ended(&mut self, call: CallId) -> bool {
        self.composites.remove(&call).is_some()
    }

    /// Takes one out that will not go on.
    pub fn take(&mut self, call: CallId) -> Option<Permit> {
        self.held.remove(&call)
    }

    /// Gives the permits of a batch that nothing holds any more, in call order.
    #[must_use]
    pub fn release(&mut self, batch: BatchId) -> Vec<Permit> {
        let mut free = Vec::new();
        let calls: Vec<CallId> = self.held.keys().filter(|call| call.batch == batch).copied().collect();
        for call in calls {
            // Out of the shelf while it is looked at; what is still before it stays in.
            let Some(permit) = self.held.remove(&call) else { continue };
            if self.blocks(&Place::of(&permit)) {
                self.held.insert(call, permit);
            } else {
                free.push(permit);
            }
        }
        free
    }

    /// The calls that are held of one batch.
    #[must_use]
    pub fn of_batch(&self, batch: BatchId) -> Vec<(CallId, bool)> {
        let of = |(call, permit): (&CallId, &Permit)| (call.batch == batch).then_some((*call, permit.protective()));
        self.held.iter().filter_map(of).collect()
    }

    /// What is held and touches what this protective call acts on: it was wished for before the emergency.
    #[must_use]
    pub fn superseded_by(&self, protective: &Nature, by: CallId) -> Vec<CallId> {
        let voided = |permit: &&Permit| {
            !permit.protective() && permit.id() != by && permit.nature().keys.interfere(&protective.keys)
        };
        self.held.values().filter(voided).map(Permit::id).collect()
    }

    /// The batches of which something is held.
    #[must_use]
    pub fn batches(&self) -> BTreeSet<BatchId> {
        self.held.keys().map(|call| call.batch).collect()
    }
}
