//! Templates in hassil syntax: `(a|b)` one of, `[a]` or `[a|b]` perhaps, `{slot}` a value.
//!
//! A template is parsed once, and never expanded: one line can stand for thousands of sentences.

use std::fmt;

use thiserror::Error;

/// Longest template, in characters: what rules of an imported set come to when they are written out. The matcher's work
/// is bounded by its own steps.
pub const TEMPLATE_LEN_MAX: usize = 2000;
/// Deepest nesting of brackets. The parser recurses; no sentence needs more.
const DEPTH_MAX: usize = 16;

/// A parsed template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// As it was written.
    pub source: String,
    /// Its parts, in order.
    pub parts: Vec<Part>,
}

/// A piece of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// These characters.
    Text(String),
    /// A value; the name of its slot.
    Slot(String),
    /// One of these, or nothing when `optional`.
    Choice {
        /// The branches, never empty.
        branches: Vec<Vec<Part>>,
        /// `[..]` and not `(..)`.
        optional: bool,
    },
}

/// A template that does not compile.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("template does not compile at character {at}: {fault}")]
pub struct TemplateError {
    /// From 1.
    pub at: usize,
    /// What is wrong there.
    pub fault: TemplateFault,
}

/// What is wrong with a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateFault {
    /// A bracket that nothing closes.
    Unclosed(char),
    /// A bracket that nothing opened, or `|` outside brackets.
    Unexpected(char),
    /// `{}`, `()`, or a branch without content in `(..)`.
    Empty,
    /// `<rule>`: rules of other files are resolved by the importer.
    Rule,
    /// More than [`TEMPLATE_LEN_MAX`] characters.
    TooLong,
    /// Brackets in brackets in brackets.
    TooDeep,
}

impl fmt::Display for TemplateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TemplateFault::Unclosed(open) => write!(f, "{open:?} is not closed"),
            TemplateFault::Unexpected(found) => write!(f, "{found:?} is not expected here"),
            TemplateFault::Empty => f.write_str("nothing stands between these brackets"),
            TemplateFault::Rule => f.write_str("a rule in <..> is not known here"),
            TemplateFault::TooLong => write!(f, "longer than {TEMPLATE_LEN_MAX} characters"),
            TemplateFault::TooDeep => write!(f, "brackets nested deeper than {DEPTH_MAX}"),
        }
    }
}

impl Template {
    /// Parses `source`.
    ///
    /// # Errors
    /// The first fault, with its place.
    pub fn parse(source: &str) -> Result<Template, TemplateError> {
        let chars: Vec<char> = source.chars().collect();
        if chars.len() > TEMPLATE_LEN_MAX {
            return Err(TemplateError { at: TEMPLATE_LEN_MAX + 1, fault: TemplateFault::TooLong });
        }
        let mut parser = Parser { chars: &chars, at: 0 };
        let parts = parser.sequence(0)?;
        match parser.peek() {
            None if parts.is_empty() => Err(parser.fault(TemplateFault::Empty)),
            None => Ok(Template { source: source.to_owned(), parts }),
            Some(found) => Err(parser.fault(TemplateFault::Unexpected(found))),
        }
    }

    /// A template that is this text and nothing else: brackets in it are characters.
    #[must_use]
    pub fn literal(text: &str) -> Template {
        Template { source: text.to_owned(), parts: vec![Part::Text(text.to_owned())] }
    }

    /// The names of the slots that it mentions.
    #[must_use]
    pub fn slots(&self) -> Vec<&str> {
        fn walk<'a>(parts: &'a [Part], into: &mut Vec<&'a str>) {
            for part in parts {
                match part {
                    Part::Text(_) => {}
                    Part::Slot(name) => into.push(name),
                    Part::Choice { branches, .. } => branches.iter().for_each(|branch| walk(branch, into)),
                }
            }
        }
        let mut names = Vec::new();
        walk(&self.parts, &mut names);
        names
    }
}

struct Parser<'a> {
    chars: &'a [char],
    at: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn fault(&self, fault: TemplateFault) -> TemplateError {
        TemplateError { at: self.at + 1, fault }
    }

    fn sequence(&mut self, depth: usize) -> Result<Vec<Part>, TemplateError> {
        if depth > DEPTH_MAX {
            return Err(self.fault(TemplateFault::TooDeep));
        }
        let mut parts = Vec::new();
        let mut text = String::new();
        while let Some(found) = self.peek() {
            let part = match found {
                '(' | '[' => self.choice(found, depth)?,
                '{' => self.slot()?,
                '<' | '>' => return Err(self.fault(TemplateFault::Rule)),
                ')' | ']' | '|' => break,
                '}' => return Err(self.fault(TemplateFault::Unexpected('}'))),
                space if space.is_whitespace() => {
                    self.at += 1;
                    continue;
                }
                other => {
                    text.push(other);
                    self.at += 1;
                    continue;
                }
            };
            if !text.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut text)));
            }
            parts.push(part);
        }
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        Ok(parts)
    }

    fn choice(&mut self, open: char, depth: usize) -> Result<Part, TemplateError> {
        let opened = self.fault(TemplateFault::Unclosed(open));
        let (close, optional) = if open == '(' { (')', false) } else { (']', true) };
        self.at += 1;
        let mut branches = Vec::new();
        loop {
            let branch = self.sequence(depth + 1)?;
            if branch.is_empty() && !optional {
                return Err(self.fault(TemplateFault::Empty));
            }
            if !branch.is_empty() {
                branches.push(branch);
            }
            match self.peek() {
                Some('|') => self.at += 1,
                Some(found) if found == close => {
                    self.at += 1;
                    break;
                }
                Some(found) => return Err(self.fault(TemplateFault::Unexpected(found))),
                None => return Err(opened),
            }
        }
        if branches.is_empty() {
            return Err(TemplateError { fault: TemplateFault::Empty, ..opened });
        }
        Ok(Part::Choice { branches, optional })
    }

    fn slot(&mut self) -> Result<Part, TemplateError> {
        let opened = self.fault(TemplateFault::Unclosed('{'));
        self.at += 1;
        let start = self.at;
        while let Some(found) = self.peek() {
            if found == '}' {
                let name: String = self.chars[start..self.at].iter().collect();
                self.at += 1;
                if name.is_empty() {
                    return Err(TemplateError { fault: TemplateFault::Empty, ..opened });
                }
                return Ok(Part::Slot(name));
            }
            if !(found.is_ascii_alphanumeric() || found == '_') {
                return Err(self.fault(TemplateFault::Unexpected(found)));
            }
            self.at += 1;
        }
        Err(opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, at: usize, fault: TemplateFault) {
        assert_eq!(Template::parse(source), Err(TemplateError { at, fault }), "{source}");
    }

    #[test]
    fn a_fault_names_its_place() {
        check("(启动|打开泵", 1, TemplateFault::Unclosed('('));
        check("启动[{device}泵", 3, TemplateFault::Unclosed('['));
        check("启动{device泵", 10, TemplateFault::Unexpected('泵'));
        check("启动{device", 3, TemplateFault::Unclosed('{'));
        check("启动)泵", 3, TemplateFault::Unexpected(')'));
        check("启动|泵", 3, TemplateFault::Unexpected('|'));
        check("(启动|)泵", 5, TemplateFault::Empty);
        check("启动{}泵", 3, TemplateFault::Empty);
        check("启动[]泵", 3, TemplateFault::Empty);
        check("<name>泵", 1, TemplateFault::Rule);
        check("(启动]泵", 4, TemplateFault::Unexpected(']'));
        check("", 1, TemplateFault::Empty);
        check(&format!("{}泵{}", "(".repeat(17), ")".repeat(17)), 18, TemplateFault::TooDeep);
    }

    #[test]
    fn a_template_keeps_its_shape() {
        let template = Template::parse("(启动|打开)[{device}][水]泵").expect("compiles");
        let text = |text: &str| Part::Text(text.to_owned());
        let maybe = |part: Part| Part::Choice { branches: vec![vec![part]], optional: true };
        assert_eq!(
            template.parts,
            [
                Part::Choice { branches: vec![vec![text("启动")], vec![text("打开")]], optional: false },
                maybe(Part::Slot("device".to_owned())),
                maybe(text("水")),
                text("泵"),
            ]
        );
        assert_eq!(template.slots(), ["device"]);
    }
}
