//! A trace as one page that a person can read: no script, nothing from elsewhere, light or dark as the reader's screen.
//!
//! Everything that comes from a log is escaped: an input is what somebody else wrote.

use std::fmt::Write as _;

use interlock_domain::id::RunId;
use interlock_domain::trace::moves::Move;
use interlock_domain::trace::{Fact, Graph, Story, Tie, What};

use super::{drawing, loops, span};
use crate::cli::args::Lang;
use crate::record::rfc3339;

/// Calls in the timeline; the list below it has all of them.
const BARS_MAX: usize = 200;

/// The words of the page.
pub(super) struct Words {
    pub(super) lang: &'static str,
    pub(super) title: &'static str,
    pub(super) timeline: &'static str,
    pub(super) waits: &'static str,
    pub(super) runs: &'static str,
    pub(super) asked: &'static str,
    pub(super) calls: &'static str,
    pub(super) graph: &'static str,
    pub(super) too_many: &'static str,
    pub(super) events: &'static str,
    pub(super) input: &'static str,
    pub(super) decided: &'static str,
    pub(super) question: &'static str,
    pub(super) class: &'static str,
    pub(super) times: &'static str,
    pub(super) ended: &'static str,
    pub(super) parent: &'static str,
    pub(super) resolved: &'static str,
    pub(super) notes: &'static str,
    pub(super) number: &'static str,
    pub(super) time: &'static str,
    pub(super) call: &'static str,
    pub(super) event: &'static str,
    pub(super) said: &'static str,
    pub(super) children: &'static str,
    pub(super) maintenance: &'static str,
    pub(super) model_loop: &'static str,
    pub(super) thinks: &'static str,
    pub(super) made_by: &'static str,
}

const EN: Words = Words {
    lang: "en",
    title: "Run",
    timeline: "Timeline",
    waits: "waits",
    runs: "runs",
    asked: "a person is asked",
    calls: "Calls",
    graph: "Graph",
    too_many: "The run has too many events to be drawn; the list below has all of them.",
    events: "Events",
    input: "Input",
    decided: "Decided",
    question: "Question",
    class: "Class",
    times: "Times",
    ended: "End",
    parent: "In the name of",
    resolved: "Found out later",
    notes: "What this log does not tell",
    number: "Row",
    time: "Time",
    call: "Call",
    event: "Event",
    said: "What it says",
    children: "Runs below",
    maintenance: "maintenance checks",
    model_loop: "Loop of the model",
    thinks: "the model answers",
    made_by: "made by call",
};

const ZH: Words = Words {
    lang: "zh-CN",
    title: "运行",
    timeline: "时间线",
    waits: "等待",
    runs: "执行",
    asked: "询问人员",
    calls: "调用",
    graph: "事件图",
    too_many: "事件太多，无法绘图；下面的列表是完整的。",
    events: "事件",
    input: "输入",
    decided: "裁决",
    question: "询问",
    class: "类别",
    times: "时间",
    ended: "结果",
    parent: "代表",
    resolved: "事后查明",
    notes: "日志中没有的内容",
    number: "行号",
    time: "时间",
    call: "调用",
    event: "事件",
    said: "内容",
    children: "子运行",
    maintenance: "次维护检查",
    model_loop: "模型循环",
    thinks: "模型作答",
    made_by: "由调用产生",
};

const STYLE: &str = include_str!("trace.css");

pub(super) fn page(graph: &Graph, lang: Lang) -> String {
    let words = match lang {
        Lang::En => &EN,
        Lang::Zh => &ZH,
    };
    let mut page = String::new();
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"{}\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <title>{} {}</title><style>{STYLE}</style></head><body><main>",
        words.lang, words.title, graph.run
    );
    head(&mut page, graph, words);
    timeline(&mut page, graph, words);
    loops::tell(&mut page, graph, words);
    calls(&mut page, graph, words);
    drawing::draw(&mut page, graph, words);
    events(&mut page, graph, words);
    page.push_str("</main></body></html>");
    page
}

/// Text between tags or inside of quotes.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(letter),
        }
    }
    out
}

/// The word of an end in the reader's language.
pub(super) fn ending<'a>(word: &'a str, words: &Words) -> &'a str {
    if words.lang == "en" {
        return match word {
            "not_started" => "not started",
            other => other,
        };
    }
    match word {
        "done" => "完成",
        "failed" => "失败",
        "unknown" => "未知",
        "not_started" => "未执行",
        "open" => "未结束",
        other => other,
    }
}

/// The class of a colour: only words that are known become one.
pub(super) fn colour(word: &str) -> &'static str {
    match word {
        "done" => "done",
        "failed" => "failed",
        "unknown" => "unknown",
        "not_started" => "refused",
        _ => "open",
    }
}

/// A call by its short name: batch and position, with the run only where it is another one.
pub(super) fn short(graph: &Graph, story: &Story) -> String {
    let place = format!("{}.{}", story.call.batch.0, story.call.position);
    if story.call.run == graph.run { place } else { format!("↳ {place}") }
}

fn head(page: &mut String, graph: &Graph, words: &Words) {
    let _ = write!(page, "<header><h1>{} <code>{}</code></h1>", words.title, graph.run);
    if let Some(Fact { what, wall, .. }) = graph.events.first() {
        let _ = write!(page, "<p class=\"dim\">{} · {}", escaped(&rfc3339(*wall)), escaped(&what.line()));
        let _ = write!(page, " · {}</p>", span(graph.offsets.last().copied().unwrap_or(0)));
    }
    page.push_str("<p class=\"chips\">");
    for (word, count) in graph.endings() {
        let _ = write!(page, "<span class=\"chip {}\">{count} {}</span>", colour(word), escaped(ending(word, words)));
    }
    let checks = graph.count("maintenance");
    if checks > 0 {
        let _ = write!(page, "<span class=\"chip\">{checks} {}</span>", words.maintenance);
    }
    page.push_str("</p>");
    if !graph.children.is_empty() {
        let run = |child: &RunId| {
            let by =
                graph.makers.get(child).map(|call| format!(" ({} {}.{})", words.made_by, call.batch.0, call.position));
            format!("<code>{child}</code>{}", by.unwrap_or_default())
        };
        let runs: Vec<String> = graph.children.iter().map(|(child, _)| run(child)).collect();
        let _ = write!(page, "<p>{}: {}</p>", words.children, runs.join(", "));
    }
    if !graph.missing.is_empty() {
        let _ = write!(page, "<section class=\"note\"><h2>{}</h2><ul>", words.notes);
        for missing in &graph.missing {
            let _ = write!(page, "<li>{}</li>", escaped(missing));
        }
        page.push_str("</ul></section>");
    }
    page.push_str("</header>");
}

/// A bar for each call: when it waited, when it ran.
fn timeline(page: &mut String, graph: &Graph, words: &Words) {
    const LEFT: f64 = 190.0;
    const WIDTH: f64 = 760.0;
    const ROW: f64 = 24.0;
    let total = graph.offsets.last().copied().unwrap_or(0).max(1);
    #[expect(clippy::cast_precision_loss, reason = "a place on the screen")]
    let place = |ns: u64| LEFT + ns as f64 / total as f64 * (WIDTH - 10.0);
    let shown = graph.moves.len().min(BARS_MAX) + graph.calls.len().min(BARS_MAX);
    #[expect(clippy::cast_precision_loss, reason = "a place on the screen")]
    let height = 26.0 + shown as f64 * ROW;
    let _ = write!(
        page,
        "<section><h2>{}</h2><p class=\"legend\"><span class=\"key wait\"></span>{} <span class=\"key done\"></span>{} \
         <span class=\"diamond\">◆</span>{}<span class=\"key model\"></span>{}</p><div class=\"scroll\"><svg viewBox=\"0 0 {} {height}\" role=\"img\" \
         aria-label=\"{}\">",
        words.timeline,
        words.waits,
        words.runs,
        words.asked,
        words.thinks,
        LEFT + WIDTH,
        words.timeline
    );
    for fifth in 0..=5_u64 {
        let at = total / 5 * fifth;
        let x = place(at);
        let anchor = if fifth == 5 { "end" } else { "start" };
        let _ = write!(
            page,
            "<line x1=\"{x:.1}\" y1=\"16\" x2=\"{x:.1}\" y2=\"{height}\" class=\"grid\"/>\
             <text x=\"{x:.1}\" y=\"11\" text-anchor=\"{anchor}\" class=\"axis\">{}</text>",
            span(at)
        );
    }
    #[expect(clippy::cast_precision_loss, reason = "a place on the screen")]
    let line = |row: usize| 22.0 + row as f64 * ROW;
    for (row, (run, moves)) in graph.moves.iter().take(BARS_MAX).enumerate() {
        let y = line(row);
        let name = if *run == graph.run { words.title.to_owned() } else { format!("↳ {}", words.title) };
        let _ = write!(page, "<text x=\"4\" y=\"{:.1}\" class=\"name\">{name}</text>", y + 13.0);
        for at in moves {
            let What::Agent(Move::Turn { took_ns: Some(took), .. }) = &graph.events[*at].what else { continue };
            let (from, to) = (graph.offsets[*at].saturating_sub(*took), graph.offsets[*at]);
            let (x, width) = (place(from), (place(to) - place(from)).max(2.0));
            let _ = write!(
                page,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"16\" rx=\"3\" class=\"model\"><title>{}\
                 </title></rect>",
                escaped(&format!("{} {}", words.thinks, span(*took)))
            );
        }
    }
    let above = graph.moves.len().min(BARS_MAX);
    for (row, story) in graph.calls.iter().take(BARS_MAX).enumerate() {
        let y = line(above + row);
        let name: String = format!("{} {}", short(graph, story), story.tool).chars().take(26).collect();
        let word = story.ending.as_ref().map_or("open", |(word, ..)| word.as_str());
        let end = story.ended_ns.unwrap_or(total);
        let from = story.started_ns.unwrap_or(end);
        let _ = write!(page, "<text x=\"4\" y=\"{:.1}\" class=\"name\">{}</text>", y + 13.0, escaped(&name));
        let mut bar = |from: u64, to: u64, class: &str, title: &str| {
            let (x, width) = (place(from), (place(to) - place(from)).max(2.0));
            let _ = write!(
                page,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"16\" rx=\"3\" class=\"{class}\">\
                 <title>{}</title></rect>",
                escaped(title)
            );
        };
        if from > story.wished_ns {
            bar(story.wished_ns, from, "wait", &format!("{} {}", words.waits, span(from - story.wished_ns)));
        }
        if story.started_ns.is_some() {
            let title = format!("{} {} → {}", words.runs, span(end.saturating_sub(from)), ending(word, words));
            bar(from, end, colour(word), &title);
        } else {
            bar(end, end, colour(word), ending(word, words));
        }
        for at in story.events.iter().copied() {
            if matches!(graph.events[at].what, What::Asked { .. }) {
                let x = place(graph.offsets[at]);
                let _ = write!(
                    page,
                    "<text x=\"{x:.1}\" y=\"{:.1}\" class=\"diamond\" text-anchor=\"middle\">◆<title>{}</title></text>",
                    y + 13.0,
                    escaped(&graph.events[at].what.line())
                );
            }
        }
    }
    page.push_str("</svg></div></section>");
}

fn calls(page: &mut String, graph: &Graph, words: &Words) {
    let _ = write!(page, "<section><h2>{}</h2>", words.calls);
    for story in &graph.calls {
        let word = story.ending.as_ref().map_or("open", |(word, ..)| word.as_str());
        let took = match (story.started_ns, story.ended_ns) {
            (Some(started), Some(ended)) => span(ended.saturating_sub(started)),
            _ => String::new(),
        };
        let open = if matches!(word, "done") { "" } else { " open" };
        let _ = write!(
            page,
            "<details{open}><summary><span class=\"dim took\">{took}</span><span class=\"chip {}\">{}</span> \
             <code>{}</code> <b>{}</b> <code class=\"dim brief\">{}</code></summary><dl>",
            colour(word),
            escaped(ending(word, words)),
            escaped(&short(graph, story)),
            escaped(&story.tool),
            escaped(&story.input)
        );
        let mut row = |name: &str, value: &str, class: &str| {
            if !value.is_empty() {
                let _ = write!(page, "<dt>{name}</dt><dd class=\"{class}\">{}</dd>", escaped(value));
            }
        };
        row(words.input, &story.input, "mono");
        row(words.parent, &story.parent.map_or_else(String::new, |parent| parent.to_string()), "mono");
        if let Some((step, rule)) = &story.permitted {
            let rule = rule.as_ref().map_or_else(String::new, |rule| format!(" · {rule}"));
            row(words.decided, &format!("{step}{rule}"), "");
        }
        if let Some((question, answer)) = &story.question {
            row(words.question, &format!("{question}: {}", answer.as_deref().unwrap_or("…")), "");
        }
        row(words.class, story.class.as_deref().unwrap_or_default(), "");
        let at = |name: &str, ns: Option<u64>| ns.map_or_else(String::new, |ns| format!("{name} +{}  ", span(ns)));
        let times = format!("+{}  {}", span(story.wished_ns), at("→", story.started_ns) + &at("→", story.ended_ns));
        row(words.times, times.trim_end(), "");
        if let Some((_, code, told)) = &story.ending {
            let code = code.as_ref().map_or_else(String::new, |code| format!("{code}: "));
            row(words.ended, &format!("{code}{told}"), "mono");
        }
        row(words.resolved, story.resolved.as_deref().unwrap_or_default(), "");
        page.push_str("</dl></details>");
    }
    page.push_str("</section>");
}

pub(super) fn tie_name(tie: Tie, words: &Words) -> &'static str {
    match (tie, words.lang) {
        (tie, "en") => tie.word(),
        (Tie::Order, _) => "顺序",
        (Tie::Decision, _) => "裁决",
        (Tie::Pairing, _) => "配对",
        (Tie::Lifecycle, _) => "生命周期",
    }
}

fn events(page: &mut String, graph: &Graph, words: &Words) {
    let _ = write!(
        page,
        "<section><h2>{}</h2><div class=\"scroll\"><table><thead><tr><th>{}</th><th>{}</th><th>{}</th><th>{}</th>\
         <th>{}</th></tr></thead><tbody>",
        words.events, words.number, words.time, words.call, words.event, words.said
    );
    for (fact, offset) in graph.events.iter().zip(&graph.offsets) {
        let story = graph.calls.iter().find(|story| Some(story.call) == fact.call);
        let below = if fact.run == graph.run { "" } else { "↳" };
        let _ = write!(
            page,
            "<tr><td class=\"number\">{}</td><td class=\"number\">+{}</td><td><code>{}</code></td><td>{}</td>\
             <td class=\"mono\">{}</td></tr>",
            fact.seq.0,
            span(*offset),
            story.map_or_else(|| below.to_owned(), |story| escaped(&short(graph, story))),
            escaped(fact.what.word()),
            escaped(&fact.what.line())
        );
    }
    page.push_str("</tbody></table></div></section>");
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn the_page_stands_alone_and_nothing_from_the_log_is_markup() {
        for (lang, title) in [(Lang::En, "Timeline"), (Lang::Zh, "时间线")] {
            let page = page(&sample::graph(), lang);
            assert!(page.contains(title) && page.contains("rm -rf build &lt;b&gt;&amp;\\&quot;"), "{page}");
            for foreign in ["<script", "http://", "https://", "<b>&", "<link", "<img"] {
                assert!(!page.contains(foreign), "{foreign}");
            }
            for tag in ["section", "details", "svg", "table", "div", "main", "header"] {
                let opens = page.matches(&format!("<{tag}")).count();
                assert_eq!(opens, page.matches(&format!("</{tag}>")).count(), "{tag}");
            }
        }
    }
}
