//! Who is who. Every id is a newtype made in one place; none is ever reused.
//!
//! The written forms are fixed for good: evidence rows, scripts and people keep them for years.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use ulid::Ulid;

/// A text that is not the written form of an id.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not {expected}")]
pub struct NotAnId {
    text: String,
    expected: &'static str,
}

fn not_an_id(text: &str, expected: &'static str) -> NotAnId {
    // The text may come from anyone: keep only as much of it as a message needs.
    NotAnId { text: text.chars().take(64).collect(), expected }
}

/// How long the written form of a [`RunId`] is, in bytes.
pub const RUN_ID_LEN: usize = ulid::ULID_LEN;

/// One run: everything that one request of one asker set in motion. Written as a ULID (26 characters, Crockford's
/// base 32), so that runs sort by the time at which they began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(Ulid);

impl RunId {
    /// A run that began `unix_ms` milliseconds after 1970; `random` tells runs of one millisecond apart (its low 80
    /// bits count).
    #[must_use]
    pub fn new(unix_ms: u64, random: u128) -> RunId {
        RunId(Ulid::from_parts(unix_ms, random))
    }

    /// Its 16 bytes, as other systems tell traces apart.
    #[must_use]
    pub fn bytes(self) -> [u8; 16] {
        self.0.to_bytes()
    }

    /// The written form, into `buffer` and without going through `fmt`: it stands in each row of the log.
    #[must_use]
    pub fn written(self, buffer: &mut [u8; RUN_ID_LEN]) -> &str {
        self.0.array_to_str(buffer)
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.written(&mut [0; RUN_ID_LEN]))
    }
}

impl FromStr for RunId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<RunId, NotAnId> {
        Ulid::from_string(text).map(RunId).map_err(|_| not_an_id(text, "a run (a ULID of 26 characters)"))
    }
}

/// The wishes that were handed in together. Numbers start above every number in the evidence log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

/// One call: `<run>.<batch>.<position>`. A provider's duplicate id is two calls, and results by position are free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    /// The run that the call belongs to.
    pub run: RunId,
    /// The batch that it came in.
    pub batch: BatchId,
    /// Its place in the batch, from 0.
    pub position: u32,
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.run, self.batch.0, self.position)
    }
}

impl FromStr for CallId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<CallId, NotAnId> {
        let bad = || not_an_id(text, "a call (<run>.<batch>.<position>)");
        let mut parts = text.split('.');
        let (Some(run), Some(batch), Some(position), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(bad());
        };
        Ok(CallId {
            run: run.parse().map_err(|_| bad())?,
            batch: BatchId(batch.parse().map_err(|_| bad())?),
            position: position.parse().map_err(|_| bad())?,
        })
    }
}

/// A question to a person: `q<n>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuestionId(pub u64);

impl fmt::Display for QuestionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "q{}", self.0)
    }
}

impl FromStr for QuestionId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<QuestionId, NotAnId> {
        lettered(text, 'q').map(QuestionId).ok_or_else(|| not_an_id(text, "a question (q1, q2, …)"))
    }
}

/// A background task: `t<n>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}", self.0)
    }
}

impl FromStr for TaskId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<TaskId, NotAnId> {
        lettered(text, 't').map(TaskId).ok_or_else(|| not_an_id(text, "a task (t1, t2, …)"))
    }
}

fn lettered(text: &str, letter: char) -> Option<u64> {
    let digits = text.strip_prefix(letter)?;
    // `u64::from_str` also takes a plus sign.
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// One life of one worker. Linux reuses a tid (and, at 10 ms ticks, even its start time); we do not reuse the pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerKey {
    /// The task.
    pub task: TaskId,
    /// Its life, from 1.
    pub generation: u32,
}

/// The number of an evidence row, assigned by the writer; it goes on over segments, for ever, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

/// Counts the changes of a run's policy and mode. What was permitted under another epoch does not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

/// The name of a tool as callers write it: 1 to 128 of `[A-Za-z0-9_.-]` (MCP 2026-07-28, tools).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolName(String);

impl ToolName {
    /// Checks the characters and the length.
    ///
    /// # Errors
    /// When the text is empty, longer than 128 bytes, or has another character.
    pub fn new(text: &str) -> Result<ToolName, NotAnId> {
        let fits = (1..=128).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
        if fits {
            Ok(ToolName(text.to_owned()))
        } else {
            Err(not_an_id(text, "the name of a tool (1 to 128 of A-Z a-z 0-9 _ . -)"))
        }
    }

    /// As it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_written_as_run_batch_position_and_read_back() {
        let call = CallId { run: RunId::new(1_764_500_000_000, 7), batch: BatchId(3), position: 0 };
        assert_eq!(call.to_string(), "01KBA6AK800000000000000007.3.0");
        assert_eq!(call.to_string().parse(), Ok(call));
    }

    #[test]
    fn what_is_not_an_id_is_refused() {
        for text in ["", "q", "q+1", "q 1", "t1", "q18446744073709551616"] {
            assert!(text.parse::<QuestionId>().is_err(), "{text:?}");
        }
        for text in ["", "x.1.2", "01KB9H0M800000000000000007.1", "01KB9H0M800000000000000007.1.2.3"] {
            assert!(text.parse::<CallId>().is_err(), "{text:?}");
        }
        for text in ["", "a b", "日", &"a".repeat(129)] {
            assert!(ToolName::new(text).is_err(), "{text:?}");
        }
    }
}
