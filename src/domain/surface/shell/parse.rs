//! The parser: one walk over the characters, by the rules of POSIX shells and bash.
//!
//! It knows words, quotes, operators, redirections and here-documents. Compound commands, functions and arrays it only
//! knows well enough to find the simple commands inside; they make the script opaque.

use crate::request::shown::hides;

use super::{Assignment, COMMANDS_MAX, Command, NEST_MAX, Redirect, SCRIPT_CHARS_MAX, Understood, Word};

/// What the walk found.
pub(super) struct Parsed {
    pub(super) commands: Vec<Command>,
    pub(super) understood: Understood,
    /// The texts of here-documents and here-strings.
    pub(super) fed: Vec<String>,
}

pub(super) fn parse(source: &str) -> Parsed {
    let mut found = Found::default();
    if source.chars().nth(SCRIPT_CHARS_MAX).is_some() {
        found.opaque("it is too long");
    }
    if source.chars().any(|letter| hides(letter) && !matches!(letter, '\n' | '\t')) {
        found.opaque("it has control or invisible characters");
    }
    Parser { text: source.chars().collect(), at: 0, depth: 0, documents: Vec::new(), feeds: false, found: &mut found }
        .list(false);
    let understood = match (found.broken, found.opaque) {
        (Some(why), _) => Understood::Unparseable(why),
        (None, Some(why)) => Understood::Opaque(why),
        (None, None) => Understood::Whole,
    };
    Parsed { commands: found.commands, understood, fed: found.fed }
}

#[derive(Default)]
struct Found {
    commands: Vec<Command>,
    fed: Vec<String>,
    opaque: Option<&'static str>,
    broken: Option<&'static str>,
}

impl Found {
    fn opaque(&mut self, why: &'static str) {
        self.opaque.get_or_insert(why);
    }

    fn broken(&mut self, why: &'static str) {
        self.broken.get_or_insert(why);
    }
}

/// A here-document whose body begins after the next newline.
struct Document {
    delimiter: String,
    strips_tabs: bool,
    quoted: bool,
}

struct Parser<'a> {
    text: Vec<char>,
    at: usize,
    depth: usize,
    documents: Vec<Document>,
    /// The first command of the list that comes next is fed.
    feeds: bool,
    found: &'a mut Found,
}

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn peek_at(&self, ahead: usize) -> Option<char> {
        self.text.get(self.at + ahead).copied()
    }

    fn looking_at(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(ahead, letter)| self.peek_at(ahead) == Some(letter))
    }

    /// Goes one level down, if it may.
    fn enter(&mut self) -> bool {
        if self.depth == NEST_MAX {
            self.found.broken("it nests too deep");
            self.at = self.text.len();
            return false;
        }
        self.depth += 1;
        true
    }

    /// Commands up to the end of the text, or to the bracket that closes.
    fn list(&mut self, in_brackets: bool) {
        if !self.enter() {
            return;
        }
        // What a group is fed, each of its commands may read.
        let fed = std::mem::take(&mut self.feeds);
        let mut command = Command { fed, ..Command::default() };
        let mut closed = false;
        while let Some(letter) = self.peek() {
            match letter {
                ' ' | '\t' => self.at += 1,
                '\\' if self.peek_at(1) == Some('\n') => self.at += 2,
                '\n' => {
                    self.at += 1;
                    self.finish(&mut command, fed);
                    self.document_bodies();
                }
                '#' => {
                    while self.peek().is_some_and(|letter| letter != '\n') {
                        self.at += 1;
                    }
                }
                '&' if self.peek_at(1) == Some('>') => {
                    self.at += 1;
                    self.redirect(&mut command);
                }
                ';' | '&' => {
                    while matches!(self.peek(), Some(';' | '&')) && !self.looking_at("&>") {
                        self.at += 1;
                    }
                    self.finish(&mut command, fed);
                }
                '|' => {
                    let pipes = self.peek_at(1) != Some('|');
                    self.at += if pipes && self.peek_at(1) != Some('&') { 1 } else { 2 };
                    self.finish(&mut command, pipes || fed);
                }
                '(' => {
                    self.found.opaque("it has a subshell, a function or an array");
                    self.at += 1;
                    self.feeds = command.fed && command.words.is_empty();
                    self.finish(&mut command, fed);
                    self.list(true);
                }
                ')' => {
                    self.at += 1;
                    if in_brackets {
                        closed = true;
                        break;
                    }
                    self.found.opaque("a bracket closes that was not opened");
                    self.finish(&mut command, fed);
                }
                '<' | '>' => self.redirect(&mut command),
                _ => self.take_word(&mut command),
            }
        }
        self.finish(&mut command, fed);
        if in_brackets && !closed {
            self.found.broken("a bracket is not closed");
        }
        self.depth -= 1;
    }

    /// Puts a command away; `pipes` when the next one reads what it writes.
    fn finish(&mut self, command: &mut Command, pipes: bool) {
        let done = std::mem::take(command);
        command.fed = pipes;
        if done.words.is_empty() && done.assignments.is_empty() && done.redirects.is_empty() {
            return;
        }
        if done.words.first().is_some_and(|word| !word.is_fixed() || word.tilde) {
            self.found.opaque("what it runs is only known when it runs");
        }
        if self.found.commands.len() == COMMANDS_MAX {
            self.found.broken("it has too many commands");
            self.at = self.text.len();
            return;
        }
        self.found.commands.push(done);
    }

    fn take_word(&mut self, command: &mut Command) {
        let start = self.at;
        let word = self.word();
        if self.at == start {
            // No metacharacter, and yet nothing was taken: it cannot be, and must not loop.
            self.at += 1;
            return;
        }
        let bare = !word.quoted && word.is_fixed();
        if bare && word.text.bytes().all(|byte| byte.is_ascii_digit()) && matches!(self.peek(), Some('<' | '>')) {
            return self.redirect(command);
        }
        if bare && matches!(word.text.as_str(), "{" | "}") {
            self.found.opaque("it has a compound command");
            return self.finish(command, command.fed);
        }
        if command.words.is_empty() {
            if bare && command.assignments.is_empty() {
                match word.text.as_str() {
                    "!" => return,
                    "if" | "then" | "elif" | "else" | "fi" | "while" | "until" | "do" | "done" | "esac" | "coproc" => {
                        return self.found.opaque("it has a compound command");
                    }
                    "for" | "case" | "select" | "function" | "[[" => self.found.opaque("it has a compound command"),
                    _ => {}
                }
            }
            if let Some((name, value)) = assignment(&word) {
                command.assignments.push(Assignment { name, value });
                return;
            }
        }
        command.words.push(word);
    }

    /// `<`, `>` and all that begins with them.
    fn redirect(&mut self, command: &mut Command) {
        if self.looking_at("<(") || self.looking_at(">(") {
            self.found.opaque("it has a process substitution");
            let written_to = self.peek() == Some('>');
            self.at += 2;
            // What is written into it comes to the command inside.
            self.feeds = written_to;
            command.words.push(Word { text: "<(…)".to_owned(), expands: true, ..Word::default() });
            return self.list(true);
        }
        if self.looking_at("<<") && !self.looking_at("<<<") {
            return self.document(command);
        }
        let reads = self.peek() == Some('<');
        let operators = ["<<<", "<&", "<>", ">>", ">&", ">|", "<", ">"];
        let Some(operator) = operators.into_iter().find(|operator| self.looking_at(operator)) else {
            self.at += 1;
            return;
        };
        self.at += operator.len();
        self.blanks();
        let target = self.word();
        if target.text.is_empty() && !target.quoted {
            return self.found.broken("a redirection has no target");
        }
        command.fed |= reads;
        let number = target.text.strip_suffix('-').unwrap_or(&target.text);
        let copies = operator.ends_with('&') && target.is_fixed() && number.bytes().all(|byte| byte.is_ascii_digit());
        if operator == "<<<" {
            self.found.fed.push(target.text);
            return;
        }
        if copies {
            return;
        }
        command.redirects.push(Redirect { writes: !matches!(operator, "<" | "<&"), target });
    }

    fn document(&mut self, command: &mut Command) {
        self.at += 2;
        let strips_tabs = self.peek() == Some('-');
        self.at += usize::from(strips_tabs);
        self.blanks();
        let delimiter = self.word();
        if delimiter.text.is_empty() && !delimiter.quoted {
            return self.found.broken("a here-document has no delimiter");
        }
        command.fed = true;
        self.documents.push(Document { delimiter: delimiter.text, strips_tabs, quoted: delimiter.quoted });
    }

    fn document_bodies(&mut self) {
        for document in std::mem::take(&mut self.documents) {
            let start = self.at;
            let mut end = self.at;
            while self.at < self.text.len() {
                end = self.at;
                while self.peek().is_some_and(|letter| letter != '\n') {
                    self.at += 1;
                }
                let line: String = self.text[end..self.at].iter().collect();
                self.at = (self.at + 1).min(self.text.len());
                let line = if document.strips_tabs { line.trim_start_matches('\t') } else { &line };
                if line == document.delimiter {
                    break;
                }
                end = self.at;
            }
            self.found.fed.push(self.text[start..end].iter().collect());
            if !document.quoted {
                self.found.opaque("it has a here-document whose body expands");
                let body = self.text[start..end].to_vec();
                self.nested(body, |parser| parser.expansions());
            }
        }
    }

    /// Another text inside this one.
    fn nested(&mut self, text: Vec<char>, walk: impl FnOnce(&mut Parser<'_>)) {
        if self.enter() {
            let depth = self.depth;
            walk(&mut Parser { text, at: 0, depth, documents: Vec::new(), feeds: false, found: self.found });
            self.depth -= 1;
        }
    }

    /// A text in which only expansions count: the body of a here-document.
    fn expansions(&mut self) {
        let mut ignored = Word::default();
        while let Some(letter) = self.peek() {
            match letter {
                '\\' => self.at += 2,
                '$' => self.dollar(&mut ignored, true),
                '`' => self.backticks(&mut ignored),
                _ => self.at += 1,
            }
        }
    }

    fn blanks(&mut self) {
        loop {
            match self.peek() {
                Some(' ' | '\t') => self.at += 1,
                Some('\\') if self.peek_at(1) == Some('\n') => self.at += 2,
                Some(_) | None => return,
            }
        }
    }

    /// One word, up to a blank or an operator.
    fn word(&mut self) -> Word {
        let mut word = Word::default();
        // Where an unquoted `{` stands, and whether a `,` or `..` came after it.
        let mut brace: Option<bool> = None;
        while let Some(letter) = self.peek() {
            match letter {
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')' => break,
                '\\' => {
                    match self.peek_at(1) {
                        Some('\n') => {}
                        Some(next) => {
                            word.quote();
                            word.text.push(next);
                        }
                        None => word.text.push('\\'),
                    }
                    self.at = (self.at + 2).min(self.text.len());
                }
                '\'' => self.single_quotes(&mut word),
                '"' => self.double_quotes(&mut word),
                '$' => self.dollar(&mut word, false),
                '`' => self.backticks(&mut word),
                _ => {
                    match letter {
                        '*' | '?' | '[' => word.globs = true,
                        '~' if word.text.is_empty() && !word.quoted => word.tilde = true,
                        '{' => brace = Some(false),
                        ',' => brace = brace.map(|_| true),
                        '.' if self.peek_at(1) == Some('.') => brace = brace.map(|_| true),
                        '}' => word.braces |= brace.take() == Some(true),
                        _ => {}
                    }
                    word.text.push(letter);
                    self.at += 1;
                }
            }
        }
        // Alone it is the command `[`; what is no pattern is no pattern of file names.
        word.globs &= !matches!(word.text.as_str(), "[" | "[[");
        word
    }

    fn single_quotes(&mut self, word: &mut Word) {
        word.quote();
        self.at += 1;
        while let Some(letter) = self.peek() {
            self.at += 1;
            if letter == '\'' {
                return;
            }
            word.text.push(letter);
        }
        self.found.broken("a quote is not closed");
    }

    fn double_quotes(&mut self, word: &mut Word) {
        word.quote();
        self.at += 1;
        while let Some(letter) = self.peek() {
            match letter {
                '"' => {
                    self.at += 1;
                    return;
                }
                '\\' => {
                    match self.peek_at(1) {
                        Some('\n') => {}
                        Some(next @ ('$' | '`' | '"' | '\\')) => word.text.push(next),
                        Some(next) => word.text.extend(['\\', next]),
                        None => word.text.push('\\'),
                    }
                    self.at = (self.at + 2).min(self.text.len());
                }
                '$' => self.dollar(word, true),
                '`' => self.backticks(word),
                _ => {
                    word.text.push(letter);
                    self.at += 1;
                }
            }
        }
        self.found.broken("a quote is not closed");
    }

    fn dollar(&mut self, word: &mut Word, in_quotes: bool) {
        let start = self.at;
        match self.peek_at(1) {
            // The shell takes the continuation away first, and then it is an expansion.
            Some('\\') if self.peek_at(2) == Some('\n') => {
                self.found.opaque("it has a line continuation inside an expansion");
                word.expands = true;
                self.at += 3;
            }
            Some('(') => {
                self.found.opaque("it has a command substitution");
                word.expands = true;
                self.at += 2;
                self.list(true);
            }
            Some('{') => {
                word.expands = true;
                self.at += 2;
                self.braced();
            }
            Some('\'') if !in_quotes => {
                self.at += 2;
                return self.ansi_c(word);
            }
            Some('"') if !in_quotes => {
                self.at += 1;
                return self.double_quotes(word);
            }
            Some('[') => {
                self.found.opaque("it has old-style arithmetic");
                word.expands = true;
                self.at += 2;
            }
            Some(letter) if letter.is_ascii_alphabetic() || letter == '_' => {
                word.expands = true;
                self.at += 2;
                while self.peek().is_some_and(|letter| letter.is_ascii_alphanumeric() || letter == '_') {
                    self.at += 1;
                }
            }
            Some(letter) if letter.is_ascii_digit() || "@*#?-$!".contains(letter) => {
                word.expands = true;
                self.at += 2;
            }
            Some(_) | None => self.at += 1,
        }
        word.text.extend(&self.text[start..self.at.min(self.text.len())]);
    }

    /// The inside of `${…}`, to the bracket that closes.
    fn braced(&mut self) {
        if !self.enter() {
            return;
        }
        let start = self.at;
        if self.peek() == Some('!') {
            self.found.opaque("it has an indirect expansion");
        }
        let mut inside = Word::default();
        let mut closed = false;
        while let Some(letter) = self.peek() {
            match letter {
                '}' => {
                    closed = true;
                    break;
                }
                '\\' => self.at += 2,
                '\'' => self.single_quotes(&mut inside),
                '"' => self.double_quotes(&mut inside),
                '$' => self.dollar(&mut inside, false),
                '`' => self.backticks(&mut inside),
                '@' if self.at > start && self.peek_at(1).is_some_and(|next| next.is_ascii_alphabetic()) => {
                    self.found.opaque("it has an expansion that transforms");
                    self.at += 1;
                }
                _ => self.at += 1,
            }
        }
        if closed {
            self.at += 1;
        } else {
            self.at = self.text.len();
            self.found.broken("a bracket is not closed");
        }
        self.depth -= 1;
    }

    fn backticks(&mut self, word: &mut Word) {
        self.found.opaque("it has a command substitution");
        word.expands = true;
        let start = self.at;
        self.at += 1;
        let mut inside = Vec::new();
        let mut closed = false;
        while let Some(letter) = self.peek() {
            self.at += 1;
            match letter {
                '`' => {
                    closed = true;
                    break;
                }
                '\\' => match self.peek() {
                    Some(next @ ('`' | '\\' | '$')) => {
                        inside.push(next);
                        self.at += 1;
                    }
                    Some(_) | None => inside.push('\\'),
                },
                _ => inside.push(letter),
            }
        }
        if !closed {
            self.found.broken("a quote is not closed");
        }
        word.text.extend(&self.text[start..self.at]);
        self.nested(inside, |parser| parser.list(false));
    }

    /// The inside of `$'…'`.
    fn ansi_c(&mut self, word: &mut Word) {
        word.quote();
        while let Some(letter) = self.peek() {
            self.at += 1;
            match letter {
                '\'' => return,
                '\\' => self.escape(word),
                _ => word.text.push(letter),
            }
        }
        self.found.broken("a quote is not closed");
    }

    fn escape(&mut self, word: &mut Word) {
        let Some(letter) = self.peek() else { return };
        self.at += 1;
        let code = match letter {
            'a' => Some(7),
            'b' => Some(8),
            'e' | 'E' => Some(27),
            'f' => Some(12),
            'n' => Some(10),
            'r' => Some(13),
            't' => Some(9),
            'v' => Some(11),
            'x' => self.digits(16, 2),
            'u' => self.digits(16, 4),
            'U' => self.digits(16, 8),
            '0'..='7' => {
                self.at -= 1;
                self.digits(8, 3)
            }
            'c' => {
                let code = self.peek().map(|letter| u32::from(letter) & 0x1f);
                self.at = (self.at + 1).min(self.text.len());
                code
            }
            '\\' | '\'' | '"' | '?' => Some(u32::from(letter)),
            _ => {
                word.text.extend(['\\', letter]);
                return;
            }
        };
        match code.and_then(char::from_u32) {
            // A byte above 127 may be a part of a character, and a control character is nothing to say yes to.
            Some(letter) if letter == '\n' || letter == '\t' || (letter.is_ascii() && !letter.is_control()) => {
                word.text.push(letter);
            }
            Some(named) if matches!(letter, 'u' | 'U') && !hides(named) => {
                word.text.push(named);
            }
            Some(_) | None => self.found.opaque("it has an escaped control character or byte"),
        }
    }

    fn digits(&mut self, radix: u32, len_max: usize) -> Option<u32> {
        let mut value = None;
        for _ in 0..len_max {
            let Some(digit) = self.peek().and_then(|letter| letter.to_digit(radix)) else { break };
            value = Some(value.unwrap_or(0_u32).wrapping_mul(radix).wrapping_add(digit));
            self.at += 1;
        }
        value
    }
}

/// `NAME=value` or `NAME+=value`, if its name is unquoted; `NAME[…]=` is no assignment that is understood.
fn assignment(word: &Word) -> Option<(String, Word)> {
    let (name, value) = word.text.split_once('=')?;
    if word.quoted_from.is_some_and(|at| at <= name.len()) {
        return None;
    }
    let name = name.strip_suffix('+').unwrap_or(name);
    let mut letters = name.chars();
    let first = letters.next()?;
    if !(first.is_ascii_alphabetic() || first == '_')
        || !letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    {
        return None;
    }
    let tilde = value.starts_with('~') && !word.quoted;
    Some((name.to_owned(), Word { text: value.to_owned(), tilde, ..word.clone() }))
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
