//! The syntax of hassil's sentence templates: `(a|b)`, `[a]`, `{list:slot}`, `<rule>`, `(a;b)`, `\` before a mark.

use std::fmt;

use interlock_domain::command::definition::Slot;
use interlock_domain::command::template;

/// Deepest nesting of brackets: the parser recurses.
const DEPTH_MAX: usize = 16;

/// Parts of a permutation; five have 120 orders.
const PERMUTATION_MAX: usize = 5;

/// Alternatives, each a row of parts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sentence {
    pub(super) branches: Vec<Vec<Part>>,
}

/// A piece of a sentence.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Part {
    Text(String),
    Choice { sentence: Sentence, optional: bool },
    Permutation(Vec<Sentence>),
    Rule(String),
    List { list: String, slot: String },
}

/// What is wrong with a sentence, and where, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Unclosed(char, usize),
    Unexpected(char, usize),
    NoName(usize),
    TooDeep,
    TooManyOrders(usize),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Unclosed(open, at) => write!(f, "{open:?} at character {at} is not closed"),
            Fault::Unexpected(found, at) => write!(f, "{found:?} at character {at} is not expected"),
            Fault::NoName(at) => write!(f, "nothing is named at character {at}"),
            Fault::TooDeep => write!(f, "brackets nested deeper than {DEPTH_MAX}"),
            Fault::TooManyOrders(at) => {
                write!(f, "the permutation at character {at} has more than {PERMUTATION_MAX} parts")
            }
        }
    }
}

/// Reads a sentence or the body of a rule.
pub(super) fn parse(text: &str) -> Result<Sentence, Fault> {
    let chars: Vec<char> = text.chars().collect();
    let mut parser = Parser { chars: &chars, at: 0 };
    let (mut groups, _) = parser.groups(0)?;
    match (parser.peek(), groups.len()) {
        (None, 1) => Ok(groups.remove(0)),
        (Some(found), _) => Err(Fault::Unexpected(found, parser.at + 1)),
        (None, _) => Err(Fault::Unexpected(';', 1)),
    }
}

struct Parser<'a> {
    chars: &'a [char],
    at: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    /// What stands between brackets: alternatives, in groups that `;` divides.
    fn groups(&mut self, depth: usize) -> Result<(Vec<Sentence>, bool), Fault> {
        if depth > DEPTH_MAX {
            return Err(Fault::TooDeep);
        }
        let mut groups = vec![Sentence { branches: vec![Vec::new()] }];
        let mut permuted = false;
        while let Some(found) = self.peek() {
            match found {
                ')' | ']' => break,
                ';' if depth > 0 => {
                    permuted = true;
                    self.at += 1;
                    groups.push(Sentence { branches: vec![Vec::new()] });
                }
                '|' => {
                    self.at += 1;
                    if let Some(group) = groups.last_mut() {
                        group.branches.push(Vec::new());
                    }
                }
                _ => {
                    let part = self.part(found, depth)?;
                    let Some(branch) = groups.last_mut().and_then(|group| group.branches.last_mut()) else { continue };
                    match (branch.last_mut(), part) {
                        (Some(Part::Text(before)), Part::Text(more)) => before.push_str(&more),
                        (_, part) => branch.push(part),
                    }
                }
            }
        }
        Ok((groups, permuted))
    }

    fn part(&mut self, found: char, depth: usize) -> Result<Part, Fault> {
        match found {
            '(' | '[' => self.bracket(found, depth),
            '{' => {
                let inside = self.named('{', '}')?;
                let (list, slot) = inside.split_once(':').unwrap_or((&inside, &inside));
                Ok(Part::List { list: list.trim().to_owned(), slot: slot.trim().to_owned() })
            }
            '<' => Ok(Part::Rule(self.named('<', '>')?.trim().to_owned())),
            '}' | '>' => Err(Fault::Unexpected(found, self.at + 1)),
            '\\' => {
                self.at += 2;
                let escaped = self.chars.get(self.at - 1).copied();
                escaped.map(|ch| Part::Text(ch.to_string())).ok_or(Fault::Unexpected('\\', self.at - 1))
            }
            other => {
                self.at += 1;
                Ok(Part::Text(other.to_string()))
            }
        }
    }

    fn bracket(&mut self, open: char, depth: usize) -> Result<Part, Fault> {
        let began = self.at + 1;
        self.at += 1;
        let (mut groups, permuted) = self.groups(depth + 1)?;
        let close = if open == '(' { ')' } else { ']' };
        match self.peek() {
            Some(found) if found == close => self.at += 1,
            Some(found) => return Err(Fault::Unexpected(found, self.at + 1)),
            None => return Err(Fault::Unclosed(open, began)),
        }
        if permuted {
            if groups.len() > PERMUTATION_MAX {
                return Err(Fault::TooManyOrders(began));
            }
            let all = Part::Permutation(groups);
            return Ok(match open {
                '(' => all,
                _ => Part::Choice { sentence: Sentence { branches: vec![vec![all]] }, optional: true },
            });
        }
        Ok(Part::Choice { sentence: groups.remove(0), optional: open == '[' })
    }

    fn named(&mut self, open: char, close: char) -> Result<String, Fault> {
        let began = self.at + 1;
        let rest = &self.chars[self.at + 1..];
        let length = rest.iter().position(|ch| *ch == close).ok_or(Fault::Unclosed(open, began))?;
        let name: String = rest[..length].iter().collect();
        self.at += length + 2;
        if name.trim().is_empty() { Err(Fault::NoName(began)) } else { Ok(name) }
    }
}

impl Sentence {
    /// Every text that it stands for, when it names no rule and no list and stands for at most `most`.
    pub(super) fn forms(&self, most: usize) -> Option<Vec<String>> {
        let mut all = Vec::new();
        for branch in &self.branches {
            let mut forms = vec![String::new()];
            for part in branch {
                let pieces = match part {
                    Part::Text(text) => vec![text.chars().filter(|ch| !ch.is_whitespace()).collect()],
                    Part::Choice { sentence, optional } => {
                        let mut pieces = sentence.forms_or_empty(most)?;
                        if *optional {
                            pieces.push(String::new());
                        }
                        pieces
                    }
                    Part::Permutation(_) | Part::Rule(_) | Part::List { .. } => return None,
                };
                if forms.len() * pieces.len() > most {
                    return None;
                }
                forms = forms
                    .iter()
                    .flat_map(|before| pieces.iter().map(move |piece| format!("{before}{piece}")))
                    .collect();
            }
            all.extend(forms);
        }
        all.retain(|form| !form.is_empty());
        all.dedup();
        (!all.is_empty() && all.len() <= most).then_some(all)
    }

    fn forms_or_empty(&self, most: usize) -> Option<Vec<String>> {
        match self.forms(most) {
            None if self.branches.iter().all(Vec::is_empty) => Some(vec![String::new()]),
            found => found,
        }
    }
}

/// The orders of `count` things.
pub(super) fn orders(count: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for _ in 0..count {
        all = all
            .iter()
            .flat_map(|order: &Vec<usize>| {
                (0..count).filter(|at| !order.contains(at)).map(move |at| [order.as_slice(), &[at]].concat())
            })
            .collect();
    }
    all
}

/// One sentence of a template as an example for a person: first branches, nothing optional, first values.
pub(super) fn shown(parts: &[template::Part], slots: &[Slot]) -> String {
    parts
        .iter()
        .map(|part| match part {
            template::Part::Text(text) => text.clone(),
            template::Part::Slot(name) => {
                let slot = slots.iter().find(|slot| slot.name == *name);
                slot.and_then(|slot| slot.values.first()).map(|listed| listed.said.clone()).unwrap_or_default()
            }
            template::Part::Choice { branches, optional: false } => {
                branches.first().map(|branch| shown(branch, slots)).unwrap_or_default()
            }
            template::Part::Choice { optional: true, .. } => String::new(),
        })
        .collect()
}
