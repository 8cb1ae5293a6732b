//! The patterns inside rules: text with `*`, paths with anchors, addresses.

use globset::{GlobBuilder, GlobMatcher};

use crate::request::paths::{PathFacts, within};

/// Text with `*`, which stands for any text, spaces included. Without a `*` it is exact, never a substring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextPattern {
    exact: Parts,
    folded: Parts,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Parts {
    /// What stands between the stars; one part means that there is none.
    parts: Vec<String>,
    /// The text before the last ` *` or `:*`: it matches alone, or followed by a space and anything.
    word_end: bool,
}

impl TextPattern {
    /// `*` only.
    pub(crate) fn plain(text: &str) -> TextPattern {
        TextPattern::of(text, false)
    }

    /// As [`TextPattern::plain`], and one ` *` or `:*` at the end also matches the bare command, at a word boundary.
    pub(crate) fn command(text: &str) -> TextPattern {
        match text.strip_suffix(":*").or_else(|| text.strip_suffix(" *")) {
            Some(before) if !before.is_empty() => TextPattern::of(before, true),
            _ => TextPattern::of(text, false),
        }
    }

    fn of(text: &str, word_end: bool) -> TextPattern {
        let parts = |text: &str| Parts { parts: text.split('*').map(str::to_owned).collect(), word_end };
        TextPattern { exact: parts(text), folded: parts(&text.to_lowercase()) }
    }

    /// It matches more than one text.
    pub(crate) fn varies(&self) -> bool {
        self.exact.word_end || self.exact.parts.len() > 1
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        self.exact.matches(text)
    }

    pub(crate) fn matches_folded(&self, text: &str) -> bool {
        self.folded.matches(&text.to_lowercase())
    }
}

impl Parts {
    /// Greedy from the left: each part at its first place, the last one at the end. Linear in the text for each part.
    fn matches(&self, text: &str) -> bool {
        let Some((first, rest)) = self.parts.split_first() else { return false };
        let Some(mut left) = text.strip_prefix(first.as_str()) else { return false };
        let Some((last, middle)) = rest.split_last() else {
            return left.is_empty() || (self.word_end && left.starts_with(' '));
        };
        for part in middle {
            match left.find(part.as_str()) {
                Some(at) => left = &left[at + part.len()..],
                None => return false,
            }
        }
        if left.ends_with(last.as_str()) {
            return true;
        }
        // Followed by a space and anything: the last part may stand anywhere before a space.
        self.word_end && left.match_indices(last.as_str()).any(|(at, _)| left[at + last.len()..].starts_with(' '))
    }
}

/// A path rule: an anchor, the literal directories, and what may vary below them.
#[derive(Debug, Clone)]
pub(crate) struct PathPattern {
    anchor: Anchor,
    /// The path up to the first part with a wildcard; may hold `..`.
    literal: String,
    /// What may vary; `None` for one path exactly.
    varies: Option<Varies>,
}

#[derive(Debug, Clone)]
struct Varies {
    exact: GlobMatcher,
    folded: GlobMatcher,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Anchor {
    Root,
    Home,
    /// The directory of the file in which the rule stands.
    File(String),
    Cwd,
    /// A bare name: at any depth.
    Anywhere,
}

impl PathPattern {
    /// Reads a path rule; the error says what is wrong with it.
    pub(crate) fn parse(spec: &str, anchor: Option<&str>) -> Result<PathPattern, String> {
        let (anchor, rest) = if let Some(rest) = spec.strip_prefix("//") {
            (Anchor::Root, rest)
        } else if let Some(rest) = spec.strip_prefix("~/") {
            (Anchor::Home, rest)
        } else if let Some(rest) = spec.strip_prefix('/') {
            (anchor.map_or(Anchor::Cwd, |dir| Anchor::File(dir.to_owned())), rest)
        } else if spec.trim_end_matches('/').contains('/') {
            (Anchor::Cwd, spec.strip_prefix("./").unwrap_or(spec))
        } else {
            (Anchor::Anywhere, spec)
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let wild = |part: &str| part.contains(['*', '?', '[', '{', '\\']);
        if anchor == Anchor::Anywhere {
            let varies = Varies::parse(&format!("**/{rest}"))?;
            return Ok(PathPattern { anchor, literal: String::new(), varies: Some(varies) });
        }
        let parts: Vec<&str> = rest.split('/').collect();
        let fixed = parts.iter().take_while(|part| !wild(part)).count();
        let literal = parts[..fixed].join("/");
        let varies = if fixed == parts.len() { None } else { Some(Varies::parse(&parts[fixed..].join("/"))?) };
        Ok(PathPattern { anchor, literal, varies })
    }

    /// `path` is canonical, or at least absolute. Generous patterns fold case, and a directory covers what is below.
    pub(crate) fn matches(&self, path: &str, facts: &PathFacts, generous: bool) -> bool {
        let start = match &self.anchor {
            Anchor::Root => "/",
            Anchor::Home => "~/",
            Anchor::File(dir) => dir,
            Anchor::Cwd => &facts.cwd,
            // An allow for a bare name stays inside the working directory; a deny holds everywhere.
            Anchor::Anywhere if generous => "/",
            Anchor::Anywhere => &facts.cwd,
        };
        let Some(base) = facts.resolve(&format!("{start}/{}", self.literal)) else { return false };
        let (base, path) = if generous { (base.to_lowercase(), path.to_lowercase()) } else { (base, path.to_owned()) };
        let Some(varies) = &self.varies else {
            return path == base || (generous && within(&path, &base));
        };
        let Some(below) = path.strip_prefix(base.trim_end_matches('/')).and_then(|rest| rest.strip_prefix('/')) else {
            // `dir/**` is about `dir` too, when it forbids.
            return generous && path == base;
        };
        if !generous {
            return varies.exact.is_match(below);
        }
        let ends = below.match_indices('/').map(|(at, _)| at).chain([below.len()]);
        ends.into_iter().any(|end| varies.folded.is_match(&below[..end]))
    }
}

impl Varies {
    fn parse(glob: &str) -> Result<Varies, String> {
        let build = |fold: bool| {
            let glob =
                GlobBuilder::new(glob).literal_separator(true).backslash_escape(true).case_insensitive(fold).build();
            glob.map(|glob| glob.compile_matcher()).map_err(|error| format!("its pattern is wrong: {}", error.kind()))
        };
        Ok(Varies { exact: build(false)?, folded: build(true)? })
    }
}

/// What a rule must know of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) host: String,
    pub(crate) has_userinfo: bool,
}

impl Url {
    /// Reads scheme and host as an HTTP client would; `None` when it is no address of the web.
    pub(crate) fn parse(address: &str) -> Option<Url> {
        let clean = |letter: char| !letter.is_control() && letter != ' ' && letter != '\\';
        let (scheme, rest) = address.split_once("://")?;
        if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") || !rest.chars().all(clean) {
            return None;
        }
        let authority = rest.split(['/', '?', '#']).next()?;
        let (userinfo, place) = match authority.rsplit_once('@') {
            Some((_, place)) => (true, place),
            None => (false, authority),
        };
        let host = if place.starts_with('[') { &place[..=place.find(']')?] } else { place.split(':').next()? };
        let host = host.trim_end_matches('.').to_lowercase();
        (!host.is_empty()).then_some(Url { host, has_userinfo: userinfo })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_exact_without_a_star_and_ends_at_a_word_with_one_behind_a_space() {
        let table = [
            ("ls", "ls", true),
            ("ls", "lsof", false),
            ("ls", "ls -l", false),
            ("ls:*", "ls", true),
            ("ls:*", "ls -l", true),
            ("ls:*", "lsof -i", false),
            ("ls *", "ls", true),
            ("ls *", "lsof", false),
            ("ls*", "lsof", true),
            ("git * main", "git push origin main", true),
            ("git * main", "git push origin maintenance", false),
            ("git * --force *", "git push --force", true),
            ("git * --force *", "git push --force origin", true),
            ("git * --force *", "git push --force-with-lease", false),
            ("* --version", "node --version", true),
            ("npm run test:*", "npm run test:unit", false),
            ("npm run test:*", "npm run test x", true),
            ("*", "anything at all", true),
        ];
        for (pattern, text, want) in table {
            assert_eq!(TextPattern::command(pattern).matches(text), want, "{pattern} / {text}");
        }
    }

    #[test]
    fn paths_are_anchored_as_in_gitignore() {
        let facts = PathFacts {
            cwd: "/ws".into(),
            home: Some("/home/u".into()),
            work_dirs: vec![],
            links: [("/link".to_owned(), "/data".to_owned())].into(),
        };
        // pattern, path, exact, generous
        let table = [
            ("docs/**", "/ws/docs/a/b", true, true),
            ("docs/**", "/ws/src/docs/a", false, false),
            ("docs/*", "/ws/docs/a/b", false, true),
            ("docs/*", "/ws/docs/a", true, true),
            ("//etc/**", "/etc/passwd", true, true),
            ("//etc/**", "/ETC/passwd", false, true),
            ("~/x", "/home/u/x", true, true),
            ("/a.rs", "/conf/a.rs", true, true),
            ("/a.rs", "/ws/a.rs", false, false),
            (".env", "/ws/deep/.env", true, true),
            (".env", "/elsewhere/.env", false, true),
            ("*.rs", "/ws/a/b.rs", true, true),
            ("secrets", "/ws/secrets/a", false, true),
            ("./src/a", "/ws/src/a", true, true),
            ("../other/**", "/other/a", true, true),
            ("//link/**", "/data/a", true, true),
            ("src/", "/ws/src/a", false, true),
            ("**", "/ws/a/b", true, true),
            ("//**", "/a/b", true, true),
        ];
        for (pattern, path, exact, generous) in table {
            let parsed = PathPattern::parse(pattern, Some("/conf")).unwrap();
            assert_eq!(parsed.matches(path, &facts, false), exact, "{pattern} / {path}");
            assert_eq!(parsed.matches(path, &facts, true), generous, "generously {pattern} / {path}");
        }
        assert!(PathPattern::parse("a/[b", None).is_err());
    }

    #[test]
    fn the_host_is_the_one_that_a_client_would_ask() {
        let table = [
            ("https://Example.com/x", Some(("example.com", false))),
            ("https://example.com.:8443?x", Some(("example.com", false))),
            ("http://good.example@evil.example/", Some(("evil.example", true))),
            ("http://[::1]:80/", Some(("[::1]", false))),
            ("ftp://example.com", None),
            ("http://a\\@b/", None),
            ("example.com", None),
            ("http:///x", None),
        ];
        for (address, want) in table {
            let found = Url::parse(address);
            assert_eq!(found.as_ref().map(|url| (url.host.as_str(), url.has_userinfo)), want, "{address}");
        }
    }
}
