//! The verb `agent`: a run of the language model, told line by line. A client that goes away takes its run with it.

use std::io;

use interlock_domain::gate::policy::Mode;
use interlock_domain::id::RunId;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::OwnedReadHalf;

use super::verbs::{Context, Lines};
use super::wire::{Kind, Request, Says, Trouble};
use crate::engine::agent::{Asked, NotAsked};
use crate::engine::handle::NotTaken;

/// Carries it out. An error means that the client is gone.
pub(super) async fn carry_out(
    context: &Context,
    user: &str,
    request: &Request,
    reader: &mut BufReader<OwnedReadHalf>,
    lines: &mut Lines<'_>,
) -> io::Result<()> {
    let asked = match asked(&request.args, user) {
        Ok(asked) => asked,
        Err(trouble) => return lines.say(Says::Error(trouble)).await,
    };
    let mut running = match context.models.start(asked).await {
        Ok(running) => running,
        Err(error) => return lines.say(Says::Error(refused(&error))).await,
    };
    // What a client sends ahead stays in the reader for its turn; its going away is looked for until then.
    let mut may_leave = true;
    loop {
        let told = tokio::select! {
            told = running.next() => told,
            ahead = reader.fill_buf(), if may_leave => {
                if ahead?.is_empty() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                may_leave = false;
                continue;
            }
        };
        match told {
            Some(told) => lines.say(Says::Item(told.to_json())).await?,
            None => return lines.say(Says::End(true)).await,
        }
    }
}

fn asked(args: &Value, user: &str) -> Result<Asked, Trouble> {
    let text = |key: &str| args.get(key).and_then(Value::as_str);
    let usage = |message: String| Trouble::new(Kind::Usage, message);
    let mode = match text("mode") {
        None => None,
        Some(word) => {
            let known = Mode::from_word(word).ok_or_else(|| usage(format!("there is no mode {word:?}")));
            Some(known.map_err(|trouble| {
                let words: Vec<_> = Mode::ALL.iter().map(|mode| mode.word()).collect();
                trouble.hint(format!("one of {}", words.join(", ")))
            })?)
        }
    };
    let resume = match text("resume") {
        None => None,
        Some(run) => Some(run.parse::<RunId>().map_err(|error| usage(error.to_string()))?),
    };
    let request = text("text").ok_or_else(|| usage("the argument \"text\" is missing or is not a text".to_owned()))?;
    Ok(Asked { text: request.to_owned(), asker: user.to_owned(), mode, resume })
}

fn refused(error: &NotAsked) -> Trouble {
    let kind = match error {
        NotAsked::NoModel => Kind::NotSo,
        NotAsked::Length(_) => Kind::Usage,
        NotAsked::Busy | NotAsked::TooManyChildren => Kind::Busy,
        NotAsked::NotTaken(NotTaken::Busy | NotTaken::Stopping) => Kind::Busy,
        NotAsked::NotTaken(NotTaken::Input(_) | NotTaken::Batch(_) | NotTaken::NoParent(_)) => Kind::Usage,
        NotAsked::NotKept(_) => Kind::NotSo,
    };
    let trouble = Trouble::new(kind, error.to_string());
    match error {
        NotAsked::NoModel => {
            trouble.hint("name one under [agent] in the configuration (systemd/interlock.toml shows how)")
        }
        NotAsked::Length(_)
        | NotAsked::Busy
        | NotAsked::TooManyChildren
        | NotAsked::NotTaken(_)
        | NotAsked::NotKept(_) => trouble,
    }
}
