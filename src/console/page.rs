//! What all pages have in common: their frame, their two languages, and the pieces that they are made of.

use axum::body::Body;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::Value;

use super::door::{Asked, role};
use super::form::encoded;
use super::html::Html;
use super::visit::{Note, Visit};

/// The languages that pages are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lang {
    En,
    Zh,
}

impl Lang {
    pub(super) fn of_word(word: &str) -> Option<Lang> {
        match word {
            "en" => Some(Lang::En),
            "zh-CN" => Some(Lang::Zh),
            _ => None,
        }
    }

    pub(super) fn word(self) -> &'static str {
        self.pick("en", "zh-CN")
    }

    pub(super) fn pick<T>(self, en: T, zh: T) -> T {
        match self {
            Lang::En => en,
            Lang::Zh => zh,
        }
    }

    /// The first of ours that the browser names; browsers write the preferred one first.
    pub(super) fn accepted(headers: &HeaderMap) -> Lang {
        let accepted = headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let named = accepted.split(',').map(str::trim).find_map(|lang| match lang.get(..2) {
            Some("zh") => Some(Lang::Zh),
            Some("en") => Some(Lang::En),
            _ => None,
        });
        named.unwrap_or(Lang::En)
    }
}

/// Letters of a run's name that are shown where there is little room.
const RUN_LETTERS: usize = 8;

/// The pages, as they stand in the navigation.
const PAGES: &[(&str, &str, &str)] = &[
    ("/", "Overview", "总览"),
    ("/questions", "Questions", "待批"),
    ("/tasks", "Tasks", "任务"),
    ("/devices", "Devices", "设备"),
    ("/reviews", "Reviews", "审核"),
    ("/evidence", "Evidence", "证据"),
    ("/policy", "Policy", "策略"),
    ("/health", "Health", "健康"),
];

/// A page of somebody who is logged in.
pub(super) fn inside(asked: &Asked, visit: &Visit, note: Option<&Note>, title: &str, main: &Html) -> Response<Body> {
    let mut all = Html::new();
    all.element("h1", &[], title);
    if let Some(note) = note {
        let class = if note.is_good { "note good" } else { "note bad" };
        all.element("p", &[("class", class), ("role", "status")], &note.text);
    }
    all.put(main);
    whole(asked, Some(visit), StatusCode::OK, title, "changed", &all)
}

/// Why something is not there or was not done, with what to do.
pub(super) fn trouble(
    asked: &Asked,
    visit: &Visit,
    status: StatusCode,
    message: &str,
    hint: Option<&str>,
) -> Response<Body> {
    let title = asked.lang.pick("Not done", "未执行");
    let mut main = Html::new();
    main.element("h1", &[], title);
    main.element("p", &[("class", "note bad"), ("role", "alert")], message);
    if let Some(hint) = hint {
        main.open("p", &[]).text(asked.lang.pick("What to do: ", "建议：")).element("code", &[], hint).close("p");
    }
    main.open("p", &[]).link("/", asked.lang.pick("Back to the overview", "返回总览")).close("p");
    whole(asked, Some(visit), status, title, "", &main)
}

/// A page with everything around it.
pub(super) fn whole(
    asked: &Asked,
    visit: Option<&Visit>,
    status: StatusCode,
    title: &str,
    live: &str,
    main: &Html,
) -> Response<Body> {
    let lang = asked.lang;
    let mut page = Html::new();
    page.raw("<!doctype html>").open("html", &[("lang", lang.word())]);
    page.raw(r#"<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">"#);
    page.raw(r#"<meta name="color-scheme" content="light dark"><link rel="stylesheet" href="/console.css">"#);
    page.raw(r#"<script src="/live.js" defer></script><title>"#).text(title).raw(" · Interlock</title></head>");
    page.open("body", &[("data-live", live)]);
    page.element("a", &[("class", "skip"), ("href", "#main")], lang.pick("To the content", "跳到内容"));
    page.raw("<header><span class=\"brand\">").text(lang.pick("Interlock", "联锁")).raw("</span>");
    if let Some(visit) = visit {
        navigation(&mut page, asked, visit);
    }
    let (other, other_name) = lang.pick((Lang::Zh, "中文"), (Lang::En, "English"));
    let place = if asked.method == hyper::Method::GET { asked.place.as_str() } else { "/" };
    let to = format!("/lang?to={}&back={}", other.word(), encoded(place));
    page.element("a", &[("class", "lang"), ("href", &to), ("lang", other.word())], other_name);
    if !live.is_empty() {
        let text = lang.pick("Not connected: what is shown may be old.", "连接中断：所显示的内容可能已过时。");
        page.element("p", &[("class", "lost note bad"), ("role", "status")], text);
    }
    page.raw("</header><main id=\"main\" tabindex=\"-1\">").put(main).raw("</main></body></html>");
    let mut response = Response::new(Body::from(page.into_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response
}

fn navigation(page: &mut Html, asked: &Asked, visit: &Visit) {
    let lang = asked.lang;
    page.open("nav", &[("aria-label", lang.pick("Pages", "页面"))]).raw("<ul>");
    for (path, en, zh) in PAGES {
        let is_here = if *path == "/" { asked.path == "/" } else { asked.path.starts_with(path) };
        page.raw("<li>");
        let mut attributes = vec![("href", *path)];
        if is_here {
            attributes.push(("aria-current", "page"));
        }
        page.element("a", &attributes, lang.pick(en, zh)).raw("</li>");
    }
    page.raw("</ul></nav>");
    page.open("form", &[("method", "post"), ("action", "/logout"), ("class", "who")]);
    csrf(page, visit);
    page.open("span", &[]).text(&visit.person.name).raw(" <small>").text(role(lang, visit.person.role));
    page.raw("</small></span>");
    page.element("button", &[], lang.pick("Log out", "退出")).close("form");
}

/// What each form carries.
pub(super) fn csrf(page: &mut Html, visit: &Visit) {
    hidden(page, "csrf", &visit.csrf);
}

/// What a form carries besides what a person fills in.
pub(super) fn hidden(page: &mut Html, name: &str, value: &str) {
    page.open("input", &[("type", "hidden"), ("name", name), ("value", value)]);
}

/// One button that does one thing.
pub(super) struct Deed<'a> {
    pub(super) path: &'static str,
    pub(super) fields: &'a [(&'static str, &'a str)],
    pub(super) class: &'static str,
    pub(super) label: &'a str,
    /// What a screen reader says beside the label: which one.
    pub(super) about: &'a str,
}

/// A table, which may be wider than a panel.
pub(super) fn table(page: &mut Html, caption: &str, heads: &[&str], rows: impl IntoIterator<Item = Vec<Html>>) {
    page.open("div", &[("class", "wide"), ("tabindex", "0"), ("role", "region"), ("aria-label", caption)]);
    page.raw("<table>").element("caption", &[], caption).raw("<thead><tr>");
    for head in heads {
        page.element("th", &[("scope", "col")], head);
    }
    page.raw("</tr></thead><tbody>");
    for row in rows {
        page.raw("<tr>");
        for cell in row {
            page.raw("<td>").put(&cell).raw("</td>");
        }
        page.raw("</tr>");
    }
    page.raw("</tbody></table></div>");
}

/// A cell of text.
pub(super) fn cell(text: &str) -> Html {
    let mut cell = Html::new();
    cell.text(text);
    cell
}

/// A cell of text that is not broken into lines.
pub(super) fn one_line(text: &str) -> Html {
    let mut cell = Html::new();
    cell.element("span", &[("class", "when")], text);
    cell
}

/// A cell with the moment of a row: on a panel the time of the day stands below the day.
pub(super) fn when(row: &Value) -> Html {
    let time = shown(row, "time");
    let Some((day, hour)) = time.split_once('T') else { return one_line(&time) };
    let mut cell = one_line(day);
    cell.text(" ").put(&one_line(hour));
    cell
}

/// A cell that leads to a run: by the end of its name, which is what differs from its neighbours'.
pub(super) fn run(to: &str, name: &str) -> Html {
    let end = name.char_indices().rev().nth(RUN_LETTERS - 1).map_or(name, |(at, _)| &name[at..]);
    let mut cell = Html::new();
    cell.element("a", &[("href", to), ("class", "when"), ("title", name)], &format!("…{end}"));
    cell
}

/// A cell that leads somewhere.
pub(super) fn linked(to: &str, text: &str) -> Html {
    let mut cell = Html::new();
    cell.link(to, text);
    cell
}

/// A word with a colour that says how good it is; the word alone says it too.
pub(super) fn badge(class: &str, text: &str) -> Html {
    let mut cell = Html::new();
    cell.element("span", &[("class", &format!("badge {class}"))], text);
    cell
}

/// A member as text: texts bare, everything else as JSON, nothing as a dash.
pub(super) fn shown(value: &Value, key: &str) -> String {
    match value.get(key) {
        None | Some(Value::Null) => "–".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Pairs of a name and what is known.
pub(super) fn facts(page: &mut Html, facts: &[(&str, String)]) {
    page.raw("<dl>");
    for (name, fact) in facts {
        page.element("dt", &[], name).element("dd", &[], fact);
    }
    page.raw("</dl>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_language_that_is_ours_counts() {
        for (accepted, lang) in [
            ("zh-CN,zh;q=0.9,en;q=0.8", Lang::Zh),
            ("en-US,en;q=0.5", Lang::En),
            ("de, zh-TW;q=0.7", Lang::Zh),
            ("fr", Lang::En),
            ("", Lang::En),
            ("é", Lang::En),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_LANGUAGE, HeaderValue::from_bytes(accepted.as_bytes()).unwrap());
            assert_eq!(Lang::accepted(&headers), lang, "{accepted}");
        }
    }
}
