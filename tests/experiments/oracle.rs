//! The definitions of the eight anomalies, word for word and by brute force: every world that fits is written out, and
//! every pair of effects is looked at in each. It shares nothing with the checker but the words of its interface.
//!
//! The parent imports those words, since two packages use this file under different names.
#![expect(clippy::wildcard_enum_match_arm, reason = "a test: each definition names the events that it speaks of")]

use std::collections::{BTreeMap, BTreeSet};

use super::{Event, History, Kind, Seen, Terms, Verdict, View};

/// One event, by numbers.
#[derive(Debug, Clone)]
pub(crate) enum Ev {
    Begin(usize, Vec<usize>),
    Attempt(usize, usize, usize, usize),
    Effect(usize, usize, usize, bool),
    Observe(usize, Seen),
    Comp(usize, usize),
    Neut(usize, usize),
    Dep(usize, usize),
    Order(usize, usize),
    React(usize, usize),
    Unreact(usize),
    Release(usize),
    Discard(usize),
    Commit(usize, Vec<usize>),
    Abort(usize, Option<usize>),
}

/// Operations 0 to 5 are of kinds `k0` to `k2`; from 6 on they are compensations' own.
fn op_name(op: usize) -> String {
    if op < 6 { format!("k{}#{op}", op % 3) } else { format!("undo#{op}") }
}

fn kind_of(op: usize) -> String {
    op_name(op).split('#').next().unwrap_or_default().to_owned()
}

/// A history that may be strange but is well-formed, and what it is held against.
pub(crate) fn random(rng: &mut fastrand::Rng) -> (Vec<Ev>, Terms) {
    let view = if rng.bool() { View::World } else { View::Runtime };
    let (mut events, mut settled) = (Vec::new(), Vec::new());
    // Operation, workflow and whether it is a compensation, of each attempt; the attempt of each effect.
    let (mut attempts, mut effects): (Vec<(usize, usize, bool)>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut reactions = 0;
    let len = rng.usize(3..28);
    while events.len() < len {
        let (a, e, w) = (attempts.len(), effects.len(), settled.len());
        let some = |rng: &mut fastrand::Rng, count: usize| rng.usize(0..count.max(1));
        match rng.u32(0..100) {
            _ if w == 0 => {
                settled.push(false);
                events.push(Ev::Begin(0, (0..rng.usize(0..3)).collect()));
            }
            0..8 if w < 3 => {
                settled.push(false);
                events.push(Ev::Begin(w, (0..rng.usize(0..3)).map(|_| rng.usize(0..6)).collect()));
            }
            8..24 if a < 7 => {
                let workflow = some(rng, w);
                attempts.push((rng.usize(0..6), workflow, false));
                events.push(Ev::Attempt(a, attempts[a].0, workflow, rng.usize(0..2)));
            }
            24..42 if a > 0 => {
                let attempt = some(rng, a);
                effects.push(attempt);
                events.push(Ev::Effect(e, attempt, rng.usize(0..2), rng.bool()));
            }
            42..54 if a > 0 => {
                let seen = [Seen::Confirmed, Seen::Failed, Seen::Unknown][rng.usize(0..3)];
                events.push(Ev::Observe(some(rng, a), seen));
            }
            54..62 if a > 0 && a < 7 => {
                // A compensation has an operation of its own, so that its bit does not pull in two directions at once.
                let workflow = some(rng, w);
                attempts.push((6 + a, workflow, true));
                events.push(Ev::Attempt(a, 6 + a, workflow, rng.usize(0..2)));
                events.push(Ev::Comp(a, some(rng, a)));
            }
            62..68 if e > 0 => {
                let able: Vec<usize> = match view {
                    View::World => (0..a).collect(),
                    View::Runtime => (0..a).filter(|attempt| attempts[*attempt].2).collect(),
                };
                if !able.is_empty() {
                    events.push(Ev::Neut(able[some(rng, able.len())], some(rng, e)));
                }
            }
            68..74 if e > 0 => events.push(Ev::Dep(some(rng, e), some(rng, e))),
            74..80 if e > 0 => events.push(Ev::Order(some(rng, e), some(rng, e))),
            80..84 if e > 0 => {
                events.push(Ev::React(reactions, some(rng, e)));
                reactions += 1;
            }
            84..86 if reactions > 0 => events.push(Ev::Unreact(some(rng, reactions))),
            86..90 if e > 0 => events.push(Ev::Release(some(rng, e))),
            90..92 if e > 0 => events.push(Ev::Discard(some(rng, e))),
            92..100 => {
                let workflow = some(rng, w);
                if settled[workflow] {
                    continue;
                }
                let event = match rng.u32(0..4) {
                    0 => Ev::Abort(workflow, Some(rng.usize(0..2))),
                    1 => Ev::Abort(workflow, None),
                    _ => Ev::Commit(workflow, (0..2).filter(|_| rng.u32(0..4) > 0).collect()),
                };
                settled[workflow] = !matches!(event, Ev::Abort(_, Some(_)));
                events.push(event);
            }
            _ => {}
        }
    }
    let kinds = ["k0", "k1", "k2", "undo"];
    let commuting = (0..rng.usize(0..4)).map(|_| {
        let mut kind = || kinds[rng.usize(0..kinds.len())].to_owned();
        (kind(), kind())
    });
    let commuting = commuting.collect();
    (events, Terms { view, held: rng.bool(), commuting })
}

/// The same history as the checker takes it.
pub(crate) fn history(events: &[Ev]) -> History {
    let mut history = History::new();
    for event in events {
        let name = |letter: char, number: &usize| format!("{letter}{number}");
        let all = |make: &dyn Fn(&usize) -> String, numbers: &[usize]| numbers.iter().map(make).collect::<Vec<_>>();
        let taken = match event {
            Ev::Begin(w, ops) => {
                let ops = all(&|op| op_name(*op), ops);
                let required: Vec<&str> = ops.iter().map(String::as_str).collect();
                history.take(Event::Begin { workflow: &name('w', w), required: &required })
            }
            Ev::Attempt(a, op, w, b) => history.take(Event::Attempt {
                attempt: &name('a', a),
                op: &op_name(*op),
                workflow: &name('w', w),
                branch: &name('b', b),
            }),
            Ev::Effect(e, a, r, staged) => history.take(Event::Effect {
                effect: &name('e', e),
                attempt: &name('a', a),
                resource: &name('r', r),
                staged: *staged,
            }),
            Ev::Observe(a, seen) => history.take(Event::Observe { attempt: &name('a', a), seen: *seen }),
            Ev::Comp(c, a) => history.take(Event::Compensate { compensation: &name('a', c), attempt: &name('a', a) }),
            Ev::Neut(c, e) => history.take(Event::Neutralise { compensation: &name('a', c), effect: &name('e', e) }),
            Ev::Dep(e2, e1) => history.take(Event::Depends { later: &name('e', e2), earlier: &name('e', e1) }),
            Ev::Order(e1, e2) => history.take(Event::Order { first: &name('e', e1), second: &name('e', e2) }),
            Ev::React(x, e) => history.take(Event::React { reaction: &name('x', x), effect: &name('e', e) }),
            Ev::Unreact(x) => history.take(Event::Unreact { reaction: &name('x', x) }),
            Ev::Release(e) => history.take(Event::Release { effect: &name('e', e) }),
            Ev::Discard(e) => history.take(Event::Discard { effect: &name('e', e) }),
            Ev::Commit(w, kept) => {
                let kept = all(&|b| name('b', b), kept);
                let branches: Vec<&str> = kept.iter().map(String::as_str).collect();
                history.take(Event::Commit { workflow: &name('w', w), branches: &branches })
            }
            Ev::Abort(w, b) => {
                let branch = b.as_ref().map(|b| name('b', b));
                history.take(Event::Abort { workflow: &name('w', w), branch: branch.as_deref() })
            }
        };
        taken.unwrap_or_else(|error| panic!("{error} in {events:?}"));
    }
    history
}

/// An effect of one world.
#[derive(Debug, Clone)]
struct Thing {
    /// Its number in the history, if it is listed there.
    listed: Option<usize>,
    attempt: usize,
    at: usize,
    resource: Option<usize>,
    staged: bool,
}

/// What holds in the worlds that fit, by the definitions.
pub(crate) fn verdicts(events: &[Ev], terms: &Terms) -> BTreeMap<Kind, Verdict> {
    let find = |wanted: &dyn Fn(&Ev) -> bool| events.iter().position(wanted);
    let attempts: Vec<(usize, usize, usize, usize)> = events
        .iter()
        .enumerate()
        .filter_map(|(at, event)| match event {
            Ev::Attempt(_, op, w, b) => Some((*op, *w, *b, at)),
            _ => None,
        })
        .collect();
    let last = |a: usize, before: usize| {
        let seen = events[..before].iter().rev().find_map(|event| match event {
            Ev::Observe(other, seen) if *other == a => Some(*seen),
            _ => None,
        });
        seen.unwrap_or(Seen::Unknown)
    };
    let is_comp = |a: usize| events.iter().any(|event| matches!(event, Ev::Comp(c, _) if *c == a));
    let lists_undo = |a: usize| events.iter().any(|event| matches!(event, Ev::Neut(c, _) if *c == a));
    let listed: Vec<Thing> = events
        .iter()
        .enumerate()
        .filter_map(|(at, event)| match event {
            Ev::Effect(e, a, r, staged) => {
                Some(Thing { listed: Some(*e), attempt: *a, at, resource: Some(*r), staged: *staged })
            }
            _ => None,
        })
        .collect();
    let open: Vec<usize> = match terms.view {
        View::World => Vec::new(),
        View::Runtime => (0..attempts.len()).filter(|a| last(*a, events.len()) == Seen::Unknown).collect(),
    };
    let mut held: BTreeMap<(Kind, String), u32> = BTreeMap::new();
    let mut only_possible: BTreeSet<Kind> = BTreeSet::new();
    let worlds = 1_u32 << open.len();
    for world in 0..worlds {
        let bit = |a: usize| match terms.view {
            View::World => true,
            View::Runtime => match last(a, events.len()) {
                Seen::Confirmed => true,
                Seen::Failed => false,
                Seen::Unknown => open.iter().position(|open| *open == a).is_some_and(|at| world >> at & 1 == 1),
            },
        };
        let mut things: Vec<Thing> = listed.iter().filter(|thing| bit(thing.attempt)).cloned().collect();
        if terms.view == View::Runtime {
            for (a, (op, w, _, at)) in attempts.iter().enumerate() {
                let has = |a: usize| listed.iter().any(|thing| thing.attempt == a);
                let original = |b: usize| {
                    let (other_op, other_w, ..) = attempts[b];
                    (other_op, other_w) == (*op, *w) && has(b) && last(b, events.len()) == Seen::Confirmed
                };
                let given_back = last(a, events.len()) == Seen::Confirmed && (0..attempts.len()).any(original);
                if bit(a) && !has(a) && !given_back {
                    things.push(Thing { listed: None, attempt: a, at: *at, resource: None, staged: false });
                }
            }
        }
        let undone = |thing: &Thing, before: usize| {
            events[..before].iter().any(|event| match event {
                Ev::Neut(c, e) => Some(*e) == thing.listed && bit(*c),
                Ev::Comp(c, a) => terms.view == View::Runtime && *a == thing.attempt && bit(*c) && !lists_undo(*c),
                _ => false,
            })
        };
        let discarded = |thing: &Thing, before: usize| {
            events[..before].iter().any(|event| matches!(event, Ev::Discard(e) if Some(*e) == thing.listed))
        };
        let survives = |thing: &Thing, at: usize| thing.at < at && !undone(thing, at) && !discarded(thing, at);
        let settled = |w: usize| find(&|event| matches!(event, Ev::Commit(v, _) | Ev::Abort(v, None) if *v == w));
        let aborted_branch =
            |w: usize, b: usize| find(&|event| matches!(event, Ev::Abort(v, Some(c)) if (*v, *c) == (w, b)));
        let dropped = |w: usize, b: usize| match settled(w).map(|at| &events[at]) {
            _ if aborted_branch(w, b).is_some() => true,
            Some(Ev::Commit(_, kept)) => !kept.contains(&b),
            Some(_) => true,
            None => false,
        };
        let committed = |w: usize| matches!(settled(w).map(|at| &events[at]), Some(Ev::Commit(..)));
        let place = |thing: &Thing| attempts[thing.attempt];
        let visible = |thing: &Thing| {
            if !thing.staged {
                return Some(thing.at);
            }
            find(&|event| matches!(event, Ev::Release(e) if Some(*e) == thing.listed))
        };
        let kept = |thing: &Thing| {
            let (_, w, b, _) = place(thing);
            survives(thing, events.len()) && !dropped(w, b) && committed(w)
        };
        let mut holds = |kind: Kind, what: String| *held.entry((kind, what)).or_default() += 1;
        let prim: Vec<&Thing> = things.iter().filter(|thing| !is_comp(thing.attempt)).collect();
        for (i, one) in prim.iter().enumerate() {
            for other in prim.iter().skip(i + 1) {
                let ((op, w, ..), (other_op, other_w, ..)) = (place(one), place(other));
                if (op, w) == (other_op, other_w) {
                    let name = |thing: &Thing| format!("{:?} {}", thing.listed, thing.attempt);
                    holds(Kind::A1, format!("{} {}", name(one), name(other)));
                }
            }
        }
        for (at, event) in events.iter().enumerate() {
            match event {
                Ev::Commit(w, branches) => {
                    let required = events.iter().find_map(|event| match event {
                        Ev::Begin(v, ops) if v == w => Some(ops.clone()),
                        _ => None,
                    });
                    // A requirement may be written twice.
                    for op in required.unwrap_or_default().into_iter().collect::<BTreeSet<_>>() {
                        let there = things.iter().any(|thing| {
                            let (own_op, own_w, b, _) = place(thing);
                            (own_op, own_w) == (op, *w) && branches.contains(&b) && survives(thing, at)
                        });
                        if !there {
                            holds(Kind::A2, format!("{w} {op}"));
                        }
                    }
                }
                Ev::Comp(_, a) if last(*a, at) == Seen::Unknown => holds(Kind::A3, at.to_string()),
                _ => {}
            }
        }
        for thing in &prim {
            let (_, w, b, _) = place(thing);
            let name = format!("{:?} {}", thing.listed, thing.attempt);
            if dropped(w, b) && survives(thing, events.len()) {
                holds(Kind::A4, name.clone());
            }
            let resolved = aborted_branch(w, b).or_else(|| settled(w)).unwrap_or(usize::MAX);
            if terms.held && visible(thing).is_some_and(|visible| visible < resolved) {
                holds(Kind::A5, name);
            }
        }
        for start in things.iter().filter(|thing| kept(thing)).filter_map(|thing| thing.listed) {
            let (mut reached, mut grew) = (BTreeSet::from([start]), true);
            let mut below = BTreeSet::new();
            while grew {
                grew = false;
                for event in events {
                    if let Ev::Dep(e2, e1) = event
                        && reached.contains(e2)
                        && below.insert(*e1)
                    {
                        reached.insert(*e1);
                        grew = true;
                    }
                }
            }
            for e1 in below {
                if !things.iter().any(|thing| thing.listed == Some(e1) && kept(thing)) {
                    holds(Kind::A6, format!("{start} {e1}"));
                }
            }
        }
        let path = |from: usize, to: usize| {
            let mut reached = BTreeSet::from([from]);
            loop {
                let more: Vec<usize> = events
                    .iter()
                    .filter_map(|event| match event {
                        Ev::Order(e1, e2) if reached.contains(e1) && !reached.contains(e2) => Some(*e2),
                        _ => None,
                    })
                    .collect();
                if more.is_empty() {
                    return reached.contains(&to);
                }
                reached.extend(more);
            }
        };
        for one in &things {
            for other in &things {
                let (Some(e1), Some(e2)) = (one.listed, other.listed) else { continue };
                let ((op, w, ..), (other_op, other_w, ..)) = (place(one), place(other));
                let (kind, other_kind) = (kind_of(op), kind_of(other_op));
                let commute = terms
                    .commuting
                    .iter()
                    .any(|(p, q)| (*p == kind && *q == other_kind) || (*q == kind && *p == other_kind));
                let both = visible(one).is_some() && visible(other).is_some();
                if e1 < e2
                    && w != other_w
                    && one.resource == other.resource
                    && both
                    && !commute
                    && !path(e1, e2)
                    && !path(e2, e1)
                {
                    holds(Kind::A7, format!("{e1} {e2}"));
                }
            }
        }
        for thing in &things {
            if !undone(thing, events.len()) {
                continue;
            }
            for event in events {
                if let Ev::React(x, e) = event
                    && Some(*e) == thing.listed
                    && !events.iter().any(|event| matches!(event, Ev::Unreact(y) if y == x))
                {
                    holds(Kind::A8, x.to_string());
                }
            }
            if terms.view == View::Runtime && visible(thing).is_some() {
                only_possible.insert(Kind::A8);
            }
        }
    }
    let mut found: BTreeMap<Kind, Verdict> = only_possible.into_iter().map(|kind| (kind, Verdict::Possible)).collect();
    for ((kind, _), count) in held {
        let verdict = if count == worlds { Verdict::Certain } else { Verdict::Possible };
        let known = found.entry(kind).or_insert(verdict);
        *known = (*known).max(verdict);
    }
    found
}

/// Histories on which the checker and the definitions differ, of so many drawn from this seed on; none, if all is well.
pub(crate) fn differ(seeds: std::ops::Range<u64>) -> Vec<String> {
    let mut wrong = Vec::new();
    for seed in seeds {
        let (events, terms) = random(&mut fastrand::Rng::with_seed(seed));
        let said: BTreeMap<Kind, Verdict> =
            history(&events).check(&terms).into_iter().map(|anomaly| (anomaly.kind, anomaly.verdict)).collect();
        let right = verdicts(&events, &terms);
        if said != right {
            wrong.push(format!("seed {seed}: said {said:?}, by the definitions {right:?}\n  {terms:?}\n  {events:?}"));
        }
    }
    wrong
}
