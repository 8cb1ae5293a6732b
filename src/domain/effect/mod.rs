//! From "it is its turn soon" to "this is what came of it".
//!
//! An [`Intent`] says what is about to happen; once the log has it, it is [`Journaled`]; with a turn it becomes an
//! [`Order`], which goes out and may die in a panic, and a [`Claim`], which stays in the machine and cannot. Only a
//! claim makes an [`Outcome`], so whatever happens outside, each started call ends here, once.

pub mod anomaly;
pub mod chronicle;
pub mod journal;
pub mod ledger;
pub mod outcome;
pub mod profile;
pub mod report;
pub mod tickets;
pub mod values;
pub mod workflow;

use std::sync::Arc;

use serde_json::Value;

use crate::id::CallId;
use crate::request::paths::PathFacts;
use crate::request::why::Why;
use crate::request::{Refusal, Request};
use crate::schedule::{Ticket, Turn};
use crate::surface::contract::Contract;
use crate::surface::nature::Nature;
use crate::surface::tool::Tool;

use journal::{Ground, Journal, LogPosition};
use ledger::Ledger;
use outcome::{Known, OpKey, way_out};
use report::Report;

/// The call that began the operation: the first attempt names all later ones.
fn op_of(request: &Request) -> OpKey {
    OpKey(request.wish().again.unwrap_or(request.call()))
}

/// What is about to happen. It is written down before it does.
#[derive(Debug)]
#[must_use = "each declared intent is answered: journal it or refuse it"]
pub struct Intent {
    ticket: Ticket,
}

impl Intent {
    /// Declares what the ticket is for.
    ///
    /// # Errors
    /// A refusal when the ledger cannot take responsibility for one more effect.
    pub fn declare(ticket: Ticket, ledger: &mut Ledger) -> Result<Intent, Refusal> {
        match ledger.admit(ticket.nature(), ticket.protective()) {
            Ok(()) => Ok(Intent { ticket }),
            Err(why) => Err(ticket.refuse(why)),
        }
    }

    /// The call.
    #[must_use]
    pub fn id(&self) -> CallId {
        self.ticket.id()
    }

    /// The request.
    pub fn request(&self) -> &Request {
        self.ticket.request()
    }

    /// The operation, the same for each attempt at it.
    #[must_use]
    pub fn op(&self) -> OpKey {
        op_of(self.request())
    }

    /// What it is by nature.
    #[must_use]
    pub fn nature(&self) -> &Nature {
        self.ticket.nature()
    }

    /// What is promised about it.
    #[must_use]
    pub fn contract(&self) -> &Arc<Contract> {
        &self.ticket.nature().contract
    }

    /// The gate found it protective.
    #[must_use]
    pub fn protective(&self) -> bool {
        self.ticket.protective()
    }

    /// Binds it to its place in the log.
    ///
    /// # Errors
    /// The intent itself, when the position is another one's.
    pub fn journaled(self, at: LogPosition) -> Result<Journaled, Intent> {
        if at.call() == self.id() { Ok(Journaled { intent: self, at }) } else { Err(self) }
    }

    /// Ends the call before its start.
    pub fn refuse(self, why: Why) -> Refusal {
        self.ticket.refuse(why)
    }
}

/// An intent that the log has (or that needs no log). Not yet leave to start: that is the [`Turn`].
#[derive(Debug)]
#[must_use = "each journaled intent is answered: start it or refuse it"]
pub struct Journaled {
    intent: Intent,
    at: LogPosition,
}

impl Journaled {
    /// The call.
    #[must_use]
    pub fn id(&self) -> CallId {
        self.intent.id()
    }

    /// The request.
    pub fn request(&self) -> &Request {
        self.intent.request()
    }

    /// The gate found it protective.
    #[must_use]
    pub fn protective(&self) -> bool {
        self.intent.protective()
    }

    /// Its place in the log.
    pub fn at(&self) -> &LogPosition {
        &self.at
    }

    /// Its leave was an exception that is over: it waits for the log like any other.
    ///
    /// # Errors
    /// The journaled intent itself, when its leave is no exception or the exception still holds.
    pub fn reconsider(self, journal: &mut Journal) -> Result<Intent, Journaled> {
        match self.at.ground() {
            Ground::DegradedProtective(_) if !journal.is_degraded() => {
                journal.take_back(&self.at);
                Ok(self.intent)
            }
            Ground::DegradedProtective(_) | Ground::Durable(_) | Ground::Reads => Err(self),
        }
    }

    /// Starts it: the order goes out, the claim stays.
    ///
    /// # Errors
    /// The intent, when the turn is another call's.
    pub fn start(self, turn: Turn) -> Result<(Order, Claim), Journaled> {
        if turn.call() != self.id() {
            return Err(self);
        }
        let Journaled { intent: Intent { ticket }, at: _ } = self;
        let wish = ticket.request().wish();
        let order = Order {
            call: ticket.id(),
            op: op_of(ticket.request()),
            tool: Arc::clone(ticket.tool()),
            args: Arc::clone(wish.args.value()),
            facts: Arc::clone(&wish.facts),
            nature: Arc::clone(ticket.nature()),
            protective: ticket.protective(),
        };
        Ok((order, Claim { ticket }))
    }

    /// Ends the call before its start.
    pub fn refuse(self, why: Why) -> Refusal {
        self.intent.refuse(why)
    }
}

/// The only thing that a tool can run. It is made once for each call, and may be lost: the claim answers for it.
#[derive(Debug)]
#[must_use = "an order that nobody runs ends as unknown"]
pub struct Order {
    call: CallId,
    op: OpKey,
    tool: Arc<Tool>,
    args: Arc<Value>,
    facts: Arc<PathFacts>,
    nature: Arc<Nature>,
    protective: bool,
}

impl Order {
    /// The call.
    #[must_use]
    pub fn call(&self) -> CallId {
        self.call
    }

    /// The operation, for a tool that takes a key: the same for each attempt.
    #[must_use]
    pub fn op(&self) -> OpKey {
        self.op
    }

    /// The tool.
    #[must_use]
    pub fn tool(&self) -> &Arc<Tool> {
        &self.tool
    }

    /// The input that was judged.
    #[must_use]
    pub fn args(&self) -> &Arc<Value> {
        &self.args
    }

    /// The facts that it was judged by. What is opened must still resolve to the same path.
    #[must_use]
    pub fn facts(&self) -> &PathFacts {
        &self.facts
    }

    /// What it is by nature: canonical keys, risk, patience.
    #[must_use]
    pub fn nature(&self) -> &Nature {
        &self.nature
    }

    /// It is a protective action.
    #[must_use]
    pub fn protective(&self) -> bool {
        self.protective
    }
}

/// The duty to answer for a started call. It stays in the machine.
#[derive(Debug)]
#[must_use = "each claim is concluded, by a report or by a deadline"]
pub struct Claim {
    ticket: Ticket,
}

impl Claim {
    /// The call.
    #[must_use]
    pub fn id(&self) -> CallId {
        self.ticket.id()
    }

    /// What the call is by nature.
    #[must_use]
    pub fn nature(&self) -> &Nature {
        self.ticket.nature()
    }

    /// Concludes. The contract, not the adapter, says what a loss means.
    pub fn conclude(self, report: Report) -> Outcome {
        let known = match report {
            Report::Done(output) => Known::Done(Arc::new(output)),
            Report::Failed(failure) => Known::Failed(failure),
            Report::Lost(loss) => {
                let way_out = way_out(&self.ticket.nature().contract);
                Known::Unknown { loss, way_out }
            }
        };
        Outcome { ticket: self.ticket, known }
    }
}

/// What came of a started call.
#[derive(Debug)]
#[must_use = "an outcome is settled: hand it to closure"]
pub struct Outcome {
    ticket: Ticket,
    known: Known,
}

impl Outcome {
    /// The call.
    #[must_use]
    pub fn id(&self) -> CallId {
        self.ticket.id()
    }

    /// The request.
    pub fn request(&self) -> &Request {
        self.ticket.request()
    }

    /// What is known about it.
    #[must_use]
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// The operation.
    #[must_use]
    pub fn op(&self) -> OpKey {
        op_of(self.request())
    }

    /// The tool that was called.
    #[must_use]
    pub fn tool(&self) -> &Arc<Tool> {
        self.ticket.tool()
    }

    /// What the call was by nature.
    #[must_use]
    pub fn nature(&self) -> &Nature {
        self.ticket.nature()
    }

    /// For closure, the one room that may take the token out.
    pub(crate) fn into_parts(self) -> (Request, Known) {
        (self.ticket.into_permit().into_call().into_request(), self.known)
    }
}
