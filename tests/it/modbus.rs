//! Modbus devices as they should not be: silent, half, garbled, late. What the tool says about each, and that the bus
//! goes on.

use std::sync::Arc;
use std::time::Duration;

use interlock::config::device::parse;
use interlock::tool::device::DeviceTool;
use interlock_domain::effect::report::{Loss, Report};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio_serial::{SerialPort as _, SerialStream};

/// One deadline for everything in a test.
const DEADLINE: Duration = Duration::from_secs(60);

/// What the bad device does with one request. The transaction, the unit and the PDU of the request stand ready.
#[derive(Clone, Copy, Debug)]
enum Does {
    /// The right answer: 7 in every register, 1 in every bit, the echo of a write.
    Answers,
    /// The right answer, one byte after the other.
    Dribbles,
    Silence,
    Closes,
    /// These bytes, and the connection stays open.
    Bytes(&'static [u8]),
    /// These bytes, and the connection closes.
    BytesAndCloses(&'static [u8]),
    /// The right answer under the next transaction number.
    WrongTransaction,
    /// The right answer from another unit.
    WrongUnit,
    /// So many bytes of the right answer, and the connection stays open.
    Half(usize),
    /// So many bytes of the right answer, and the connection closes.
    HalfAndCloses(usize),
    /// This PDU in a good frame.
    Pdu(&'static [u8]),
    /// An exception.
    Exception(u8),
    /// The right answer, and then the answer to a request that was not sent yet.
    AnswersTwice,
    /// The right answer, and then it closes.
    AnswersAndCloses,
}

/// A device that follows a script, one line for each request, and answers well when the script is over.
struct BadDevice {
    port: u16,
    /// The PDU of each request that arrived.
    seen: mpsc::UnboundedReceiver<Vec<u8>>,
    /// Says that the device has closed a connection.
    closed: mpsc::UnboundedReceiver<()>,
    task: JoinHandle<()>,
}

impl Drop for BadDevice {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl BadDevice {
    async fn start(script: Vec<Does>) -> BadDevice {
        BadDevice::start_held(script, Arc::new(Semaphore::new(Semaphore::MAX_PERMITS))).await
    }

    /// Each answer waits for a permit of `may_answer`.
    async fn start_held(script: Vec<Does>, may_answer: Arc<Semaphore>) -> BadDevice {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (saw, seen) = mpsc::unbounded_channel();
        let (said, closed) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            let mut script = script.into_iter();
            loop {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                while let Some((head, pdu)) = request(&mut stream).await {
                    if saw.send(pdu.clone()).is_err() {
                        return;
                    }
                    may_answer.acquire().await.expect("open").forget();
                    let does = script.next().unwrap_or(Does::Answers);
                    if !answered(&mut stream, does, head, &pdu).await {
                        break;
                    }
                }
                drop(stream);
                if said.send(()).is_err() {
                    break;
                }
            }
        });
        BadDevice { port, seen, closed, task }
    }

    fn bus(&self, name: &str, timeout_ms: u32) -> String {
        bus(name, self.port, timeout_ms)
    }

    /// Every request that arrived until now.
    fn seen(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.seen.try_recv().ok()).collect()
    }
}

async fn request(stream: &mut TcpStream) -> Option<([u8; 7], Vec<u8>)> {
    let mut head = [0; 7];
    stream.read_exact(&mut head).await.ok()?;
    let mut pdu = vec![0; usize::from(u16::from_be_bytes([head[4], head[5]])) - 1];
    stream.read_exact(&mut pdu).await.ok()?;
    Some((head, pdu))
}

/// Whether the connection goes on.
async fn answered(stream: &mut TcpStream, does: Does, head: [u8; 7], pdu: &[u8]) -> bool {
    let count = usize::from(u16::from_be_bytes([pdu[3], pdu[4]]));
    let right = match pdu[0] {
        1 | 2 => [vec![pdu[0], u8::try_from(count.div_ceil(8)).expect("few")], vec![0xff; count.div_ceil(8)]].concat(),
        3 | 4 => [vec![pdu[0], u8::try_from(count * 2).expect("few")], [0, 7].repeat(count)].concat(),
        5 | 6 | 15 | 16 => pdu[..5].to_vec(),
        other => panic!("function {other}"),
    };
    let framed = |transaction: u16, unit: u8, pdu: &[u8]| {
        let len = u16::try_from(pdu.len() + 1).expect("short");
        [&transaction.to_be_bytes()[..], &[0, 0], &len.to_be_bytes(), &[unit], pdu].concat()
    };
    let (transaction, unit) = (u16::from_be_bytes([head[0], head[1]]), head[6]);
    let frame = framed(transaction, unit, &right);
    let (bytes, goes_on) = match does {
        Does::Answers => (frame, true),
        Does::Dribbles => {
            for byte in &frame {
                stream.write_all(&[*byte]).await.expect("sent");
                tokio::task::yield_now().await;
            }
            (Vec::new(), true)
        }
        Does::Silence => (Vec::new(), true),
        Does::Closes => (Vec::new(), false),
        Does::Bytes(bytes) => (bytes.to_vec(), true),
        Does::BytesAndCloses(bytes) => (bytes.to_vec(), false),
        Does::WrongTransaction => (framed(transaction.wrapping_add(1), unit, &right), true),
        Does::WrongUnit => (framed(transaction, unit + 1, &right), true),
        Does::Half(len) => (frame[..len].to_vec(), true),
        Does::HalfAndCloses(len) => (frame[..len].to_vec(), false),
        Does::Pdu(pdu) => (framed(transaction, unit, pdu), true),
        Does::Exception(code) => (framed(transaction, unit, &[pdu[0] | 0x80, code]), true),
        Does::AnswersTwice => {
            let wrong = [right[0], 2, 0x66, 0x66];
            ([frame, framed(transaction.wrapping_add(1), unit, &wrong)].concat(), true)
        }
        Does::AnswersAndCloses => (frame, false),
    };
    // The other side may have gone already.
    let sent = stream.write_all(&bytes).await.is_ok();
    if !goes_on {
        // As far as the other side can tell, this is the end.
        stream.shutdown().await.ok();
    }
    sent && goes_on
}

fn bus(name: &str, port: u16, timeout_ms: u32) -> String {
    format!("[[bus]]\nname = \"{name}\"\ntcp = \"127.0.0.1:{port}\"\ntimeout-ms = {timeout_ms}\n")
}

fn pump(name: &str, bus: &str) -> String {
    format!(
        r#"
[[device]]
name = "{name}"
kind = "pump"
bus = "{bus}"
unit = 1
[device.points]
run = {{ coil = 0 }}
speed = {{ holding = 0 }}
wide = {{ holding = 4, type = "u32" }}
flag = {{ holding = 8, bit = 3 }}
valve = {{ coil = 9, write = "multiple" }}
torque = {{ holding = 9, type = "i16", write = "multiple" }}
[device.actions]
start = {{ writes = [{{ point = "run", value = true }}] }}
both = {{ writes = [{{ point = "run", value = true }}, {{ point = "speed", value = 5 }}] }}
estop = {{ protective = true, risk = "dangerous", writes = [{{ point = "run", value = false }}] }}
"#
    )
}

fn tool_of(text: &str) -> DeviceTool {
    DeviceTool::new(Arc::new(parse(text, std::path::Path::new("test.toml")).expect("a good table")))
}

/// A report in one line: `done`, `failed CODE`, `lost REASON`.
fn word(report: &Report) -> String {
    match report {
        Report::Done(_) => "done".to_owned(),
        Report::Failed(failure) => format!("failed {}", failure.code),
        Report::Lost(Loss::TimedOut) => "lost timed_out".to_owned(),
        Report::Lost(Loss::ConnectionLost) => "lost connection_lost".to_owned(),
        Report::Lost(other) => format!("lost {other:?}"),
    }
}

fn read() -> Value {
    json!({"device": "p-1", "action": "read", "point": "speed"})
}

fn start() -> Value {
    json!({"device": "p-1", "action": "start"})
}

/// Short enough that the silent rows pass quickly, long enough that a busy machine answers in it.
const SHORT_MS: u32 = 1_500;

/// For whoever answers.
const LONG_MS: u32 = 30_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_answer_is_failed_for_a_read_and_lost_for_a_write_and_the_bus_goes_on() {
    let garbage: &[u8] = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
    let rows = [
        (Does::Answers, "done", "done"),
        (Does::Dribbles, "done", "done"),
        (Does::Silence, "failed timed_out", "lost timed_out"),
        (Does::Closes, "failed connection_lost", "lost connection_lost"),
        (Does::Bytes(garbage), "failed timed_out", "lost timed_out"),
        (Does::BytesAndCloses(garbage), "failed connection_lost", "lost connection_lost"),
        (Does::Bytes(&[0, 0, 1, 2, 0, 3, 1, 3, 2]), "failed bad_answer", "lost connection_lost"),
        (Does::Bytes(&[0, 0, 0, 0, 0, 0, 1]), "failed bad_answer", "lost connection_lost"),
        (Does::Bytes(&[0, 0, 0, 0, 0, 1, 1]), "failed bad_answer", "lost connection_lost"),
        (Does::Bytes(&[0xff; 600]), "failed timed_out", "lost timed_out"),
        (Does::WrongTransaction, "failed bad_answer", "lost connection_lost"),
        (Does::WrongUnit, "failed bad_answer", "lost connection_lost"),
        (Does::Half(3), "failed timed_out", "lost timed_out"),
        (Does::Half(8), "failed timed_out", "lost timed_out"),
        (Does::HalfAndCloses(3), "failed connection_lost", "lost connection_lost"),
        (Does::HalfAndCloses(10), "failed connection_lost", "lost connection_lost"),
        // Another function, a write's echo of another address or value, too few and too many registers.
        (Does::Pdu(&[4, 2, 0, 7]), "failed bad_answer", "lost connection_lost"),
        (Does::Pdu(&[5, 0, 9, 0xff, 0]), "failed bad_answer", "lost connection_lost"),
        (Does::Pdu(&[5, 0, 0, 0, 0]), "failed bad_answer", "lost connection_lost"),
        (Does::Pdu(&[3, 0]), "failed bad_answer", "lost connection_lost"),
        (Does::Pdu(&[3, 4, 0, 7, 0, 7]), "failed bad_answer", "lost connection_lost"),
        (Does::Pdu(&[3, 3, 0, 7, 0]), "failed bad_answer", "lost connection_lost"),
        (Does::Pdu(&[3, 2, 0]), "failed bad_answer", "lost connection_lost"),
        (Does::Pdu(&[0x83]), "failed bad_answer", "lost connection_lost"),
        (Does::Pdu(&[0x84, 2]), "failed bad_answer", "lost connection_lost"),
        (Does::Exception(1), "failed illegal_function", "failed illegal_function"),
        (Does::Exception(2), "failed illegal_address", "failed illegal_address"),
        (Does::Exception(3), "failed illegal_value", "failed illegal_value"),
        (Does::Exception(4), "failed device_failure", "failed device_failure"),
        (Does::Exception(5), "failed still_working", "lost timed_out"),
        (Does::Exception(6), "failed device_busy", "failed device_busy"),
        (Does::Exception(10), "failed gateway_path", "failed gateway_path"),
        (Does::Exception(11), "failed gateway_no_answer", "lost timed_out"),
        (Does::Exception(0x42), "failed exception", "failed exception"),
    ];
    let mut tasks = JoinSet::new();
    for (does, for_read, for_write) in rows {
        tasks.spawn(one_bad_answer(does, read(), for_read));
        tasks.spawn(one_bad_answer(does, start(), for_write));
    }
    let wrong = tokio::time::timeout(DEADLINE, tasks.join_all()).await.expect("in time");
    let wrong = wrong.into_iter().flatten().collect::<Vec<_>>();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is not as it should be.
async fn one_bad_answer(does: Does, input: Value, expected: &str) -> Option<String> {
    let mut device = BadDevice::start(vec![does]).await;
    let timeout_ms = if expected.ends_with("timed_out") { SHORT_MS } else { LONG_MS };
    let tool = tool_of(&(device.bus("b", timeout_ms) + &pump("p-1", "b")));
    let found = word(&tool.run(&input).await);
    // The next request has its own answer, and the one before was sent once.
    let next = tool.run(&read()).await;
    let seen = device.seen().len();
    let value = match &next {
        Report::Done(out) => out["value"].clone(),
        Report::Failed(_) | Report::Lost(_) => Value::Null,
    };
    ((found.as_str(), &value, seen) != (expected, &json!(7), 2))
        .then(|| format!("{does:?} {input}: {found}, expected {expected}; then {next:?} after {seen} requests"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_nobody_asked_for_is_never_taken_for_one() {
    let mut device = BadDevice::start(vec![Does::AnswersTwice]).await;
    let tool = tool_of(&(device.bus("b", LONG_MS) + &pump("p-1", "b")));
    for _ in 0..2 {
        let report = tool.run(&read()).await;
        assert!(matches!(&report, Report::Done(out) if out["value"] == 7), "{report:?}");
    }
    assert_eq!(device.seen().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_the_device_closed_while_idle_costs_nothing() {
    let mut device = BadDevice::start(vec![Does::AnswersAndCloses, Does::AnswersAndCloses]).await;
    let tool = tool_of(&(device.bus("b", LONG_MS) + &pump("p-1", "b")));
    for left in [2, 1, 0] {
        assert_eq!(word(&tool.run(&start()).await), "done");
        if left > 0 {
            device.closed.recv().await.expect("the device closes");
        }
    }
    assert_eq!(device.seen().len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_there_is_a_failure_and_somebody_later_is_found() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let tool = tool_of(&(bus("b", port, LONG_MS) + &pump("p-1", "b")));
    for input in [read(), start(), start()] {
        let report = tool.run(&input).await;
        assert_eq!(word(&report), "failed connection_refused");
        let Report::Failed(failure) = report else { continue };
        assert!(failure.message.contains(&format!("tcp://127.0.0.1:{port}")), "{}", failure.message);
    }
    // The list of a dead bus comes at once, with the reason in each row.
    let Report::Done(list) = tool.run(&json!({"device": "*", "action": "list"})).await else { panic!("a list") };
    let rows = list["points"].as_array().expect("rows");
    assert!(rows.iter().all(|row| row["value"].is_null() && row["error"].as_str().is_some()), "{rows:?}");
    let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("the same port");
    let answering = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        while let Some((head, pdu)) = request(&mut stream).await {
            answered(&mut stream, Does::Answers, head, &pdu).await;
        }
    });
    assert_eq!(word(&tool.run(&start()).await), "done");
    answering.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_bus_keeps_nobody_on_another_one_waiting() {
    let silent = BadDevice::start(vec![Does::Silence]).await;
    let good = BadDevice::start(Vec::new()).await;
    let text =
        silent.bus("silent", LONG_MS) + &good.bus("good", LONG_MS) + &pump("p-1", "good") + &pump("p-2", "silent");
    let tool = Arc::new(tool_of(&text));
    let waiting = {
        let tool = Arc::clone(&tool);
        tokio::spawn(async move { tool.run(&json!({"device": "p-2", "action": "start"})).await })
    };
    for _ in 0..50 {
        assert_eq!(word(&tool.run(&start()).await), "done");
    }
    assert!(!waiting.is_finished());
    waiting.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_who_left_is_not_obeyed_and_an_emergency_stop_goes_first() {
    let may_answer = Arc::new(Semaphore::new(0));
    let mut bad = BadDevice::start_held(Vec::new(), Arc::clone(&may_answer)).await;
    let tool = Arc::new(tool_of(&(bad.bus("b", LONG_MS) + &pump("p-1", "b"))));
    let run = |input: Value| {
        let tool = Arc::clone(&tool);
        async move { tool.run(&input).await }
    };
    let first = tokio::spawn(run(read()));
    let seen = bad.seen.recv().await.expect("the first request");
    assert_eq!(seen[0], 3);
    // It waits in line, and its caller leaves.
    let mut left = Box::pin(run(json!({"device": "p-1", "action": "write", "point": "speed", "value": 9})));
    assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(left.as_mut().poll(cx).is_pending())).await);
    drop(left);
    let mut ordinary = Box::pin(run(start()));
    assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(ordinary.as_mut().poll(cx).is_pending())).await);
    let mut urgent = Box::pin(run(json!({"device": "p-1", "action": "estop"})));
    assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(urgent.as_mut().poll(cx).is_pending())).await);
    may_answer.add_permits(10);
    let ends = tokio::join!(first, ordinary, urgent);
    assert_eq!(
        (word(&ends.0.expect("no panic")), word(&ends.1), word(&ends.2)),
        ("done".into(), "done".into(), "done".into())
    );
    assert_eq!(bad.seen(), [vec![5, 0, 0, 0, 0], vec![5, 0, 0, 0xff, 0]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_action_that_got_half_way_says_so() {
    let rows = [
        (vec![Does::Exception(2)], "failed illegal_address", 1),
        (
            vec![Does::Answers, Does::Exception(2)],
            "written: p-1/run; not, or not for certain: p-1/speed (bus b, unit 1): the device refused: illegal data address (Modbus exception 2)",
            2,
        ),
        (
            vec![Does::Answers, Does::Silence],
            "written: p-1/run; not, or not for certain: p-1/speed (bus b, unit 1): no answer in time",
            2,
        ),
        (
            vec![Does::Answers, Does::Closes],
            "written: p-1/run; not, or not for certain: p-1/speed (bus b, unit 1): the connection broke",
            2,
        ),
        (vec![Does::Silence], "lost timed_out", 1),
    ];
    for (script, expected, requests) in rows {
        let mut bad = BadDevice::start(script).await;
        let tool = tool_of(&(bad.bus("b", SHORT_MS) + &pump("p-1", "b")));
        let found = match tool.run(&json!({"device": "p-1", "action": "both"})).await {
            Report::Lost(Loss::Partial(steps)) => steps,
            other @ (Report::Done(_) | Report::Failed(_) | Report::Lost(_)) => word(&other),
        };
        assert_eq!((found.as_str(), bad.seen().len()), (expected, requests));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bit_of_a_register_is_written_with_its_neighbours_and_not_without_them() {
    let write = json!({"device": "p-1", "action": "write", "point": "flag", "value": true});
    let rows = [
        (vec![], "done", vec![vec![3, 0, 8, 0, 1], vec![6, 0, 8, 0, 15]]),
        (vec![Does::Silence], "failed timed_out", vec![vec![3, 0, 8, 0, 1]]),
        (vec![Does::Answers, Does::Silence], "lost timed_out", vec![vec![3, 0, 8, 0, 1], vec![6, 0, 8, 0, 15]]),
    ];
    for (script, expected, requests) in rows {
        let mut bad = BadDevice::start(script).await;
        let tool = tool_of(&(bad.bus("b", SHORT_MS) + &pump("p-1", "b")));
        assert_eq!(word(&tool.run(&write).await), expected);
        assert_eq!(bad.seen(), requests);
    }
    // Two registers go in one request.
    let mut bad = BadDevice::start(Vec::new()).await;
    let tool = tool_of(&(bad.bus("b", LONG_MS) + &pump("p-1", "b")));
    let wide = json!({"device": "p-1", "action": "write", "point": "wide", "value": 65_537});
    assert_eq!(word(&tool.run(&wide).await), "done");
    assert_eq!(bad.seen(), [vec![16, 0, 4, 0, 2, 4, 0, 1, 0, 1]]);
    // A device without functions 5 and 6.
    for (point, value, expected) in
        [("valve", json!(true), vec![15, 0, 9, 0, 1, 1, 1]), ("torque", json!(-2), vec![16, 0, 9, 0, 1, 2, 0xff, 0xfe])]
    {
        let write = json!({"device": "p-1", "action": "write", "point": point, "value": value});
        assert_eq!(word(&tool.run(&write).await), "done");
        assert_eq!(bad.seen(), [expected]);
    }
}

/// CRC-16 of Modbus over serial line V1.02, section 6.2.2.
fn crc(bytes: &[u8]) -> [u8; 2] {
    let mut crc = 0xffff_u16;
    for byte in bytes {
        crc ^= u16::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xa001 } else { crc >> 1 };
        }
    }
    crc.to_le_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_serial_line_is_a_bus_like_any_other() {
    let (mut master, mut port) = match SerialStream::pair() {
        Ok(pair) => pair,
        Err(error) => {
            return crate::skipped("a_serial_line_is_a_bus_like_any_other", &format!("no pseudo terminal: {error}"));
        }
    };
    port.set_exclusive(false).expect("our own terminal");
    let path = port.name().expect("a terminal has a name");
    // The lock is the product's to take; a terminal that nobody holds open would be gone for its other end.
    let held = std::fs::File::options().read(true).write(true).open(&path).expect("the terminal opens");
    drop(port);
    let task = tokio::spawn(async move {
        let mut seen = Vec::new();
        for answer in [Some(7_u16), None, Some(9)] {
            let mut request = [0; 8];
            master.read_exact(&mut request).await.expect("a request");
            assert_eq!(crc(&request[..6]), request[6..]);
            seen.push(request[..6].to_vec());
            let Some(word) = answer else { continue };
            let mut frame = if request[1] == 3 { vec![1, 3, 2] } else { request[..4].to_vec() };
            frame.extend(if request[1] == 3 { word.to_be_bytes() } else { [request[4], request[5]] });
            frame.extend(crc(&frame));
            master.write_all(&frame).await.expect("answered");
        }
        // Closing this end would take back what it has sent.
        (seen, master)
    });
    let line = format!(
        "[[bus]]\nname = \"b\"\nserial = \"{path}\"\nbaud = 115200\nparity = \"none\"\ntimeout-ms = {SHORT_MS}\n"
    );
    let tool = tool_of(&(line + &pump("p-1", "b")));
    let report = tool.run(&read()).await;
    assert!(matches!(&report, Report::Done(out) if out["value"] == 7), "{report:?}");
    // A write without an answer is lost, and what follows has a line of its own.
    assert_eq!(word(&tool.run(&start()).await), "lost timed_out");
    let report = tool.run(&read()).await;
    assert!(matches!(&report, Report::Done(out) if out["value"] == 9), "{report:?}");
    let (seen, _master) = tokio::time::timeout(DEADLINE, task).await.expect("in time").expect("no panic");
    assert_eq!(seen, [vec![1, 3, 0, 0, 0, 1], vec![1, 5, 0, 0, 0xff, 0], vec![1, 3, 0, 0, 0, 1]]);
    drop(held);
    // A port that is not there is a failure, and nothing was sent.
    let none = tool_of(&("[[bus]]\nname = \"b\"\nserial = \"/dev/ttyNONE9\"\n".to_owned() + &pump("p-1", "b")));
    let report = none.run(&start()).await;
    assert_eq!(word(&report), "failed no_port");
}
