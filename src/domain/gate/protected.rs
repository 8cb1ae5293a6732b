//! Paths that no mode waives: what a write would turn against the owner, and what a read would give away.
//!
//! Both lists look at the canonical path, and fold case, since some file systems do.

use std::borrow::Cow;

use crate::request::paths::{base, parts, within};

use super::pattern::is_folded;

/// Directories in which a write changes what runs later, whoever's they are.
pub(super) const PROTECTED_DIRS: &[&str] = &[".git", ".vscode", ".idea", ".husky", ".cargo", ".devcontainer", ".ssh"];

/// Files that are run or obeyed without being asked for.
pub(super) const PROTECTED_FILES: &[&str] = &[
    ".bash_aliases",
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
    ".cshrc",
    ".envrc",
    ".gitconfig",
    ".gitmodules",
    ".kshrc",
    ".login",
    ".mcp.json",
    ".npmrc",
    ".profile",
    ".tcshrc",
    ".zlogin",
    ".zlogout",
    ".zprofile",
    ".zshenv",
    ".zshrc",
    "config.fish",
];

/// Parts of the system.
const PROTECTED_TREES: &[&str] = &[
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/proc",
    "/run/systemd",
    "/sbin",
    "/sys",
    "/usr",
    "/var/spool/cron",
];

/// Device files that swallow or show what is written, and nothing else.
const HARMLESS_DEVICES: &[&str] = &["/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/zero", "/dev/full"];

/// In lower case; nearly every path is that already.
fn folded(path: &str) -> Cow<'_, str> {
    if is_folded(path) { Cow::Borrowed(path) } else { Cow::Owned(path.to_lowercase()) }
}

/// A device file that swallows or shows what is written, and nothing else.
#[must_use]
pub fn is_sink(path: &str) -> bool {
    HARMLESS_DEVICES.contains(&path) || path.starts_with("/dev/fd/")
}

/// Why a write to this path is never a matter of the mode; `None` when it is. `own` are Interlock's own paths.
#[must_use]
pub fn protected(canonical: &str, own: &[String]) -> Option<&'static str> {
    let path = &*folded(canonical);
    if is_sink(path) {
        return None;
    }
    if own.iter().any(|dir| within(path, &folded(dir))) {
        return Some("it is Interlock's own");
    }
    if PROTECTED_TREES.iter().any(|tree| within(path, tree)) {
        return Some("it is a part of the system");
    }
    let pair = |one: &str, two: &str| parts(path).zip(parts(path).skip(1)).any(|pair| pair == (one, two));
    if parts(path).any(|part| PROTECTED_DIRS.contains(&part)) || pair(".config", "git") || pair(".config", "systemd") {
        return Some("what lies there is run or obeyed later");
    }
    let name = base(path);
    let unit = || [".service", ".timer", ".socket"].iter().any(|end| name.ends_with(end)) && pair("systemd", "system");
    (PROTECTED_FILES.contains(&name) || unit()).then_some("it is run or obeyed later")
}

/// Names of private keys.
const KEY_NAMES: &[&str] = &["id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk"];
/// Endings of files that hold private keys.
const KEY_ENDS: &[&str] = &[".pem", ".key", ".p12", ".pfx", ".ppk", ".jks", ".keystore", ".kdbx"];
/// Files with passwords or tokens.
const TOKEN_NAMES: &[&str] =
    &[".netrc", "_netrc", ".pgpass", ".git-credentials", ".htpasswd", ".pypirc", ".vault-token"];
/// Directories with credentials of clouds and clusters, and the file in them (empty: all).
const CREDENTIALS: &[(&str, &str)] = &[
    (".aws", "credentials"),
    (".azure", ""),
    (".docker", "config.json"),
    ("gh", "hosts.yml"),
    ("glab-cli", "config.yml"),
    (".terraform.d", "credentials.tfrc.json"),
    (".cargo", "credentials.toml"),
    (".cargo", "credentials"),
    ("gcloud", ""),
    (".gnupg", ""),
    (".kube", "config"),
    (".password-store", ""),
];

/// Why reading this path gives away a secret; `None` when it does not. `own` are the directories of Interlock's keys.
#[must_use]
pub fn secret(canonical: &str, own: &[String]) -> Option<&'static str> {
    let path = &*folded(canonical);
    if own.iter().any(|dir| within(path, &folded(dir))) {
        return Some("it holds keys of Interlock");
    }
    if matches!(path, "/etc/shadow" | "/etc/gshadow" | "/etc/shadow-" | "/etc/gshadow-") {
        return Some("it holds the passwords of this machine");
    }
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    if let Some(process) = dir.strip_prefix("/proc").filter(|rest| rest.is_empty() || rest.starts_with('/')) {
        if matches!(name, "environ" | "mem") {
            return Some("it shows the memory of a process");
        }
        let leads_elsewhere = |part: &str| matches!(part, "root" | "cwd" | "fd" | "map_files");
        if !process.is_empty() && parts(process).skip(2).chain([name]).any(leads_elsewhere) {
            return Some("it is a way around the path of a file");
        }
    }
    if let Some(rest) = name.strip_prefix(".env")
        && (rest.is_empty() || rest.starts_with(['.', '-', '_']))
        && ![".example", ".sample", ".template"].iter().any(|end| rest.ends_with(end))
    {
        return Some("it is an environment file, which holds secrets");
    }
    if KEY_NAMES.contains(&name) || KEY_ENDS.iter().any(|end| name.ends_with(end)) {
        return Some("it is a private key");
    }
    if TOKEN_NAMES.contains(&name) {
        return Some("it holds passwords or tokens");
    }
    let open = |name: &str| name.ends_with(".pub") || matches!(name, "known_hosts" | "config" | "authorized_keys");
    if parts(dir).any(|part| part == ".ssh") && !open(name) {
        return Some("it is a private key");
    }
    let of_dir = |part: &str| CREDENTIALS.iter().any(|(dir, file)| file.is_empty() && *dir == part);
    let of_file = |part: &str| CREDENTIALS.contains(&(part, name));
    (of_file(base(dir)) || parts(dir).any(of_dir)).then_some("it holds credentials")
}

/// The home directory of somebody, by where homes are.
#[must_use]
pub fn is_a_home(canonical: &str) -> bool {
    canonical == "/root" || canonical.strip_prefix("/home/").is_some_and(|name| !name.is_empty() && !name.contains('/'))
}

/// What of a home directory holds keys and tokens.
const SECRETS_OF_HOME: &[&str] = &[
    ".aws",
    ".azure",
    ".config/gcloud",
    ".config/gh",
    ".config/glab-cli",
    ".docker",
    ".git-credentials",
    ".gnupg",
    ".kube",
    ".netrc",
    ".password-store",
    ".pgpass",
    ".ssh",
];

/// Why reading all that is below this directory gives away a secret; `None` when nothing is known of it that would.
#[must_use]
pub fn secret_below(canonical: &str, home: Option<&str>, own: &[String]) -> Option<&'static str> {
    let path = &*folded(canonical);
    let own_below = |dir: &String| {
        let dir = folded(dir);
        within(&dir, path) || within(path, &dir)
    };
    if own.iter().any(own_below) {
        return Some("keys of Interlock are below it");
    }
    if within("/etc/shadow", path) {
        return Some("the passwords of this machine are below it");
    }
    if within("/proc", path) || path.starts_with("/proc/") && path.matches('/').count() < 3 {
        return Some("the memory of processes is below it");
    }
    let of_home = |home: &str| {
        let home = &*folded(home);
        let below = |rest: &str| SECRETS_OF_HOME.iter().any(|dir| within(dir, rest));
        let rest = path.strip_prefix(home);
        within(home, path) || rest.and_then(|rest| rest.strip_prefix('/')).is_some_and(below)
    };
    if home.is_some_and(of_home) || is_a_home(path) || within("/home", path) {
        return Some("keys and tokens of a person are below it");
    }
    let keeps =
        |part: &str| matches!(part, ".ssh" | ".aws" | ".azure" | ".gnupg" | ".kube" | ".password-store" | "gcloud");
    parts(path).any(keeps).then_some("it holds keys or credentials")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below_a_directory_counts_for_those_who_read_all_of_it() {
        let own = ["/state/keys".to_owned()];
        for dir in [
            "/",
            "/etc",
            "/home",
            "/home/u",
            "/home/u/.ssh",
            "/home/u/.config",
            "/state",
            "/proc",
            "/ws/.aws",
            "/root",
            "/home/bob",
        ] {
            assert!(secret_below(dir, Some("/home/u"), &own).is_some(), "{dir}");
        }
        for dir in ["/ws", "/home/u/src", "/etc/nginx", "/tmp", "/home/u/.cache", "/state/spill"] {
            assert_eq!(secret_below(dir, Some("/home/u"), &own), None, "{dir}");
        }
    }

    #[test]
    fn writes_that_are_run_or_obeyed_later_are_protected() {
        let own = ["/var/lib/interlock".to_owned()];
        for path in [
            "/ws/.git/hooks/pre-commit",
            "/ws/.GIT/config",
            "/home/u/.config/git/config",
            "/ws/.envrc",
            "/home/u/.bashrc",
            "/etc/passwd",
            "/dev/sda",
            "/usr/bin/ls",
            "/home/u/.config/systemd/user/x.service",
            "/var/lib/interlock/evidence/1.db",
            "/home/u/.ssh/authorized_keys",
        ] {
            assert!(protected(path, &own).is_some(), "{path}");
        }
        for path in ["/ws/src/a.rs", "/ws/.gitignore", "/dev/null", "/ws/etc/a", "/var/lib/interlock2", "/home/u/a"] {
            assert_eq!(protected(path, &own), None, "{path}");
        }
    }

    #[test]
    fn reads_that_give_away_secrets_are_known() {
        let own = ["/state/keys".to_owned()];
        for path in [
            "/ws/.env",
            "/ws/.env.production",
            "/ws/.ENV",
            "/home/u/.ssh/id_ed25519",
            "/home/u/.ssh/work",
            "/home/u/.aws/credentials",
            "/etc/shadow",
            "/ws/server.key",
            "/state/keys/signing",
            "/proc/1/environ",
            "/proc/self/root/etc/shadow",
            "/proc/self/cwd/x",
            "/home/u/.config/gcloud/credentials.db",
        ] {
            assert!(secret(path, &own).is_some(), "{path}");
        }
        for path in [
            "/ws/.env.example",
            "/ws/.env.sample",
            "/ws/.environment",
            "/home/u/.ssh/id_ed25519.pub",
            "/home/u/.ssh/known_hosts",
            "/etc/passwd",
            "/ws/keys/README",
        ] {
            assert_eq!(secret(path, &own), None, "{path}");
        }
    }
}
