//! The written form of an effect history: one JSON object a line, as `interlock effects check` reads it.
//!
//! The events go into the checker one by one while the line is read, so that a long history is never held as a tree of
//! JSON values. What is not the written form is named with the event's place; nothing is guessed or skipped.

use std::borrow::Cow;
use std::fmt;

use interlock_domain::effect::anomaly::{Anomaly, Event, History, Malformed, Seen, Terms, View};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Value, json};
use thiserror::Error;

/// One line, read.
#[derive(Debug, Default)]
pub struct Line {
    /// The history's name, whatever it is.
    pub id: Value,
    /// The history.
    pub history: History,
    /// What it is held against.
    pub terms: Terms,
    /// Keys that were ignored.
    pub diagnostics: Vec<String>,
}

/// Why a line is no history.
#[derive(Debug, Error)]
pub enum BadLine {
    /// It is not JSON, or a key has a value of another type.
    #[error("not a history: {0}")]
    Json(#[from] serde_json::Error),
    /// The events contradict each other.
    #[error("{0}")]
    Malformed(#[from] Malformed),
    /// One event is not written as events are.
    #[error("event {at}: {fact}")]
    Event {
        /// Its place, from 0.
        at: usize,
        /// What is wrong with it.
        fact: String,
    },
    /// A key has a value that says nothing.
    #[error("{key}: {fact}")]
    Key {
        /// The key.
        key: &'static str,
        /// What is wrong with it.
        fact: String,
    },
}

/// Reads one line.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn read(text: &str) -> Result<Line, BadLine> {
    let mut draft = Draft::default();
    let mut from = serde_json::Deserializer::from_str(text);
    let ended = Top(&mut draft).deserialize(&mut from).and_then(|()| from.end());
    match (draft.wrong, ended) {
        (Some(wrong), _) => Err(wrong),
        (None, Err(error)) => Err(BadLine::Json(error)),
        (None, Ok(())) if !draft.has_events => {
            Err(BadLine::Key { key: "events", fact: "there are none; an empty list is a history too".to_owned() })
        }
        (None, Ok(())) => Ok(draft.line),
    }
}

/// What is told of a line.
#[must_use]
pub fn told(line: &Line, found: &[Anomaly]) -> Value {
    let anomalies: Vec<Value> = found
        .iter()
        .map(|it| json!({ "kind": it.kind.word(), "verdict": it.verdict.word(), "events": it.events, "why": it.why }))
        .collect();
    let mut told = json!({ "id": line.id, "anomalies": anomalies });
    if !line.diagnostics.is_empty() {
        told["diagnostics"] = line.diagnostics.clone().into();
    }
    told
}

#[derive(Default)]
struct Draft {
    line: Line,
    has_events: bool,
    wrong: Option<BadLine>,
}

impl Draft {
    fn key(&mut self, key: &'static str, fact: impl Into<String>) -> BadLine {
        BadLine::Key { key, fact: fact.into() }
    }
}

struct Top<'a>(&'a mut Draft);

impl<'de> DeserializeSeed<'de> for Top<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Top<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let draft = self.0;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "id" => draft.line.id = map.next_value()?,
                "speculative_profile" => draft.line.terms.held = map.next_value()?,
                "view" => {
                    let view: String = map.next_value()?;
                    draft.line.terms.view = match view.as_str() {
                        "world" => View::World,
                        "runtime" => View::Runtime,
                        _ => {
                            let wrong = draft.key("view", format!("{view:?} is neither \"world\" nor \"runtime\""));
                            return Err(stop(draft, wrong));
                        }
                    };
                }
                "commuting" => {
                    let pairs: Vec<Vec<String>> = map.next_value()?;
                    for pair in pairs {
                        match pair.as_slice() {
                            [one] => draft.line.terms.commuting.push((one.clone(), one.clone())),
                            [one, other] => draft.line.terms.commuting.push((one.clone(), other.clone())),
                            _ => {
                                let wrong = draft.key("commuting", "a pair is one kind (with itself) or two");
                                return Err(stop(draft, wrong));
                            }
                        }
                    }
                }
                "events" if draft.has_events => {
                    let wrong = draft.key("events", "it is there twice");
                    return Err(stop(draft, wrong));
                }
                "events" => {
                    draft.has_events = true;
                    map.next_value_seed(Events(draft))?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    draft.line.diagnostics.push(format!("unknown key {key:?} was ignored"));
                }
            }
        }
        Ok(())
    }
}

/// Ends the reading; the reason is kept beside, in our own words.
fn stop<E: serde::de::Error>(draft: &mut Draft, wrong: BadLine) -> E {
    let error = E::custom(&wrong);
    draft.wrong = Some(wrong);
    error
}

struct Events<'a>(&'a mut Draft);

impl<'de> DeserializeSeed<'de> for Events<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut events: A) -> Result<(), A::Error> {
        while events.next_element_seed(OneEvent(self.0))?.is_some() {}
        Ok(())
    }
}

struct OneEvent<'a>(&'a mut Draft);

impl<'de> DeserializeSeed<'de> for OneEvent<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

/// No event has more members; what is longer is told as it stands so far.
const MEMBERS_MAX: usize = 6;

impl<'de> Visitor<'de> for OneEvent<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event: a list that begins with its name")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut all: [Member<'de>; MEMBERS_MAX] = Default::default();
        let mut len = 0;
        while len < MEMBERS_MAX
            && let Some(member) = members.next_element_seed(OneMember)?
        {
            all[len] = member;
            len += 1;
        }
        while members.next_element::<IgnoredAny>()?.is_some() {}
        let at = self.0.line.history.len();
        match take(&mut self.0.line.history, &all[..len]) {
            Ok(()) => Ok(()),
            Err(Odd::Malformed(malformed)) => Err(stop(self.0, malformed.into())),
            Err(Odd::Shape(fact)) => Err(stop(self.0, BadLine::Event { at, fact })),
        }
    }
}

#[derive(Debug, Default)]
enum Member<'de> {
    Text(Cow<'de, str>),
    List(Vec<Cow<'de, str>>),
    #[default]
    Null,
    Other,
}

struct OneMember;

impl<'de> DeserializeSeed<'de> for OneMember {
    type Value = Member<'de>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Member<'de>, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for OneMember {
    type Value = Member<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name, a list of names or null")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Member<'de>, E> {
        Ok(Member::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Member<'de>, E> {
        Ok(Member::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<Member<'de>, E> {
        Ok(Member::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Member<'de>, E> {
        Ok(Member::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Member<'de>, E> {
        Ok(Member::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Member<'de>, E> {
        Ok(Member::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Member<'de>, E> {
        Ok(Member::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Member<'de>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Member::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Member<'de>, A::Error> {
        let mut names = Vec::new();
        while let Some(member) = list.next_element_seed(OneName)? {
            names.push(member);
        }
        Ok(Member::List(names))
    }
}

struct OneName;

impl<'de> DeserializeSeed<'de> for OneName {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Cow<'de, str>, D::Error> {
        match OneMember.deserialize(from)? {
            Member::Text(text) => Ok(text),
            Member::List(_) | Member::Null | Member::Other => Err(D::Error::custom("a list in an event holds names")),
        }
    }
}

enum Odd {
    Malformed(Malformed),
    Shape(String),
}

impl From<Malformed> for Odd {
    fn from(malformed: Malformed) -> Odd {
        Odd::Malformed(malformed)
    }
}

fn take(history: &mut History, members: &[Member<'_>]) -> Result<(), Odd> {
    use Member::{List, Null, Text};
    let Some(Text(name)) = members.first() else {
        return Err(Odd::Shape("it does not begin with its name".to_owned()));
    };
    let listed = |names: &[Cow<'_, str>], then: &mut dyn FnMut(&[&str]) -> Result<(), Malformed>| {
        let names: Vec<&str> = names.iter().map(Cow::as_ref).collect();
        then(&names)
    };
    let form = match (name.as_ref(), &members[1..]) {
        ("begin", [Text(workflow), List(required)]) => {
            return Ok(listed(required, &mut |required| history.take(Event::Begin { workflow, required }))?);
        }
        ("begin", _) => "[\"begin\", workflow, [operation, …]]",
        ("attempt", [Text(attempt), Text(op), Text(workflow), Text(branch)]) => {
            return Ok(history.take(Event::Attempt { attempt, op, workflow, branch })?);
        }
        ("attempt", _) => "[\"attempt\", attempt, operation, workflow, branch]",
        ("effect", [Text(effect), Text(attempt), Text(resource)]) => {
            return Ok(history.take(Event::Effect { effect, attempt, resource, staged: false })?);
        }
        ("effect", [Text(effect), Text(attempt), Text(resource), Text(staged)]) if staged == "staged" => {
            return Ok(history.take(Event::Effect { effect, attempt, resource, staged: true })?);
        }
        ("effect", _) => "[\"effect\", effect, attempt, resource] with \"staged\" behind it or not",
        ("observe", [Text(attempt), Text(seen)]) => {
            let seen = match seen.as_ref() {
                "confirmed" => Seen::Confirmed,
                "failed" => Seen::Failed,
                "unknown" => Seen::Unknown,
                other => return Err(Odd::Shape(format!("{other:?} is not confirmed, failed or unknown"))),
            };
            return Ok(history.take(Event::Observe { attempt, seen })?);
        }
        ("observe", _) => "[\"observe\", attempt, \"confirmed\"|\"failed\"|\"unknown\"]",
        ("comp", [Text(compensation), Text(attempt)]) => {
            return Ok(history.take(Event::Compensate { compensation, attempt })?);
        }
        ("comp", _) => "[\"comp\", compensation, attempt]",
        ("neut", [Text(compensation), Text(effect)]) => {
            return Ok(history.take(Event::Neutralise { compensation, effect })?);
        }
        ("neut", _) => "[\"neut\", compensation, effect]",
        ("dep", [Text(later), Text(earlier)]) => return Ok(history.take(Event::Depends { later, earlier })?),
        ("dep", _) => "[\"dep\", effect, the effect that it rests on]",
        ("order", [Text(first), Text(second)]) => return Ok(history.take(Event::Order { first, second })?),
        ("order", _) => "[\"order\", effect, the effect behind it]",
        ("react", [Text(reaction), Text(effect)]) => return Ok(history.take(Event::React { reaction, effect })?),
        ("react", _) => "[\"react\", reaction, effect]",
        ("unreact", [Text(reaction)]) => return Ok(history.take(Event::Unreact { reaction })?),
        ("unreact", _) => "[\"unreact\", reaction]",
        ("release", [Text(effect)]) => return Ok(history.take(Event::Release { effect })?),
        ("release", _) => "[\"release\", effect]",
        ("discard", [Text(effect)]) => return Ok(history.take(Event::Discard { effect })?),
        ("discard", _) => "[\"discard\", effect]",
        ("commit", [Text(workflow), List(branches)]) => {
            return Ok(listed(branches, &mut |branches| history.take(Event::Commit { workflow, branches }))?);
        }
        ("commit", _) => "[\"commit\", workflow, [branch, …]]",
        ("abort", [Text(workflow)] | [Text(workflow), Null]) => {
            return Ok(history.take(Event::Abort { workflow, branch: None })?);
        }
        ("abort", [Text(workflow), Text(branch)]) => {
            return Ok(history.take(Event::Abort { workflow, branch: Some(branch) })?);
        }
        ("abort", _) => "[\"abort\", workflow] with a branch behind it or null",
        (other, _) => {
            let shown: String = other.chars().take(40).collect();
            return Err(Odd::Shape(format!("there is no event {shown:?}")));
        }
    };
    Err(Odd::Shape(format!("it is not of the form {form}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases of the specification: the exact anomalies of each history, all of them certain.
    #[test]
    fn each_case_has_the_anomalies_that_it_is_said_to_have() {
        let cases = include_str!("../../tests/cases/histories.jsonl");
        let mut count = 0;
        for text in cases.lines() {
            let said: Value = serde_json::from_str(text).unwrap();
            let line = read(text).unwrap();
            let found = line.history.check(&line.terms);
            let told = told(&line, &found);
            let kinds: Vec<&Value> = told["anomalies"].as_array().unwrap().iter().map(|it| &it["kind"]).collect();
            assert_eq!(json!(kinds), said["anomalies"], "{}", said["id"]);
            assert!(found.iter().all(|it| it.verdict.word() == "certain" && !it.events.is_empty()), "{}", said["id"]);
            assert_eq!((&told["id"], &line.diagnostics.len()), (&said["id"], &1), "{}", said["id"]);
            count += 1;
        }
        assert_eq!(count, 17);
    }

    /// Each definition turned over by hand, in both views: `A1!` is certain, `A1?` possible.
    #[test]
    fn each_variant_has_the_verdicts_of_the_definitions() {
        let cases = include_str!("../../tests/cases/effect-variants.jsonl");
        let mut wrong = Vec::new();
        for text in cases.lines() {
            let said: Value = serde_json::from_str(text).unwrap();
            let line = read(text).unwrap();
            let word =
                |it: &Anomaly| format!("{}{}", it.kind.word(), if it.verdict.word() == "certain" { "!" } else { "?" });
            let found: Vec<String> = line.history.check(&line.terms).iter().map(word).collect();
            if json!(found) != said["anomalies"] {
                wrong.push(format!("{}: {found:?}, not {}", said["id"], said["anomalies"]));
            }
        }
        assert!(wrong.is_empty() && cases.lines().count() > 90, "{}", wrong.join("\n"));
    }

    #[test]
    fn what_contradicts_itself_is_named_with_its_event() {
        let begun = r#"["begin", "w", []], ["attempt", "a", "p", "w", "m"], ["effect", "e", "a", "r"]"#;
        let table = [
            (r#"["begin", "w", []]"#, "event 3: workflow \"w\""),
            (r#"["attempt", "a", "q", "w", "m"]"#, "event 3: attempt \"a\""),
            (r#"["attempt", "b", "q", "v", "m"]"#, "event 3: workflow \"v\""),
            (r#"["effect", "e", "a", "s"]"#, "event 3: effect \"e\""),
            (r#"["effect", "f", "b", "s"]"#, "event 3: effect \"f\" comes before its attempt \"b\""),
            (r#"["observe", "b", "failed"]"#, "event 3: attempt \"b\""),
            (r#"["comp", "b", "a"]"#, "event 3: attempt \"b\""),
            (r#"["comp", "a", "b"]"#, "event 3: attempt \"b\""),
            (r#"["neut", "a", "f"]"#, "event 3: effect \"f\""),
            (r#"["dep", "e", "f"]"#, "event 3: effect \"f\""),
            (r#"["order", "f", "e"]"#, "event 3: effect \"f\""),
            (r#"["react", "x", "f"]"#, "event 3: effect \"f\""),
            (r#"["react", "x", "e"], ["react", "x", "e"]"#, "event 4: reaction \"x\""),
            (r#"["unreact", "x"]"#, "event 3: reaction \"x\""),
            (r#"["release", "f"]"#, "event 3: effect \"f\""),
            (r#"["discard", "f"]"#, "event 3: effect \"f\""),
            (r#"["commit", "v", []]"#, "event 3: workflow \"v\""),
            (r#"["commit", "w", ["m"]], ["commit", "w", ["m"]]"#, "event 4: "),
            (r#"["commit", "w", ["m"]], ["abort", "w", null]"#, "event 4: "),
            (r#"["abort", "w"], ["commit", "w", ["m"]]"#, "event 4: "),
            (r#"["abort", "w"], ["abort", "w", "m"]"#, "event 4: "),
        ];
        for (more, want) in table {
            let error = read(&format!(r#"{{"events": [{begun}, {more}]}}"#)).map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with(want), "{more}: {error}");
        }
        // Strange, and legal: a branch that is given up before the whole, and twice.
        for more in [r#"["abort", "w", "m"], ["abort", "w", "m"], ["commit", "w", []]"#, r#"["release", "e"]"#] {
            assert!(read(&format!(r#"{{"events": [{begun}, {more}]}}"#)).is_ok(), "{more}");
        }
    }

    #[test]
    fn what_is_told_of_a_line_is_stable() {
        let line = read(
            r#"{"id": 7, "colour": 1, "events": [["begin","w\u0041",["p\u0041y"]],["commit","wA",[]]], "view": "runtime"}"#,
        );
        let line = line.unwrap();
        let expected = json!({
            "id": 7,
            "anomalies": [{
                "kind": "A2",
                "verdict": "certain",
                "events": [0, 1],
                "why": "required operation pAy of wA has no effect at the commit",
            }],
            "diagnostics": ["unknown key \"colour\" was ignored"],
        });
        assert_eq!(told(&line, &line.history.check(&line.terms)), expected);
    }

    #[test]
    fn a_line_that_is_no_history_says_why() {
        let check = |text: &str, said: &str| {
            let error = read(text).map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with(said), "{text}: {error}");
        };
        check("{}", "events: there are none");
        check("[]", "not a history: invalid type: sequence, expected an object");
        check(r#"{"events": 3}"#, "not a history: invalid type: integer `3`, expected a list of events");
        check(r#"{"events": [], "events": []}"#, "events: it is there twice");
        check(r#"{"view": "both", "events": []}"#, "view: \"both\" is neither");
        check(r#"{"commuting": [["a", "b", "c"]], "events": []}"#, "commuting: a pair is one kind");
        check(
            r#"{"speculative_profile": 1, "events": []}"#,
            "not a history: invalid type: integer `1`, expected a bool",
        );
        check(r#"{"events": [["begin", "w", ["a"]], ["bgin", "w"]]}"#, "event 1: there is no event \"bgin\"");
        check(r#"{"events": [[]]}"#, "event 0: it does not begin with its name");
        check(r#"{"events": [["begin", "w"]]}"#, "event 0: it is not of the form [\"begin\"");
        check(r#"{"events": [["begin", "w", "a"]]}"#, "event 0: it is not of the form");
        check(r#"{"events": [["begin", "w", [1]]]}"#, "not a history: a list in an event holds names");
        check(r#"{"events": [["begin", "w", []], ["commit", "w"]]}"#, "event 1: it is not of the form [\"commit\"");
        check(r#"{"events": [["begin", "w", []], ["release", "e"]]}"#, "event 1: effect \"e\" is not known here");
        check(r#"{"events": [["begin", "w", [], 4, {"a": [1]}, 6, 7, 8, 9]]}"#, "event 0: it is not of the form");
        let attempt = r#"{"events": [["begin", "w", []], ["attempt", "a", "p", "w", "m"], "#;
        check(&format!(r#"{attempt}["observe", "a", "maybe"]]}}"#), "event 2: \"maybe\" is not confirmed");
        check(&format!(r#"{attempt}["effect", "e", "a", "r", "hidden"]]}}"#), "event 2: it is not of the form");
    }
}
