//! The names under which our clients see the tools and prompts of the servers behind us.
//!
//! A name depends on the configuration and on the raw pair (server, tool) alone, never on which servers happen to be
//! up: what a client or a prompt has learned stays true over restarts. It is for callers only; rules go by the raw
//! pair, so a name that two tools could be taken for never widens an allow.

use interlock_domain::request::args::Digest;

/// Longest name that is given out: clients of language models refuse longer ones.
pub const NAME_LEN_MAX: usize = 64;

/// Hexadecimal digits of the hash that tells apart what would look the same.
const HASH_LEN: usize = 8;

/// The name of `raw` of `server`, whose prefix is `prefix`. `others` are the prefixes of the other servers, and
/// `taken` the names of our own tools.
///
/// What fits is `prefix` and the raw name. A name with other characters, one that is too long, one of ours, and one
/// that could belong to a server with a longer prefix is cut and gets a hash of the raw pair.
#[must_use]
pub fn exposed<'a>(
    server: &str,
    prefix: &str,
    raw: &str,
    others: impl IntoIterator<Item = &'a str>,
    taken: impl Fn(&str) -> bool,
) -> String {
    let plain = format!("{prefix}{raw}");
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let fits = !raw.is_empty() && plain.len() <= NAME_LEN_MAX && plain.chars().all(is_allowed);
    let mut longer = others.into_iter().filter(|other| other.len() > prefix.len());
    if fits && !taken(&plain) && !longer.any(|other| plain.starts_with(other)) {
        return plain;
    }
    let hash = Digest::of(format!("{}:{server}{raw}", server.len()).as_bytes()).to_string();
    let kept: String =
        plain.chars().map(|c| if is_allowed(c) { c } else { '_' }).take(NAME_LEN_MAX - HASH_LEN - 1).collect();
    format!("{kept}_{}", &hash[..HASH_LEN])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(server: &str, prefix: &str, raw: &str, expected: &str) {
        let name = exposed(server, prefix, raw, ["", "git__", "git__log__"], |name| name == "shell");
        assert_eq!(name, expected, "{server} {raw}");
        assert!(name.len() <= NAME_LEN_MAX);
    }

    #[test]
    fn a_name_that_fits_is_prefix_and_raw_name() {
        check("git", "git__", "status", "git__status");
        check("bare", "", "echo", "echo");
        check("bare", "", "a.b-c_D9", "a.b-c_D9");
    }

    #[test]
    fn what_could_be_taken_for_another_gets_a_hash() {
        check("bare", "", "shell", "shell_42fd1567");
        check("bare", "", "git__status", "git__status_bbf18ae7");
        check("git", "git__", "log__x", "git__log__x_dec91c69");
        check("git", "git__", "说", "git____788f02a2");
        check("git", "git__", "a b", "git__a_b_bb46f6d3");
        check("git", "git__", "a_b", "git__a_b");
        check("git", "git__", "", "git___d1d473ee");
    }

    #[test]
    fn a_long_name_is_cut_and_stays_unique() {
        let long = "x".repeat(60);
        let one = exposed("git", "git__", &format!("{long}1"), [], |_| false);
        let two = exposed("git", "git__", &format!("{long}2"), [], |_| false);
        assert_eq!((one.len(), two.len()), (NAME_LEN_MAX, NAME_LEN_MAX));
        assert_ne!(one, two);
        assert_eq!(one, exposed("git", "git__", &format!("{long}1"), [], |_| false), "the same each time");
        assert_ne!(one, exposed("git2", "git__", &format!("{long}1"), [], |_| false), "another server, another name");
    }
}
