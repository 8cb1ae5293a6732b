//! `interlock console`: where the console is, and who may open it.

use serde_json::{Value, json};

use super::args::{ConsoleVerb, TokenVerb};
use super::client::Client;
use super::error::{CliError, Exit};
use super::out::{Out, shown};

pub(super) fn console(verb: &ConsoleVerb, client: Client, out: &Out) -> Result<(), CliError> {
    match verb {
        ConsoleVerb::Token(TokenVerb::Add { name, role, json: as_json }) => {
            let answer = client.ask("console.token.add", json!({ "name": name, "role": role.word() }))?;
            if *as_json {
                return out.json(&answer);
            }
            out.line(&shown(&answer, "token"))?;
            out.note(out.pick(
                "the token is told only this once; its holder opens the console with it",
                "令牌只显示这一次；持有者用它登录控制台",
            ));
            Ok(())
        }
        ConsoleVerb::Token(TokenVerb::List(args)) => client.each("console.token.list", json!({}), |row| {
            if args.json {
                return out.json(&row);
            }
            let rest = format!("{} {} ({})", shown(&row, "role"), shown(&row, "since"), shown(&row, "by"));
            out.headed(&shown(&row, "name"), &rest)
        }),
        ConsoleVerb::Token(TokenVerb::Revoke { name, json: as_json }) => {
            let answer = client.ask("console.token.revoke", json!({ "name": name, "lang": out.lang_word() }))?;
            if *as_json { out.json(&answer) } else { out.line(&shown(&answer, "message")) }
        }
        ConsoleVerb::Url(args) => {
            let status = client.ask("status", json!({}))?;
            match status.get("console") {
                Some(Value::String(_)) if args.json => out.json(&json!({ "console": status["console"] })),
                Some(Value::String(url)) => out.line(url),
                _ => Err(CliError::new(Exit::NotSo, "the console is switched off")
                    .hint("[console] enabled = true, and restart the daemon")),
            }
        }
    }
}
