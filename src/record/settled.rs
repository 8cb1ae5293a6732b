//! From the rows of one call to how it ended, for whoever reads of it in a later life.
//!
//! The log outlives the process that wrote it: a word that is not known here counts as unknown, never as done and never
//! as not started.

use interlock_domain::agent::result::Kept;
use serde_json::Value;

use super::{Recorded, kind};

/// How the call ended whose rows these are, in the order of the log. Of a call without a settlement nothing is known.
#[must_use]
pub fn end(rows: &[Recorded]) -> Kept {
    let detail = |recorded: &Recorded| -> Value {
        recorded.row.detail.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    };
    let unknown = || Kept::Unknown { said: String::new(), found: None };
    let Some(settled) = rows.iter().find(|recorded| recorded.row.kind == kind::SETTLED) else { return unknown() };
    let row = &settled.row;
    let told = detail(settled);
    let message = told.get("message").and_then(Value::as_str).unwrap_or_default();
    let said = format!("({}): {message}", row.cause.as_deref().unwrap_or_default());
    match row.to.as_deref() {
        Some("done") => match told.get("output") {
            None => Kept::Done { output: None, cut: false },
            Some(output) => match output.get("cut").and(output.get("head")) {
                Some(head) => Kept::Done { output: Some(head.clone()), cut: true },
                None => Kept::Done { output: Some(output.clone()), cut: false },
            },
        },
        Some("failed") => Kept::Failed { said },
        Some("not_started") if told.get("denied").and_then(Value::as_bool) == Some(true) => Kept::Denied { said },
        Some("not_started") => Kept::NotStarted { said },
        Some("unknown") => {
            let found = rows.iter().rev().find(|recorded| recorded.row.kind == kind::RESOLVED).map(|resolved| {
                let detail = detail(resolved);
                let text = |key: &str| detail.get(key).and_then(Value::as_str);
                let by = text("by").or(resolved.row.cause.as_deref()).unwrap_or_default();
                let note = text("note").map_or_else(String::new, |note| format!(" ({note})"));
                format!("{}, by {by}{note}", resolved.row.to.as_deref().unwrap_or_default())
            });
            Kept::Unknown { said, found }
        }
        Some(_) | None => unknown(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use interlock_domain::closure::Ending;
    use interlock_domain::effect::outcome::{Known, OpKey, WayOut};
    use interlock_domain::effect::report::{Failure, Loss};
    use interlock_domain::event::{Event, Found, FoundBy};
    use interlock_domain::id::{BatchId, CallId, RunId, Seq};
    use interlock_domain::request::why::Why;
    use interlock_domain::time::{Tick, Wall};
    use serde_json::json;

    use super::super::event::row;
    use super::super::{Stamp, TimeQuality};
    use super::*;

    fn call() -> CallId {
        CallId { run: RunId::new(1, 1), batch: BatchId(1), position: 0 }
    }

    fn recorded(event: &Event) -> Recorded {
        let at = Stamp { mono: Tick(1), boottime_ns: 0, wall: Wall(0), quality: TimeQuality::Synced };
        Recorded { seq: Seq(1), boot_id: "b".into(), row: row(event, at), hash: [0; 32] }
    }

    fn settled(ending: Ending) -> Recorded {
        recorded(&Event::Settled { call: call(), ending })
    }

    #[test]
    fn what_was_settled_is_read_back_as_what_it_was() {
        let done = |output| settled(Ending::Ran(Known::Done(Arc::new(output))));
        let said = |text: &str| text.to_owned();
        assert_eq!(end(&[done(json!({"a": 1}))]), Kept::Done { output: Some(json!({"a": 1})), cut: false });
        let Kept::Done { output: Some(Value::String(head)), cut: true } = end(&[done(json!("x".repeat(20_000)))])
        else {
            panic!("not cut")
        };
        assert!(head.starts_with("\"xxx"), "{head}");
        let failure = Failure { code: "no_such_file", message: "no a".into() };
        assert_eq!(
            end(&[settled(Ending::Ran(Known::Failed(failure)))]),
            Kept::Failed { said: said("(no_such_file): no a") }
        );
        assert_eq!(
            end(&[settled(Ending::NotStarted(Why::DeniedByPerson { by: "li".into() }))]),
            Kept::Denied { said: said("(denied_by_person): li said no") }
        );
        let Kept::NotStarted { said: why } = end(&[settled(Ending::NotStarted(Why::Interrupted))]) else { panic!() };
        assert!(why.starts_with("(interrupted)"), "{why}");
    }

    #[test]
    fn an_unknown_stays_unknown_until_it_is_found_out_and_no_settlement_is_none() {
        let lost = Ending::Ran(Known::Unknown { loss: Loss::DaemonEnded, way_out: WayOut::Hold });
        let Kept::Unknown { said, found: None } = end(&[settled(lost.clone())]) else { panic!() };
        assert!(said.starts_with("(daemon_ended)"), "{said}");
        let by = FoundBy::Person { name: "li".into(), note: "it runs".into() };
        let resolved = Event::Resolved { call: call(), op: OpKey(call()), found: Found::Done, by };
        let Kept::Unknown { found, .. } = end(&[settled(lost.clone()), recorded(&resolved)]) else { panic!() };
        assert_eq!(found.as_deref(), Some("done, by li (it runs)"));
        let nothing = Kept::Unknown { said: String::new(), found: None };
        assert_eq!(end(&[recorded(&Event::Started { call: call() })]), nothing);
        let mut strange = settled(lost);
        strange.row.to = Some("from_the_future".into());
        assert_eq!(end(&[strange]), nothing);
    }
}
