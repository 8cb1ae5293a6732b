//! A trace as one page that a person can read: no script, nothing from elsewhere, light or dark as the reader's screen.
//!
//! Everything that comes from a log is escaped: an input is what somebody else wrote.

use std::fmt::Write as _;

use interlock_domain::trace::{Fact, Graph, Story, Tie, What};

use super::span;
use crate::cli::args::Lang;
use crate::record::rfc3339;

/// The most events that the drawing of the graph has: with more, nobody can follow a line.
const DRAWN_MAX: usize = 160;

/// Calls in the timeline; the list below it has all of them.
const BARS_MAX: usize = 200;

/// The words of the page.
struct Words {
    lang: &'static str,
    title: &'static str,
    timeline: &'static str,
    waits: &'static str,
    runs: &'static str,
    asked: &'static str,
    calls: &'static str,
    graph: &'static str,
    too_many: &'static str,
    events: &'static str,
    input: &'static str,
    decided: &'static str,
    question: &'static str,
    class: &'static str,
    times: &'static str,
    ended: &'static str,
    parent: &'static str,
    resolved: &'static str,
    notes: &'static str,
    number: &'static str,
    time: &'static str,
    call: &'static str,
    event: &'static str,
    said: &'static str,
    children: &'static str,
    maintenance: &'static str,
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
    calls(&mut page, graph, words);
    drawing(&mut page, graph, words);
    events(&mut page, graph, words);
    page.push_str("</main></body></html>");
    page
}

/// Text between tags or inside of quotes.
fn escaped(text: &str) -> String {
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
fn ending<'a>(word: &'a str, words: &Words) -> &'a str {
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
fn colour(word: &str) -> &'static str {
    match word {
        "done" => "done",
        "failed" => "failed",
        "unknown" => "unknown",
        "not_started" => "refused",
        _ => "open",
    }
}

/// A call by its short name: batch and position, with the run only where it is another one.
fn short(graph: &Graph, story: &Story) -> String {
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
        let runs: Vec<String> = graph.children.iter().map(|(child, _)| format!("<code>{child}</code>")).collect();
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
    let shown = graph.calls.len().min(BARS_MAX);
    #[expect(clippy::cast_precision_loss, reason = "a place on the screen")]
    let height = 26.0 + shown as f64 * ROW;
    let _ = write!(
        page,
        "<section><h2>{}</h2><p class=\"legend\"><span class=\"key wait\"></span>{} <span class=\"key done\"></span>{} \
         <span class=\"diamond\">◆</span>{}</p><div class=\"scroll\"><svg viewBox=\"0 0 {} {height}\" role=\"img\" \
         aria-label=\"{}\">",
        words.timeline,
        words.waits,
        words.runs,
        words.asked,
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
    for (row, story) in graph.calls.iter().take(BARS_MAX).enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "a place on the screen")]
        let y = 22.0 + row as f64 * ROW;
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

/// The graph: a lane for the run and one for each call, time to the right, one column for each event.
fn drawing(page: &mut String, graph: &Graph, words: &Words) {
    const STEP: usize = 30;
    const LANE: usize = 34;
    const LEFT: usize = 150;
    let _ = write!(page, "<section><h2>{}</h2>", words.graph);
    if graph.events.len() > DRAWN_MAX {
        let _ = write!(page, "<p>{}</p></section>", words.too_many);
        return;
    }
    page.push_str("<p class=\"legend\">");
    for tie in Tie::ALL {
        let _ = write!(page, "<span class=\"key line-{0}\"></span>{1} ", tie.word(), tie_name(tie, words));
    }
    let lanes = graph.calls.len() + 1;
    let (width, height) = (LEFT + graph.events.len() * STEP + 90, lanes * LANE + 84);
    let _ = write!(
        page,
        "</p><div class=\"scroll\"><svg viewBox=\"0 0 {width} {height}\" style=\"min-width:{width}px\" role=\"img\" \
         aria-label=\"{}\">",
        words.graph
    );
    let lane = |fact: &Fact| graph.calls.iter().position(|story| Some(story.call) == fact.call).map_or(0, |at| at + 1);
    let spot = |at: usize| (LEFT + at * STEP, 20 + lane(&graph.events[at]) * LANE);
    let names = std::iter::once(words.title.to_owned())
        .chain(graph.calls.iter().map(|story| format!("{} {}", short(graph, story), story.tool)));
    for (at, name) in names.enumerate() {
        let y = 20 + at * LANE;
        let name: String = name.chars().take(20).collect();
        let _ = write!(
            page,
            "<line x1=\"{}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" class=\"grid\"/><text x=\"4\" y=\"{}\" class=\"name\">{}\
             </text>",
            LEFT - 14,
            width - 80,
            y + 4,
            escaped(&name)
        );
    }
    for edge in &graph.edges {
        let ((x1, y1), (x2, y2)) = (spot(edge.from), spot(edge.to));
        let bend = match edge.tie {
            Tie::Order => 0,
            Tie::Decision => 10,
            Tie::Pairing => 16,
            Tie::Lifecycle => 0,
        };
        let (mx, my) = (usize::midpoint(x1, x2), usize::midpoint(y1, y2).saturating_sub(bend));
        let _ = write!(
            page,
            "<path d=\"M{x1} {y1} Q{mx} {my} {x2} {y2}\" class=\"edge line-{0}\"><title>{0}</title></path>",
            edge.tie.word()
        );
    }
    let foot = 20 + lanes * LANE - 12;
    for (at, fact) in graph.events.iter().enumerate() {
        let (x, y) = spot(at);
        let class = match &fact.what {
            What::Settled { ending, .. } => colour(ending),
            What::Asked { .. } | What::Answered { .. } => "asked",
            What::RunOpened { .. }
            | What::PolicyChanged { .. }
            | What::Requested { .. }
            | What::Permitted { .. }
            | What::Queued { .. }
            | What::Intent
            | What::Started
            | What::StopAsked
            | What::Outcome { .. }
            | What::LateReport
            | What::Resolved { .. }
            | What::Other { .. } => "plain",
        };
        let _ = write!(
            page,
            "<circle cx=\"{x}\" cy=\"{y}\" r=\"6\" class=\"{class}\"><title>{}</title></circle>\
             <text transform=\"translate({} {foot}) rotate(40)\" class=\"tick\">{}</text>",
            escaped(&format!("{} {} {}", fact.seq.0, fact.what.word(), fact.what.line())),
            x.saturating_sub(4),
            escaped(fact.what.word())
        );
    }
    page.push_str("</svg></div></section>");
}

fn tie_name(tie: Tie, words: &Words) -> &'static str {
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
        let _ = write!(
            page,
            "<tr><td class=\"number\">{}</td><td class=\"number\">+{}</td><td><code>{}</code></td><td>{}</td>\
             <td class=\"mono\">{}</td></tr>",
            fact.seq.0,
            span(*offset),
            story.map_or_else(String::new, |story| escaped(&short(graph, story))),
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
