//! When the log has reached its size: the oldest segment goes, and not without a word.
//!
//! First, in one commit, the rows of open calls that lie in it are copied forward and a row says which rows go and
//! with which hash they ended. Then the file is unlinked. There is no deletion inside a file and no vacuum.

use std::fs::{self, File};
use std::io;

use interlock_domain::id::Seq;
use serde_json::{Value, json};

use super::super::error::{Fault, StoreError};
use super::super::segment;
use super::Log;
use super::opening::{one, original};
use crate::record::{Row, hex, kind};

const COMPANIONS: [&str; 3] = ["", "-wal", "-shm"];

impl Log {
    /// Unlinks the oldest segments until the log keeps its size. The newest two always stay.
    pub(super) fn retain(&mut self) -> Result<(), Fault> {
        loop {
            let firsts = segment::list(&self.dir).map_err(|e| Fault::of_open(&e))?;
            let lens: Vec<u64> = firsts.iter().map(|first| self.len_of(*first)).collect();
            let all: u64 = lens.iter().sum();
            let [oldest, next, _, ..] = firsts.as_slice() else { return Ok(()) };
            if all <= self.limits.log_len_max {
                return Ok(());
            }
            self.unlink(*oldest, *next, lens[0])?;
        }
    }

    fn len_of(&self, first: Seq) -> u64 {
        let name = segment::file_name(first);
        let len = |companion| fs::metadata(self.dir.join(format!("{name}{companion}"))).map_or(0, |meta| meta.len());
        COMPANIONS[..2].iter().map(len).sum()
    }

    fn unlink(&mut self, first: Seq, next: Seq, bytes: u64) -> Result<(), Fault> {
        let mut rows = Vec::new();
        for seq in self.open.rows().into_iter().take_while(|seq| *seq < next) {
            let Some(recorded) = self.row(seq).map_err(|e| Fault::of_open(&e))? else { continue };
            let recorded = original(recorded);
            let mut copy = recorded.to_json();
            // As text, so that not one byte of it changes.
            copy["detail"] = recorded.row.detail.as_deref().map_or(Value::Null, Value::from);
            let detail = json!({ "was": seq.0, "row": copy });
            let row = Row { detail: Some(detail.to_string()), ..Row::new((self.clock)(), kind::CARRIED) };
            rows.push(match recorded.row.call {
                Some(call) => row.of_call(call),
                None => row,
            });
        }
        let last = Seq(next.0 - 1);
        let hash = self.row(last).map_err(|e| Fault::of_open(&e))?.map(|recorded| hex(&recorded.hash));
        let detail = json!({ "first": first.0, "last": last.0, "last_hash": hash, "bytes": bytes });
        rows.push(Row::new((self.clock)(), kind::SEGMENT_UNLINKED).detailed(&detail));
        self.add(rows.iter())?;
        let name = segment::file_name(first);
        for companion in COMPANIONS {
            match fs::remove_file(self.dir.join(format!("{name}{companion}"))) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(Fault::of_io(&e)),
            }
        }
        File::open(&self.dir).and_then(|dir| dir.sync_all()).map_err(|e| Fault::of_io(&e))
    }

    fn row(&self, seq: Seq) -> Result<Option<crate::record::Recorded>, StoreError> {
        one(&self.dir, &self.segment, seq)
    }
}
