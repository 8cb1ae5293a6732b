//! Reads Rust as far as the checks need it: the paths that a file names, its words without comments and literals, its
//! lines of code.

/// A path that a file names.
#[derive(Debug, PartialEq)]
pub(crate) struct Named {
    pub(crate) line: usize,
    pub(crate) path: Vec<String>,
    /// From the root of this crate; else it begins with the name of a crate, or of something in scope.
    pub(crate) of_ours: bool,
}

/// All paths in a file, those of `use` trees written out, `self` and `super` resolved.
pub(crate) fn paths(text: &str, module: &[String]) -> Vec<Named> {
    let tokens = tokens(&blanked(text));
    let mut found = Vec::new();
    // The inline modules that we stand in, with the depth of braces at which each began.
    let (mut inside, mut depth) = (Vec::<(usize, String)>::new(), 0);
    let mut at = 0;
    while at < tokens.len() {
        let word = |i: usize| tokens.get(i).map_or("", |(_, word)| word.as_str());
        match word(at) {
            "mod" if word(at + 2) == "{" => inside.push((depth, word(at + 1).to_owned())),
            "{" => depth += 1,
            "}" => {
                assert!(depth > 0, "{module:?}:{}: a brace closes what was not opened", tokens[at].0);
                depth -= 1;
                inside.retain(|(began, _)| *began < depth);
            }
            _ => {}
        }
        let here: Vec<String> = module.iter().cloned().chain(inside.iter().map(|(_, name)| name.clone())).collect();
        // `impl X + use<'a>` imports nothing.
        if word(at) == "use" && word(at + 1) != "<" {
            let end = (at..tokens.len()).find(|i| word(*i) == ";").unwrap_or(tokens.len());
            for (line, path) in use_tree(&tokens[at + 1..end], &[]) {
                found.extend(resolved(line, path, &here));
            }
            at = end;
        } else if is_name(word(at)) && word(at + 1) == "::" && (at == 0 || word(at - 1) != "::") {
            let mut path = vec![word(at).to_owned()];
            let line = tokens[at].0;
            while word(at + 1) == "::" && is_name(word(at + 2)) {
                path.push(word(at + 2).to_owned());
                at += 2;
            }
            found.extend(resolved(line, path, &here));
        }
        at += 1;
    }
    found
}

fn use_tree(tokens: &[(usize, String)], before: &[String]) -> Vec<(usize, Vec<String>)> {
    let (mut path, mut at) = (before.to_vec(), 0);
    while let Some((line, word)) = tokens.get(at) {
        match word.as_str() {
            "::" => {}
            "{" => {
                let mut all = Vec::new();
                let (mut depth, mut start) = (0, at + 1);
                for (i, (_, word)) in tokens.iter().enumerate().skip(at) {
                    match word.as_str() {
                        "{" => depth += 1,
                        "}" => depth -= 1,
                        _ => {}
                    }
                    if (word == "," && depth == 1) || (word == "}" && depth == 0) {
                        all.extend(use_tree(&tokens[start..i], &path));
                        start = i + 1;
                    }
                }
                return all;
            }
            "as" | "*" => return vec![(*line, path)],
            name => path.push(name.to_owned()),
        }
        at += 1;
    }
    tokens.first().map(|(line, _)| (*line, path)).into_iter().collect()
}

fn resolved(line: usize, path: Vec<String>, here: &[String]) -> Option<Named> {
    let mut base: Vec<String> = match path[0].as_str() {
        "crate" => Vec::new(),
        "self" | "super" => here.to_vec(),
        _ => return Some(Named { line, path, of_ours: false }),
    };
    for part in path {
        match part.as_str() {
            "crate" | "self" => {}
            "super" => drop(base.pop()),
            name => base.push(name.to_owned()),
        }
    }
    (!base.is_empty()).then_some(Named { line, path: base, of_ours: true })
}

/// Names, `::` and single characters, each with its line.
pub(crate) fn tokens(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let len = match rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len()) {
                0 if rest.starts_with("::") => 2,
                0 => first.len_utf8(),
                name => name,
            };
            found.push((number + 1, rest[..len].to_owned()));
            rest = rest[len..].trim_start();
        }
    }
    found
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The text with comments and literals blanked out, line by line as before.
pub(crate) fn blanked(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let (mut out, mut at) = (String::with_capacity(text.len()), 0);
    let starts = |at: usize, what: &str| what.chars().enumerate().all(|(i, c)| chars.get(at + i) == Some(&c));
    while at < chars.len() {
        // `br"…"` is a raw string too, and `for"…"` is not.
        let prefixed = at > 0 && matches!(chars[at - 1], 'b' | 'c');
        let before = at.checked_sub(1 + usize::from(prefixed)).map(|i| chars[i]);
        let after_name = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let hashes = (at + 1..chars.len()).take_while(|i| chars[*i] == '#').count();
        let end = if starts(at, "//") {
            (at..chars.len()).find(|i| chars[*i] == '\n').unwrap_or(chars.len())
        } else if starts(at, "/*") {
            (at + 2..chars.len()).find(|i| starts(*i, "*/")).map_or(chars.len(), |i| i + 2)
        } else if chars[at] == 'r' && !after_name && chars.get(at + 1 + hashes) == Some(&'"') {
            let close = format!("\"{}", "#".repeat(hashes));
            (at + hashes + 2..chars.len()).find(|i| starts(*i, &close)).map_or(chars.len(), |i| i + close.len())
        } else if chars[at] == '"' {
            closing(&chars, at, '"')
        } else if chars[at] == '\'' && (chars.get(at + 1) == Some(&'\\') || chars.get(at + 2) == Some(&'\'')) {
            // Else it is a lifetime.
            closing(&chars, at, '\'')
        } else {
            out.push(chars[at]);
            at += 1;
            continue;
        };
        out.extend(chars[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
        at = end;
    }
    out
}

fn closing(chars: &[char], from: usize, quote: char) -> usize {
    let mut at = from + 1;
    while at < chars.len() && chars[at] != quote {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(chars.len())
}

/// Lines that are neither blank nor only a comment, up to the tests at the end.
pub(crate) fn lines_of_code(text: &str) -> usize {
    let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
    blanked(code).lines().filter(|line| !line.trim().is_empty()).count()
}
