//! The evidence: found, read row by row, and held against its hashes.

use std::sync::{Arc, PoisonError};

use serde_json::{Value, json};

use super::{Looked, Made, View, number, parsed, row_of};
use crate::console::Console;
use crate::console::act::VERIFY;
use crate::console::form::encoded;
use crate::console::html::Html;
use crate::console::page::{Deed, cell, facts, linked, run as run_cell, shown, table, when};
use crate::engine::log::Search;
use crate::record::rfc3339;
use crate::sys::clock;

/// What the search asks for, besides where it begins.
const FIELDS: [&str; 5] = ["text", "kind", "run", "call", "task"];

/// Rows on one page.
const ROWS: usize = 100;

/// What is known of the last verification that somebody asked for.
#[derive(Debug, Default)]
pub(in crate::console) struct Verification {
    is_running: bool,
    /// When it ended, and what it found.
    last: Option<(String, Result<Value, String>)>,
}

/// Begins one, unless one is under way.
pub(in crate::console) fn verify(console: &Arc<Console>) {
    {
        let mut known = console.verification.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_running {
            return;
        }
        known.is_running = true;
    }
    let console = Arc::clone(console);
    tokio::spawn(async move {
        let found = console.context.log.verify().await.map_err(|error| error.to_string());
        let ended = (rfc3339(clock::wall()), found);
        *console.verification.lock().unwrap_or_else(PoisonError::into_inner) =
            Verification { is_running: false, last: Some(ended) };
        console.live.stir();
    });
}

pub(super) async fn page(view: &View<'_>) -> Made {
    let query = &view.asked.query;
    let word = |key| query.get(key).map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned);
    let found = view
        .look(Search {
            until: row_of(query.get("until"))?,
            kinds: word("kind").into_iter().collect(),
            run: parsed(query.get("run"))?,
            call: parsed(query.get("call"))?,
            task: parsed(query.get("task"))?,
            text: word("text"),
            begin: None,
            limit: ROWS,
        })
        .await?;
    let mut main = Html::new();
    search(&mut main, view);
    if found.rows.is_empty() {
        main.element("p", &[], view.pick("Nothing was found in these rows.", "这些行中没有找到。"));
    } else {
        rows(&mut main, view, &found.rows);
    }
    looked(&mut main, view, &found);
    verification(&mut main, view);
    Ok((view.pick("Evidence", "证据").to_owned(), main))
}

/// Which rows were looked through, and the way to the older ones.
fn looked(main: &mut Html, view: &View<'_>, found: &Looked) {
    let query = &view.asked.query;
    let with = |until: Option<u64>| {
        let mut to = "/evidence?".to_owned();
        for key in FIELDS {
            if let Some(value) = query.get(key) {
                to.push_str(&format!("{key}={}&", encoded(value)));
            }
        }
        until.map_or_else(|| to.trim_end_matches(['&', '?']).to_owned(), |until| format!("{to}until={until}"))
    };
    main.open("nav", &[("class", "pages"), ("aria-label", view.pick("Older rows", "更早的记录"))]);
    if let Some(from) = found.from {
        let to = found.rest.map_or(1, |rest| rest + 1);
        let text = view.pick("Looked through the rows", "已查找行");
        main.text(&format!("{text} {from}–{to}. "));
    }
    match found.rest {
        Some(rest) => main.link(&with(Some(rest)), view.pick("Look further back", "继续向前查找")),
        None => main.text(view.pick("There is nothing older.", "没有更早的记录。")),
    };
    if query.get("until").is_some() {
        main.text(" ").link(&with(None), view.pick("Back to the newest", "回到最新"));
    }
    main.close("nav");
}

fn search(main: &mut Html, view: &View<'_>) {
    main.open("form", &[("method", "get"), ("action", "/evidence"), ("class", "card search"), ("role", "search")]);
    for (name, en, zh) in [
        ("text", "Text", "文本"),
        ("kind", "What", "事件"),
        ("run", "Run", "运行"),
        ("task", "Task", "任务"),
        ("until", "Up to row", "截至行号"),
    ] {
        let value = view.asked.query.get(name).unwrap_or_default();
        main.raw("<div>").element("label", &[("for", name)], view.pick(en, zh));
        main.open("input", &[("id", name), ("name", name), ("value", value), ("maxlength", "200")]).raw("</div>");
    }
    main.element("button", &[("class", "primary")], view.pick("Search", "搜索")).close("form");
}

/// Where the run of a row is shown: the row says where in the log it is.
pub(super) fn run_at(run: &str, row: &Value) -> String {
    row["seq"].as_u64().map_or_else(|| format!("/runs/{run}"), |seq| format!("/runs/{run}?row={seq}"))
}

/// A table of rows.
pub(super) fn rows(main: &mut Html, view: &View<'_>, rows: &[Value]) {
    let heads = [
        view.pick("Row", "行号"),
        view.pick("Time", "时间"),
        view.pick("What", "事件"),
        view.pick("Of", "所属"),
        view.pick("To", "状态"),
        view.pick("Cause", "原因"),
        view.pick("What it says", "内容"),
    ];
    table(
        main,
        view.pick("Rows", "记录"),
        &heads,
        rows.iter().map(|row| {
            let seq = shown(row, "seq");
            let of = match (row["run"].as_str(), row["task"].as_str()) {
                (Some(run), _) => run_cell(&run_at(run, row), run),
                (None, Some(task)) => linked(&format!("/tasks/{task}"), task),
                (None, None) => cell("–"),
            };
            vec![
                linked(&format!("/evidence/{seq}"), &seq),
                when(row),
                cell(&shown(row, "kind")),
                of,
                cell(&shown(row, "to")),
                cell(&shown(row, "cause")),
                super::runs::said(&row["detail"]),
            ]
        }),
    );
}

fn verification(main: &mut Html, view: &View<'_>) {
    main.element("h2", &[], view.pick("Verification", "校验"));
    let known = view.console.verification.lock().unwrap_or_else(PoisonError::into_inner);
    let told = match (&known.last, known.is_running) {
        (_, true) => view.pick("Under way in the background.", "正在后台校验。").to_owned(),
        (None, false) => view.pick("Nobody asked for one since the start.", "启动以来未请求过校验。").to_owned(),
        (Some((when, Ok(found))), false) => {
            format!("{when}: {} · {} {}", shown(found, "verdict"), view.pick("rows", "行数"), shown(found, "rows"))
        }
        (Some((when, Err(error))), false) => format!("{when}: {error}"),
    };
    drop(known);
    main.element("p", &[("role", "status")], &told);
    let label = view.pick("Verify now", "立即校验");
    view.deed(main, &Deed { path: VERIFY, fields: &[], class: "", label, about: "" });
}

/// One row, whole.
pub(super) async fn row(view: &View<'_>, seq: &str) -> Made {
    let row = view.one("evidence.show", json!({ "seq": number(seq)? })).await?;
    let mut main = Html::new();
    let mut known: Vec<(&str, String)> = Vec::new();
    for key in ["time", "time_quality", "kind", "run", "call", "task", "from", "to", "cause", "boot_id", "hash"] {
        if !row[key].is_null() {
            known.push((key, shown(&row, key)));
        }
    }
    facts(&mut main, &known);
    let detail = serde_json::to_string_pretty(&row["detail"]).unwrap_or_default();
    main.open("pre", &[("tabindex", "0")]).text(&detail).close("pre");
    if let Some(run) = row["run"].as_str() {
        main.open("p", &[]).link(&run_at(run, &row), view.pick("The whole run", "整个运行")).close("p");
    }
    Ok((format!("{} {seq}", view.pick("Row", "记录")), main))
}
