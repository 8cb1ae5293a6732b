//! A7: two workflows released effects on one resource that do not commute, and no path of orders joins them.
//!
//! Most resources need no order: all their effects are one workflow's, or commute. Of the rest, an effect without any
//! order is against every other one; those that have orders are held against each other along chains. A chain is a
//! path through the order; what it has to do with an effect is an interval: what stands before, what stands behind, and
//! between the two what is in no order with it. A total order is one chain, and all intervals are empty.

use std::collections::BTreeMap;

use super::history::History;
use super::reading::Lists;

/// The kind of each operation, and which kinds change places freely.
#[derive(Debug)]
pub(super) struct Commuting {
    pub(super) of_op: Vec<u32>,
    /// Sorted, in both directions.
    pub(super) pairs: Vec<(u32, u32)>,
}

impl Commuting {
    fn commute(&self, one: u32, other: u32) -> bool {
        self.pairs.binary_search(&(one, other)).is_ok()
    }
}

/// What A7 asks of an effect.
struct Sides<'h> {
    history: &'h History,
    commuting: &'h Commuting,
}

impl Sides<'_> {
    fn workflow(&self, effect: u32) -> u32 {
        self.group(effect).0
    }

    fn kind(&self, effect: u32) -> u32 {
        self.commuting.of_op[self.group(effect).1 as usize]
    }

    fn group(&self, effect: u32) -> (u32, u32) {
        let attempt = self.history.effect[effect as usize].attempt;
        self.history.groups.all[self.history.attempt[attempt as usize].group as usize]
    }

    fn against(&self, one: u32, other: u32) -> bool {
        self.workflow(one) != self.workflow(other) && !self.commuting.commute(self.kind(one), self.kind(other))
    }
}

/// A pair of released effects as A7 forbids it.
pub(super) fn unordered(
    history: &History,
    commuting: &Commuting,
    released: impl Fn(u32) -> bool,
) -> Option<(u32, u32)> {
    let sides = Sides { history, commuting };
    let mut has_order = vec![false; history.effect.len()];
    for edge in &history.ordered {
        has_order[edge.from as usize] = true;
        has_order[edge.to as usize] = true;
    }
    let graph = Graph::new(history, &has_order);
    let components = graph.components();
    let mut component_of = vec![0_usize; history.effect.len()];
    for (number, component) in components.iter().enumerate() {
        for effect in component.nodes.iter().flatten() {
            component_of[*effect as usize] = number;
        }
    }
    let on = Lists::new(history.resource_names.len(), history.effect.iter().map(|effect| effect.resource));
    let mut contested = vec![false; history.resource_names.len()];
    for resource in (0_u32..).take(history.resource_names.len()) {
        let all: Vec<u32> = on.of(resource).iter().copied().filter(|effect| released(*effect)).collect();
        let Some(first) = all.first() else { continue };
        if all.iter().all(|effect| sides.workflow(*effect) == sides.workflow(*first)) {
            continue;
        }
        let (mut with, without): (Vec<u32>, Vec<u32>) = all.iter().partition(|effect| has_order[**effect as usize]);
        if let Some(pair) = Kinds::of(&sides, &without).against(&sides, &Kinds::of(&sides, &all)) {
            return Some(pair);
        }
        // What no order joins is in no order: each part against all the parts before it.
        with.sort_unstable_by_key(|effect| component_of[*effect as usize]);
        let mut before = Kinds::default();
        for part in with.chunk_by(|one, other| component_of[*one as usize] == component_of[*other as usize]) {
            let own = Kinds::of(&sides, part);
            if let Some(pair) = own.against(&sides, &before) {
                return Some(pair);
            }
            contested[resource as usize] |= own.against(&sides, &own).is_some();
            part.iter().for_each(|effect| before.add(&sides, *effect));
        }
    }
    let in_question = |effect: u32| released(effect) && contested[history.effect[effect as usize].resource as usize];
    components.into_iter().find_map(|component| component.unordered(&sides, &in_question))
}

/// Of each kind of operation, two effects of different workflows, or one if there is only one workflow: all that
/// matters when nothing is in an order.
#[derive(Default)]
struct Kinds(BTreeMap<u32, Two>);

/// An effect, and one of the same kind by another workflow.
type Two = (u32, Option<u32>);

impl Kinds {
    fn of(sides: &Sides<'_>, effects: &[u32]) -> Kinds {
        let mut kinds = Kinds::default();
        effects.iter().for_each(|effect| kinds.add(sides, *effect));
        kinds
    }

    fn add(&mut self, sides: &Sides<'_>, effect: u32) {
        let (first, second) = self.0.entry(sides.kind(effect)).or_insert((effect, None));
        if second.is_none() && sides.workflow(*first) != sides.workflow(effect) {
            *second = Some(effect);
        }
    }

    /// A pair of an effect of ours and one of theirs that may not stand without an order.
    fn against(&self, sides: &Sides<'_>, others: &Kinds) -> Option<(u32, u32)> {
        // The workflow of a kind that only one workflow used. Sorted by it, the kinds of one workflow are one block,
        // which is passed over at one go.
        let sole = |(first, second): Two| second.is_none().then(|| sides.workflow(first));
        let theirs = others.0.iter().map(|(kind, effects)| (sole(*effects), *kind, *effects));
        let mut theirs: Vec<(Option<u32>, u32, Two)> = theirs.collect();
        theirs.sort_unstable_by_key(|(sole, kind, _)| (*sole, *kind));
        for (kind, ours) in &self.0 {
            let own = sole(*ours);
            let mut at = 0;
            while let Some((their, other_kind, other)) = theirs.get(at) {
                if own.is_some() && *their == own {
                    at = theirs.partition_point(|(sole, ..)| *sole <= own);
                    continue;
                }
                at += 1;
                if sides.commuting.commute(*kind, *other_kind) {
                    continue;
                }
                for one in [Some(ours.0), ours.1].into_iter().flatten() {
                    for two in [Some(other.0), other.1].into_iter().flatten() {
                        if sides.workflow(one) != sides.workflow(two) {
                            return Some((one, two));
                        }
                    }
                }
            }
        }
        None
    }
}

/// The effects that have orders, as a graph without cycles: what lies on one cycle is one node.
struct Graph {
    /// The effects of each node. Numbers fall along the edges: the last node is first in the order.
    nodes: Vec<Vec<u32>>,
    /// From a node to those behind it.
    after: Vec<Vec<u32>>,
}

impl Graph {
    #[expect(clippy::cast_possible_truncation, reason = "the history bounds its events below u32::MAX")]
    fn new(history: &History, has_order: &[bool]) -> Graph {
        let out = Lists::new(history.effect.len(), history.ordered.iter().map(|edge| edge.from));
        let follow = |effect: u32, at: usize| out.of(effect).get(at).map(|edge| history.ordered[*edge as usize].to);
        // Tarjan's strongly connected components, with a stack of our own: an order may be a million effects long.
        const NOT_YET: u32 = u32::MAX;
        let mut index = vec![NOT_YET; history.effect.len()];
        let mut low = index.clone();
        let mut node_of = index.clone();
        let mut nodes: Vec<Vec<u32>> = Vec::new();
        let (mut open, mut walk): (Vec<u32>, Vec<(u32, usize)>) = (Vec::new(), Vec::new());
        let mut count = 0;
        for start in (0_u32..).zip(has_order).filter(|(_, has)| **has).map(|(effect, _)| effect) {
            if index[start as usize] != NOT_YET {
                continue;
            }
            walk.push((start, 0));
            while let Some((effect, at)) = walk.last_mut() {
                let own = *effect as usize;
                if *at == 0 && index[own] == NOT_YET {
                    (index[own], low[own]) = (count, count);
                    count += 1;
                    open.push(*effect);
                }
                if let Some(next) = follow(*effect, *at) {
                    *at += 1;
                    if index[next as usize] == NOT_YET {
                        walk.push((next, 0));
                    } else if node_of[next as usize] == NOT_YET {
                        low[own] = low[own].min(index[next as usize]);
                    }
                    continue;
                }
                if low[own] == index[own] {
                    let mut node = Vec::new();
                    while let Some(member) = open.pop() {
                        node_of[member as usize] = nodes.len() as u32;
                        node.push(member);
                        if member as usize == own {
                            break;
                        }
                    }
                    nodes.push(node);
                }
                walk.pop();
                if let Some((parent, _)) = walk.last() {
                    low[*parent as usize] = low[*parent as usize].min(low[own]);
                }
            }
        }
        let mut after: Vec<Vec<u32>> = vec![Vec::new(); nodes.len()];
        for edge in &history.ordered {
            let (from, to) = (node_of[edge.from as usize], node_of[edge.to as usize]);
            if from != to {
                after[from as usize].push(to);
            }
        }
        Graph { nodes, after }
    }

    /// The parts that no order joins, each with its nodes in the order.
    #[expect(clippy::cast_possible_truncation, reason = "the history bounds its events below u32::MAX")]
    fn components(mut self) -> Vec<Component> {
        let len = self.nodes.len();
        let mut before: Vec<Vec<u32>> = vec![Vec::new(); len];
        for (from, after) in (0_u32..).zip(&self.after) {
            for to in after {
                before[*to as usize].push(from);
            }
        }
        let mut part: Vec<Option<u32>> = vec![None; len];
        let mut parts = 0;
        for start in 0..len {
            if part[start].is_some() {
                continue;
            }
            part[start] = Some(parts);
            let mut next = vec![start as u32];
            while let Some(node) = next.pop() {
                for near in self.after[node as usize].iter().chain(&before[node as usize]) {
                    if part[*near as usize].is_none() {
                        part[*near as usize] = Some(parts);
                        next.push(*near);
                    }
                }
            }
            parts += 1;
        }
        let mut made: Vec<Component> = (0..parts).map(|_| Component::default()).collect();
        let mut place = vec![0_u32; len];
        for node in (0..len).rev() {
            let own = &mut made[part[node].unwrap_or_default() as usize];
            place[node] = own.nodes.len() as u32;
            own.nodes.push(std::mem::take(&mut self.nodes[node]));
            own.before.push(before[node].iter().map(|before| place[*before as usize]).collect());
        }
        made
    }
}

/// A part of the order that hangs together; its nodes stand in the order.
#[derive(Default)]
struct Component {
    nodes: Vec<Vec<u32>>,
    before: Vec<Vec<u32>>,
}

impl Component {
    #[expect(clippy::cast_possible_truncation, reason = "the history bounds its events below u32::MAX")]
    fn unordered(&self, sides: &Sides<'_>, in_question: &impl Fn(u32) -> bool) -> Option<(u32, u32)> {
        let resource = |effect: u32| sides.history.effect[effect as usize].resource;
        let (chain_of, chains) = self.chains();
        if chains.len() < 2 {
            return None;
        }
        let len = self.nodes.len();
        for (number, chain) in (0_u32..).zip(&chains) {
            // Places in the chain, from 1: the last that stands before each node, and the first that stands behind.
            let mut place = vec![0_u32; len];
            for (at, node) in (1_u32..).zip(chain) {
                place[*node as usize] = at;
            }
            let mut last_before = vec![0_u32; len];
            for node in 0..len {
                for before in &self.before[node] {
                    let reach = last_before[*before as usize].max(place[*before as usize]);
                    last_before[node] = last_before[node].max(reach);
                }
            }
            let mut first_behind = vec![chain.len() as u32 + 1; len];
            for node in (0..len).rev() {
                let own = if place[node] > 0 { place[node] } else { first_behind[node] };
                for before in &self.before[node] {
                    let known = &mut first_behind[*before as usize];
                    *known = (*known).min(own);
                }
            }
            let mut held: Vec<(u32, u32, u32)> = Vec::new();
            for (at, node) in (1_u32..).zip(chain) {
                let effects = self.nodes[*node as usize].iter().filter(|effect| in_question(**effect));
                held.extend(effects.map(|effect| (resource(*effect), at, *effect)));
            }
            held.sort_unstable();
            if held.is_empty() {
                continue;
            }
            for node in (0..len).filter(|node| chain_of[*node] > number) {
                let (from, to) = (last_before[node] + 1, first_behind[node]);
                if from >= to {
                    continue;
                }
                for effect in self.nodes[node].iter().filter(|effect| in_question(**effect)) {
                    let start = held.partition_point(|(on, at, _)| (*on, *at) < (resource(*effect), from));
                    let beside = held[start..].iter().take_while(|(on, at, _)| *on == resource(*effect) && *at < to);
                    if let Some((.., other)) = beside.clone().find(|(.., other)| sides.against(*effect, *other)) {
                        return Some((*other, *effect));
                    }
                }
            }
        }
        None
    }

    /// The chain of each node, and the nodes of each chain in order: a node goes on where one before it ends.
    #[expect(clippy::cast_possible_truncation, reason = "the history bounds its events below u32::MAX")]
    fn chains(&self) -> (Vec<u32>, Vec<Vec<u32>>) {
        let mut chain_of: Vec<u32> = Vec::with_capacity(self.nodes.len());
        let mut chains: Vec<Vec<u32>> = Vec::new();
        for (node, before) in (0_u32..).zip(&self.before) {
            let open = before.iter().find_map(|before| {
                let chain = chain_of[*before as usize];
                (chains[chain as usize].last() == Some(before)).then_some(chain)
            });
            let chain = open.unwrap_or(chains.len() as u32);
            if open.is_none() {
                chains.push(Vec::new());
            }
            chains[chain as usize].push(node);
            chain_of.push(chain);
        }
        (chain_of, chains)
    }
}
