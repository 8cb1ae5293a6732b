//! Looking for something on the console: in the evidence, in a run, and for what the gate decided; and how it may be
//! reached after a reload.

use std::sync::Arc;

use serde_json::json;

use super::agents::Agent;
use super::console::{Browser, address, send};
use super::{Daemon, Home};

#[test]
fn the_newest_row_stands_first_and_a_link_leads_on_to_the_older_ones() {
    let daemon = Daemon::start();
    for _ in 0..25 {
        daemon.say("二号泵状态");
    }
    let browser = Browser::of(&daemon, "wang", "read");
    let rows = |page: &str| -> Vec<u64> {
        let links = page.split("<td><a href=\"/evidence/").skip(1);
        links.map(|link| link.split('"').next().unwrap().parse().unwrap()).collect()
    };
    let first = browser.page("/evidence");
    let newest = rows(&first);
    assert_eq!(newest.len(), 100, "a page has its bound");
    assert!(newest.is_sorted_by(|newer, older| newer > older), "{newest:?}");
    let next = format!("/evidence?until={}", newest[99] - 1);
    assert!(first.contains(&format!("href=\"{next}\"")), "{first}");
    let second = rows(&browser.page(&next));
    assert_eq!(second.first(), Some(&(newest[99] - 1)));
    // The search stays in the way on, and its words are no markup there.
    let searched = browser.page("/evidence?kind=requested&text=%26until%3D1%22");
    assert!(searched.contains("Nothing was found in these rows") && searched.contains("nothing older"), "{searched}");
    let last = browser.page("/evidence?until=1");
    assert_eq!(rows(&last), [1]);
    assert!(last.contains("There is nothing older"), "{last}");
    for wrong in ["until=x", "run=x", "task=x", "call=x", "until=-1"] {
        assert_eq!(browser.request("GET", &format!("/evidence?{wrong}"), "", "").status, 400, "{wrong}");
    }
}

#[test]
fn a_run_is_found_from_the_row_that_somebody_came_from() {
    let daemon = Daemon::start();
    daemon.say("启动二号泵");
    let browser = Browser::of(&daemon, "wang", "read");
    let settled = daemon.ask("evidence.query", json!({ "kind": "settled" })).unwrap();
    let (run, row) = (settled[0]["run"].as_str().unwrap(), settled[0]["seq"].as_u64().unwrap());
    let page = browser.page("/evidence?kind=settled");
    let link = format!("/runs/{run}?row={row}");
    assert!(page.contains(&format!("href=\"{link}\"")), "{page}");
    for place in [link, format!("/runs/{run}")] {
        let trace = browser.page(&place);
        for shown in ["requested", "permitted", "intent", "settled"] {
            assert!(trace.contains(shown), "{place}: {shown}: {trace}");
        }
    }
    let other = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    assert_eq!(browser.request("GET", &format!("/runs/{other}"), "", "").status, 404);
    assert_eq!(browser.request("GET", "/runs/x", "", "").status, 400);
}

#[test]
fn a_denial_stands_on_the_policy_page_with_its_rule_in_the_language_of_the_page() {
    let daemon = Daemon::with("version = 1\n[policy]\ndeny = [\"Device(pump-1:*)\"]\n");
    let denied = Agent::of(&daemon).call("device", json!({ "device": "pump-1", "action": "start" }));
    assert_eq!(denied["isError"], true, "{denied}");
    daemon.say("启动二号泵");
    let settled = daemon.ask("evidence.query", json!({ "kind": "settled" })).unwrap();
    let detail = &settled[0]["detail"];
    assert_eq!(
        (&detail["denied"], &detail["step"], &detail["rule"], &detail["reason"]),
        (&json!(true), &json!("rule"), &json!("Device(pump-1:*)"), &json!("a rule denies it")),
        "{settled}"
    );
    let browser = Browser::of(&daemon, "wang", "read");
    for (lang, title, decision, reason, allowed) in [
        ("en", "Denied last", ">denied<", "a rule denies it", "an operator operates"),
        ("zh-CN", "最近拒绝", ">拒绝<", "规则禁止", "由操作员发起"),
    ] {
        let page = browser.request("GET", "/policy", &format!("Accept-Language: {lang}\r\n"), "").body;
        let (_, after) = page.split_once(&format!("<h2>{title}")).unwrap_or_else(|| panic!("{page}"));
        let (denials, _others) = after.split_once("<h2>").unwrap();
        for shown in [decision, reason, "Device(pump-1:*)"] {
            assert!(denials.contains(shown), "{shown}: {denials}");
        }
        assert!(!denials.contains(allowed), "{denials}");
    }
}

/// What asks and why, where a person answers in Chinese.
#[test]
fn a_question_says_its_reason_in_the_language_of_the_page() {
    let daemon = Daemon::start();
    daemon.say("合上一号断路器");
    let browser = Browser::of(&daemon, "wang", "approve");
    let page = |lang: &str| browser.request("GET", "/questions", &format!("Accept-Language: {lang}\r\n"), "").body;
    let (en, zh) = (page("en"), page("zh-CN"));
    assert!(en.contains("its declared risk is dangerous"), "{en}");
    assert!(zh.contains("声明的风险等级为危险") && !zh.contains("its declared risk"), "{zh}");
}

#[test]
fn a_reload_brings_new_names_and_refuses_another_address_by_name() {
    let daemon = Daemon::with("version = 1\n[console]\nlisten = \"127.0.0.1:0\"\n");
    let address = address(&daemon);
    let port = address.rsplit_once(':').unwrap().1;
    let as_box = || {
        let request = format!("GET /login HTTP/1.1\r\nHost: box.example:{port}\r\nConnection: close\r\n\r\n");
        send(&address, request.as_bytes()).status
    };
    assert_eq!(as_box(), 421);
    let write =
        |text: &str| std::fs::write(daemon.path("interlock.toml"), format!("version = 1\n[console]\n{text}")).unwrap();
    write("listen = \"127.0.0.1:0\"\nhosts = [\"box.example\"]\n");
    assert_eq!(daemon.cli(&["reload"]).status.code(), Some(0), "{}", daemon.log());
    assert_eq!(as_box(), 200);
    for (text, named) in [
        ("listen = \"127.0.0.1:1\"\n", "where the console listens"),
        ("enabled = false\n", "where the console listens"),
        (
            "listen = \"127.0.0.1:0\"\ntls-certificate = \"/nowhere\"\ntls-key = \"/nowhere\"\n",
            "whether the console speaks TLS",
        ),
    ] {
        write(text);
        let refused = daemon.cli(&["reload"]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(78) && said.contains(named), "{text}: {said}");
        assert_eq!(as_box(), 200, "the names in force stay");
    }
    write("listen = \"127.0.0.1:0\"\n");
    assert_eq!(daemon.cli(&["reload"]).status.code(), Some(0), "{}", daemon.log());
    assert_eq!(as_box(), 421, "a name that is taken out is foreign at once");
}

#[test]
fn a_reload_brings_a_new_certificate_and_one_that_does_not_read_changes_nothing() {
    let home = Home::new();
    let (certificate, key) = (home.path("certificate.pem"), home.path("key.pem"));
    std::fs::write(&certificate, include_str!("../../data/tls/localhost.pem")).unwrap();
    std::fs::write(&key, include_str!("../../data/tls/localhost-key.pem")).unwrap();
    let config = home.config(&format!(
        "version = 1\n[console]\nlisten = \"127.0.0.1:0\"\ntls-certificate = {certificate:?}\ntls-key = {key:?}\n"
    ));
    let daemon = home.start(Some(&config));
    let address = daemon.ask("status", json!({})).unwrap()["console"].as_str().unwrap().to_owned();
    let address = address.trim_start_matches("https://").trim_end_matches('/').to_owned();
    let _known = rustls::crypto::ring::default_provider().install_default();
    let mut roots = rustls::RootCertStore::empty();
    let pem = rustls::pki_types::pem::PemObject::pem_slice_iter(include_bytes!("../../data/tls/localhost.pem"));
    for certificate in pem {
        roots.add(certificate.unwrap()).unwrap();
    }
    let client = Arc::new(rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth());
    let shake = || {
        let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
        let mut session = rustls::ClientConnection::new(Arc::clone(&client), name).unwrap();
        let mut socket = std::net::TcpStream::connect(&address).unwrap();
        while session.is_handshaking() {
            if let Err(error) = session.complete_io(&mut socket) {
                return Err(error.to_string());
            }
        }
        Ok(())
    };
    assert_eq!(shake(), Ok(()));
    std::fs::write(&key, "nothing").unwrap();
    assert_eq!(daemon.cli(&["reload"]).status.code(), Some(78));
    assert_eq!(shake(), Ok(()));
    std::fs::write(&certificate, include_str!("../../data/tls/other.pem")).unwrap();
    std::fs::write(&key, include_str!("../../data/tls/other-key.pem")).unwrap();
    assert_eq!(daemon.cli(&["reload"]).status.code(), Some(0), "{}", daemon.log());
    assert!(shake().is_err_and(|error| error.contains("invalid peer certificate")));
}
