//! The ledger: each effect from its intent to what is known of its end, whoever asked for it and in whatever group.
//!
//! It notes what a call changes, on whose results it was made, and whether it repeats one whose end nobody knows; all of
//! it goes into the log with the intent. While something is unknown it looks, at each step, whether one of the anomalies
//! is there or may be: that is said when it arises, and taken back when it turns out not to be. It holds nobody up: what
//! may be started is decided by the number of unknown effects alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use crate::id::{CallId, RunId, ToolName};
use crate::request::Part;
use crate::request::args::Digest;
use crate::request::why::Why;
use crate::surface::contract::Contract;
use crate::surface::nature::{Deed, Key, Nature};

use super::Intent;
use super::anomaly::{Kind, Seen, Verdict};
use super::chronicle::{Chronicle, Finding, Sent};
use super::outcome::{Known, OpKey};
use super::values::values;

/// How many effects may have an unknown outcome before nothing new is started. Somebody who lets a thousand questions
/// lie does not look at this box; more effects on top would only make it worse.
pub const UNRESOLVED_MAX: usize = 1000;

/// Effects that are remembered after their end is known. What is compared is what stands near in time.
const KNOWN_MAX: usize = 512;

/// Values of results that later inputs are compared with, over all runs: some hundred results.
const SOURCES_MAX: usize = 16_384;

/// Anomalies that stand at one time. Beyond it a plant is in trouble that nobody reads one by one.
const STANDING_MAX: usize = 64;

/// Effects that are looked at together.
const TOGETHER_MAX: usize = 64;

/// What the ledger knows of a call when it is about to be sent. It stands in the row of its intent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Noted {
    /// What it changes, by name.
    pub resources: Vec<String>,
    /// The calls whose results its input repeats a value of.
    pub rests_on: Vec<CallId>,
    /// The call that it repeats, while nobody knows the end of that: another attempt at the same operation.
    pub repeats: Option<CallId>,
    /// Its place in a workflow.
    pub part: Option<Arc<Part>>,
}

/// What a call changes, by name: what its contract says, else what its nature knows. None is not "nothing": nobody knows.
#[must_use]
pub fn resources(nature: &Nature, input: &Value) -> Vec<String> {
    let declared = nature.contract.with.resources(input);
    if !declared.is_empty() {
        return declared;
    }
    let name = |key: &Key| match key {
        Key::Path(path) => path.clone(),
        Key::Device(device) => device.clone(),
        Key::Named(name) => name.clone(),
    };
    match &nature.deed {
        // Without what is asked of it: the resource is what is addressed (RFC 3986, 3.3).
        Deed::Fetch { url, .. } => vec![url.split(['?', '#']).next().unwrap_or_default().to_owned()],
        Deed::Read { .. }
        | Deed::Write { .. }
        | Deed::Shell { .. }
        | Deed::Device { .. }
        | Deed::Mcp { .. }
        | Deed::Own { .. } => nature.keys.writes.iter().map(name).collect(),
    }
}

/// One effect.
#[derive(Debug, Clone)]
struct Entry {
    op: OpKey,
    tool: ToolName,
    args: Option<Digest>,
    contract: Arc<Contract>,
    noted: Arc<Noted>,
    seen: Seen,
    /// It runs: what is not seen yet is no loss.
    running: bool,
    began: u64,
    known: Option<u64>,
}

/// What the log of an earlier life says of an effect.
#[derive(Debug, Clone, Copy)]
pub struct Lost<'a> {
    /// Its operation.
    pub op: OpKey,
    /// Its tool.
    pub tool: &'a ToolName,
    /// Its input, where the log has it whole.
    pub args: Option<Digest>,
    /// What is promised about it.
    pub contract: &'a Arc<Contract>,
    /// What the ledger noted of it.
    pub noted: &'a Arc<Noted>,
}

/// What became of an anomaly.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Which.
    pub kind: Kind,
    /// How sure it is now; `None` when it turned out not to be.
    pub verdict: Option<Verdict>,
    /// The calls that show it.
    pub calls: Vec<CallId>,
    /// In words.
    pub why: String,
}

/// The open effects, and those that ended a while ago.
#[derive(Debug, Default)]
pub struct Ledger {
    unresolved: BTreeSet<OpKey>,
    entries: BTreeMap<CallId, Entry>,
    /// Those of them that were sent, and whose end nobody knows.
    lost: BTreeSet<CallId>,
    ended: VecDeque<CallId>,
    sources: BTreeMap<(RunId, u64), CallId>,
    oldest: VecDeque<(RunId, u64)>,
    standing: BTreeMap<(Kind, Vec<CallId>), Verdict>,
    clock: u64,
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

    /// A call is about to be sent.
    pub fn declared(&mut self, intent: &Intent) -> Arc<Noted> {
        let (request, call) = (intent.request(), intent.id());
        let wish = request.wish();
        let contract = intent.contract();
        if !contract.changes() {
            return Arc::new(Noted { part: wish.part.clone(), ..Noted::default() });
        }
        let mut rests_on = self.inferred(call, wish.args.value());
        rests_on.extend(wish.part.iter().flat_map(|part| &part.rests_on).copied());
        let args = Some(wish.args.hash());
        let is_same = |it: &Entry| it.tool == wish.tool && it.args == args && it.noted.part.is_none();
        let alone = wish.part.is_none() && wish.again.is_none();
        let lost = self.lost.iter().filter_map(|call| Some((call, self.entries.get(call)?)));
        let mut same = lost.filter(|(_, it)| alone && is_same(it));
        let repeats = same.next().map(|(call, it)| it.noted.repeats.unwrap_or(*call));
        let resources = resources(intent.nature(), wish.args.value());
        let noted = Arc::new(Noted { resources, rests_on, repeats, part: wish.part.clone() });
        let entry = Entry {
            op: intent.op(),
            tool: wish.tool.clone(),
            args,
            contract: Arc::clone(contract),
            noted: Arc::clone(&noted),
            seen: Seen::Unknown,
            running: true,
            began: self.tick(),
            known: None,
        };
        self.entries.insert(call, entry);
        noted
    }

    /// An effect of an earlier life that nobody knows the end of.
    pub fn reopened(&mut self, call: CallId, lost: Lost<'_>) {
        let entry = Entry {
            op: lost.op,
            tool: lost.tool.clone(),
            args: lost.args,
            contract: Arc::clone(lost.contract),
            noted: Arc::clone(lost.noted),
            seen: Seen::Unknown,
            running: false,
            began: self.tick(),
            known: None,
        };
        self.entries.entry(call).or_insert(entry);
        self.lost.insert(call);
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// The calls of whose results this input repeats a value: of its own run, or of the run in whose name it is made.
    fn inferred(&self, call: CallId, input: &Value) -> Vec<CallId> {
        if self.sources.is_empty() {
            return Vec::new();
        }
        let found: BTreeSet<CallId> =
            values(input).iter().filter_map(|value| self.sources.get(&(call.run, hash(value))).copied()).collect();
        found.into_iter().filter(|source| *source != call).collect()
    }

    /// What was noted of a call.
    #[must_use]
    pub fn noted(&self, call: CallId) -> Arc<Noted> {
        self.entries.get(&call).map(|entry| Arc::clone(&entry.noted)).unwrap_or_default()
    }

    /// It was refused before its start.
    pub fn forget(&mut self, call: CallId) {
        self.entries.remove(&call);
    }

    /// A call ended.
    pub fn seen(&mut self, call: CallId, known: &Known) {
        if let Known::Done(output) = known {
            self.remember(call, output);
        }
        let at = self.tick();
        let Some(entry) = self.entries.get_mut(&call) else { return };
        entry.running = false;
        match known {
            Known::Done(_) => (entry.seen, entry.known) = (Seen::Confirmed, Some(at)),
            Known::Failed(_) => (entry.seen, entry.known) = (Seen::Failed, Some(at)),
            Known::Unknown { .. } => {
                self.lost.insert(call);
                return;
            }
        }
        self.retire(call);
    }

    fn remember(&mut self, call: CallId, output: &Value) {
        for value in values(output) {
            let source = (call.run, hash(&value));
            if self.sources.insert(source, call).is_none() {
                self.oldest.push_back(source);
            }
            if self.oldest.len() > SOURCES_MAX
                && let Some(old) = self.oldest.pop_front()
            {
                self.sources.remove(&old);
            }
        }
    }

    fn retire(&mut self, call: CallId) {
        self.lost.remove(&call);
        self.ended.push_back(call);
        if self.ended.len() > KNOWN_MAX
            && let Some(old) = self.ended.pop_front()
        {
            self.entries.remove(&old);
        }
    }

    /// Its outcome is unknown.
    pub fn opened(&mut self, op: OpKey) {
        self.unresolved.insert(op);
    }

    /// Somebody found out. False when it was not open.
    pub fn resolved(&mut self, op: OpKey, done: bool) -> bool {
        let at = self.tick();
        let found: Vec<CallId> = self
            .entries
            .iter_mut()
            .filter(|(_, entry)| entry.op == op && entry.seen == Seen::Unknown && !entry.running)
            .map(|(call, entry)| {
                entry.seen = if done { Seen::Confirmed } else { Seen::Failed };
                entry.known = Some(at);
                *call
            })
            .collect();
        found.into_iter().for_each(|call| self.retire(call));
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

    /// What has changed by what was learned of a call: anomalies that are there or may be, and those that are not after
    /// all. While everything is known, and was, there is nothing to look at.
    pub fn judge(&mut self, call: CallId) -> Vec<Change> {
        let doubt = !self.unresolved.is_empty() || !self.standing.is_empty();
        let repeats = self.entries.get(&call).is_some_and(|entry| entry.noted.repeats.is_some());
        if !doubt && !repeats {
            return Vec::new();
        }
        let together = self.together(call);
        let found = self.look(&together);
        let mut changes = Vec::new();
        let now: BTreeSet<(Kind, Vec<CallId>)> =
            found.iter().map(|finding| (finding.anomaly.kind, finding.calls.clone())).collect();
        let about =
            |calls: &[CallId]| calls.iter().all(|call| together.contains(call) || !self.entries.contains_key(call));
        let gone: Vec<(Kind, Vec<CallId>)> =
            self.standing.keys().filter(|key| !now.contains(*key) && about(&key.1)).cloned().collect();
        for (kind, calls) in gone {
            self.standing.remove(&(kind, calls.clone()));
            changes.push(Change { kind, verdict: None, calls, why: "it turned out not to be so".to_owned() });
        }
        for Finding { anomaly, calls } in found {
            let key = (anomaly.kind, calls.clone());
            let is_new = self.standing.get(&key) != Some(&anomaly.verdict);
            if is_new && (self.standing.len() < STANDING_MAX || self.standing.contains_key(&key)) {
                self.standing.insert(key, anomaly.verdict);
                changes.push(Change { kind: anomaly.kind, verdict: Some(anomaly.verdict), calls, why: anomaly.why });
            }
        }
        changes
    }

    /// The effects that one stands beside: of its operation, its resources, and what rests on one another.
    fn together(&self, call: CallId) -> BTreeSet<CallId> {
        let (mut found, mut next) = (BTreeSet::new(), vec![call]);
        while let Some(call) = next.pop() {
            let Some(entry) = self.entries.get(&call) else { continue };
            if found.len() >= TOGETHER_MAX || !found.insert(call) {
                continue;
            }
            let near = |other: CallId, it: &Entry| {
                it.op == entry.op
                    || it.noted.repeats == Some(call)
                    || entry.noted.repeats == Some(other)
                    || it.noted.rests_on.contains(&call)
                    || entry.noted.rests_on.contains(&other)
                    || it.noted.resources.first().is_some_and(|own| entry.noted.resources.first() == Some(own))
            };
            next.extend(self.entries.iter().filter(|(other, it)| near(**other, it)).map(|(other, _)| *other));
        }
        found
    }

    /// What the checker finds among these. What the runs are is told by the ledger alone: a workflow that is not decided
    /// is checked where it is decided.
    fn look(&self, calls: &BTreeSet<CallId>) -> Vec<Finding> {
        let mut steps: Vec<(u64, CallId, bool)> = Vec::new();
        for (call, entry) in calls.iter().filter_map(|call| Some((*call, self.entries.get(call)?))) {
            steps.push((entry.began, call, false));
            steps.extend(entry.known.map(|known| (known, call, true)));
        }
        steps.sort_unstable();
        let mut chronicle = Chronicle::default();
        for (_, call, ended) in steps {
            let Some(entry) = self.entries.get(&call) else { continue };
            let taken = match ended {
                true => chronicle.seen(call, entry.seen),
                false => {
                    let (contract, noted) = (&*entry.contract, &*entry.noted);
                    chronicle.sent(Sent { call, op: entry.op, contract, noted })
                }
            };
            // A name that is there twice cannot be: calls have one each. Then nothing is said, rather than nonsense.
            if taken.is_err() {
                return Vec::new();
            }
        }
        if chronicle.end().is_err() {
            return Vec::new();
        }
        // Nobody outside of a workflow undoes in the name of another call, so that A8 says nothing here.
        chronicle.check().into_iter().filter(|finding| finding.anomaly.kind != Kind::A8).collect()
    }
}

/// FNV-1a, 64 bits: two values that fall together would make one dependency too many, in one run.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests;
