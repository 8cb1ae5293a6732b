//! The patterns inside rules: text with `*`, and paths with anchors.

use std::borrow::Cow;

use globset::{GlobBuilder, GlobMatcher};

use crate::request::paths::{PathFacts, base, parts, within};

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

    /// It begins with this text, at the end of a word, before its first `*`.
    pub(crate) fn fixes(&self, head: &str) -> bool {
        let Parts { parts, word_end } = &self.exact;
        let rest = parts.first().and_then(|first| first.strip_prefix(head));
        rest.is_some_and(|rest| rest.starts_with(' ') || (rest.is_empty() && *word_end && parts.len() == 1))
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        self.exact.matches(text)
    }

    pub(crate) fn matches_folded(&self, text: &str) -> bool {
        if is_folded(text) { self.folded.matches(text) } else { self.folded.matches(&text.to_lowercase()) }
    }

    /// As one of the above, for a text that many rules look at.
    pub(crate) fn matches_spelled(&self, text: &Spelled<'_>, generous: bool) -> bool {
        let parts = if generous { &self.folded } else { &self.exact };
        parts.matches(text.as_str(generous))
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

/// A text in both spellings, made once for all rules of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spelled<'a> {
    exact: Cow<'a, str>,
    /// In lower case, when that is another text.
    folded: Option<String>,
}

impl<'a> Spelled<'a> {
    pub(crate) fn new(text: impl Into<Cow<'a, str>>) -> Spelled<'a> {
        let text = text.into();
        Spelled { folded: (!is_folded(&text)).then(|| text.to_lowercase()), exact: text }
    }

    fn as_str(&self, folded: bool) -> &str {
        match &self.folded {
            Some(text) if folded => text,
            Some(_) | None => &self.exact,
        }
    }

    pub(crate) fn folded(&self) -> &str {
        self.as_str(true)
    }
}

/// It is surely in lower case.
pub(crate) fn is_folded(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase())
}

/// Where relative rules begin, resolved once for all rules of a decision.
#[derive(Debug)]
pub(crate) struct Anchors<'a> {
    facts: &'a PathFacts,
    cwd: Option<Spelled<'static>>,
    home: Option<Spelled<'static>>,
}

impl<'a> Anchors<'a> {
    pub(crate) fn new(facts: &'a PathFacts) -> Anchors<'a> {
        let resolved = |path: &str| facts.resolve(path).map(Spelled::new);
        Anchors { facts, cwd: resolved(&facts.cwd), home: resolved("~") }
    }
}

/// A path rule: an anchor, the literal directories, and what may vary below them.
#[derive(Debug, Clone)]
pub(crate) struct PathPattern {
    anchor: Anchor,
    /// The path up to the first part with a wildcard; may hold `..`.
    literal: Spelled<'static>,
    /// The literal has no dots, so that without symlinks it can be compared as it stands.
    plain: bool,
    varies: Varies,
}

/// What may follow the literal directories.
#[derive(Debug, Clone)]
enum Varies {
    /// Nothing: one path exactly.
    Nothing,
    /// `**`: anything below.
    Anything,
    /// One name, at any depth.
    Name(Spelled<'static>),
    /// A pattern, and the text that everything it fits ends with.
    Glob { exact: GlobMatcher, folded: GlobMatcher, end: Spelled<'static> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Anchor {
    Root,
    Home,
    /// The directory of the file in which the rule stands.
    File(Spelled<'static>),
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
            (anchor.map_or(Anchor::Cwd, |dir| Anchor::File(Spelled::new(dir.to_owned()))), rest)
        } else if spec.trim_end_matches('/').contains('/') {
            (Anchor::Cwd, spec.strip_prefix("./").unwrap_or(spec))
        } else {
            (Anchor::Anywhere, spec)
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let wild = |part: &str| part.contains(['*', '?', '[', '{', '\\']);
        let (literal, varies) = if anchor == Anchor::Anywhere && !matches!(rest, "." | ".." | "**") {
            let varies = if wild(rest) {
                Varies::glob(&format!("**/{rest}"))?
            } else {
                Varies::Name(Spelled::new(rest.to_owned()))
            };
            (String::new(), varies)
        } else {
            let parts: Vec<&str> = rest.split('/').filter(|part| !part.is_empty()).collect();
            let fixed = parts.iter().take_while(|part| !wild(part)).count();
            let varies = match parts[fixed..].join("/").as_str() {
                "" => Varies::Nothing,
                "**" => Varies::Anything,
                glob => Varies::glob(glob)?,
            };
            (parts[..fixed].join("/"), varies)
        };
        let anchor = if anchor == Anchor::Anywhere && !matches!(varies, Varies::Name(_) | Varies::Glob { .. }) {
            Anchor::Cwd
        } else {
            anchor
        };
        let plain = !literal.split('/').any(|part| matches!(part, "." | ".."));
        Ok(PathPattern { anchor, literal: Spelled::new(literal), plain, varies })
    }

    /// `path` is canonical, or at least absolute. Generous patterns fold case, and a directory covers what is below.
    pub(crate) fn matches(&self, path: &Spelled<'_>, anchors: &Anchors<'_>, generous: bool) -> bool {
        let start = match &self.anchor {
            Anchor::Root => None,
            Anchor::Home => Some(anchors.home.as_ref()),
            Anchor::File(dir) => Some(Some(dir)),
            Anchor::Cwd => Some(anchors.cwd.as_ref()),
            // An allow for a bare name stays inside the working directory; a deny holds everywhere.
            Anchor::Anywhere if generous => None,
            Anchor::Anywhere => Some(anchors.cwd.as_ref()),
        };
        let start = match start {
            None => "/",
            Some(Some(start)) => start.as_str(generous),
            Some(None) => return false,
        };
        let path = path.as_str(generous);
        if self.plain && !self.is_behind_a_link(anchors) {
            return below(path, start)
                .and_then(|rest| below(rest, self.literal.as_str(generous)))
                .is_some_and(|rest| self.covers(rest, generous));
        }
        // A link may lie on the rule's own way.
        let start = match &self.anchor {
            Anchor::File(dir) => &*dir.exact,
            Anchor::Cwd => anchors.facts.cwd.as_str(),
            Anchor::Home => "~",
            Anchor::Anywhere if !generous => anchors.facts.cwd.as_str(),
            Anchor::Root | Anchor::Anywhere => "/",
        };
        let Some(base) = anchors.facts.resolve(&format!("{start}/{}", self.literal.exact)) else { return false };
        let base = if generous { base.to_lowercase() } else { base };
        below(path, &base).is_some_and(|rest| self.covers(rest, generous))
    }

    /// A known symlink lies on the way to the literal directory.
    fn is_behind_a_link(&self, anchors: &Anchors<'_>) -> bool {
        let links = &anchors.facts.links;
        let of_file = matches!(self.anchor, Anchor::File(_));
        if links.is_empty() || (self.literal.exact.is_empty() && !of_file) {
            return false;
        }
        let start = match &self.anchor {
            Anchor::Root | Anchor::Anywhere => "/",
            Anchor::Home => anchors.home.as_ref().map_or("/", |home| &home.exact),
            Anchor::Cwd => anchors.cwd.as_ref().map_or("/", |cwd| &cwd.exact),
            Anchor::File(dir) => &*dir.exact,
        };
        links.keys().any(|link| {
            let on_the_rest = below(link, start).is_some_and(|rest| {
                let rest = rest.trim_start_matches('/');
                let literal = self.literal.exact.strip_prefix(rest);
                !rest.is_empty() && literal.is_some_and(|left| left.is_empty() || left.starts_with('/'))
            });
            on_the_rest || (of_file && below(start, link).is_some())
        })
    }

    /// What it says before anything varies, resolved, in lower case.
    fn base(&self, anchors: &Anchors<'_>) -> Option<String> {
        let start = match &self.anchor {
            Anchor::Root | Anchor::Anywhere => "/",
            Anchor::Home => "~",
            Anchor::File(dir) => &*dir.exact,
            Anchor::Cwd => anchors.facts.cwd.as_str(),
        };
        anchors.facts.resolve(&format!("{start}/{}", self.literal.exact)).map(|base| base.to_lowercase())
    }

    /// A path that this rule is about may lie below this directory (canonical); nobody here knows whether it does.
    /// `anywhere` also counts a bare name, which any directory may hold.
    pub(crate) fn may_lie_below(&self, dir: &Spelled<'_>, anchors: &Anchors<'_>, anywhere: bool) -> bool {
        if self.anchor == Anchor::Anywhere {
            return anywhere;
        }
        let Some(base) = self.base(anchors) else { return false };
        let dir = dir.folded();
        let varies = match self.varies {
            Varies::Glob { .. } => true,
            Varies::Nothing | Varies::Anything | Varies::Name(_) => false,
        };
        within(&base, dir) && (base != dir || varies) || (varies && within(dir, &base))
    }

    /// A shell pattern, absolute, may stand for a path that this rule is about.
    pub(crate) fn may_be_meant_by(&self, meant: &ShellPattern, anchors: &Anchors<'_>) -> bool {
        if let (Anchor::Anywhere, Varies::Name(name)) = (&self.anchor, &self.varies) {
            return meant.parts.iter().any(|part| part.varies() && part.fits(name.folded()));
        }
        if self.literal.exact.is_empty() {
            return false;
        }
        let Some(base) = self.base(anchors) else { return false };
        let mut names = base.split('/').filter(|name| !name.is_empty());
        let mut parts = meant.parts.iter();
        names.all(|name| parts.next().is_some_and(|part| part.fits(name)))
    }

    /// `rest` is empty for the literal directory itself, else it begins with a slash.
    fn covers(&self, rest: &str, generous: bool) -> bool {
        let Some(inner) = rest.strip_prefix('/').filter(|inner| !inner.is_empty()) else {
            // `dir/**` is about `dir` too, when it forbids.
            return match self.varies {
                Varies::Nothing => true,
                Varies::Anything => generous,
                Varies::Name(_) | Varies::Glob { .. } => false,
            };
        };
        match &self.varies {
            Varies::Nothing => generous,
            Varies::Anything => true,
            Varies::Name(name) if generous => parts(inner).any(|part| part == name.folded()),
            Varies::Name(name) => base(inner) == name.exact,
            Varies::Glob { folded, end, .. } if generous => {
                let slashes = inner.bytes().enumerate().filter(|(_, byte)| *byte == b'/').map(|(at, _)| at);
                let mut begins = slashes.chain([inner.len()]).map(|end| &inner[..end]);
                // Outside of ASCII a pattern that folds case fits more than what is in lower case.
                begins.any(|text| (text.ends_with(end.folded()) || !text.is_ascii()) && folded.is_match(text))
            }
            Varies::Glob { exact, end, .. } => inner.ends_with(&*end.exact) && exact.is_match(inner),
        }
    }
}

/// A pattern of file names that a shell expands, absolute, read once for all rules of a decision.
#[derive(Debug)]
pub(crate) struct ShellPattern {
    /// As it was written.
    pub(crate) text: String,
    parts: Vec<ShellPart>,
}

#[derive(Debug)]
enum ShellPart {
    /// A name, in lower case.
    Name(String),
    Glob(GlobMatcher),
    /// Hardly more than stars: it stands for anything, and is not taken for one that looks for a certain path.
    Anything,
}

impl ShellPattern {
    pub(crate) fn new(text: String) -> ShellPattern {
        let parts = text.split('/').filter(|part| !part.is_empty()).map(ShellPart::of).collect();
        ShellPattern { text, parts }
    }
}

impl ShellPart {
    fn of(part: &str) -> ShellPart {
        if !part.contains(['*', '?', '[']) {
            return ShellPart::Name(part.to_lowercase());
        }
        if !part.chars().any(char::is_alphanumeric) {
            return ShellPart::Anything;
        }
        let glob = GlobBuilder::new(part).literal_separator(true).case_insensitive(true).build();
        glob.map_or(ShellPart::Anything, |glob| ShellPart::Glob(glob.compile_matcher()))
    }

    fn varies(&self) -> bool {
        !matches!(self, ShellPart::Name(_))
    }

    fn fits(&self, name: &str) -> bool {
        match self {
            ShellPart::Name(part) => part == name,
            ShellPart::Glob(glob) => glob.is_match(name),
            ShellPart::Anything => false,
        }
    }
}

/// What of `path` comes after `base`, which is a directory: empty, or from its slash on.
fn below<'a>(path: &'a str, base: &str) -> Option<&'a str> {
    let base = base.trim_matches('/');
    if base.is_empty() {
        return Some(path);
    }
    let rest = path.strip_prefix('/')?.strip_prefix(base)?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

impl Varies {
    fn glob(glob: &str) -> Result<Varies, String> {
        let build = |fold: bool| {
            let glob =
                GlobBuilder::new(glob).literal_separator(true).backslash_escape(true).case_insensitive(fold).build();
            glob.map(|glob| glob.compile_matcher()).map_err(|error| format!("its pattern is wrong: {}", error.kind()))
        };
        let end = glob.rsplit(['*', '?', '[', ']', '{', '}', '\\', '/']).next().filter(|end| end.is_ascii());
        let end = Spelled::new(end.unwrap_or("").to_owned());
        Ok(Varies::Glob { exact: build(false)?, folded: build(true)?, end })
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
            let spelled = Spelled::new(path.to_owned());
            let without = PathFacts { links: Default::default(), ..facts.clone() };
            for facts in [&facts, &without] {
                if facts.links.is_empty() && pattern.contains("link") {
                    continue;
                }
                let anchors = Anchors::new(facts);
                assert_eq!(parsed.matches(&spelled, &anchors, false), exact, "{pattern} / {path}");
                assert_eq!(parsed.matches(&spelled, &anchors, true), generous, "generously {pattern} / {path}");
            }
        }
        assert!(PathPattern::parse("a/[b", None).is_err());
    }
}
