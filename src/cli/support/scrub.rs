//! Takes secrets out of what leaves the machine for support.
//!
//! It errs on the side of taking too much: a word that is long and looks random goes, whatever it was, because a
//! support case can be solved without it and a token that leaked cannot be called back. It must never be used for what
//! is evidence: the log stays as it was written.

use serde_json::{Map, Value};

/// What stands where something was.
pub(super) const REMOVED: &str = "[removed]";

/// A word without a break that is at least this long, with letters and digits, is a key, a hash or a token.
const RANDOM_LEN_MIN: usize = 20;

/// Words that say that a secret is meant, in the name of a member or before a value.
const SECRET_WORDS: [&str; 10] = [
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "credential",
    "authorization",
    "cookie",
    "apikey",
    "bearer",
];

/// Members all of whose values go: what others put in there is not known.
const SECRET_TABLES: [&str; 2] = ["env", "headers"];

/// A copy of `value` without secrets.
#[must_use]
pub(super) fn scrubbed(value: &Value) -> Value {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        Value::String(text) => Value::String(text_of(text)),
        Value::Array(all) => Value::Array(list(all)),
        Value::Object(members) => Value::Object(members.iter().map(member).collect::<Map<_, _>>()),
    }
}

/// `["curl", "--token", "x"]`: a word of a list may name the next one.
fn list(all: &[Value]) -> Vec<Value> {
    let named = |before: Option<&Value>| before.and_then(Value::as_str).is_some_and(word_is_secret);
    let befores = std::iter::once(None).chain(all.iter().map(Some));
    all.iter().zip(befores).map(|(value, before)| if named(before) { gone(value) } else { scrubbed(value) }).collect()
}

fn member((name, value): (&String, &Value)) -> (String, Value) {
    let cleaned = if is_secret(name) {
        gone(value)
    } else if SECRET_TABLES.contains(&name.to_ascii_lowercase().as_str()) {
        emptied(value)
    } else {
        scrubbed(value)
    };
    (name.clone(), cleaned)
}

/// Names stay, values go.
fn emptied(value: &Value) -> Value {
    match value {
        Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), gone(value))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => gone(value),
    }
}

fn gone(value: &Value) -> Value {
    match value {
        // Whether something is set, and how many there are, is no secret.
        Value::Null | Value::Bool(_) => value.clone(),
        Value::Array(all) => Value::Array(all.iter().map(gone).collect()),
        Value::Number(_) | Value::String(_) | Value::Object(_) => Value::String(REMOVED.to_owned()),
    }
}

fn is_secret(name: &str) -> bool {
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    SECRET_WORDS.iter().any(|word| name.contains(word)) || name.ends_with("key") || name.ends_with("pin")
}

/// The same text without what looks like a secret: PEM blocks, what follows a secret word and a sign of assignment or
/// a blank, and long random words.
#[must_use]
pub(super) fn text_of(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    let mut rest = text;
    // A secret word was the last one: the next one is its value.
    let mut named = false;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("-----BEGIN ") {
            cleaned.push_str(REMOVED);
            rest = match after.find("-----END ") {
                Some(end) => after[end..].split_once('\n').map_or("", |(_, rest)| rest),
                None => "",
            };
            named = false;
        } else if let Some((after, host)) = rest.strip_prefix("://").and_then(|after| Some((after, user_end(after)?))) {
            cleaned.push_str("://");
            cleaned.push_str(REMOVED);
            rest = &after[host..];
            named = false;
        } else if is_part(c) {
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            let says_so = word_is_secret(word);
            // `Authorization: Bearer abc`: the scheme is no value.
            let value = named && !says_so;
            cleaned.push_str(if value || looks_random(word) { REMOVED } else { word });
            named = says_so || (named && !value);
            rest = after;
        } else {
            // A sentence that goes on says nothing about a value.
            named = named && (c == ' ' || c == '=' || c == ':' || c == '"' || c == '\'');
            cleaned.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    cleaned
}

/// Where the user and the password of an address end, if it has them (RFC 3986, 3.2.1).
fn user_end(after: &str) -> Option<usize> {
    let authority = after.find(|c: char| c == '/' || c.is_whitespace()).unwrap_or(after.len());
    after[..authority].rfind('@')
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '/' | '~' | '@' | '!' | '$' | '%' | '^' | '*' | '#')
}

fn word_is_secret(word: &str) -> bool {
    let lower: String = word.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    SECRET_WORDS.iter().any(|secret| lower.ends_with(secret)) || lower.ends_with("key")
}

fn looks_random(word: &str) -> bool {
    // A path is many words, and no token is written in Chinese.
    word.split(|c: char| !c.is_ascii() || c == '/' || c == '.').any(|part| {
        part.len() >= RANDOM_LEN_MIN
            && part.bytes().any(|byte| byte.is_ascii_digit())
            && part.bytes().any(|byte| byte.is_ascii_alphabetic())
            && !is_a_ulid(part)
    })
}

/// The runs of our own log are what a support case is about.
fn is_a_ulid(part: &str) -> bool {
    part.len() == 26 && part.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_keeps_what_is_no_secret() {
        for (text, cleaned) in [
            ("启动二号泵", "启动二号泵"),
            (
                "curl -H 'Authorization: Bearer abc' http://10.0.0.1/x",
                "curl -H 'Authorization: Bearer [removed]' http://10.0.0.1/x",
            ),
            ("mysql --password=hunter2 -u root", "mysql --password=[removed] -u root"),
            ("export API_KEY=\"x y\"", "export API_KEY=\"[removed] y\""),
            ("token: 123", "token: [removed]"),
            ("get https://user:hunter2@host/a@b now", "get https://[removed]@host/a@b now"),
            ("get https://host/a now", "get https://host/a now"),
            ("the token\nis gone", "the token\nis gone"),
            ("sk-proj-a1b2c3d4e5f6g7h8i9j0", "[removed]"),
            ("run 01KB6R5Q3M4N5P6Q7R8S9T0V1W", "run 01KB6R5Q3M4N5P6Q7R8S9T0V1W"),
            ("/var/lib/interlock/evidence/1.db", "/var/lib/interlock/evidence/1.db"),
            ("a -----BEGIN X-----\nabc\n-----END X-----\nb", "a [removed]b"),
            ("-----BEGIN X-----\nabc", "[removed]"),
            ("", ""),
        ] {
            assert_eq!(text_of(text), cleaned, "{text:?}");
        }
    }

    #[test]
    fn a_value_keeps_its_shape() {
        let value = json!({
            "api-key": "abc", "tls_key": "/etc/x", "tokens": ["a", "b"], "secret": null, "has-secret": true,
            "env": {"HOME": "/root", "N": 1}, "headers": {"X-Auth": "abc"}, "command": ["curl", "--token", "x"],
            "deep": [{"password": 7}], "kept": "no secret here",
        });
        let cleaned = json!({
            "api-key": REMOVED, "tls_key": REMOVED, "tokens": [REMOVED, REMOVED], "secret": null, "has-secret": true,
            "env": {"HOME": REMOVED, "N": REMOVED}, "headers": {"X-Auth": REMOVED}, "command": ["curl", "--token", REMOVED],
            "deep": [{"password": REMOVED}], "kept": "no secret [removed]",
        });
        assert_eq!(scrubbed(&value), cleaned);
    }

    #[test]
    fn a_secret_never_comes_through_whatever_stands_around_it() {
        let secret = "AKIA1234567890ABCDEFxyz";
        for around in ["{}", "a={}", "\"{}\"", "({})", "x {} y", "https://u:{}@h/", "k:{},", "[{}]", "é{}", "{}é"] {
            let cleaned = text_of(&around.replace("{}", secret));
            assert!(!cleaned.contains(secret), "{around}: {cleaned}");
        }
    }
}
