//! The pages, one file each. Each asks the verbs of the control socket and shows what they say.

pub(super) mod devices;
pub(super) mod evidence;
mod health;
mod overview;
mod policy;
mod questions;
mod reviews;
mod runs;
mod tasks;

use std::sync::Arc;

use axum::body::Body;
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use super::Console;
use super::act::{needed, troubled};
use super::door::Asked;
use super::html::Html;
use super::page::{self, Deed, csrf, hidden, shown};
use super::reasons::chinese;
use super::visit::Visit;
use crate::control::wire::{Kind, Trouble};
use crate::control::{Told, store, tell};
use crate::engine::log::{Search, Seq};

/// A page that is being made: for whom, of what.
pub(super) struct View<'a> {
    pub(super) console: &'a Arc<Console>,
    pub(super) asked: &'a Asked,
    pub(super) visit: &'a Visit,
}

/// What a look back found.
struct Looked {
    /// The newest first.
    rows: Vec<Value>,
    /// The newest row that was looked at.
    from: Option<u64>,
    /// Where the next look goes on; `None` where there is nothing older.
    rest: Option<u64>,
}

/// The title and what stands below it.
type Made = Result<(String, Html), Trouble>;

impl View<'_> {
    pub(super) fn pick<'t>(&self, en: &'t str, zh: &'t str) -> &'t str {
        self.asked.lang.pick(en, zh)
    }

    /// A reason of the gate, or of the review of what is learned.
    fn reason(&self, of: &Value, key: &str) -> String {
        let said = shown(of, key);
        self.asked.lang.pick(said.clone(), chinese(&said))
    }

    /// The begin of a form that acts, with what each carries: the word of the session, and where to come back to.
    fn form(&self, main: &mut Html, path: &'static str, class: &'static str, fields: &[(&'static str, &str)]) {
        main.open("form", &[("method", "post"), ("action", path), ("class", class)]);
        csrf(main, self.visit);
        hidden(main, "back", &self.asked.place);
        for (name, value) in fields {
            hidden(main, name, value);
        }
    }

    /// Whether the person may do what stands at a path.
    fn may(&self, path: &str) -> bool {
        needed(path).is_some_and(|role| self.visit.person.role >= role)
    }

    /// One button that does one thing, for whoever may.
    fn deed(&self, main: &mut Html, deed: &Deed<'_>) {
        if !self.may(deed.path) {
            return;
        }
        self.form(main, deed.path, "deed", deed.fields);
        let label = format!("{} {}", deed.label, deed.about);
        main.element("button", &[("class", deed.class), ("aria-label", label.trim())], deed.label).close("form");
    }

    /// The rows that a verb gives.
    async fn rows(&self, verb: &str, mut args: Value) -> Result<Vec<Value>, Trouble> {
        args["lang"] = self.asked.lang.word().into();
        match Box::pin(tell(&self.console.context, &self.visit.user(), verb, &args)).await? {
            Told::Many(rows) => Ok(rows),
            Told::One(row) => Ok(vec![row]),
        }
    }

    /// What a look back through the evidence finds.
    async fn look(&self, search: Search) -> Result<Looked, Trouble> {
        let found = self.console.context.log.search(search).await.map_err(|error| store(&error))?;
        Ok(Looked {
            rows: found.rows.iter().map(|row| row.to_json()).collect(),
            from: found.from.map(|seq| seq.0),
            rest: found.rest.map(|seq| seq.0),
        })
    }

    /// The one thing that a verb gives.
    async fn one(&self, verb: &str, args: Value) -> Result<Value, Trouble> {
        Ok(self.rows(verb, args).await?.into_iter().next().unwrap_or_default())
    }
}

/// Shows the page that a path names.
pub(super) async fn show(console: &Arc<Console>, asked: &Asked, visit: &Visit) -> Response<Body> {
    let view = View { console, asked, visit };
    let path: Vec<&str> = asked.path.trim_matches('/').split('/').collect();
    let made = match path.as_slice() {
        [""] => overview::page(&view).await,
        ["questions"] => questions::page(&view).await,
        ["tasks"] => tasks::list(&view).await,
        ["tasks", task] => tasks::one(&view, task).await,
        ["devices"] => devices::page(&view).await,
        ["reviews"] => reviews::page(&view).await,
        ["runs", run] => runs::page(&view, run).await,
        ["evidence"] => evidence::page(&view).await,
        ["evidence", seq] => evidence::row(&view, seq).await,
        ["policy"] => policy::page(&view).await,
        ["health"] => health::page(&view).await,
        _ => return not_found(asked, visit),
    };
    match made {
        Ok((title, main)) => {
            let note = console.sessions.note_for(visit, asked.by_itself);
            page::inside(asked, visit, note.as_ref(), &title, &main)
        }
        Err(trouble) => troubled(asked, visit, &trouble),
    }
}

/// There is no such page.
pub(super) fn not_found(asked: &Asked, visit: &Visit) -> Response<Body> {
    let message = asked.lang.pick("There is no such page.", "没有此页面。");
    page::trouble(asked, visit, StatusCode::NOT_FOUND, message, None)
}

/// What a query names, where it names something.
fn parsed<T: std::str::FromStr>(written: Option<&str>) -> Result<Option<T>, Trouble>
where
    T::Err: std::fmt::Display,
{
    let written = written.map(str::trim).filter(|written| !written.is_empty());
    written
        .map(|written| written.parse().map_err(|error: T::Err| Trouble::new(Kind::Usage, error.to_string())))
        .transpose()
}

/// The number of a row that a query names.
fn row_of(written: Option<&str>) -> Result<Option<Seq>, Trouble> {
    let written = written.map(str::trim).filter(|written| !written.is_empty());
    Ok(written.map(number).transpose()?.map(Seq))
}

pub(super) fn number(written: &str) -> Result<u64, Trouble> {
    written.parse().map_err(|_| Trouble::new(Kind::Usage, format!("{written:?} is not a number")))
}

/// The arguments of a verb that takes none.
fn nothing() -> Value {
    json!({})
}
