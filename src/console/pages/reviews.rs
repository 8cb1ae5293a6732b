//! What was learned and waits for a person, what it would change, and the versions to go back to.

use serde_json::{Value, json};

use super::{Made, View, nothing};
use crate::console::html::Html;
use crate::console::page::{Deed, badge, cell, facts, shown, table};

pub(super) async fn page(view: &View<'_>) -> Made {
    let waiting = view.rows("learn.list", nothing()).await?;
    let versions = view.rows("learn.list", json!({ "versions": true })).await?;
    let mut main = Html::new();
    if waiting.is_empty() {
        main.element("p", &[], view.pick("No proposal waits for a review.", "没有待审核的提案。"));
    }
    for proposal in &waiting {
        card(&mut main, view, proposal);
    }
    main.element("h2", &[], view.pick("Versions", "版本"));
    if versions.is_empty() {
        main.element("p", &[], view.pick("Nothing was learned yet.", "尚未学习任何内容。"));
        return Ok((view.pick("Reviews", "审核").to_owned(), main));
    }
    let heads = [
        view.pick("Version", "版本"),
        view.pick("Entries", "条目"),
        view.pick("Why", "原因"),
        view.pick("By", "操作者"),
        view.pick("Do", "操作"),
    ];
    table(
        &mut main,
        view.pick("Versions", "版本"),
        &heads,
        versions.iter().rev().map(|version| {
            let number = shown(version, "version");
            let is_active = version["active"] == true;
            let mut act = Html::new();
            if is_active {
                act.put(&badge("good", view.pick("active", "生效")));
            } else {
                let label = view.pick("Go back to it", "回退到此版本");
                let fields = &[("version", number.as_str())];
                view.deed(&mut act, &Deed { path: "/learn/rollback", fields, class: "", label, about: &number });
            }
            vec![
                cell(&number),
                cell(&shown(version, "items")),
                cell(&view.reason(version, "why")),
                cell(&shown(version, "by")),
                act,
            ]
        }),
    );
    Ok((view.pick("Reviews", "审核").to_owned(), main))
}

fn card(main: &mut Html, view: &View<'_>, proposal: &Value) {
    let id = shown(proposal, "proposal");
    main.open("section", &[("class", "card"), ("aria-labelledby", &id)]).element("h2", &[("id", &id)], &id);
    let change = match view.asked.lang {
        crate::console::page::Lang::En => {
            format!("\u{201c}{}\u{201d} would be understood as {}", shown(proposal, "text"), shown(proposal, "command"))
        }
        crate::console::page::Lang::Zh => {
            format!("“{}”将被理解为 {}", shown(proposal, "text"), shown(proposal, "command"))
        }
    };
    main.element("p", &[("class", "change")], &change);
    facts(
        main,
        &[
            (view.pick("Kind", "类别"), shown(proposal, "channel")),
            (view.pick("From", "来源"), format!("{} ({})", shown(proposal, "by"), shown(proposal, "source"))),
            (view.pick("Why it waits", "等待原因"), view.reason(proposal, "why")),
        ],
    );
    main.open("pre", &[("tabindex", "0")]).text(&shown(proposal, "body")).close("pre");
    if view.may("/learn/reject") {
        main.open("div", &[("class", "deeds")]);
        let label = view.pick("Approve", "批准");
        let fields = &[("proposal", id.as_str())];
        view.deed(main, &Deed { path: "/learn/approve", fields, class: "primary", label, about: &id });
        view.form(main, "/learn/reject", "settle", fields);
        let note = format!("why-{id}");
        main.element("label", &[("for", &note)], view.pick("Reason", "理由"));
        main.open("input", &[("id", &note), ("name", "note"), ("maxlength", "2000")]);
        main.element("button", &[("class", "danger")], view.pick("Reject", "拒绝")).close("form");
        main.raw("</div>");
    }
    main.close("section");
}
