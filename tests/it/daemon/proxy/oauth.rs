//! Servers that want OAuth: a person logs in once, tokens renew themselves, a machine's secret needs nobody, and what
//! does not fit is refused before any token goes anywhere.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use super::authority::{Authority, KNOWN, Manners, browse, get};
use super::*;

fn guarded(home: Home, authority: &Authority, oauth: &str) -> Daemon {
    guarded_in("legacy", home, authority, oauth)
}

fn guarded_in(era: &str, home: Home, authority: &Authority, oauth: &str) -> Daemon {
    let url = authority.resource();
    let server = format!("[[mcp.server]]\nname = \"far\"\nurl = \"{url}\"\nera = \"{era}\"\noauth = {oauth}\n");
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

/// A daemon that a person has logged in at.
pub(super) fn logged_in(authority: &Authority) -> Daemon {
    let daemon = guarded(Home::new(), authority, "{}");
    stands(&daemon, "far", "down");
    let (child, lines, url) = login(&daemon);
    assert_eq!(get(&browse(&url)).0, 200);
    ends_well(child, lines);
    stands(&daemon, "far", "up");
    daemon
}

#[test]
fn a_server_of_one_era_says_in_that_one_what_it_wants() {
    let authority = Authority::start(Manners::Modern);
    let daemon = guarded_in("auto", Home::new(), &authority, "{}");
    let row = stands(&daemon, "far", "down");
    assert!(row["why"].as_str().unwrap().contains("interlock mcp login far"), "{row}");
    let (child, lines, url) = login(&daemon);
    assert_eq!(get(&browse(&url)).0, 200);
    ends_well(child, lines);
    let row = stands(&daemon, "far", "up");
    assert_eq!(row["eras"], json!(["2026-07-28"]), "{row}");
    assert_eq!(text(&call(&daemon, "echo")), "echo");
    assert!(!authority.came("notifications/cancelled"), "a hello is not taken back, and what was refused neither");
    assert_eq!(authority.wrong(), Vec::<String>::new());
}

#[test]
fn only_the_end_of_a_grant_ends_a_login() {
    let authority = Authority::start(Manners::Right);
    let mut daemon = logged_in(&authority);
    let tokens = |daemon: &Daemon| std::fs::read_to_string(daemon.path("state/keys/mcp/far.json")).unwrap();
    for (status, body, fact) in [
        ("503 Service Unavailable", "{\"error\": \"invalid_grant\"}", "503"),
        ("429 Too Many Requests", "", "429"),
        ("401 Unauthorized", "{\"error\": \"invalid_client\"}", "invalid_client"),
        ("200 OK", "<html>a captive portal</html>", "200"),
    ] {
        let kept = tokens(&daemon);
        authority.expire();
        authority.stumble(status, body);
        let before = authority.tries();
        for _ in 0..3 {
            let refused = call(&daemon, "echo");
            assert_eq!(code(&refused), "not_authorized", "{refused}");
            let told = text(&refused);
            assert!(told.contains("was not renewed") && told.contains(fact), "{status}: {refused}");
        }
        assert_eq!(authority.tries(), before + 1, "{status}: each call asks again");
        assert_eq!(tokens(&daemon), kept, "{status}");
        // Another life asks at once.
        authority.recover();
        let home = daemon.kill();
        let path = home.path("interlock.toml");
        daemon = home.start(Some(&path));
        stands(&daemon, "far", "up");
        assert_eq!(text(&call(&daemon, "echo")), "echo", "{status}");
        assert_ne!(tokens(&daemon), kept, "{status}");
    }
    authority.revoke();
    assert!(text(&call(&daemon, "echo")).contains("interlock mcp login far"));
    assert!(!daemon.path("state/keys/mcp/far.json").exists());
}

#[test]
fn a_cancelled_call_loses_no_token() {
    let authority = Authority::start(Manners::Right);
    let daemon = logged_in(&authority);
    authority.expire();
    authority.hold(true);
    let mut client = Client::legacy(&daemon, json!({}));
    let before = authority.good();
    let id = client.ask("tools/call", json!({"name": "far__echo", "arguments": {}}));
    daemon.eventually("a rotated token", || (authority.good() != before).then_some(()));
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    daemon.eventually("the call is taken back", || authority.came("notifications/cancelled").then_some(()));
    authority.hold(false);
    let [good] = authority.good().try_into().unwrap();
    daemon.eventually("the new token on the disk", || {
        std::fs::read_to_string(daemon.path("state/keys/mcp/far.json")).unwrap().contains(&good).then_some(())
    });
    assert_eq!(text(&call(&daemon, "echo")), "echo");
    assert_eq!(authority.wrong(), Vec::<String>::new());
}

#[test]
fn a_token_that_is_still_good_is_used_while_the_next_one_is_fetched() {
    let authority = Authority::start(Manners::Right);
    let home = logged_in(&authority).kill();
    let file = home.path("state/keys/mcp/far.json");
    let mut kept: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let soon = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() + 25_000;
    kept["until_ms"] = u64::try_from(soon).unwrap().into();
    std::fs::write(&file, kept.to_string()).unwrap();
    authority.hold(true);
    let path = home.path("interlock.toml");
    let daemon = home.start(Some(&path));
    // Nobody waits for the authorization server, which does not answer.
    stands(&daemon, "far", "up");
    assert_eq!(text(&call(&daemon, "echo")), "echo");
    assert_eq!(authority.tries(), 2, "the login and one renewal");
    authority.hold(false);
    let [good] = authority.good().try_into().unwrap();
    daemon.eventually("the new token on the disk", || {
        std::fs::read_to_string(&file).unwrap().contains(&good).then_some(())
    });
    assert_eq!(text(&call(&daemon, "echo")), "echo");
    assert_eq!(authority.tries(), 2);
    assert_eq!(authority.wrong(), Vec::<String>::new());
}

#[test]
fn whoever_else_comes_costs_a_login_nothing() {
    let authority = Authority::start(Manners::Right);
    let daemon = guarded(Home::new(), &authority, "{}");
    stands(&daemon, "far", "down");
    let (mut child, lines, url) = login(&daemon);
    let back = browse(&url);
    let at = back.split("/callback").next().unwrap().to_owned();
    // Connections that are opened and say nothing, as browsers make them, and one that dribbles.
    let address = at.strip_prefix("http://").unwrap();
    let mut silent: Vec<_> = (0..4).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    silent[0].write_all(b"GET /callback?st").unwrap();
    for (target, status) in [
        ("/favicon.ico", 404),
        ("/callback", 404),
        ("/callback?code=x&state=guessed", 400),
        ("/callback?error=access_denied", 400),
        ("/callback?state=a&state=b", 400),
    ] {
        assert_eq!(get(&format!("{at}{target}")).0, status, "{target}");
    }
    writeln!(child.stdin.as_mut().unwrap(), "\nhttp://127.0.0.1/callback?code=x&state=other\nnonsense").unwrap();
    assert_eq!(get(&back).0, 200);
    ends_well(child, lines);
    stands(&daemon, "far", "up");
    assert_eq!(authority.wrong(), Vec::<String>::new(), "no code of a stranger went out");
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
