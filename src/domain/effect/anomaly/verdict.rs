//! The verdicts: A1 to A5 and A8 in one walk over the effects, A6 and A7 from their own rooms.

use super::history::{At, Edge, History, Settled};
use super::names::Names;
use super::orders;
use super::reading::{Item, May, Reading};
use super::spheres;
use super::{Anomaly, Kind, Terms, Verdict, View};

/// What was found of one kind: the first of each strength, and how many of the stronger one.
#[derive(Debug, Default)]
struct Found {
    certain: Option<Shown>,
    possible: Option<Shown>,
    certain_count: usize,
    possible_count: usize,
}

#[derive(Debug)]
struct Shown {
    events: Vec<At>,
    why: String,
}

impl Found {
    fn add(&mut self, verdict: Verdict, shown: impl FnOnce() -> (Vec<Option<At>>, String)) {
        let (first, count) = match verdict {
            Verdict::Certain => (&mut self.certain, &mut self.certain_count),
            Verdict::Possible => (&mut self.possible, &mut self.possible_count),
        };
        *count += 1;
        if first.is_none() {
            let (events, why) = shown();
            *first = Some(Shown { events: events.into_iter().flatten().collect(), why });
        }
    }

    fn anomaly(self, kind: Kind) -> Option<Anomaly> {
        let (verdict, shown, count) = match (self.certain, self.possible) {
            (Some(certain), _) => (Verdict::Certain, certain, self.certain_count),
            (None, Some(possible)) => (Verdict::Possible, possible, self.possible_count),
            (None, None) => return None,
        };
        let mut events: Vec<usize> = shown.events.iter().map(|at| at.place()).collect();
        events.sort_unstable();
        events.dedup();
        let more = match count - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        Some(Anomaly { kind, verdict, events, why: format!("{}{more}", shown.why) })
    }
}

impl History {
    /// The anomalies that it has or may have, one for each kind, in order.
    #[must_use]
    pub fn check(&self, terms: &Terms) -> Vec<Anomaly> {
        let reading = Reading::of(self, terms.view);
        let found = [
            (Kind::A1, self.duplicates(&reading)),
            (Kind::A2, self.missing(&reading)),
            (Kind::A3, self.blind_compensations()),
            (Kind::A4, self.residues(&reading)),
            (Kind::A5, if terms.held { self.early(&reading) } else { Found::default() }),
            (Kind::A6, self.broken_spheres(&reading)),
            (Kind::A7, self.unordered(&reading, terms)),
            (Kind::A8, self.reactions(&reading, terms.view)),
        ];
        found.into_iter().filter_map(|(kind, found)| found.anomaly(kind)).collect()
    }

    /// A1: two effects of one operation. Compensations have operations of their own and do not count.
    fn duplicates(&self, reading: &Reading) -> Found {
        let mut found = Found::default();
        let mut first: Vec<Option<u32>> = vec![None; self.group.len()];
        let mut first_sure = first.clone();
        for (number, item) in (0_u32..).zip(&reading.items) {
            let attempt = &self.attempt[item.attempt as usize];
            if attempt.is_compensation || item.exists == May::Never {
                continue;
            }
            let group = attempt.group as usize;
            let shown = |other: u32| {
                let what = self.op_of(attempt.group);
                let events = vec![Some(reading.items[other as usize].at), Some(item.at)];
                (events, format!("operation {what} has two effects"))
            };
            if item.exists == May::Surely
                && let Some(other) = first_sure[group]
            {
                found.add(Verdict::Certain, || shown(other));
            } else if let Some(other) = first[group] {
                found.add(Verdict::Possible, || {
                    let (events, why) = shown(other);
                    (events, why.replace("has", "may have"))
                });
            }
            first[group].get_or_insert(number);
            if item.exists == May::Surely {
                first_sure[group].get_or_insert(number);
            }
        }
        found
    }

    /// A2: a commit, and a required operation without an effect that survives in a kept branch.
    fn missing(&self, reading: &Reading) -> Found {
        let mut survives = vec![May::Never; self.group.len()];
        for item in &reading.items {
            let attempt = &self.attempt[item.attempt as usize];
            let group = attempt.group as usize;
            let Settled::Committed(at) = self.workflow[self.groups.all[group].0 as usize].settled else { continue };
            if !self.group[group].required || !self.branch[attempt.branch as usize].kept {
                continue;
            }
            let then = item.as_of(at);
            let may = match (then.surely_survives(), then.may_survive()) {
                (true, _) => May::Surely,
                (false, true) => May::Maybe,
                (false, false) => May::Never,
            };
            survives[group] = survives[group].max(may);
        }
        let mut found = Found::default();
        for (number, group) in (0_u32..).zip(&self.group) {
            let (workflow, _) = self.groups.all[number as usize];
            let Settled::Committed(at) = self.workflow[workflow as usize].settled else { continue };
            if !group.required {
                continue;
            }
            let begun = self.workflow[workflow as usize].at;
            let events = || vec![Some(group.last_attempt.unwrap_or(begun)), Some(at)];
            let what = || self.op_of(number);
            match survives[number as usize] {
                May::Surely => {}
                May::Maybe => found.add(Verdict::Possible, || {
                    (events(), format!("required operation {} may have no effect at the commit", what()))
                }),
                May::Never => found.add(Verdict::Certain, || {
                    (events(), format!("required operation {} has no effect at the commit", what()))
                }),
            }
        }
        found
    }

    /// A3: a rule on actions, so it is exact in both views.
    fn blind_compensations(&self) -> Found {
        let mut found = Found::default();
        for blind in &self.blind {
            found.add(Verdict::Certain, || {
                let (compensation, attempt) =
                    (self.attempt_names.name(blind.compensation), self.attempt_names.name(blind.attempt));
                let why = format!("{compensation} compensates {attempt}, whose outcome was not known then");
                (vec![blind.seen_at, Some(blind.at)], why)
            });
        }
        found
    }

    /// A4: an effect of what was given up survives.
    fn residues(&self, reading: &Reading) -> Found {
        let mut found = Found::default();
        for item in &reading.items {
            if self.attempt[item.attempt as usize].is_compensation {
                continue;
            }
            let Some(at) = self.given_up(item) else { continue };
            let shown = |may: &str| {
                let what = self.op_of(self.attempt[item.attempt as usize].group);
                (vec![Some(item.at), Some(at)], format!("an effect of {what} {may} after it was given up"))
            };
            if item.surely_survives() {
                found.add(Verdict::Certain, || shown("is left"));
            } else if item.may_survive() {
                found.add(Verdict::Possible, || shown("may be left"));
            }
        }
        found
    }

    /// A5: visible before the commit or abort that settles its branch.
    fn early(&self, reading: &Reading) -> Found {
        let mut found = Found::default();
        for item in &reading.items {
            let attempt = &self.attempt[item.attempt as usize];
            let Some(visible) = item.visible else { continue };
            if attempt.is_compensation || item.exists == May::Never {
                continue;
            }
            let settled = self.settled_at(item);
            if settled.is_some_and(|settled| settled <= visible) {
                continue;
            }
            let verdict = if item.exists == May::Surely { Verdict::Certain } else { Verdict::Possible };
            found.add(verdict, || {
                let what = self.op_of(attempt.group);
                let may = if verdict == Verdict::Certain { "was" } else { "may have been" };
                (vec![Some(visible), settled], format!("an effect of {what} {may} visible before it was settled"))
            });
        }
        found
    }

    /// A6: see [`spheres`].
    fn broken_spheres(&self, reading: &Reading) -> Found {
        let mut found = Found::default();
        if self.rests.is_empty() {
            return found;
        }
        let kept: Vec<May> = (0..self.effect.len()).map(|effect| self.kept(&reading.items[effect])).collect();
        let shown = |edge: &Edge, root: u32, may: &str| {
            let (kept, root_name) = (self.effect_names.name(edge.from), self.effect_names.name(root));
            let places = [edge.from, root].map(|effect| Some(self.effect[effect as usize].at));
            let events = places.into_iter().chain([Some(edge.at)]).collect();
            (events, format!("{kept} {may} kept and rests on {root_name}, which {may} not"))
        };
        if let Some((edge, root)) = spheres::certain(&self.rests, &kept) {
            found.add(Verdict::Certain, || shown(edge, root, "is"));
        } else if let Some(edge) = spheres::possible(self, reading, &kept) {
            found.add(Verdict::Possible, || shown(edge, edge.to, "may be"));
        }
        found
    }

    /// A7: see [`orders`].
    fn unordered(&self, reading: &Reading, terms: &Terms) -> Found {
        let mut found = Found::default();
        let commuting = self.commuting(terms);
        let shown = |(one, other): (u32, u32), may: &str| {
            let [one, other] = [one, other].map(|effect| (effect, &self.effect[effect as usize]));
            let [name, other_name] = [one.0, other.0].map(|effect| self.effect_names.name(effect));
            let resource = self.resource_names.name(one.1.resource);
            let why = format!("{name} and {other_name} {may} released on {resource} in no order and do not commute");
            (vec![one.1.visible, other.1.visible], why)
        };
        let released = |least: May| {
            let items = &reading.items;
            move |effect: u32| items[effect as usize].visible.is_some() && items[effect as usize].exists >= least
        };
        if let Some(pair) = orders::unordered(self, &commuting, released(May::Surely)) {
            found.add(Verdict::Certain, || shown(pair, "were"));
        } else if terms.view == View::Runtime
            && let Some(pair) = orders::unordered(self, &commuting, released(May::Maybe))
        {
            found.add(Verdict::Possible, || shown(pair, "may have been"));
        }
        found
    }

    /// A8: a reaction that is in the log and stays; and, to the runtime, anybody's who saw what was undone later.
    fn reactions(&self, reading: &Reading, view: View) -> Found {
        let mut found = Found::default();
        for (number, reaction) in (0_u32..).zip(&self.reaction) {
            let item = &reading.items[reaction.effect as usize];
            if reaction.taken_back || item.exists == May::Never || item.maybe_undone.is_none() {
                continue;
            }
            let sure = item.exists == May::Surely && item.surely_undone.is_some();
            found.add(if sure { Verdict::Certain } else { Verdict::Possible }, || {
                let what = self.effect_names.name(reaction.effect);
                let may = if sure { "was" } else { "may have been" };
                let why = format!("{} outlives {what}, which {may} undone", self.reaction_names.name(number));
                (vec![Some(reaction.at), item.surely_undone.or(item.maybe_undone)], why)
            });
        }
        match view {
            View::World => {}
            View::Runtime => {
                for item in &reading.items {
                    let (Some(visible), Some(undone)) = (item.visible, item.maybe_undone) else { continue };
                    if item.exists == May::Never {
                        continue;
                    }
                    found.add(Verdict::Possible, || {
                        let what = self.op_of(self.attempt[item.attempt as usize].group);
                        let why = format!(
                            "an effect of {what} was visible and undone: nothing here says that nobody acted on it"
                        );
                        (vec![Some(visible), Some(undone)], why)
                    });
                }
            }
        }
        found
    }

    /// When it was given up with its workflow or branch, or dropped by the commit.
    fn given_up(&self, item: &Item) -> Option<At> {
        let attempt = &self.attempt[item.attempt as usize];
        let branch = self.branch[attempt.branch as usize];
        match self.workflow_of(attempt.group) {
            _ if branch.aborted.is_some() => branch.aborted,
            Settled::Aborted(at) => Some(at),
            Settled::Committed(at) if !branch.kept => Some(at),
            Settled::Committed(_) | Settled::Open => None,
        }
    }

    /// When its branch was settled.
    fn settled_at(&self, item: &Item) -> Option<At> {
        let attempt = &self.attempt[item.attempt as usize];
        match self.workflow_of(attempt.group) {
            _ if self.branch[attempt.branch as usize].aborted.is_some() => self.branch[attempt.branch as usize].aborted,
            Settled::Aborted(at) | Settled::Committed(at) => Some(at),
            Settled::Open => None,
        }
    }

    /// Kept: it survives, and its workflow committed with its branch.
    fn kept(&self, item: &Item) -> May {
        let committed = match self.workflow_of(self.attempt[item.attempt as usize].group) {
            Settled::Committed(_) => self.given_up(item).is_none(),
            Settled::Aborted(_) | Settled::Open => false,
        };
        match (committed, item.surely_survives(), item.may_survive()) {
            (true, true, _) => May::Surely,
            (true, false, true) => May::Maybe,
            (false, ..) | (true, false, false) => May::Never,
        }
    }

    fn workflow_of(&self, group: u32) -> Settled {
        self.workflow[self.groups.all[group as usize].0 as usize].settled
    }

    /// `op of workflow`.
    fn op_of(&self, group: u32) -> String {
        let (workflow, op) = self.groups.all[group as usize];
        format!("{} of {}", self.op_names.name(op), self.workflow_names.name(workflow))
    }

    /// The kind of each operation, and the pairs of kinds that commute.
    fn commuting(&self, terms: &Terms) -> orders::Commuting {
        let mut kinds = Names::new();
        let ops: Vec<&str> = (0_u32..).take(self.op_names.len()).map(|op| self.op_names.name(op)).collect();
        let of_op = ops.iter().map(|op| kinds.number(op.split('#').next().unwrap_or_default())).collect();
        let mut pairs: Vec<(u32, u32)> = Vec::new();
        for (one, other) in &terms.commuting {
            // A pair of which one is nowhere in the history says nothing about it.
            if let (Some(one), Some(other)) = (kinds.find(one), kinds.find(other)) {
                pairs.extend([(one, other), (other, one)]);
            }
        }
        pairs.sort_unstable();
        orders::Commuting { of_op, pairs }
    }
}
