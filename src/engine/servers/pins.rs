//! Which definition of each tool was approved: the one that was seen first, or the one that a person let later.

use std::collections::BTreeMap;

use interlock_domain::request::args::Digest;

/// Tools that are remembered: sixty-four servers at their bound. A new tool beyond it is treated as changed.
const PINS_MAX: usize = 64_000;

/// What is known of one tool.
#[derive(Debug)]
struct Pin {
    /// As it is written in `state.db`.
    approved: String,
    /// The one that was seen instead.
    seen: Option<Digest>,
}

/// Which definitions were approved.
#[derive(Debug)]
pub(super) struct Pins(BTreeMap<(String, String), Pin>);

/// What a definition is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// The first one of its tool: approved from now on.
    New,
    /// The approved one.
    Approved,
    /// Another one.
    Changed {
        /// It was not seen before.
        is_news: bool,
    },
}

impl Pins {
    /// As they were kept.
    pub(super) fn new(approved: BTreeMap<(String, String), String>) -> Pins {
        Pins(approved.into_iter().map(|(tool, approved)| (tool, Pin { approved, seen: None })).collect())
    }

    /// Takes note of a definition.
    pub(super) fn see(&mut self, server: &str, tool: &str, digest: Digest) -> Seen {
        let is_full = self.0.len() >= PINS_MAX;
        match self.0.get_mut(&(server.to_owned(), tool.to_owned())) {
            None if is_full => Seen::Changed { is_news: false },
            None => {
                let pin = Pin { approved: digest.to_string(), seen: None };
                self.0.insert((server.to_owned(), tool.to_owned()), pin);
                Seen::New
            }
            Some(pin) if pin.approved == digest.to_string() => {
                pin.seen = None;
                Seen::Approved
            }
            Some(pin) => {
                let is_news = pin.seen != Some(digest);
                pin.seen = Some(digest);
                Seen::Changed { is_news }
            }
        }
    }

    /// Approves what was seen instead, of one tool or of all of a server. Gives those that were held.
    pub(super) fn approve(&mut self, server: &str, tool: Option<&str>) -> Vec<(String, Digest)> {
        let mut approved = Vec::new();
        for ((of, name), pin) in &mut self.0 {
            let is_meant = of == server && tool.is_none_or(|tool| tool == name);
            if let (true, Some(digest)) = (is_meant, pin.seen) {
                pin.seen = None;
                pin.approved = digest.to_string();
                approved.push((name.clone(), digest));
            }
        }
        approved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_definition_counts_until_a_person_lets_another() {
        let (one, two) = (Digest::of(b"1"), Digest::of(b"2"));
        let mut pins = Pins::new(BTreeMap::from([(("s".to_owned(), "old".to_owned()), one.to_string())]));
        assert_eq!(pins.see("s", "old", one), Seen::Approved);
        assert_eq!(pins.see("s", "new", one), Seen::New);
        assert_eq!(pins.see("s", "new", one), Seen::Approved);
        assert_eq!(pins.see("s", "new", two), Seen::Changed { is_news: true });
        assert_eq!(pins.see("s", "new", two), Seen::Changed { is_news: false });
        assert_eq!(pins.see("t", "new", two), Seen::New, "another server, another tool");
        assert_eq!(pins.approve("t", None), []);
        assert_eq!(pins.approve("s", Some("old")), []);
        assert_eq!(pins.approve("s", Some("new")), [("new".to_owned(), two)]);
        assert_eq!(pins.see("s", "new", two), Seen::Approved);
        assert_eq!(pins.see("s", "new", one), Seen::Changed { is_news: true }, "back is a change too");
        assert_eq!(pins.see("s", "new", two), Seen::Approved);
        assert_eq!(pins.approve("s", None), []);
    }
}
