//! Tickets: the order in which workflows get to a resource that another one holds, where their operations do not commute.
//!
//! First come, first served on each resource. Who waits holds what it has, so that a circle of waiting would last for
//! ever: whoever would close one is refused at once, and may abort or try again. Nothing is held by a ticket itself; who
//! holds what is said by the workflows ([`super::workflow::Workflow::holds`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::surface::contract::Contract;

/// Attempts that may wait at one time. Each is a call that somebody waits for.
pub const WAITING_MAX: usize = 256;

/// A place in the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number(u64);

/// One who waits.
#[derive(Debug, Clone)]
struct Waiting {
    workflow: u64,
    resources: Vec<String>,
    contract: Arc<Contract>,
    /// The workflow that it was last seen to wait for.
    holder: Option<u64>,
}

/// The lines of all resources.
#[derive(Debug, Default)]
pub struct Tickets {
    next: u64,
    waiting: BTreeMap<Number, Waiting>,
}

/// What a ticket is good for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// It may go on.
    Now,
    /// Not yet: this workflow is before it on this resource.
    After {
        /// The workflow.
        workflow: u64,
        /// The resource.
        resource: String,
    },
    /// Never: the workflow before it waits for this one.
    Circle {
        /// The workflow.
        workflow: u64,
        /// The resource.
        resource: String,
    },
}

impl Tickets {
    /// A ticket for an attempt; nothing when too many wait.
    pub fn take(&mut self, workflow: u64, resources: &[String], contract: &Arc<Contract>) -> Option<Number> {
        if self.waiting.len() >= WAITING_MAX {
            return None;
        }
        self.next += 1;
        let number = Number(self.next);
        let waiting = Waiting { workflow, resources: resources.to_vec(), contract: Arc::clone(contract), holder: None };
        self.waiting.insert(number, waiting);
        Some(number)
    }

    /// It goes on, or gave up.
    pub fn give_back(&mut self, number: Number) {
        self.waiting.remove(&number);
    }

    /// Whether it may go on. `holder` says which other workflow holds a resource against this attempt.
    pub fn turn(&mut self, number: Number, holder: impl Fn(&str) -> Option<u64>) -> Turn {
        let Some(own) = self.waiting.get(&number).cloned() else { return Turn::Now };
        let mut before = None;
        for resource in &own.resources {
            let earlier = self.waiting.range(..number).map(|(_, other)| other).find(|other| {
                other.workflow != own.workflow
                    && other.resources.contains(resource)
                    && !other.contract.commutes_with(&own.contract, resource)
            });
            let found = holder(resource).or_else(|| earlier.map(|other| other.workflow));
            if let Some(workflow) = found {
                before = Some((workflow, resource.clone()));
                break;
            }
        }
        if let Some(waiting) = self.waiting.get_mut(&number) {
            waiting.holder = before.as_ref().map(|(workflow, _)| *workflow);
        }
        match before {
            None => Turn::Now,
            Some((workflow, resource)) if self.leads_to(workflow, own.workflow) => Turn::Circle { workflow, resource },
            Some((workflow, resource)) => Turn::After { workflow, resource },
        }
    }

    /// Whoever `from` waits for, and whom those wait for, is at last `to`.
    fn leads_to(&self, from: u64, to: u64) -> bool {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(workflow) = next.pop() {
            if workflow == to {
                return true;
            }
            if seen.insert(workflow) {
                let own = self.waiting.values().filter(|waiting| waiting.workflow == workflow);
                next.extend(own.filter_map(|waiting| waiting.holder));
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::surface::contract::Commutes;

    fn contract(kind: &str, commutes: &[&str]) -> Arc<Contract> {
        let pair = |kind: &&str| Commutes { kind: (*kind).to_owned(), resource: "*".to_owned(), state: None };
        Arc::new(Contract { commutes: commutes.iter().map(pair).collect(), ..Contract::weakest(kind) })
    }

    fn row() -> Vec<String> {
        vec!["row".to_owned()]
    }

    fn after(workflow: u64) -> Turn {
        Turn::After { workflow, resource: "row".to_owned() }
    }

    #[test]
    fn first_come_first_served_where_the_order_matters() {
        let mut tickets = Tickets::default();
        let set = contract("set", &[]);
        let (first, second) = (tickets.take(1, &row(), &set).unwrap(), tickets.take(2, &row(), &set).unwrap());
        assert_eq!(tickets.turn(first, |_| Some(9)), after(9));
        assert_eq!(tickets.turn(second, |_| None), after(1), "the one before it still waits");
        assert_eq!(tickets.turn(first, |_| None), Turn::Now);
        tickets.give_back(first);
        assert_eq!(tickets.turn(second, |_| None), Turn::Now);
        // What commutes with who waits does not wait behind it, and another resource is another line.
        let add = contract("add", &["add"]);
        let adds = [3, 4].map(|workflow| tickets.take(workflow, &["ctr".to_owned()], &add).unwrap());
        assert_eq!(adds.map(|number| tickets.turn(number, |_| None)), [Turn::Now, Turn::Now]);
    }

    #[test]
    fn who_would_close_a_circle_is_refused_at_once() {
        let mut tickets = Tickets::default();
        let set = contract("set", &[]);
        let one = tickets.take(1, &row(), &set).unwrap();
        assert_eq!(tickets.turn(one, |_| Some(2)), after(2));
        let two = tickets.take(2, &["other".to_owned()], &set).unwrap();
        let circle = Turn::Circle { workflow: 1, resource: "other".to_owned() };
        assert_eq!(tickets.turn(two, |_| Some(1)), circle);
        tickets.give_back(one);
        assert_ne!(tickets.turn(two, |_| Some(1)), circle, "it waits no more");
    }

    #[test]
    fn the_lines_are_bounded() {
        let mut tickets = Tickets::default();
        let set = contract("set", &[]);
        let taken = (0..=WAITING_MAX as u64).filter_map(|workflow| tickets.take(workflow, &[], &set)).count();
        assert_eq!(taken, WAITING_MAX);
    }

    #[test]
    fn a_pair_commutes_on_a_resource_in_every_state_or_not_at_all() {
        let on = |resource: &str, state: Option<&str>| Contract {
            commutes: vec![Commutes {
                kind: "add".to_owned(),
                resource: resource.to_owned(),
                state: state.map(str::to_owned),
            }],
            ..Contract::weakest("take")
        };
        let add = Contract::weakest("add");
        assert!(on("ctr*", None).commutes_with(&add, "ctr-1") && add.commutes_with(&on("ctr*", None), "ctr-1"));
        assert!(!on("ctr*", None).commutes_with(&add, "row"));
        assert!(!on("*", Some("above zero")).commutes_with(&add, "ctr-1"));
        assert!(!add.commutes_with(&add, "ctr-1"));
    }
}
