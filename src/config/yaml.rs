//! YAML as a tree with lines, for the files of others: only what a command set needs.
//!
//! Anchors and aliases are refused: a few lines of them can stand for gigabytes. Depth and size are bounded before
//! anything is kept.

use std::path::Path;

use saphyr_parser::{Event, Parser};

use super::ConfigError;

/// Deepest nesting. The intent files of Home Assistant have six levels.
const DEPTH_MAX: usize = 24;

/// Nodes of one file; the largest intent file known has a few thousand.
const NODES_MAX: usize = 200_000;

/// A value and its line, from 1.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) is: Is,
}

/// What a node is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Is {
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

impl Node {
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        match &self.is {
            Is::Map(pairs) => pairs.iter().find(|(name, _)| name == key).map(|(_, node)| node),
            Is::Text(_) | Is::List(_) => None,
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.is {
            Is::Text(text) => Some(text),
            Is::List(_) | Is::Map(_) => None,
        }
    }

    pub(super) fn list(&self) -> &[Node] {
        match &self.is {
            Is::List(items) => items,
            Is::Text(_) | Is::Map(_) => &[],
        }
    }

    pub(super) fn pairs(&self) -> &[(String, Node)] {
        match &self.is {
            Is::Map(pairs) => pairs,
            Is::Text(_) | Is::List(_) => &[],
        }
    }
}

/// Reads the first document of a text; an empty one is an empty map.
///
/// # Errors
/// What is no YAML, with its line, or is beyond the bounds.
pub(super) fn read(file: &Path, text: &str) -> Result<Node, ConfigError> {
    let at = |line: usize, column: usize, message: String| ConfigError {
        line,
        column,
        ..ConfigError::of_file(file, message)
    };
    // What is open: its line, and the keys and values so far; a map waits for a value while a key is held.
    let mut open: Vec<(Node, Option<String>)> = Vec::new();
    let mut nodes = 0;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            let marker = error.marker();
            at(marker.line(), marker.col() + 1, format!("no YAML: {}", error.info()))
        })?;
        let (line, column) = (span.start.line(), span.start.col() + 1);
        nodes += 1;
        if nodes > NODES_MAX {
            return Err(at(line, column, format!("more than {NODES_MAX} values")));
        }
        let done = match event {
            Event::Nothing | Event::StreamStart | Event::DocumentStart(_) => continue,
            Event::StreamEnd | Event::DocumentEnd => break,
            Event::Alias(_) => {
                return Err(at(line, column, "an alias (*) is not read here".to_owned())
                    .hint("write the value out where it is used"));
            }
            Event::Scalar(text, ..) => Node { line, is: Is::Text(text.into_owned()) },
            Event::SequenceStart(..) | Event::MappingStart(..) => {
                if open.len() >= DEPTH_MAX {
                    return Err(at(line, column, format!("nested deeper than {DEPTH_MAX}")));
                }
                let list = matches!(event, Event::SequenceStart(..));
                let is = if list { Is::List(Vec::new()) } else { Is::Map(Vec::new()) };
                open.push((Node { line, is }, None));
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some((node, _)) => node,
                None => continue,
            },
        };
        let Some((parent, key)) = open.last_mut() else { return Ok(done) };
        match &mut parent.is {
            Is::List(items) => items.push(done),
            Is::Map(pairs) => match (key.take(), done.is) {
                (Some(name), is) => pairs.push((name, Node { line: done.line, is })),
                (None, Is::Text(name)) => *key = Some(name),
                (None, Is::List(_) | Is::Map(_)) => {
                    return Err(at(line, column, "a key is a text".to_owned()));
                }
            },
            Is::Text(_) => {}
        }
    }
    Ok(Node { line: 1, is: Is::Map(Vec::new()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_keeps_its_lines() {
        let tree = read(Path::new("a.yaml"), "a: 1\nb:\n  - x # remark\n  - {c: \"y: z\"}\n").expect("reads");
        assert_eq!(tree.get("a").and_then(Node::text), Some("1"));
        let items = tree.get("b").map(Node::list).unwrap_or_default();
        assert_eq!((items[0].line, items[0].text()), (3, Some("x")));
        assert_eq!(items[1].get("c").map(|c| (c.line, c.text())), Some((4, Some("y: z"))));
        assert!(read(Path::new("a.yaml"), "").expect("reads").pairs().is_empty());
    }

    #[test]
    fn what_is_no_yaml_or_would_swell_is_refused_with_its_line() {
        let check = |text: &str, expected: &str| {
            let error = read(Path::new("a.yaml"), text).expect_err("refused").to_string();
            assert!(error.starts_with(expected), "{text:?}: {error}");
        };
        check("a: &x 1\nb: *x\n", "a.yaml:2:4: an alias (*) is not read here");
        check("a: [1\nb: 2\n", "a.yaml:");
        check(&"[".repeat(100), "a.yaml:1:25: nested deeper than 24");
    }
}
