//! What somebody else wrote, in every place of every page: it stays text. `browser` holds the same pages in Chromium.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use interlock::record::{Row, Stamp, TimeQuality};
use interlock::store::chain::Algorithm;
use interlock::store::queue::Entry;
use interlock::store::{Limits, Settings, Store};
use interlock_domain::time::{Tick, Wall};
use serde_json::{Value, json};

use super::agents::Agent;
use super::console::Browser;
use super::{DEADLINE, Daemon, Home};

/// Ends an attribute of either kind, a title and a comment, and then acts in four ways.
pub(super) const HURT: &str = "\"'--></title></textarea><script>document.title='hurt'</script>\
                               <img src=x onerror=\"document.title='hurt'\"><a href=\"javascript:hurt()\">x</a>&lt;b&gt;";

/// The same in the path and in the query of an address.
fn in_address() -> String {
    HURT.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// A run and a task of an earlier life, all of whose words are of that kind.
const RUN: &str = "01KBA6AK800000000000000007";
const TASK: u64 = 7;

fn clock() -> Stamp {
    Stamp { mono: Tick(1), boottime_ns: 1, wall: Wall(1_764_500_000_000), quality: TimeQuality::Unknown }
}

/// Rows of every kind that a page knows, written by nobody's friend.
fn earlier_life(home: &Home) {
    let settings = Settings {
        state: home.path("state"),
        boot_id: "0b5c9f4e-8f5e-4f0e-9d55-2f6a2f1f7b11".to_owned(),
        version: "0.1.0".to_owned(),
        clock,
        limits: Limits::default(),
        algorithm: Algorithm::default(),
    };
    let store = Store::open(&settings).unwrap().store;
    let writer = store.writer();
    let detail = json!({
        "tool": HURT, "input": { HURT: HURT }, "rule": HURT, "reason": HURT, "step": HURT, "message": HURT, "by": HURT,
        "output": { "head": HURT, "cut": true }, "denied": true, "description": HURT, HURT: [HURT],
    });
    let call = format!("{RUN}.3.0");
    for kind in ["requested", "asked", "answered", "permitted", "intent", "outcome", "settled", "mcp_tools", "note"] {
        let row = Row {
            call: Some(call.parse().unwrap()),
            run: Some(RUN.parse().unwrap()),
            cause: Some(HURT.into()),
            to: Some(if kind == "settled" { "not_started".into() } else { HURT.into() }),
            ..Row::new(clock(), kind).detailed(&detail)
        };
        writer.append(Entry::relaxed(row)).unwrap();
    }
    let row = Row {
        task: Some(format!("t{TASK}").parse().unwrap()),
        from: Some(HURT.into()),
        ..Row::new(clock(), "lifecycle")
    };
    writer.append(Entry::relaxed(row.detailed(&detail))).unwrap();
    writer.append(Entry::relaxed(Row::new(clock(), HURT.to_owned()).detailed(&detail))).unwrap();
    assert_eq!(store.close().unwritten, 0);
}

/// A daemon that is told such things on every way in, and the paths of the pages that show them.
pub(super) fn daemon() -> (Daemon, Vec<String>) {
    let home = Home::new();
    earlier_life(&home);
    let quoted = json!(HURT).to_string();
    let config = format!(
        "version = 1\n[policy]\nallow = [\"Read(*)\"]\n[[bus]]\nname = \"field\"\ntcp = \"127.0.0.1:9\"\ntimeout-ms = 50\n\
         [[device]]\nname = \"pump-1\"\nkind = \"pump\"\nnumber = 1\nzone = {quoted}\nbus = \"field\"\nunit = 1\n\
         [device.points]\nrun = {{ coil = 0 }}\nlevel = {{ input = 1, unit = {quoted} }}\n\
         [device.actions]\nstart = {{ writes = [{{ point = \"run\", value = true }}], risk = \"dangerous\" }}\n"
    );
    // A name of a device has no such letters.
    let named = home.config(&config.replace("\"pump-1\"", &quoted));
    let refused = home.command(Some(&named)).output().unwrap();
    assert_eq!(refused.status.code(), Some(78), "{refused:?}");
    let path = home.config(&config);
    let file = home.path("written");
    std::fs::write(&file, HURT).unwrap();
    let daemon = home.start(Some(&path));
    daemon.say(HURT);
    let mut agent = Agent::of(&daemon);
    agent.call(HURT, json!({ "x": HURT }));
    agent.call("read_file", json!({ "path": file }));
    agent.call("device", json!({ "device": HURT, "action": HURT }));
    let refused = daemon.ask("console.token.add", json!({ "name": HURT, "role": "read" })).unwrap_err();
    assert_eq!(refused["kind"], "usage", "a name has no such letters: {refused}");
    // One that waits for a person: nobody of the machine can say yes to it by mistake, so that it stays.
    let socket = daemon.socket.clone();
    std::thread::spawn(move || ask_in_vain(&socket));
    daemon.eventually("a question", || (!daemon.list("ask.list").is_empty()).then_some(()));
    for (id, phrase) in [("a", HURT), ("b", "<script>document.title='hurt'</script>")] {
        // Refused or not, it has passed through the log.
        let _ = daemon.ask(
            "learn.propose",
            json!({ "proposal":
            { "id": id, "channel": "B", "phrase": phrase, "command": "pump_start" } }),
        );
    }
    let hurt = in_address();
    let mut pages: Vec<String> =
        ["/", "/questions", "/tasks", "/devices", "/reviews", "/evidence", "/policy", "/health", "/login"]
            .map(str::to_owned)
            .into();
    pages.extend([
        format!("/runs/{RUN}"),
        format!("/evidence?text={hurt}&kind={hurt}"),
        format!("/evidence?task=t{TASK}"),
        format!("/evidence?kind={hurt}&{hurt}={hurt}"),
        format!("/tasks?from={hurt}"),
        format!("/tasks/{hurt}"),
        format!("/runs/{hurt}"),
        format!("/evidence/{hurt}"),
        format!("/evidence?until={hurt}"),
        format!("/login?back=/{hurt}"),
        format!("/{hurt}"),
    ]);
    let rows = daemon.ask("evidence.query", json!({ "text": "hurt", "limit": 100 })).unwrap();
    pages.extend(rows.as_array().unwrap().iter().map(|row| format!("/evidence/{}", row["seq"])));
    (daemon, pages)
}

/// Says something to the gate that needs a person; the answer never comes.
fn ask_in_vain(socket: &std::path::Path) {
    let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    let args = json!({ "device": "pump-1", "action": "start", "point": "run", "value": true });
    let request = json!({ "v": 1, "id": 7, "verb": "device.write", "args": args });
    let _ = writeln!(stream, "{request}");
    let _ = BufReader::new(stream).read_line(&mut String::new());
}

/// Every tag of a page. Text has no `<` and no quotes of its own, so that this is what a browser sees.
fn tags(page: &str) -> Vec<&str> {
    page.split('<')
        .skip(1)
        .map(|tag| tag.split_once('>').unwrap_or_else(|| panic!("a tag without an end: {tag}")).0)
        .collect()
}

/// Only our own elements, with no attribute that acts, and no way out of this console.
#[track_caller]
fn check(path: &str, page: &str) {
    const OURS: [&str; 45] = [
        "!doctype", "html", "head", "meta", "link", "script", "title", "body", "a", "header", "span", "nav", "ul",
        "li", "form", "input", "small", "button", "main", "p", "h1", "h2", "h3", "div", "table", "caption", "thead",
        "tbody", "tr", "th", "td", "section", "dl", "dt", "dd", "pre", "code", "b", "label", "svg", "polyline",
        "select", "option", "strong", "time",
    ];
    for tag in tags(page) {
        let name = tag.trim_start_matches('/').split([' ', '\n']).next().unwrap();
        assert!(OURS.contains(&name), "{path}: <{tag}>");
        let mut pieces = tag.split('"');
        while let (Some(attribute), Some(value)) = (pieces.next(), pieces.next()) {
            let attribute = attribute.trim().rsplit(' ').next().unwrap().trim_end_matches('=');
            assert!(!attribute.starts_with("on") && !matches!(attribute, "style" | "srcdoc"), "{path}: <{tag}>");
            if matches!(attribute, "href" | "src" | "action") {
                let is_here = (value.starts_with('/') && !value.starts_with("//")) || value == "#main";
                assert!(is_here && !value.contains('\\'), "{path}: <{tag}>");
            }
        }
    }
    let scripts: Vec<&str> = tags(page).into_iter().filter(|tag| tag.starts_with("script")).collect();
    assert_eq!(scripts, ["script src=\"/live.js\" defer"], "{path}");
}

#[test]
fn nothing_that_somebody_wrote_is_markup_on_any_page() {
    let (daemon, pages) = daemon();
    let browser = Browser::of(&daemon, "wang", "approve");
    let (address, cookie) = (&browser.address, &browser.cookie);
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    write!(&stream, "GET /events HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\n\r\n").unwrap();
    let mut shown = Vec::new();
    for path in &pages {
        for lang in ["en", "zh-CN"] {
            let got = browser.request("GET", path, &format!("Accept-Language: {lang}\r\n"), "");
            assert!(matches!(got.status, 200 | 303 | 400 | 404), "{path}: {} {}", got.status, got.body);
            let policy = got.header("content-security-policy").unwrap();
            assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'self';"), "{policy}");
            assert!(!policy.contains("unsafe"), "{policy}");
            assert!(got.head.lines().count() < 20 && !got.head.contains("hurt"), "{path}: {}", got.head);
            if got.status == 303 {
                continue;
            }
            check(path, &got.body);
            if got.body.contains("&lt;script&gt;document.title=&#39;hurt&#39;") {
                shown.push(path.clone());
            }
        }
    }
    // It is looked for where it stands: a page that does not show it proves nothing.
    for path in ["/questions", "/", "/devices", "/policy", "/evidence"]
        .into_iter()
        .map(str::to_owned)
        .chain([format!("/runs/{RUN}")])
    {
        assert!(shown.contains(&path), "{path} shows none of it: {shown:?}");
    }
    assert!(shown.len() > 40, "{shown:?}");

    // What a form sends back: in the note of the next page, and in the page of a refusal.
    let hurt = in_address();
    for (path, fields) in [
        ("/ask/allow", format!("question={hurt}")),
        ("/task/stop", format!("task={hurt}")),
        ("/learn/approve", format!("proposal={hurt}")),
        ("/learn/rollback", format!("version={hurt}")),
        ("/learn/reject", format!("proposal=p1&note={hurt}&back=//{hurt}")),
    ] {
        let got = browser.act(path, &fields);
        assert!(!got.head.contains("hurt"), "{path}: {}", got.head);
        if got.status != 303 {
            check(path, &got.body);
        }
    }
    check("/", &browser.page("/"));

    // The stream of events has words of its own only.
    daemon.say(HURT);
    let question = daemon.list("ask.list")[0]["question"].as_str().unwrap().to_owned();
    assert_eq!(browser.act("/ask/deny", &format!("question={question}")).status, 303);
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let _head = lines.by_ref().take_while(|line| !line.is_empty()).count();
    let mut changed = false;
    while !changed {
        let line = lines.next().unwrap();
        let is_size = !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_known = ["", "retry: 3000", "event: changed", "data: 1", ": still here"].contains(&line.as_str());
        assert!(is_size || is_known, "{line:?}");
        changed = line == "data: 1";
    }
    let _: Value = daemon.ask("status", json!({})).unwrap();
}
