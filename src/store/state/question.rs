//! Questions that wait for a person.

use interlock_domain::id::{CallId, QuestionId};
use interlock_domain::time::Wall;
use rusqlite::{OptionalExtension, params};
use serde_json::Value;

use super::{ENDED_KEPT, State, id, misfit, take};
use crate::store::error::StoreError;

/// What is asked (`contracts.md`, "Questions").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuestionKind {
    /// The gate asks whether a call may run.
    Permit,
    /// A dangerous command waits for its confirmation.
    Confirm,
    /// What became of an effect that nobody knows. It never expires.
    Outcome,
}

impl QuestionKind {
    /// As it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            QuestionKind::Permit => "permit",
            QuestionKind::Confirm => "confirm",
            QuestionKind::Outcome => "outcome",
        }
    }

    fn of(text: &str) -> Option<QuestionKind> {
        [QuestionKind::Permit, QuestionKind::Confirm, QuestionKind::Outcome].into_iter().find(|k| k.as_str() == text)
    }
}

/// How a question ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Closing {
    /// A person allowed it.
    Allowed,
    /// A person denied it.
    Denied,
    /// Nobody answered in time, which denies it.
    Expired,
    /// Nobody needs the answer any more.
    Withdrawn,
    /// The daemon ended while it was open: its call was not started.
    NotStarted,
    /// A person says that the effect is there.
    Done,
    /// A person says that it is not.
    Failed,
}

impl Closing {
    const ALL: [Closing; 7] = [
        Closing::Allowed,
        Closing::Denied,
        Closing::Expired,
        Closing::Withdrawn,
        Closing::NotStarted,
        Closing::Done,
        Closing::Failed,
    ];

    /// As it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Closing::Allowed => "allowed",
            Closing::Denied => "denied",
            Closing::Expired => "expired",
            Closing::Withdrawn => "withdrawn",
            Closing::NotStarted => "not_started",
            Closing::Done => "done",
            Closing::Failed => "failed",
        }
    }

    fn of(text: &str) -> Option<Closing> {
        Closing::ALL.into_iter().find(|closing| closing.as_str() == text)
    }
}

/// A question to be asked.
#[derive(Debug, Clone, PartialEq)]
pub struct NewQuestion {
    /// What is asked.
    pub kind: QuestionKind,
    /// About which call.
    pub call: CallId,
    /// One sentence for a person.
    pub text: String,
    /// What a person may want to see: tool, input, reason.
    pub detail: Option<Value>,
    /// When it is asked.
    pub asked: Wall,
    /// When it expires, for people; the deadline itself is the mediator's and monotonic.
    pub until: Option<Wall>,
}

/// A question and, if it has one, its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Its name.
    pub id: QuestionId,
    /// What was asked.
    pub asked: NewQuestion,
    /// How it ended.
    pub closed: Option<Closed>,
}

/// The end of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    /// How.
    pub closing: Closing,
    /// Who closed it.
    pub by: Option<String>,
    /// What they said.
    pub note: Option<String>,
    /// When.
    pub at: Wall,
}

impl State {
    /// Writes a question down and gives it its name.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn ask(&mut self, question: &NewQuestion) -> Result<QuestionId, StoreError> {
        self.transact(|transaction| {
            let id = take(transaction, "question", 1)?;
            transaction
                .prepare_cached("INSERT INTO question VALUES (?, ?, ?, ?, ?, ?, ?, NULL, NULL, NULL, NULL)")?
                .execute(params![
                    id.cast_signed(),
                    question.kind.as_str(),
                    question.call.to_string(),
                    question.text,
                    question.detail.as_ref().map(Value::to_string),
                    question.asked.0,
                    question.until.map(|until| until.0),
                ])?;
            transaction.execute(
                "DELETE FROM question WHERE closing IS NOT NULL AND id <= ?",
                [id.cast_signed() - i64::from(ENDED_KEPT)],
            )?;
            Ok(QuestionId(id))
        })
    }

    /// Closes a question once; `false` when it is not open (any more).
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn close_question(&mut self, id: QuestionId, closed: &Closed) -> Result<bool, StoreError> {
        self.transact(|transaction| {
            let changed = transaction
                .prepare_cached(
                    "UPDATE question SET closing = ?, by = ?, note = ?, closed = ? WHERE id = ? AND closing IS NULL",
                )?
                .execute(params![closed.closing.as_str(), closed.by, closed.note, closed.at.0, id.0.cast_signed()])?;
            Ok(changed == 1)
        })
    }

    /// At a start: permits and confirmations of the process before are not started; questions for an outcome stay.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn close_pending(&mut self, at: Wall) -> Result<Vec<QuestionId>, StoreError> {
        self.transact(|transaction| {
            let mut statement = transaction.prepare(
                "UPDATE question SET closing = 'not_started', closed = ?
                 WHERE closing IS NULL AND kind IN ('permit', 'confirm') RETURNING id",
            )?;
            let closed = statement.query_map([at.0], |row| Ok(QuestionId(row.get::<_, i64>(0)?.unsigned_abs())))?;
            closed.collect()
        })
    }

    /// Questions without an end, the oldest first.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn open_questions(&self) -> Result<Vec<Question>, StoreError> {
        self.select("SELECT * FROM question WHERE closing IS NULL ORDER BY id", [], question)
    }

    /// One question, open or closed.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn question(&self, id: QuestionId) -> Result<Option<Question>, StoreError> {
        let find = || {
            self.connection
                .prepare_cached("SELECT * FROM question WHERE id = ?")?
                .query_row([id.0.cast_signed()], question)
                .optional()
        };
        find().map_err(|e| StoreError::sqlite(&self.path, e))
    }
}

fn question(row: &rusqlite::Row<'_>) -> rusqlite::Result<Question> {
    let kind: String = row.get(1)?;
    let detail: Option<String> = row.get(4)?;
    let closing: Option<String> = row.get(7)?;
    let closed = match closing {
        None => None,
        Some(text) => Some(Closed {
            closing: Closing::of(&text).ok_or_else(|| misfit(7, &text))?,
            by: row.get(8)?,
            note: row.get(9)?,
            at: Wall(row.get(10)?),
        }),
    };
    Ok(Question {
        id: QuestionId(row.get::<_, i64>(0)?.unsigned_abs()),
        asked: NewQuestion {
            kind: QuestionKind::of(&kind).ok_or_else(|| misfit(1, &kind))?,
            call: id(row, 2)?.ok_or_else(|| misfit(2, ""))?,
            text: row.get(3)?,
            detail: detail.map(|text| serde_json::from_str(&text).map_err(|_| misfit(4, &text))).transpose()?,
            asked: Wall(row.get(5)?),
            until: row.get::<_, Option<i64>>(6)?.map(Wall),
        },
        closed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(kind: QuestionKind) -> NewQuestion {
        NewQuestion {
            kind,
            call: "01KBA6AK800000000000000007.3.0".parse().unwrap(),
            text: "合上一号断路器？".to_owned(),
            detail: Some(serde_json::json!({"device": "breaker-1"})),
            asked: Wall(5),
            until: Some(Wall(125)),
        }
    }

    fn closed(closing: Closing) -> Closed {
        Closed { closing, by: Some("operator".to_owned()), note: None, at: Wall(9) }
    }

    #[test]
    fn a_question_is_closed_once_however_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = State::open(dir.path()).unwrap();
        for closing in Closing::ALL {
            let id = state.ask(&new(QuestionKind::Permit)).unwrap();
            assert!(state.close_question(id, &closed(closing)).unwrap());
            assert!(!state.close_question(id, &closed(Closing::Denied)).unwrap());
            let expected = Question { id, asked: new(QuestionKind::Permit), closed: Some(closed(closing)) };
            assert_eq!(state.question(id).unwrap(), Some(expected));
        }
        assert_eq!(state.open_questions().unwrap(), []);
        assert!(!state.close_question(QuestionId(99), &closed(Closing::Denied)).unwrap());
    }

    #[test]
    fn a_restart_closes_all_but_outcomes_and_reuses_no_name() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = State::open(dir.path()).unwrap();
        let kinds = [QuestionKind::Permit, QuestionKind::Confirm, QuestionKind::Outcome];
        let ids: Vec<QuestionId> = kinds.map(|kind| state.ask(&new(kind)).unwrap()).into();
        assert_eq!(ids, [QuestionId(1), QuestionId(2), QuestionId(3)]);
        drop(state);
        let mut state = State::open(dir.path()).unwrap();
        assert_eq!(state.close_pending(Wall(10)).unwrap(), ids[..2]);
        let open: Vec<QuestionId> = state.open_questions().unwrap().iter().map(|question| question.id).collect();
        assert_eq!(open, ids[2..]);
        assert_eq!(state.ask(&new(QuestionKind::Permit)).unwrap(), QuestionId(4));
    }
}
