//! Servers that want OAuth: a person logs in once, tokens renew themselves, a machine's secret needs nobody, and what
//! does not fit is refused before any token goes anywhere.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use super::authority::{Authority, KNOWN, Manners, browse, get};
use super::*;

fn guarded(home: Home, authority: &Authority, oauth: &str) -> Daemon {
    let url = authority.resource();
    let server = format!("[[mcp.server]]\nname = \"far\"\nurl = \"{url}\"\nera = \"legacy\"\noauth = {oauth}\n");
    daemon(home, "allow = [\"mcp__far\"]", &server, &[])
}

/// `interlock mcp login far`, up to the address that it prints.
fn login(daemon: &Daemon) -> (Child, BufReader<std::process::ChildStdout>, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .arg("--socket")
        .arg(&daemon.socket)
        .args(["mcp", "login", "far"])
        .env("LANG", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("http") {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "no address: {}", said(child.wait_with_output().unwrap()));
    }
    (child, lines, line.trim().to_owned())
}

fn said(output: Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn ends_well(child: Child, lines: BufReader<std::process::ChildStdout>) {
    let rest: Vec<String> = lines.lines().map_while(Result::ok).collect();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{rest:?} {}", said(output));
}

fn call(daemon: &Daemon, tool: &str) -> Value {
    Client::legacy(daemon, json!({})).call(&format!("far__{tool}"), json!({}))
}

#[test]
fn a_person_logs_in_once_and_the_tokens_renew_themselves() {
    let authority = Authority::start(Manners::Right);
    let daemon = guarded(Home::new(), &authority, "{}");
    let row = stands(&daemon, "far", "down");
    assert!(row["why"].as_str().unwrap().contains("interlock mcp login far"), "{row}");

    // The browser runs on this machine: it is sent back to the command that waits.
    let (child, lines, url) = login(&daemon);
    assert_eq!(get(&browse(&url)).0, 200);
    ends_well(child, lines);
    stands(&daemon, "far", "up");
    assert_eq!(text(&call(&daemon, "echo")), "echo");
    evidence(&daemon, "mcp_login", |rows| rows.iter().any(|row| row["detail"]["server"] == "far"));
    let file = daemon.path("state/keys/mcp/far.json");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    // The access token ends; the call that finds that out is made once, with a fresh one.
    authority.expire();
    assert_eq!(text(&call(&daemon, "echo")), "echo");
    assert_eq!(authority.calls(), ["echo", "echo"]);

    // One tool wants more than the login covers: a person is sent for, and pastes what the browser ended at.
    let refused = call(&daemon, "admin");
    assert_eq!(code(&refused), "not_authorized", "{refused}");
    assert!(text(&refused).contains("interlock mcp login far") && text(&refused).contains("write"), "{refused}");
    let (mut child, lines, url) = login(&daemon);
    writeln!(child.stdin.as_mut().unwrap(), "{}", browse(&url)).unwrap();
    ends_well(child, lines);
    assert_eq!(text(&call(&daemon, "admin")), "admin");
    assert_eq!(authority.asked(), ["read", "read write"], "what was had is asked for again");

    // Another life needs no login.
    let secrets = authority.secrets();
    assert!(secrets.len() >= 2, "{secrets:?}");
    assert!(secrets.iter().all(|secret| !daemon.log().contains(secret)), "no secret is printed");
    let home = daemon.kill();
    let path = home.path("interlock.toml");
    let daemon = home.start(Some(&path));
    stands(&daemon, "far", "up");
    assert_eq!(text(&call(&daemon, "admin")), "admin");
    assert_eq!(authority.wrong(), Vec::<String>::new());

    // Taken back at the other end: said so, and nothing is sent again and again.
    authority.revoke();
    let refused = call(&daemon, "echo");
    assert_eq!(code(&refused), "not_authorized", "{refused}");
    assert!(!file.exists(), "tokens that are no good are not kept");
    assert_eq!(authority.wrong(), ["invalid_grant"]);
}

#[test]
fn a_machine_with_a_secret_needs_nobody() {
    let authority = Authority::start(Manners::Right);
    let home = Home::new();
    std::fs::write(home.path("secret"), KNOWN.1).unwrap();
    let oauth = format!(
        "{{ grant = \"client-credentials\", client-id = \"{}\", client-secret-file = \"{}\" }}",
        KNOWN.0,
        home.path("secret").display()
    );
    let daemon = guarded(home, &authority, &oauth);
    stands(&daemon, "far", "up");
    assert_eq!(text(&call(&daemon, "echo")), "echo");
    // Another scope is asked for by itself, too: it is the same secret.
    assert_eq!(text(&call(&daemon, "admin")), "admin");
    authority.expire();
    assert_eq!(text(&call(&daemon, "admin")), "admin");
    assert_eq!(authority.wrong(), Vec::<String>::new());
    let none = daemon.ask("mcp.login", json!({"server": "far", "redirect": "http://127.0.0.1:1/callback"}));
    assert!(none.unwrap_err()["message"].as_str().unwrap().contains("has no login"));
    assert!(!daemon.log().contains(KNOWN.1), "no secret is printed");
}

#[test]
fn nothing_is_given_to_whoever_does_not_fit() {
    let redirect = "http://127.0.0.1:9/callback";
    let begin = |manners: Manners, redirect: &str| {
        let authority = Authority::start(manners);
        let daemon = guarded(Home::new(), &authority, "{}");
        stands(&daemon, "far", "down");
        let begun = daemon.ask("mcp.login", json!({"server": "far", "redirect": redirect}));
        (authority, daemon, begun)
    };
    for (manners, fact) in [
        (Manners::OtherResource, "is not this server"),
        (Manners::OtherIssuer, "it is of the issuer"),
        (Manners::NoChallenge, "S256"),
        (Manners::NoRegistration, "client-id"),
    ] {
        let (authority, _daemon, begun) = begin(manners, redirect);
        let error = begun.unwrap_err();
        assert!(error["message"].as_str().unwrap().contains(fact), "{manners:?}: {error}");
        assert_eq!(authority.asked(), Vec::<String>::new(), "nobody was asked");
    }
    let (_authority, _daemon, begun) = begin(Manners::Right, "http://elsewhere.example/callback");
    assert!(begun.unwrap_err()["message"].as_str().unwrap().contains("on this machine"));

    // The answer of another login, of another server, and none.
    let (authority, daemon, begun) = begin(Manners::Right, redirect);
    let end = |answer: &str| {
        let ended = daemon.ask("mcp.logged-in", json!({"server": "far", "answer": answer}));
        ended.map_or_else(|error| error["message"].as_str().unwrap().to_owned(), |_| "in".to_owned())
    };
    let answer = browse(begun.unwrap()["url"].as_str().unwrap());
    assert!(end("code=x&state=y").contains("its state is another"));
    assert!(end("").contains("its state is another"));
    assert_eq!(authority.wrong(), Vec::<String>::new(), "no code went out");
    assert_eq!(end(&answer), "in", "a stranger's answer does not end the login");
    assert!(end(&answer).contains("no login is under way"), "an answer counts once");
    let url = |daemon: &Daemon| {
        let begun = daemon.ask("mcp.login", json!({"server": "far", "redirect": redirect})).unwrap();
        begun["url"].as_str().unwrap().to_owned()
    };
    let answer = browse(&url(&daemon)).replace("tenant", "other");
    assert!(end(&answer).contains("another authorization server"));
    let state = browse(&url(&daemon)).split("state=").nth(1).unwrap().split('&').next().unwrap().to_owned();
    let iss = format!("{}/tenant", authority.address);
    assert!(end(&format!("error=access_denied&state={state}&iss={iss}")).contains("access_denied"));

    let (_authority, daemon, begun) = begin(Manners::Nameless, redirect);
    let answer = browse(begun.unwrap()["url"].as_str().unwrap());
    let ended = daemon.ask("mcp.logged-in", json!({"server": "far", "answer": answer})).unwrap_err();
    assert!(ended["message"].as_str().unwrap().contains("which authorization server"), "{ended}");
}
