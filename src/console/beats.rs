//! The last beats of each task, for a small chart: how long ago the last one was, once a second while somebody looks.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

/// Seconds in a chart.
const SECONDS: usize = 60;

/// Tasks that have one.
const TASKS_MAX: usize = 256;

/// The ages of last beats in milliseconds, by task, the newest last.
#[derive(Default)]
pub(super) struct Beats {
    // Written once a second, read when a page is made.
    seen: Mutex<BTreeMap<String, VecDeque<u64>>>,
}

impl Beats {
    /// Notes the rows of `task.list`; what is not in them is forgotten.
    pub(super) fn note(&self, rows: &[Value]) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *seen);
        for row in rows {
            let (Some(task), Some(age)) = (row["task"].as_str(), row["last_beat_ms"].as_u64()) else { continue };
            if seen.len() == TASKS_MAX {
                break;
            }
            let mut ages = before.remove(task).unwrap_or_default();
            if ages.len() == SECONDS {
                ages.pop_front();
            }
            ages.push_back(age);
            seen.insert(task.to_owned(), ages);
        }
    }

    pub(super) fn of(&self, task: &str) -> Vec<u64> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(task).map(|ages| ages.iter().copied().collect()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_chart_has_its_last_seconds_and_a_task_that_is_gone_has_none() {
        let beats = Beats::default();
        for age in 0..100 {
            beats.note(&[json!({ "task": "t1", "last_beat_ms": age })]);
        }
        assert_eq!(beats.of("t1"), (40..100).collect::<Vec<_>>());
        beats.note(&[json!({ "task": "t2", "last_beat_ms": 7 }), json!({ "task": "t3", "last_beat_ms": null })]);
        assert_eq!((beats.of("t1"), beats.of("t2"), beats.of("t3")), (vec![], vec![7], vec![]));
    }
}
