//! Questions that wait for a person: exactly what would happen, and the ways to answer.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::Value;

use super::{Made, View, nothing};
use crate::console::html::Html;
use crate::console::page::{Deed, badge, facts, shown};

pub(super) async fn page(view: &View<'_>) -> Made {
    let waiting = view.rows("ask.list", nothing()).await?;
    let mut main = Html::new();
    if waiting.is_empty() {
        main.element("p", &[], view.pick("Nothing waits for an answer.", "没有待回答的问题。"));
    }
    let points = points(view, &waiting).await;
    for question in &waiting {
        card(&mut main, view, question, &points);
    }
    Ok((view.pick("Questions", "待批").to_owned(), main))
}

/// The points of the plant as they are now, where a question is about a device. That they cannot be had is no reason
/// not to show the question.
pub(super) async fn points(view: &View<'_>, waiting: &[Value]) -> Arc<[Value]> {
    if waiting.iter().any(|question| question["tool"] == "device") {
        return super::devices::points(view, super::devices::FRESH).await.unwrap_or_else(|_| Arc::default());
    }
    Arc::default()
}

/// One question. What somebody else wrote stands in it as text.
pub(super) fn card(main: &mut Html, view: &View<'_>, question: &Value, points: &[Value]) {
    let id = shown(question, "question");
    let kind = shown(question, "kind");
    // The input as it is bound by the question: its text is what was shown to everybody else, too.
    let input: Value = question["input"].as_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    main.open("section", &[("class", "card question"), ("aria-labelledby", &id)]);
    main.open("h2", &[("id", &id)]).text(&id).text(" ");
    let (class, en, zh) = match kind.as_str() {
        "confirm" => ("bad", "dangerous", "危险操作"),
        "outcome" => ("warn", "outcome not known", "结果未知"),
        _ => ("warn", "needs leave", "需要许可"),
    };
    main.put(&badge(class, view.pick(en, zh))).close("h2");
    let device = input["device"].as_str().unwrap_or_default();
    let mut known = vec![
        (view.pick("Tool", "工具"), shown(question, "tool")),
        (view.pick("Asked by", "请求者"), shown(question, "asker")),
        (view.pick("Why it asks", "询问原因"), view.reason(question, "reason")),
        (view.pick("Rule", "规则"), shown(question, "rule")),
    ];
    if !device.is_empty() {
        known.insert(1, (view.pick("Device", "设备"), device.to_owned()));
        let zone = points.iter().find(|point| point["device"] == device).map(|point| shown(point, "zone"));
        known.insert(2, (view.pick("Zone", "区域"), zone.unwrap_or_else(|| "–".to_owned())));
        known.insert(3, (view.pick("Now", "当前值"), now(points, device)));
    }
    known.push((
        view.pick("Answer within", "剩余时间"),
        question["expires_ms"]
            .as_u64()
            .map_or_else(|| view.pick("no limit", "不限时").to_owned(), |ms| format!("{} s", ms / 1000)),
    ));
    if question["four_eyes"] == true {
        let needed = match question["allowed_by"].as_str() {
            None => view.pick("two", "须两人分别允许").to_owned(),
            Some(first) => match view.pick("en", "zh") {
                "en" => format!("two; {first} has allowed it, another person has to, too"),
                _ => format!("须两人；{first} 已允许，还须另一人允许"),
            },
        };
        known.push((view.pick("Persons needed", "所需人数"), needed));
    }
    facts(main, &known);
    main.element("h3", &[], view.pick("Exactly this would be done", "将执行的操作"));
    main.open("pre", &[("tabindex", "0")]).text(&shown(question, "input")).close("pre");
    answers(main, view, &id, &kind);
    main.close("section");
}

fn now(points: &[Value], device: &str) -> String {
    let mut text = String::new();
    for point in points.iter().filter(|point| point["device"] == device).take(12) {
        let sign = if text.is_empty() { "" } else { " · " };
        let unit = point["measure"].as_str().unwrap_or_default();
        let _ = write!(text, "{sign}{} {}{unit}", shown(point, "point"), shown(point, "value"));
    }
    if text.is_empty() { "–".to_owned() } else { text }
}

fn answers(main: &mut Html, view: &View<'_>, id: &str, kind: &str) {
    main.open("div", &[("class", "deeds")]);
    if kind == "outcome" {
        if view.may("/ask/settle") {
            settle(main, view, id);
        }
    } else {
        let fields = &[("question", id)];
        let (allow, deny) = (view.pick("Allow", "允许"), view.pick("Deny", "拒绝"));
        view.deed(main, &Deed { path: "/ask/allow", fields, class: "primary", label: allow, about: id });
        view.deed(main, &Deed { path: "/ask/deny", fields, class: "danger", label: deny, about: id });
    }
    if !view.may("/ask/allow") {
        let text = view.pick("A yes needs somebody who may approve.", "允许需要有批准权限的人员。");
        main.element("p", &[("class", "quiet")], text);
    }
    main.raw("</div>");
}

/// What became of an action whose outcome is not known: a person says so, and how it is known.
fn settle(main: &mut Html, view: &View<'_>, id: &str) {
    view.form(main, "/ask/settle", "settle", &[("question", id)]);
    let note = format!("note-{id}");
    main.element("label", &[("for", &note)], view.pick("How it is known", "如何得知"));
    main.open("input", &[("id", &note), ("name", "note"), ("required", ""), ("maxlength", "2000")]);
    for (finding, en, zh) in [("done", "It was done", "已生效"), ("failed", "It was not done", "未生效")] {
        main.element("button", &[("name", "finding"), ("value", finding)], view.pick(en, zh));
    }
    main.close("form");
}
