//! `interlock agent`: a request to the configured language model, streamed. Ctrl-C ends the run.

use serde_json::{Value, json};

use super::args::AgentArgs;
use super::client::Client;
use super::error::{CliError, Exit};
use super::out::{Out, shown};

pub(super) fn agent(args: &AgentArgs, client: Client, out: &Out) -> Result<(), CliError> {
    let mut request = json!({ "text": args.text.join(" ") });
    if let Some(mode) = &args.mode {
        request["mode"] = mode.as_str().into();
    }
    if let Some(run) = &args.resume {
        request["resume"] = run.as_str().into();
    }
    let mut screen = Screen { out, in_text: false };
    let mut outcome = None;
    client.each("agent", request, |told| {
        if told.get("event").and_then(Value::as_str) == Some("end") {
            outcome = told.get("outcome").and_then(Value::as_str).map(str::to_owned);
        }
        if args.json { out.json(&told) } else { screen.show(&told) }
    })?;
    match outcome.as_deref() {
        Some("done") => Ok(()),
        Some("denied_repeatedly") => Err(CliError::silent(Exit::Permission)),
        Some(_) => Err(CliError::silent(Exit::NotSo)),
        None => Err(CliError::new(Exit::Bug, "the run did not say how it ended")),
    }
}

/// What a person sees: the model's words as they come, and a line for everything else.
struct Screen<'a> {
    out: &'a Out,
    in_text: bool,
}

impl Screen<'_> {
    fn show(&mut self, told: &Value) -> Result<(), CliError> {
        let out = self.out;
        let text = |key: &str| shown(told, key);
        match told.get("event").and_then(Value::as_str).unwrap_or_default() {
            "text" => {
                self.in_text = true;
                return out.piece(&printable(told.get("text").and_then(Value::as_str).unwrap_or_default()));
            }
            // A thought is for the model.
            "thinking" => return Ok(()),
            _ => {}
        }
        if std::mem::take(&mut self.in_text) {
            out.line("")?;
        }
        match told.get("event").and_then(Value::as_str).unwrap_or_default() {
            "begin" => Ok(()),
            "call" => out.headed(&text("tool"), &text("shown")),
            "question" => {
                let question = text("question");
                out.line(&format!(
                    "  {} {}",
                    out.pick("waits for an answer:", "等待答复："),
                    printable(&text("about"))
                ))?;
                out.line(&format!("  interlock ask allow {question} | interlock ask deny {question}"))
            }
            "result" => {
                let code =
                    told.get("code").and_then(Value::as_str).map(|code| format!(" ({code})")).unwrap_or_default();
                let evidence = match told.get("evidence").and_then(Value::as_u64) {
                    Some(seq) => format!("  {} {seq}", out.pick("evidence", "证据")),
                    None => String::new(),
                };
                out.line(&format!("  {}{code}{evidence}", text("result")))
            }
            "again" => out.line(&format!(
                "  {} {}",
                out.pick("asked again, what was said since the last line is void:", "重新请求，上一行之后的文字作废："),
                printable(&text("reason"))
            )),
            "compacted" => out.line(&format!(
                "  {} {} -> {}",
                out.pick("the history was made smaller:", "已压缩对话历史："),
                text("before"),
                text("after")
            )),
            "end" => {
                let message = text("message");
                if !message.is_empty() {
                    let message = printable(&message);
                    out.headed(&text("outcome"), &message)?;
                }
                out.line(&format!("  {} {}", out.pick("run", "运行"), text("run")))
            }
            // A newer daemon says more.
            _ => Ok(()),
        }
    }
}

/// What a model says may hold what would move the cursor or hide itself: only line ends and tabs go to the screen as
/// they are.
fn printable(text: &str) -> String {
    let plain = |c: char| matches!(c, '\n' | '\t' | '\u{fe0f}') || !interlock_domain::request::shown::hides(c);
    text.chars().map(|c| if plain(c) { c } else { '\u{fffd}' }).collect()
}
