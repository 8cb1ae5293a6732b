//! Standard output and standard error: one place that prints, so that the rest cannot print by accident.

use std::io::{IsTerminal, Write};

use serde_json::Value;

use super::args::Lang;
use super::error::CliError;

/// What a foreign program says of itself, on one line: nothing in it moves the cursor or looks like a line of ours.
#[must_use]
pub(super) fn on_one_line(text: &str) -> String {
    text.chars().map(|c| if interlock_domain::request::shown::hides(c) { '\u{fffd}' } else { c }).collect()
}

/// Where a verb prints.
pub(super) struct Out {
    lang: Lang,
    colour: bool,
}

impl Out {
    /// Messages in `lang`; colour only on a terminal, and not where `NO_COLOR` is set.
    #[must_use]
    pub(super) fn new(lang: Lang) -> Out {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Out { lang, colour: std::io::stdout().is_terminal() && !no_color }
    }

    /// The language of messages.
    #[must_use]
    pub(super) fn lang(&self) -> Lang {
        self.lang
    }

    /// The word for the daemon.
    #[must_use]
    pub(super) fn lang_word(&self) -> &'static str {
        match self.lang {
            Lang::Zh => "zh-CN",
            Lang::En => "en",
        }
    }

    /// One of two texts.
    #[must_use]
    pub(super) fn pick<'a>(&self, en: &'a str, zh: &'a str) -> &'a str {
        match self.lang {
            Lang::En => en,
            Lang::Zh => zh,
        }
    }

    /// A line.
    ///
    /// # Errors
    /// When standard output cannot be written. A reader that went away (`| head`) is no error.
    pub(super) fn line(&self, text: &str) -> Result<(), CliError> {
        let mut stdout = std::io::stdout().lock();
        Ok(writeln!(stdout, "{text}").and_then(|()| stdout.flush())?)
    }

    /// A part of a line.
    ///
    /// # Errors
    /// As [`Out::line`].
    pub(super) fn piece(&self, text: &str) -> Result<(), CliError> {
        let mut stdout = std::io::stdout().lock();
        Ok(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())?)
    }

    /// A line with its first word in bold on a terminal.
    ///
    /// # Errors
    /// As [`Out::line`].
    pub(super) fn headed(&self, head: &str, rest: &str) -> Result<(), CliError> {
        if self.colour {
            self.line(&format!("\x1b[1m{head}\x1b[0m {rest}"))
        } else {
            self.line(&format!("{head} {rest}"))
        }
    }

    /// A value as one compact line.
    ///
    /// # Errors
    /// As [`Out::line`].
    pub(super) fn json(&self, value: &Value) -> Result<(), CliError> {
        self.line(&value.to_string())
    }

    /// A remark on standard error: standard output is for the answer.
    pub(super) fn note(&self, text: &str) {
        let _ = writeln!(std::io::stderr().lock(), "note: {text}");
    }

    /// `error: …` and `hint: …` on standard error.
    pub(super) fn error(&self, error: &CliError) {
        if error.message.is_empty() {
            return;
        }
        let mut stderr = std::io::stderr().lock();
        let _ = writeln!(stderr, "error: {}", error.message);
        if let Some(hint) = &error.hint {
            let _ = writeln!(stderr, "hint: {hint}");
        }
    }
}

/// A member of an object as text for a person: texts bare, everything else as JSON, nothing as a dash.
#[must_use]
pub(super) fn shown(value: &Value, key: &str) -> String {
    match value.get(key) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}
