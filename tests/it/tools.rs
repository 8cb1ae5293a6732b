//! The built-in tools on the real world: files on a disk, processes of a shell, servers on loopback.
//!
//! What is compared is the whole report, and the world after it: who says `failed` must have left nothing behind, and
//! a call that is over must leave nothing running.

use std::collections::BTreeSet;
use std::fs;
use std::future::Future;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use interlock::tool::{About, files, http, shell};
use interlock_domain::effect::report::Report;
use serde_json::{Value, json};

/// A canonical directory of its own.
struct Place {
    path: PathBuf,
    _held: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let held = tempfile::tempdir().unwrap();
        Place { path: held.path().canonicalize().unwrap(), _held: held }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn names(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(&self.path).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn block<F: Future>(work: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(work)
}

/// What a report says, in one line: `failed CODE` or `lost WHY`, or the output, which must fit its schema.
fn done(about: &About, report: Report) -> Result<Value, String> {
    match report {
        Report::Done(output) => {
            let schema = jsonschema::validator_for(&(about.output)()).unwrap();
            let breaches: Vec<String> = schema.iter_errors(&output).map(|error| error.to_string()).collect();
            assert!(breaches.is_empty(), "{} gives {output}: {breaches:?}", about.name);
            Ok(output)
        }
        Report::Failed(failure) => Err(format!("failed {}", failure.code)),
        Report::Lost(loss) => Err(format!("lost {loss:?}")),
    }
}

#[test]
fn each_tool_has_schemas_that_are_schemas_and_words_in_two_languages() {
    for about in [files::READ_FILE, files::WRITE_FILE, shell::SHELL, http::HTTP] {
        for schema in [(about.input)(), (about.output)()] {
            assert!(jsonschema::meta::is_valid(&schema), "{}: {schema}", about.name);
            assert_eq!(schema["additionalProperties"], json!(false), "{}", about.name);
        }
        for [en, zh] in [about.title, about.description] {
            assert!(en.is_ascii() && !en.contains("  "), "{}: {en}", about.name);
            assert!(!zh.is_ascii() && !zh.contains("  "), "{}: {zh}", about.name);
        }
    }
}

// ---- read_file -------------------------------------------------------------------------------------------------

fn read(path: &Path, input: Value) -> Result<Value, String> {
    let limits = files::Limits { read_max: 1000, ..files::Limits::default() };
    done(&files::READ_FILE, block(files::read_file(&input, path, limits)))
}

#[test]
fn a_window_of_a_file_is_read_as_text_or_as_base64() {
    let place = Place::new();
    let check = |bytes: &[u8], input: Value, expected: (u64, Value, &str, &str)| {
        let path = place.at("file");
        fs::write(&path, bytes).unwrap();
        let output = read(&path, input.clone()).unwrap();
        let (count, next, encoding, content) = expected;
        let offset = input.get("offset").cloned().unwrap_or(json!(0));
        let expected = json!({
            "path": path.to_str(), "size": bytes.len(), "offset": offset, "bytes": count, "next_offset": next,
            "encoding": encoding, "content": content,
        });
        assert_eq!(output, expected, "{bytes:?} {input}");
    };
    check(b"hello", json!({}), (5, Value::Null, "utf-8", "hello"));
    check(b"", json!({}), (0, Value::Null, "utf-8", ""));
    check(b"hello", json!({ "offset": 1, "limit": 3 }), (3, json!(4), "utf-8", "ell"));
    check(b"hello", json!({ "offset": 2, "limit": 3 }), (3, Value::Null, "utf-8", "llo"));
    check(b"hello", json!({ "offset": 5 }), (0, Value::Null, "utf-8", ""));
    check(b"hello", json!({ "offset": 99 }), (0, Value::Null, "utf-8", ""));
    // A character that the window cuts in two is left for the next one.
    check("联锁".as_bytes(), json!({ "limit": 4 }), (3, json!(3), "utf-8", "联"));
    check("联锁".as_bytes(), json!({ "offset": 3, "limit": 4 }), (3, Value::Null, "utf-8", "锁"));
    check("联".as_bytes(), json!({ "limit": 1 }), (1, json!(1), "base64", "6A=="));
    check("联锁".as_bytes(), json!({ "offset": 1, "limit": 2 }), (2, json!(3), "base64", "gZQ="));
    check(b"\xff\x00", json!({}), (2, Value::Null, "base64", "/wA="));
    check(b"ab\xe8", json!({}), (3, Value::Null, "base64", "YWLo"));
    check(b"hello", json!({ "encoding": "base64" }), (5, Value::Null, "base64", "aGVsbG8="));
}

#[test]
fn what_is_no_regular_file_at_the_judged_path_is_not_read() {
    let place = Place::new();
    fs::write(place.at("file"), "content").unwrap();
    fs::create_dir(place.at("directory")).unwrap();
    symlink(place.at("file"), place.at("link")).unwrap();
    symlink(&place.path, place.at("around")).unwrap();
    nix::unistd::mkfifo(&place.at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let check = |path: &str, input: Value, expected: &str| {
        assert_eq!(read(&place.at(path), input).map(|_| ()), Err(expected.to_owned()), "{path}");
    };
    check("none", json!({}), "failed no_such_file");
    check("file/below", json!({}), "failed no_such_file");
    check("directory", json!({}), "failed not_a_file");
    check("fifo", json!({}), "failed not_a_file");
    check("link", json!({}), "failed path_changed");
    check("around/file", json!({}), "failed path_changed");
    check("./file", json!({}), "failed not_canonical");
    check("file", json!({ "limit": 0 }), "failed bad_input");
    check("file", json!({ "limit": 1001 }), "failed bad_input");
    check("file", json!({ "offset": -1 }), "failed bad_input");
    check("file", json!({ "offset": u64::MAX }), "failed bad_input");
    check("file", json!({ "encoding": "latin-1" }), "failed bad_input");
    assert_eq!(read(Path::new("/dev/zero"), json!({})), Err("failed not_a_file".to_owned()));
}

#[test]
fn a_file_whose_size_the_system_does_not_say_is_read_to_its_end() {
    let output = read(Path::new("/proc/version"), json!({})).unwrap();
    assert_eq!((&output["size"], &output["next_offset"]), (&json!(0), &Value::Null));
    assert!(output["content"].as_str().unwrap().starts_with("Linux version"));
}

// ---- write_file ------------------------------------------------------------------------------------------------

fn write(path: &Path, input: Value) -> Result<Value, String> {
    let limits = files::Limits { write_max: 1000, ..files::Limits::default() };
    done(&files::WRITE_FILE, block(files::write_file(&input, path, limits)))
}

#[test]
fn a_file_is_created_replaced_or_added_to() {
    let place = Place::new();
    let path = place.at("file");
    let check = |input: Value, created: bool, bytes: u64, sha256: &str, after: &str| {
        let output = write(&path, input.clone()).unwrap();
        let expected = json!({
            "path": path.to_str(), "bytes": bytes, "size": after.len(), "sha256": sha256, "created": created,
            "durable": true,
        });
        assert_eq!((output, fs::read_to_string(&path).unwrap()), (expected, after.to_owned()), "{input}");
        assert_eq!(place.names(), BTreeSet::from(["file".to_owned()]), "nothing is left beside it");
    };
    let (hello, x) = (
        "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
        "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881",
    );
    check(json!({ "content": "hello" }), true, 5, hello, "hello");
    check(json!({ "content": "x", "mode": "overwrite" }), false, 1, x, "x");
    check(json!({ "content": "aGVsbG8=", "encoding": "base64", "mode": "append" }), false, 5, hello, "xhello");
    fs::remove_file(&path).unwrap();
    check(json!({ "content": "x", "mode": "append" }), true, 1, x, "x");
    fs::remove_file(&path).unwrap();
    check(json!({ "content": "x", "mode": "overwrite" }), true, 1, x, "x");
}

#[test]
fn a_replaced_file_keeps_its_permissions_but_lends_no_identity() {
    let place = Place::new();
    let mode = |name: &str| fs::metadata(place.at(name)).unwrap().permissions().mode() & 0o7777;
    for (before, after) in [(0o600, 0o600), (0o666, 0o666), (0o750, 0o750), (0o4755, 0o755)] {
        fs::write(place.at("file"), "old").unwrap();
        fs::set_permissions(place.at("file"), PermissionsExt::from_mode(before)).unwrap();
        write(&place.at("file"), json!({ "content": "new", "mode": "overwrite" })).unwrap();
        assert_eq!(mode("file"), after, "{before:o}");
    }
}

#[test]
fn a_write_that_is_refused_changes_nothing() {
    let place = Place::new();
    fs::write(place.at("file"), "old").unwrap();
    fs::create_dir(place.at("directory")).unwrap();
    symlink(place.at("elsewhere"), place.at("dangling")).unwrap();
    symlink(place.at("file"), place.at("link")).unwrap();
    symlink(&place.path, place.at("around")).unwrap();
    nix::unistd::mkfifo(&place.at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let before = place.names();
    let check = |path: &str, input: Value, expected: &str| {
        assert_eq!(write(&place.at(path), input).map(|_| ()), Err(expected.to_owned()), "{path}");
        assert_eq!(place.names(), before, "{path}");
        assert_eq!(fs::read_to_string(place.at("file")).unwrap(), "old", "{path}");
    };
    for (mode, link) in [("create", "exists"), ("overwrite", "path_changed"), ("append", "path_changed")] {
        let input = json!({ "content": "new", "mode": mode });
        check("link", input.clone(), &format!("failed {link}"));
        check("dangling", input.clone(), &format!("failed {link}"));
        check("around/file", input.clone(), "failed path_changed");
        check("none/file", input.clone(), "failed no_such_file");
        check("file/below", input.clone(), "failed no_such_file");
        let kind = if mode == "create" { "failed exists" } else { "failed not_a_file" };
        check("directory", input.clone(), kind);
        check("fifo", input, kind);
    }
    check("file", json!({ "content": "new" }), "failed exists");
    check("file", json!({ "content": "x".repeat(1001), "mode": "overwrite" }), "failed too_large");
    check("file", json!({ "content": "?", "encoding": "base64", "mode": "overwrite" }), "failed bad_input");
    check("file", json!({ "content": "new", "mode": "truncate" }), "failed bad_input");
    check("file", json!({ "mode": "overwrite" }), "failed bad_input");
    check(&"x".repeat(300), json!({ "content": "new" }), "failed name_too_long");
}

#[test]
fn of_several_who_create_one_file_one_succeeds() {
    let place = Place::new();
    let path = place.at("file");
    let all: Vec<JoinHandle<_>> = (0..8)
        .map(|number| {
            let path = path.clone();
            std::thread::spawn(move || (number, write(&path, json!({ "content": number.to_string() }))))
        })
        .collect();
    let ended: Vec<_> = all.into_iter().map(|thread| thread.join().unwrap()).collect();
    let winners: Vec<i32> = ended.iter().filter(|(_, ended)| ended.is_ok()).map(|(number, _)| *number).collect();
    assert_eq!(winners.len(), 1, "{ended:?}");
    assert!(ended.iter().filter_map(|(_, ended)| ended.as_ref().err()).all(|why| why == "failed exists"), "{ended:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), winners[0].to_string());
    assert_eq!(place.names().len(), 1);
}

#[test]
fn a_reader_sees_the_old_file_or_the_new_one_and_never_a_part() {
    let place = Place::new();
    let path = place.at("file");
    fs::write(&path, "a".repeat(900)).unwrap();
    let writer = std::thread::spawn({
        let path = path.clone();
        move || {
            for round in 0..50 {
                let content = ["b", "a"][round % 2].repeat(900);
                write(&path, json!({ "content": content, "mode": "overwrite" })).unwrap();
            }
        }
    });
    while !writer.is_finished() {
        let seen = fs::read_to_string(&path).unwrap();
        assert!(seen == "a".repeat(900) || seen == "b".repeat(900), "{} bytes", seen.len());
    }
    writer.join().unwrap();
}

// ---- shell -----------------------------------------------------------------------------------------------------

fn shell_at(cwd: &Path, input: Value) -> Result<Value, String> {
    let limits = shell::Limits { output_max: 1000, ..shell::Limits::default() };
    done(&shell::SHELL, block(shell::run(&input, cwd, limits, &Arc::default())))
}

#[test]
fn a_command_that_ran_is_done_whatever_its_exit_code() {
    let place = Place::new();
    let check = |command: &str, expected: (u64, &str, &str)| {
        let output = shell_at(&place.path, json!({ "command": command })).unwrap();
        let text = |stream: &str| output[stream]["text"].as_str().unwrap().to_owned();
        let found = (output["exit_code"].as_u64().unwrap(), text("stdout"), text("stderr"));
        assert_eq!(found, (expected.0, expected.1.to_owned(), expected.2.to_owned()), "{command}");
        assert_eq!(output["left_running"], json!(0), "{command}");
    };
    check("echo out; echo err >&2", (0, "out\n", "err\n"));
    check("exit 7", (7, "", ""));
    check("echo 联锁", (0, "联锁\n", ""));
    check("printf '\\377'", (0, "\u{fffd}", ""));
    check("cat", (0, "", ""));
    check("pwd", (0, &format!("{}\n", place.path.display()), ""));
    check("no-such-program-anywhere 2>/dev/null", (127, "", ""));
    // Of our descriptors it has the three that everyone has. (The fourth is that of the listing itself.)
    check("ls /proc/self/fd | wc -l", (0, "4\n", ""));
}

#[test]
fn the_command_inherits_nothing_that_speaks_for_the_daemon() {
    let place = Place::new();
    let output = shell_at(&place.path, json!({ "command": "env" })).unwrap();
    let allowed =
        ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "PWD", "OLDPWD", "_", "SHLVL"];
    let text = output["stdout"]["text"].as_str().unwrap().to_owned();
    let names = text.lines().filter_map(|line| Some(line.split_once('=')?.0));
    let beyond: Vec<&str> = names.filter(|name| !allowed.contains(name) && !name.starts_with("LC_")).collect();
    assert_eq!(beyond, ["TOOL_CALL_MARK"], "cargo's own variables are in this process and must not be in there");
}

#[test]
fn long_output_is_read_to_its_end_and_kept_in_part() {
    let place = Place::new();
    let output = shell_at(&place.path, json!({ "command": "yes 123456789 | head -c 1000000; echo end" })).unwrap();
    let stdout = &output["stdout"];
    let text = stdout["text"].as_str().unwrap();
    assert_eq!((&stdout["bytes"], &stdout["truncated"]), (&json!(1_000_004), &json!(true)));
    assert!(text.starts_with("123456789\n") && text.ends_with("9\nend\n"), "{text}");
    assert!(text.contains("\n[… 999004 bytes left out …]\n") && text.len() < 1100, "{text}");
}

#[test]
fn a_command_that_did_not_end_by_itself_is_lost() {
    let place = Place::new();
    let check = |input: Value, expected: &str| {
        assert_eq!(shell_at(&place.path, input.clone()), Err(expected.to_owned()), "{input}");
    };
    check(json!({ "command": "kill -9 $$" }), "lost Killed");
    check(json!({ "command": "kill -TERM $$" }), "lost Killed");
    check(json!({ "command": "exec sleep 600", "timeout_s": 0.2 }), "lost TimedOut");
    check(json!({ "command": "trap '' TERM HUP INT; sleep 600", "timeout_s": 0.2 }), "lost TimedOut");
}

#[test]
fn a_command_that_did_not_start_has_failed() {
    let place = Place::new();
    symlink(&place.path, place.at("around")).unwrap();
    let check = |cwd: PathBuf, expected: &str| {
        assert_eq!(shell_at(&cwd, json!({ "command": "touch ran" })), Err(expected.to_owned()), "{}", cwd.display());
        assert!(!place.at("ran").exists());
    };
    check(place.at("none"), "failed no_such_directory");
    check(place.at("around"), "failed path_changed");
    check(place.at("../x"), "failed not_canonical");
    assert_eq!(shell_at(&place.path, json!({})), Err("failed bad_input".to_owned()));
}

/// Whether a process is there and has not ended.
fn lives(pid: &str) -> bool {
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat).into_owned();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// A process that has forked twice and taken a session of its own; its pid goes to the file `pid`.
const AWAY: &str = "sh -c 'setsid sh -c \"echo \\$\\$ >pid; exec sleep 600\" >/dev/null 2>&1 &'";

#[test]
fn nothing_of_a_call_runs_when_it_is_over() {
    let place = Place::new();
    let waited = format!("{AWAY}; until test -s pid; do :; done");
    let output = shell_at(&place.path, json!({ "command": waited })).unwrap();
    assert_eq!((&output["exit_code"], &output["left_running"]), (&json!(0), &json!(1)));
    assert!(!lives(fs::read_to_string(place.at("pid")).unwrap().trim()));

    fs::remove_file(place.at("pid")).unwrap();
    let input = json!({ "command": format!("{waited}; sleep 600"), "timeout_s": 1 });
    assert_eq!(shell_at(&place.path, input), Err("lost TimedOut".to_owned()));
    assert!(!lives(fs::read_to_string(place.at("pid")).unwrap().trim()));
}

#[test]
fn a_call_that_is_dropped_takes_everything_with_it() {
    let place = Place::new();
    nix::unistd::mkfifo(&place.at("told"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let command = format!("{AWAY}; until test -s pid; do :; done; echo $$ >told; sleep 600");
    let leader = block(async {
        let cwd = place.path.clone();
        let call = tokio::spawn(async move {
            shell::run(&json!({ "command": command }), &cwd, shell::Limits::default(), &Arc::default()).await
        });
        // Opening the FIFO waits until the command has come so far.
        let told = place.at("told");
        let leader = tokio::task::spawn_blocking(move || fs::read_to_string(told)).await.unwrap().unwrap();
        assert!(lives(leader.trim()));
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        leader
    });
    assert!(!lives(leader.trim()), "the shell");
    assert!(!lives(fs::read_to_string(place.at("pid")).unwrap().trim()), "what it had sent away");
}

// ---- http ------------------------------------------------------------------------------------------------------

/// What a server does with one request.
#[derive(Clone)]
enum Does {
    Answer(&'static [u8]),
    /// Reads the request and closes.
    Closes,
    /// Reads the request and says nothing until the client is gone.
    Waits,
}

/// A server for as many requests as there are things to do; gives what it was sent, request by request.
fn server(does: Vec<Does>) -> (SocketAddr, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        does.into_iter()
            .map(|does| {
                let (mut stream, _) = listener.accept().unwrap();
                let request = request(&mut stream);
                match does {
                    Does::Answer(answer) => stream.write_all(answer).unwrap(),
                    Does::Closes => {}
                    Does::Waits => drop(stream.read(&mut [0])),
                }
                request
            })
            .collect()
    });
    (at, thread)
}

fn request(stream: &mut TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let mut request = String::new();
    let mut length = 0;
    loop {
        let start = request.len();
        reader.read_line(&mut request).unwrap();
        let line = request[start..].trim_end().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    request + &String::from_utf8(body).unwrap()
}

fn ask(does: Vec<Does>, mut input: Value) -> (Result<Value, String>, Vec<String>) {
    let (at, thread) = server(does);
    input["url"] = json!(format!("http://{at}/a?b=c"));
    let client = http::Http::new(http::Limits { body_max: 10, ..http::Limits::default() }).unwrap();
    let ended = done(&http::HTTP, block(client.run(&input)));
    (ended, thread.join().unwrap())
}

#[test]
fn a_request_is_sent_as_it_was_given_and_answered() {
    let answer = b"HTTP/1.1 201 Created\r\nX-A: 1\r\nX-A: 2\r\nContent-Length: 6\r\n\r\n\xe8\x81\x94\xe9\x94\x81";
    let input = json!({ "method": "PUT", "headers": { "X-Key": "value" }, "body": "hello" });
    let (ended, asked) = ask(vec![Does::Answer(answer)], input);
    let mut output = ended.unwrap();
    assert!(output.as_object_mut().unwrap().remove("millis").unwrap().is_u64());
    let expected = json!({
        "status": 201, "headers": { "x-a": "1, 2", "content-length": "6" }, "location": null,
        "encoding": "utf-8", "body": "联锁", "bytes": 6, "cut": null,
    });
    assert_eq!(output, expected);
    assert!(asked[0].starts_with("PUT /a?b=c HTTP/1.1\r\n") && asked[0].ends_with("\r\n\r\nhello"), "{asked:?}");
    assert!(asked[0].contains("\r\nx-key: value\r\n") && !asked[0].contains("proxy"), "{asked:?}");
}

#[test]
fn a_redirect_is_told_and_not_followed() {
    let answer = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/other\r\nContent-Length: 0\r\n\r\n";
    let (ended, asked) = ask(vec![Does::Answer(answer)], json!({}));
    let output = ended.unwrap();
    assert_eq!((&output["status"], &output["location"]), (&json!(302), &json!("http://127.0.0.1:1/other")));
    assert_eq!(asked.len(), 1);
}

#[test]
fn what_became_of_a_request_without_an_answer_depends_on_what_it_does() {
    let check = |does: Does, method: &str, expected: Result<(u64, Value), &str>| {
        let (ended, asked) = ask(vec![does], json!({ "method": method, "timeout_s": 0.5 }));
        let ended = ended.map(|output| (output["status"].as_u64().unwrap(), output["cut"].clone()));
        assert_eq!(ended, expected.map_err(str::to_owned), "{method}");
        assert_eq!(asked.len(), 1, "sent once, never twice");
    };
    check(Does::Closes, "GET", Err("failed connection_lost"));
    check(Does::Closes, "POST", Err("lost ConnectionLost"));
    check(Does::Closes, "DELETE", Err("lost ConnectionLost"));
    check(Does::Waits, "GET", Err("failed timed_out"));
    check(Does::Waits, "POST", Err("lost TimedOut"));
    let broken = Does::Answer(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc");
    check(broken.clone(), "GET", Err("failed connection_lost"));
    check(broken, "POST", Ok((200, json!("connection"))));
    let long = Does::Answer(b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n12345678901");
    check(long, "GET", Ok((200, json!("bound"))));
    let gateway = |code: &'static [u8]| Does::Answer(code);
    check(gateway(b"HTTP/1.1 504 Gateway Timeout\r\nContent-Length: 0\r\n\r\n"), "POST", Err("lost TimedOut"));
    check(gateway(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"), "PUT", Err("lost ConnectionLost"));
    check(gateway(b"HTTP/1.1 504 Gateway Timeout\r\nContent-Length: 0\r\n\r\n"), "GET", Ok((504, Value::Null)));
    check(gateway(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), "POST", Ok((404, Value::Null)));
    check(Does::Answer(b"garbage\r\n\r\n"), "POST", Err("lost ConnectionLost"));
}

#[test]
fn before_a_request_was_sent_its_failure_is_certain() {
    let client = http::Http::new(http::Limits::default()).unwrap();
    let check = |url: String, expected: &str| {
        let input = json!({ "url": url, "method": "POST", "timeout_s": 5 });
        assert_eq!(done(&http::HTTP, block(client.run(&input))), Err(expected.to_owned()), "{input}");
    };
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    check(format!("http://{free}/"), "failed connection_refused");
    check("http://169.254.169.254/latest/meta-data/".to_owned(), "failed link_local_refused");
    // TLS towards a server that speaks none: nothing of the request has left.
    let (at, thread) = plain_server();
    check(format!("https://{at}/"), "failed not_connected");
    drop(thread);
}

/// Accepts one connection and closes it.
fn plain_server() -> (SocketAddr, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        // The client's first words, so that closing does not reset before they are read.
        drop(stream.read(&mut [0; 1024]));
        done.send(()).unwrap_or_default();
    });
    (at, ended)
}
