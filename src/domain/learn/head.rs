//! The classifier's head, taught what was learned: the last layer bends towards new sentences, and nothing else moves.
//!
//! It is a pure function of the model, the learned set and the sentences that must stay as they are: version N of the
//! learned set gives the very same head whenever it is active, so a rollback of the set is a rollback of the head. Only
//! the labels that were taught get a share of their own on top of what the model says. A head that would move one of the
//! kept sentences is not taken at all: thresholds stay where they were chosen, so the head must stay fit for them.

use std::collections::BTreeSet;

use thiserror::Error;

/// Sentences that are taught at most; of more, the last ones. Each costs time in each round.
const TAUGHT_MAX: usize = 256;
/// Sentences that are kept as they are at most: all of the shipped regression set. With a third of it, other rejects of it
/// became clear opinions.
pub const KEPT_MAX: usize = 1200;
/// Rounds at most: with the two bounds above, some seconds on one core of a small box, on a thread of its own.
const ROUNDS_MAX: usize = 120;
/// How sure the head shall become of what it was taught; it stops there, so that nothing bends further than it must.
const SURE: f32 = 0.9;
/// How far one sentence bends the head in one round.
const RATE: f32 = 1.0;
/// The chance of a label that the model has never heard of, before it is taught.
const NEW_LABEL: f32 = 1e-4;
/// How far a chance of a kept sentence may drift before it is pulled back.
const DRIFT: f32 = 0.05;
/// A chance of a kept sentence that is a clear opinion. None may come into being.
const CLEAR: f32 = 0.5;
/// What a chance must have risen by to have come into being, and not only to have drifted over the edge.
const RISEN: f32 = 0.15;
/// A chance that the cascade acts on (`command::decide::Thresholds`); none may be lost.
const ACTED_ON: f32 = 0.8;

/// The last of what is to be taught and the first of what is to be kept, as many as a head takes.
#[must_use]
pub fn bounded<'a, T, K>(taught: &'a [T], kept: &'a [K]) -> (&'a [T], &'a [K]) {
    (&taught[taught.len().saturating_sub(TAUGHT_MAX)..], &kept[..kept.len().min(KEPT_MAX)])
}

/// What the model makes of a sentence.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// What its head decides on.
    pub hidden: Vec<f32>,
    /// A chance for each of its labels.
    pub chances: Vec<f32>,
}

/// A sentence to teach, and its label: a number of the model's, or one behind them for a new label.
#[derive(Debug, Clone, PartialEq)]
pub struct Lesson {
    /// The sentence, as the model sees it.
    pub seen: Seen,
    /// What it means.
    pub label: usize,
}

/// Why a head was not taught.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unteachable {
    /// There is nothing that a head could bend on.
    #[error("the model does not show what its head decides on")]
    NothingToSee,
    /// A sentence that must stay as it is would not.
    #[error("kept sentence {sentence} would be taken for label {label}")]
    Moves {
        /// Which of the kept sentences.
        sentence: usize,
        /// For what.
        label: usize,
    },
}

/// What is added to the model's own head: a share for each label that was taught.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Head {
    shares: Vec<Share>,
}

#[derive(Debug, Clone, PartialEq)]
struct Share {
    label: usize,
    weights: Vec<f32>,
    bias: f32,
}

impl Head {
    /// Bends towards `lessons` and keeps `kept`.
    ///
    /// # Errors
    /// Why there is none.
    pub fn teach(lessons: &[Lesson], kept: &[Seen]) -> Result<Head, Unteachable> {
        let (lessons, kept) = bounded(lessons, kept);
        if lessons.iter().any(|lesson| lesson.seen.hidden.is_empty()) {
            return Err(Unteachable::NothingToSee);
        }
        let labels: BTreeSet<usize> = lessons.iter().map(|lesson| lesson.label).collect();
        let width = lessons.first().map_or(0, |lesson| lesson.seen.hidden.len());
        let shares = labels.into_iter().map(|label| Share { label, weights: vec![0.0; width], bias: 0.0 });
        let mut head = Head { shares: shares.collect() };
        let taught: Vec<Sum> = lessons.iter().map(|lesson| head.sum(&lesson.seen)).collect();
        let stay: Vec<Sum> = kept.iter().map(|seen| head.sum(seen)).collect();
        for _ in 0..ROUNDS_MAX {
            let mut unsure = false;
            for (lesson, sum) in lessons.iter().zip(&taught) {
                let chances = head.shared(sum);
                let own = head.shares.iter().zip(&chances).find(|(share, _)| share.label == lesson.label);
                if own.is_some_and(|(_, chance)| *chance >= SURE) {
                    continue;
                }
                unsure = true;
                let wanted = head.shares.iter().map(|share| f32::from(u8::from(share.label == lesson.label)));
                let wanted: Vec<f32> = wanted.collect();
                head.bend(&sum.direction, &chances, &wanted);
            }
            if !unsure {
                break;
            }
            for sum in &stay {
                let chances = head.shared(sum);
                let near = |(own, now): (&f32, &f32)| if (own - now).abs() < DRIFT { *now } else { *own };
                let wanted: Vec<f32> = sum.own.iter().zip(&chances).map(near).collect();
                head.bend(&sum.direction, &chances, &wanted);
            }
        }
        for (sentence, sum) in stay.iter().enumerate() {
            let chances = head.shared(sum);
            let moved = head.shares.iter().zip(&chances).zip(&sum.own).find(|((_, now), before)| {
                (**now >= CLEAR && **now - **before >= RISEN) || (**before >= ACTED_ON && **now < CLEAR)
            });
            if let Some(((share, _), _)) = moved {
                return Err(Unteachable::Moves { sentence, label: share.label });
            }
        }
        Ok(head)
    }

    /// The chances of a sentence with this head: those of the model's labels, then those of new ones.
    #[must_use]
    pub fn apply(&self, seen: &Seen) -> Vec<f32> {
        let Some(last) = self.shares.iter().map(|share| share.label).max() else { return seen.chances.clone() };
        let sum = self.sum(seen);
        let shared = self.shared(&sum);
        // What the shares leave is divided as the model divides it.
        let left: f32 = 1.0 - shared.iter().sum::<f32>();
        let others = (1.0 - sum.own.iter().sum::<f32>()).max(f32::MIN_POSITIVE);
        let mut chances: Vec<f32> = seen.chances.iter().map(|chance| chance * left / others).collect();
        chances.resize(chances.len().max(last + 1), 0.0);
        for (share, chance) in self.shares.iter().zip(shared) {
            chances[share.label] = chance;
        }
        chances
    }

    /// Nothing was taught.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shares.is_empty()
    }

    /// Its numbers, for a hash that tells two heads apart.
    pub fn numbers(&self) -> impl Iterator<Item = f32> + '_ {
        self.shares.iter().flat_map(|share| share.weights.iter().copied().chain([share.bias]))
    }

    fn sum(&self, seen: &Seen) -> Sum {
        let length = seen.hidden.iter().map(|value| value * value).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
        let own = |share: &Share| seen.chances.get(share.label).copied().unwrap_or(NEW_LABEL).clamp(1e-6, 1.0 - 1e-6);
        let own: Vec<f32> = self.shares.iter().map(own).collect();
        Sum { direction: seen.hidden.iter().map(|value| value / length).collect(), own }
    }

    /// The chance of each share's label.
    fn shared(&self, sum: &Sum) -> Vec<f32> {
        let raised = |(share, own): (&Share, &f32)| {
            let along: f32 = share.weights.iter().zip(&sum.direction).map(|(a, b)| a * b).sum();
            own * (along + share.bias).clamp(-30.0, 30.0).exp()
        };
        let raised: Vec<f32> = self.shares.iter().zip(&sum.own).map(raised).collect();
        let others = (1.0 - sum.own.iter().sum::<f32>()).max(1e-6);
        let whole = raised.iter().sum::<f32>() + others;
        raised.into_iter().map(|value| value / whole).collect()
    }

    fn bend(&mut self, direction: &[f32], chances: &[f32], wanted: &[f32]) {
        for ((share, chance), wanted) in self.shares.iter_mut().zip(chances).zip(wanted) {
            let step = RATE * (wanted - chance);
            for (weight, along) in share.weights.iter_mut().zip(direction) {
                *weight += step * along;
            }
            share.bias += step * BIAS_PART;
        }
    }
}

/// How much of each step goes into the bias: little, since a bias raises a label for every sentence.
const BIAS_PART: f32 = 0.1;

/// A sentence as the shares see it.
struct Sum {
    /// What the head decides on, of length one.
    direction: Vec<f32>,
    /// What the model says of each share's label.
    own: Vec<f32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(hidden: &[f32], chances: &[f32]) -> Seen {
        Seen { hidden: hidden.to_vec(), chances: chances.to_vec() }
    }

    fn lesson(hidden: &[f32], chances: &[f32], label: usize) -> Lesson {
        Lesson { seen: seen(hidden, chances), label }
    }

    #[test]
    fn what_is_taught_becomes_sure_and_what_is_kept_stays() {
        let slang = lesson(&[1.0, 0.0, 0.2], &[0.7, 0.2, 0.1], 2);
        let kept = [seen(&[0.0, 1.0, 0.0], &[0.9, 0.05, 0.05]), seen(&[0.0, 0.2, 1.0], &[0.1, 0.8, 0.1])];
        let head = Head::teach(std::slice::from_ref(&slang), &kept).expect("taught");
        assert!(head.apply(&slang.seen)[2] >= SURE);
        // Near it, it is nearly as sure; the others hardly move.
        assert!(head.apply(&seen(&[0.9, 0.1, 0.2], &[0.7, 0.2, 0.1]))[2] > 0.7);
        for one in &kept {
            for (now, before) in head.apply(one).iter().zip(&one.chances) {
                assert!((now - before).abs() < 0.1, "{now} was {before}");
            }
        }
    }

    #[test]
    fn a_new_label_comes_behind_the_models_and_chances_stay_chances() {
        let new = lesson(&[0.3, 1.0], &[0.6, 0.4], 2);
        let head = Head::teach(std::slice::from_ref(&new), &[seen(&[1.0, 0.0], &[0.9, 0.1])]).expect("taught");
        let chances = head.apply(&new.seen);
        assert_eq!(chances.len(), 3);
        assert!(chances[2] >= SURE && (chances.iter().sum::<f32>() - 1.0).abs() < 1e-3, "{chances:?}");
    }

    #[test]
    fn the_same_lessons_give_the_same_head_and_none_gives_none() {
        let lessons = [lesson(&[1.0, 0.1], &[0.5, 0.5], 1), lesson(&[0.1, 1.0], &[0.6, 0.4], 2)];
        assert_eq!(Head::teach(&lessons, &[]), Head::teach(&lessons, &[]));
        let none = Head::teach(&[], &[]).expect("nothing to do");
        assert!(none.is_empty());
        let one = seen(&[1.0], &[0.4, 0.6]);
        assert_eq!(none.apply(&one), one.chances);
    }

    #[test]
    fn a_head_that_would_move_a_kept_sentence_is_none() {
        // To the model both sentences are one.
        let slang = lesson(&[1.0, 0.0], &[0.95, 0.05], 1);
        let kept = [seen(&[1.0, 0.0], &[0.95, 0.05])];
        let alone = Head::teach(std::slice::from_ref(&slang), &[]).expect("taught");
        assert!(alone.apply(&kept[0])[1] >= SURE);
        let found = Head::teach(std::slice::from_ref(&slang), &kept);
        let harmless = found.as_ref().is_ok_and(|head| head.apply(&kept[0])[1] < CLEAR);
        assert!(harmless || found == Err(Unteachable::Moves { sentence: 0, label: 1 }), "{found:?}");
    }

    #[test]
    fn a_model_that_shows_nothing_cannot_be_taught() {
        assert_eq!(Head::teach(&[lesson(&[], &[1.0], 0)], &[]), Err(Unteachable::NothingToSee));
    }

    #[test]
    fn the_bounds_hold() {
        let many: Vec<Lesson> = (0..TAUGHT_MAX + 10).map(|at| lesson(&[1.0, 0.0], &[0.5, 0.5], at % 2)).collect();
        assert!(Head::teach(&many, &vec![seen(&[0.0, 1.0], &[0.5, 0.5]); KEPT_MAX + 10]).is_ok());
    }
}
