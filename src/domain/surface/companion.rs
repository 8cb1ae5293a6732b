//! Calls that a contract names beside its own: the one that asks what became of an operation, the one that takes it
//! back, the ones that release or drop what it staged.
//!
//! A companion is only a recipe for an input. Whoever makes the call hands it in like anybody's, through the gate and
//! into the evidence; nothing in here is a permission. A part of a recipe that has nothing to stand for makes no call:
//! a query about half a name would be an answer about something else.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::promise::like;

/// Another call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Companion {
    /// Its tool.
    pub tool: String,
    /// Its input as JSON text, in which `{op}`, `{input.…}` and `{output.…}` stand for the operation's key, and for
    /// members of its input and of what it gave back. `None`: all three, under these names.
    pub input: Option<String>,
}

/// The operation that a companion is about.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    /// Its key: the same for each attempt.
    pub op: &'a str,
    /// Its input.
    pub input: &'a Value,
    /// What it gave back; `Null` where that is not known.
    pub output: &'a Value,
}

impl Companion {
    /// One without a recipe.
    #[must_use]
    pub fn of(tool: &str) -> Companion {
        Companion { tool: tool.to_owned(), input: None }
    }

    /// The input of the call; nothing when a part of the recipe has nothing to stand for.
    #[must_use]
    pub fn input(&self, about: About<'_>) -> Option<Value> {
        match &self.input {
            None => Some(json!({ "op": about.op, "input": about.input, "output": about.output })),
            Some(recipe) => filled(&serde_json::from_str(recipe).ok()?, about),
        }
    }

    /// The recipe names only what there is to name.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn check(&self) -> Result<(), String> {
        let Some(recipe) = &self.input else { return Ok(()) };
        let recipe: Value = serde_json::from_str(recipe).map_err(|error| error.to_string())?;
        if !recipe.is_object() {
            return Err("the input of a call is a table".to_owned());
        }
        let mut next = vec![&recipe];
        while let Some(value) = next.pop() {
            match value {
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
                Value::Array(all) => next.extend(all),
                Value::Object(members) => next.extend(members.values()),
                Value::String(text) => {
                    let odd = holes(text).find(|(_, name, _)| !is_hole(name));
                    if let Some((_, name, _)) = odd {
                        return Err(format!("{{{name}}} is not {{op}}, {{input.…}} or {{output.…}}"));
                    }
                }
            }
        }
        Ok(())
    }
}

/// A text with no other names in it than members of an input.
pub(super) fn names_its_input(text: &str) -> bool {
    holes(text).all(|(_, name, _)| name.starts_with("input."))
}

fn is_hole(name: &str) -> bool {
    name == "op"
        || ["input", "output"].iter().any(|root| name.strip_prefix(root).is_some_and(|rest| rest.starts_with('.')))
}

/// The `{…}` of a text that are names: what stands before each, the name, what stands after it. Other braces are text.
fn holes(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    let named =
        |name: &str| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-'));
    text.match_indices('{').filter_map(move |(at, _)| {
        let end = text[at..].find('}')? + at;
        let name = &text[at + 1..end];
        named(name).then(|| (&text[..at], name, &text[end + 1..]))
    })
}

fn filled(recipe: &Value, about: About<'_>) -> Option<Value> {
    Some(match recipe {
        Value::Null | Value::Bool(_) | Value::Number(_) => recipe.clone(),
        Value::Array(all) => Value::Array(all.iter().map(|one| filled(one, about)).collect::<Option<_>>()?),
        Value::Object(members) => {
            let members = members.iter().map(|(key, value)| Some((key.clone(), filled(value, about)?)));
            Value::Object(members.collect::<Option<Map<_, _>>>()?)
        }
        Value::String(text) => match holes(text).next() {
            None => recipe.clone(),
            // A text that is nothing but a name takes the member as it is, numbers too.
            Some(("", name, "")) => named(name, about)?,
            Some(_) => {
                let (mut whole, mut rest) = (String::new(), text.as_str());
                while let Some((before, name, after)) = holes(rest).next() {
                    whole.push_str(before);
                    whole.push_str(&plain(&named(name, about)?)?);
                    rest = after;
                }
                whole.push_str(rest);
                Value::String(whole)
            }
        },
    })
}

fn named(name: &str, about: About<'_>) -> Option<Value> {
    if name == "op" {
        return Some(about.op.into());
    }
    let (root, path) = name.split_once('.')?;
    let root = match root {
        "input" => about.input,
        "output" => about.output,
        _ => return None,
    };
    member(root, path).filter(|found| !found.is_null())
}

/// A member by its dotted path. A text on the way that is JSON is looked into: bodies and blocks of text are.
fn member(root: &Value, path: &str) -> Option<Value> {
    let mut here = root.clone();
    for step in path.split('.') {
        if let Value::String(text) = &here {
            here = serde_json::from_str(text).ok()?;
        }
        here = match &here {
            Value::Array(all) => all.get(step.parse::<usize>().ok()?)?.clone(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                here.get(step)?.clone()
            }
        };
    }
    Some(here)
}

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// How one finds out what became of an operation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Query {
    /// The call that asks. It must be one that only reads.
    pub ask: Companion,
    /// Members of its answer (dotted paths) and how they look when the effect is there. With neither this nor `failed`,
    /// the answer says `done` or `failed` in a member `outcome`.
    pub done: BTreeMap<String, String>,
    /// How they look when it is not.
    pub failed: BTreeMap<String, String>,
}

/// What an answer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    /// The effect is there.
    Done,
    /// It is not.
    NotThere,
    /// Neither, or both: nobody is wiser.
    Nothing,
}

impl Query {
    /// What the answer of the call says.
    #[must_use]
    pub fn read(&self, answer: &Value) -> Says {
        let looks = |like_this: &BTreeMap<String, String>| {
            let mut all = like_this.iter();
            !like_this.is_empty()
                && all.all(|(path, pattern)| {
                    member(answer, path).and_then(|found| plain(&found)).is_some_and(|text| like(pattern, &text))
                })
        };
        let (done, failed) = if self.done.is_empty() && self.failed.is_empty() {
            let word = ["outcome", "structuredContent.outcome", "body.outcome", "content.0.text.outcome"]
                .into_iter()
                .find_map(|path| member(answer, path).and_then(|found| plain(&found)));
            (word.as_deref() == Some("done"), word.as_deref() == Some("failed"))
        } else {
            (looks(&self.done), looks(&self.failed))
        };
        match (done, failed) {
            (true, false) => Says::Done,
            (false, true) => Says::NotThere,
            (true, true) | (false, false) => Says::Nothing,
        }
    }
}

/// What a contract names beside its own call.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Companions {
    /// Asks what became of the operation.
    pub query: Option<Query>,
    /// Takes it back; `None` leaves it to what the effect says of its inverse.
    pub undo: Option<Companion>,
    /// Makes visible what it staged.
    pub release: Option<Companion>,
    /// Drops what it staged.
    pub discard: Option<Companion>,
    /// What the operation changes: texts in which `{input.…}` stands for a member of its input.
    pub resources: Vec<String>,
}

impl Companions {
    /// The names of what an operation with this input changes; one with a part that is not there is left out.
    #[must_use]
    pub fn resources(&self, input: &Value) -> Vec<String> {
        let about = About { op: "", input, output: &Value::Null };
        let filled = |name: &String| plain(&filled(&Value::String(name.clone()), about)?);
        self.resources.iter().filter_map(filled).collect()
    }

    /// Every call that is named.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Companion> {
        let query = self.query.as_mut().map(|query| &mut query.ask);
        query.into_iter().chain(&mut self.undo).chain(&mut self.release).chain(&mut self.discard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(recipe: &str) -> Option<Value> {
        let call = Companion { tool: "http".to_owned(), input: Some(recipe.to_owned()) };
        call.check().ok()?;
        let input = json!({ "url": "http://a/pay", "sum": 4.5, "to": { "name": "x" } });
        let output = json!({ "status": 201, "body": "{\"id\": 7, \"tags\": [\"p\"]}" });
        call.input(About { op: "k1", input: &input, output: &output })
    }

    #[test]
    fn a_recipe_is_filled_from_what_is_known_and_makes_no_call_of_half_of_it() {
        let table = [
            (r#"{"url": "{input.url}/{output.body.id}?key={op}"}"#, Some(json!({ "url": "http://a/pay/7?key=k1" }))),
            (r#"{"sum": "{input.sum}", "who": ["{input.to.name}"]}"#, Some(json!({ "sum": 4.5, "who": ["x"] }))),
            (r#"{"tag": "{output.body.tags.0}"}"#, Some(json!({ "tag": "p" }))),
            (
                r#"{"to": "{input.to}", "body": "{\"a\": {}}"}"#,
                Some(json!({ "to": { "name": "x" }, "body": "{\"a\": {}}" })),
            ),
            (r#"{"id": "{output.id}"}"#, None),
            (r#"{"id": "{input.to} and more"}"#, None),
            (r#"{"id": "{inputs.url}"}"#, None),
            (r#"["{op}"]"#, None),
            ("{}", Some(json!({}))),
        ];
        for (recipe, want) in table {
            assert_eq!(about(recipe), want, "{recipe}");
        }
        let call = Companion::of("status").input(About { op: "k", input: &json!({ "a": 1 }), output: &Value::Null });
        assert_eq!(call, Some(json!({ "op": "k", "input": { "a": 1 }, "output": null })));
    }

    #[test]
    fn an_answer_says_what_it_is_declared_to_say_and_else_nothing() {
        let patterns = |text: &[(&str, &str)]| text.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        let check = |done: &[(&str, &str)], failed: &[(&str, &str)], answer: Value, want: Says| {
            let query = Query { ask: Companion::of("x"), done: patterns(done), failed: patterns(failed) };
            assert_eq!(query.read(&answer), want, "{answer}");
        };
        check(&[], &[], json!({ "outcome": "done" }), Says::Done);
        check(&[], &[], json!({ "status": 200, "body": "{\"outcome\": \"failed\"}" }), Says::NotThere);
        check(&[], &[], json!({ "content": [{ "type": "text", "text": "{\"outcome\": \"done\"}" }] }), Says::Done);
        check(&[], &[], json!({ "outcome": "unknown" }), Says::Nothing);
        check(&[], &[], json!({ "body": "no" }), Says::Nothing);
        let (there, not) = ([("status", "200"), ("body.state", "p*")], [("status", "404")]);
        check(&there, &not, json!({ "status": 200, "body": "{\"state\": \"paid\"}" }), Says::Done);
        check(&there, &not, json!({ "status": 200, "body": "{\"state\": \"new\"}" }), Says::Nothing);
        check(&there, &not, json!({ "status": 404, "body": "" }), Says::NotThere);
        check(&there, &not, json!({ "status": 500, "body": "" }), Says::Nothing);
        // What says both says nothing.
        check(&[("status", "2*")], &[("status", "*")], json!({ "status": 200 }), Says::Nothing);
        check(&there, &[], json!({ "status": 404 }), Says::Nothing);
    }
}
