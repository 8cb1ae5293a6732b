//! Contracts that a person declares for calls of a tool, and what a contract cannot be.
//!
//! A declared contract takes the place of what we would know of the call by ourselves. It is a promise of whoever
//! operates the tool: we keep to it, and say in the evidence whose it was. What contradicts itself is refused with the
//! field, before anything is done on the strength of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use thiserror::Error;

use super::companion::Companion;
use super::contract::{Contract, Effect, OpId, OutcomeBy, Provenance, Visibility};
use crate::id::ToolName;

/// What is promised about the calls of one tool that look so.
#[derive(Debug, Clone, PartialEq)]
pub struct Promise {
    /// The tool.
    pub tool: ToolName,
    /// Members of the input and how they look: texts with `*` for anything. All must fit; none is every call.
    pub input: BTreeMap<String, String>,
    /// What is promised.
    pub contract: Arc<Contract>,
}

impl Promise {
    /// It is about this call.
    #[must_use]
    pub fn fits(&self, args: &Value) -> bool {
        self.input.iter().all(|(key, pattern)| match args.get(key) {
            Some(Value::String(text)) => like(pattern, text),
            Some(other @ (Value::Bool(_) | Value::Number(_))) => like(pattern, &other.to_string()),
            Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => false,
        })
    }
}

/// `*` stands for anything, also for nothing; the rest stands for itself.
pub(crate) fn like(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// A field that cannot stand beside another one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field}: {fact}")]
pub struct Contradiction {
    /// The field, as it is written.
    pub field: &'static str,
    /// What is wrong with it.
    pub fact: &'static str,
}

impl Contract {
    /// What it says does not contradict itself.
    ///
    /// # Errors
    /// The first field that does.
    pub fn check(&self) -> Result<(), Contradiction> {
        let wrong = |field, fact| Err(Contradiction { field, fact });
        match (&self.outcome, &self.op_id) {
            (OutcomeBy::ResendOriginal { retention }, _) if retention.is_zero() => {
                return wrong("outcome", "an original result that is kept for no time is not kept");
            }
            (OutcomeBy::ResendOriginal { .. }, OpId::None) => {
                return wrong("outcome", "the original result is found by a key, and op-id gives none");
            }
            (OutcomeBy::Ack, OpId::None) => {
                return wrong("outcome", "an acknowledgement is told apart by a key or an id, and op-id gives none");
            }
            (OutcomeBy::Query, _) if self.with.query.is_none() && self.provenance == Provenance::Declared => {
                return wrong("outcome", "a query names the tool that is asked");
            }
            _ => {}
        }
        self.check_companions()?;
        match &self.effect {
            Effect::None if matches!(self.visibility, Visibility::Declared(_)) => {
                return wrong("visibility", "what leaves no effect has no readers");
            }
            Effect::None if self.outcome == OutcomeBy::Ack => {
                return wrong("effect", "what leaves no effect acknowledges none");
            }
            Effect::Reversible { inverse, .. } if inverse.is_empty() => {
                return wrong("effect", "a reversible effect names its inverse");
            }
            Effect::Reversible { precondition: None, .. } => {
                return wrong("effect", "an inverse without a precondition: say when it may be taken back");
            }
            Effect::Reversible { window: Some(window), .. } if window.is_zero() => {
                return wrong("effect", "a window of no time is none");
            }
            Effect::Stageable { ttl } if ttl.is_zero() => {
                return wrong("effect", "what is staged for no time is not staged");
            }
            Effect::None | Effect::Reversible { .. } | Effect::Stageable { .. } | Effect::Irreversible => {}
        }
        match &self.visibility {
            Visibility::Declared(readers) if readers.is_empty() => {
                wrong("visibility", "declared without a reader is none or private")
            }
            Visibility::None if self.changes() => {
                wrong("visibility", "an effect that is there can be seen by somebody: private at least")
            }
            Visibility::None | Visibility::Private | Visibility::Declared(_) | Visibility::Open => Ok(()),
        }
    }

    /// The calls that it names fit what it says.
    fn check_companions(&self) -> Result<(), Contradiction> {
        let wrong = |field, fact| Err(Contradiction { field, fact });
        let reversible = matches!(self.effect, Effect::Reversible { .. });
        let stageable = matches!(self.effect, Effect::Stageable { .. });
        let with = &self.with;
        if with.query.is_some() && self.outcome != OutcomeBy::Query {
            return wrong("query", "a tool that is asked is the outcome's: outcome says something else");
        }
        if with.undo.is_some() && !reversible {
            return wrong("effect", "a call that takes it back, and no inverse");
        }
        if (with.release.is_some() || with.discard.is_some()) && !stageable {
            return wrong("effect", "a release or a discard of what is not staged");
        }
        if with.release.is_some() != with.discard.is_some() {
            return wrong("effect", "what is staged is released or dropped: name both calls or neither");
        }
        if with.resources.iter().any(|name| !super::companion::names_its_input(name)) {
            return wrong("resources", "{input.…} is all that a name can be made of");
        }
        let query = with.query.as_ref().map(|query| &query.ask);
        let all = [("query", query), ("effect", with.undo.as_ref()), ("effect", with.release.as_ref())];
        let bad = |call: &Companion| ToolName::new(&call.tool).is_err() || call.check().is_err();
        for (field, call) in all.into_iter().chain([("effect", with.discard.as_ref())]) {
            if call.is_some_and(bad) {
                return wrong(field, "a call that it names has no tool's name, or an input that cannot be filled");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::super::companion::{Companions, Query};
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        let table = [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*", "a", true),
            ("a*", "ba", false),
            ("*a", "ba", true),
            ("a*a", "a", false),
            ("https://pay.example/*", "https://pay.example/orders", true),
            ("https://pay.example/*", "https://pay.example.evil/orders", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
        ];
        for (pattern, text, fits) in table {
            assert_eq!(like(pattern, text), fits, "{pattern} {text}");
        }
        let promise = Promise {
            tool: ToolName::new("http").unwrap(),
            input: [("url".to_owned(), "https://a/*".to_owned()), ("method".to_owned(), "POST".to_owned())].into(),
            contract: Arc::new(Contract::weakest("pay")),
        };
        assert!(promise.fits(&json!({ "url": "https://a/b", "method": "POST" })));
        assert!(!promise.fits(&json!({ "url": "https://a/b" })));
        assert!(!promise.fits(&json!({ "url": ["https://a/b"], "method": "POST" })));
    }

    #[test]
    fn what_contradicts_itself_is_refused_with_the_field() {
        let weakest = || Contract::weakest("x");
        let minute = Duration::from_secs(60);
        let check = |contract: Contract, want: Option<&str>| {
            assert_eq!(contract.check().err().map(|wrong| wrong.field), want, "{contract:?}");
        };
        let reversible = |inverse: &str, precondition: Option<&str>, window| Effect::Reversible {
            inverse: inverse.to_owned(),
            precondition: precondition.map(str::to_owned),
            window,
        };
        check(weakest(), None);
        let companion = || Some(Companion::of("look"));
        let with = |with: Companions| Contract { with, ..weakest() };
        let query = || Companions {
            query: Some(Query { ask: Companion::of("look"), done: BTreeMap::new(), failed: BTreeMap::new() }),
            ..Companions::default()
        };
        let declared = Provenance::Declared;
        check(Contract { outcome: OutcomeBy::Query, provenance: declared, ..weakest() }, Some("outcome"));
        check(Contract { outcome: OutcomeBy::Query, ..weakest() }, None);
        check(Contract { outcome: OutcomeBy::Query, provenance: declared, ..with(query()) }, None);
        check(with(query()), Some("query"));
        check(with(Companions { undo: companion(), ..Companions::default() }), Some("effect"));
        check(with(Companions { release: companion(), ..Companions::default() }), Some("effect"));
        let staged = |release, discard| Contract {
            effect: Effect::Stageable { ttl: Duration::from_secs(60) },
            ..with(Companions { release, discard, ..Companions::default() })
        };
        check(staged(companion(), companion()), None);
        check(staged(companion(), None), Some("effect"));
        check(
            staged(companion(), Some(Companion { input: Some("[]".to_owned()), ..Companion::of("x") })),
            Some("effect"),
        );
        check(Contract::reads("x"), None);
        let key = OpId::Key("k".to_owned());
        let resend = |retention| OutcomeBy::ResendOriginal { retention };
        check(Contract { outcome: resend(minute), ..weakest() }, Some("outcome"));
        check(Contract { outcome: resend(minute), op_id: key.clone(), ..weakest() }, None);
        check(Contract { outcome: resend(Duration::ZERO), op_id: key, ..weakest() }, Some("outcome"));
        check(Contract { outcome: OutcomeBy::Ack, ..weakest() }, Some("outcome"));
        check(Contract { outcome: OutcomeBy::Ack, op_id: OpId::Native, ..weakest() }, None);
        check(Contract { effect: reversible("undo", None, None), ..weakest() }, Some("effect"));
        check(Contract { effect: reversible("", Some("any time"), None), ..weakest() }, Some("effect"));
        check(
            Contract { effect: reversible("undo", Some("empty"), Some(Duration::ZERO)), ..weakest() },
            Some("effect"),
        );
        check(Contract { effect: reversible("undo", Some("empty"), Some(minute)), ..weakest() }, None);
        check(Contract { effect: Effect::Stageable { ttl: Duration::ZERO }, ..weakest() }, Some("effect"));
        check(Contract { visibility: Visibility::Declared(vec![]), ..weakest() }, Some("visibility"));
        check(Contract { visibility: Visibility::None, ..weakest() }, Some("visibility"));
        let readers = Visibility::Declared(vec!["hall".to_owned()]);
        check(Contract { visibility: readers, ..Contract::reads("x") }, Some("visibility"));
    }
}
