//! What order costs and what it gives: thirty alternating pairs of five calls, once under their declared classes and
//! once with every call alone (the protocol of the Metis paper, 5.1).
//!
//! The load is the paper's: a file read and hashed, `git status`, two requests to a loopback server that waits 6 ms, and
//! one write. The ideal is the critical path made of the service times that were measured in the same run; what is above
//! it is ours. Measured to the last outcome: the reply, which waits for the log, is told apart.
//!
//! The driver is a task of the runtime, as the daemon's owner is. A service time begins with the first instruction of a
//! call's own work and ends with its last one: that a call was started late, that its end was seen late, and what lies
//! between the waves all count as ours.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use interlock_domain::effect::Order;
use interlock_domain::effect::report::{Failure, Report};
use interlock_domain::id::ToolName;
use interlock_domain::request::Wish;
use interlock_domain::request::args::{Args, Digest};
use interlock_domain::risk::Risk;
use interlock_domain::surface::Surface;
use interlock_domain::surface::contract::Contract;
use interlock_domain::surface::nature::{Class, Key, Keys};
use interlock_domain::surface::tool::{Annotations, Declaration, Declared, Definition, Kind, Text, Tool};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::drive::{Driver, Work};
use crate::store::chain::Algorithm;
use crate::store::{Limits, Settings, Store};
use crate::sys::machine;

/// What a load needs and is not there: the cause says what.
type Made<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Pairs, as in the paper.
pub const PAIRS: usize = 30;
/// Pairs before the first that counts: the first read of a file, the first fork and the first page of everything.
const WARM_UP: usize = 3;
/// Resamples of the bootstrap, and its seed: the paper's.
const RESAMPLES: usize = 20_000;
const SEED: u64 = 20_270_813;
/// How long the loopback server waits with its answer: the paper's.
const SERVER_WAIT: Duration = Duration::from_millis(6);
/// The file that is read and hashed.
const FILE_BYTES: usize = 256 * 1024;
/// Batches of five calls without work: what the machine and its driver cost by themselves.
const EMPTY_BATCHES: usize = 2_000;

/// One measured pair, in milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    /// Under the declared classes, to the last outcome.
    pub mediated: f64,
    /// Every call alone, to the last outcome.
    pub serial: f64,
    /// The critical path of the mediated one, from its service times.
    pub ideal: f64,
    /// Mediated, to the reply.
    pub reply: f64,
}

/// What was measured with the log, or without one.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The pairs, in their order.
    pub pairs: Vec<Pair>,
    /// Calls that ended in another way than done.
    pub not_done: usize,
}

impl Measured {
    /// The median of one column.
    #[must_use]
    pub fn median(&self, column: impl Fn(&Pair) -> f64) -> f64 {
        let mut values: Vec<f64> = self.pairs.iter().map(column).collect();
        values.sort_by(f64::total_cmp);
        let half = values.len() / 2;
        match values.len() {
            0 => f64::NAN,
            len if len.is_multiple_of(2) => f64::midpoint(values[half - 1], values[half]),
            _ => values[half],
        }
    }

    /// Pairs in which the declared classes were faster.
    #[must_use]
    pub fn faster(&self) -> usize {
        self.pairs.iter().filter(|pair| pair.mediated < pair.serial).count()
    }

    /// The 95 % interval of the mean paired difference, mediated less serial.
    #[must_use]
    pub fn interval(&self) -> [f64; 2] {
        let differences: Vec<f64> = self.pairs.iter().map(|pair| pair.mediated - pair.serial).collect();
        bootstrap(&differences)
    }
}

/// The figures (`cli.md`, "bench schedule"): the named ones with durable evidence, the others beside them.
///
/// # Errors
/// When something that the load needs is not there: a place to write, git, a port.
pub fn run(dir: &Path) -> Made<Value> {
    let durable = measure(dir, true)?;
    let without = measure(dir, false)?;
    let overhead = overhead(dir)?;
    let of = |measured: &Measured| {
        let (mediated, serial, ideal) = (
            measured.median(|pair| pair.mediated),
            measured.median(|pair| pair.serial),
            measured.median(|pair| pair.ideal),
        );
        let ratio_ideal = measured.median(|pair| pair.mediated / pair.ideal);
        json!({
            "pairs": measured.pairs.len(),
            "mediated_ms_p50": rounded(mediated),
            "serial_ms_p50": rounded(serial),
            "ideal_ms_p50": rounded(ideal),
            "ratio_serial": rounded(serial / mediated),
            "ratio_ideal": rounded(ratio_ideal),
            "faster_pairs": measured.faster(),
            "bootstrap_ci_ms": measured.interval().map(rounded),
            "reply_ms_p50": rounded(measured.median(|pair| pair.reply)),
            "not_done": measured.not_done,
        })
    };
    let mut figures = of(&durable);
    figures["overhead_us_per_call"] = json!(rounded(overhead));
    figures["evidence_off"] = of(&without);
    Ok(figures)
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// The pairs, with durable evidence or with none.
///
/// # Errors
/// As [`run`].
pub fn measure(dir: &Path, durable: bool) -> Made<Measured> {
    let place = dir.join(if durable { "durable" } else { "off" });
    std::fs::create_dir_all(&place)?;
    let load = Load::new(&place)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let store = if durable { Some(open(&place)?) } else { None };
    let writer = store.as_ref().map(Store::writer);
    // A task of the runtime, as the daemon's owner is: what runs in `block_on` itself is woken over a system call.
    let measured = runtime.block_on(runtime.spawn(async move {
        let server = Server::start().await?;
        let mut measured = Measured { pairs: Vec::new(), not_done: 0 };
        let mut order = [false, true];
        for at in 0..WARM_UP + PAIRS {
            let mut pair = Pair { mediated: 0.0, serial: 0.0, ideal: 0.0, reply: 0.0 };
            // Which of the two comes first alternates, so that what drifts meets both.
            if at % 2 == 1 {
                order.reverse();
            }
            for alone in order {
                // One writer has one owner that numbers its rows: the two conditions take turns with a fresh driver.
                let mut driver = Driver::new(surface(alone)?, |policy| policy, writer.clone(), load.work(&server));
                let went = driver.batch(load.wishes(&server)?).await;
                measured.not_done += went.replies.iter().filter(|reply| reply.ending.word() != "done").count();
                let took = |position: u32| went.service.get(&position).map_or(0.0, |took| millis(*took));
                if alone {
                    pair.serial = millis(went.to_last_outcome);
                } else {
                    pair.mediated = millis(went.to_last_outcome);
                    pair.reply = millis(went.to_reply);
                    pair.ideal = (0..4).map(took).fold(0.0, f64::max) + took(4);
                }
            }
            order.sort_unstable();
            if at >= WARM_UP {
                measured.pairs.push(pair);
            }
        }
        Made::Ok(measured)
    }));
    if let Some(store) = store {
        store.close();
    }
    measured?
}

fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}

fn open(place: &Path) -> Made<Store> {
    let settings = Settings {
        state: place.join("state"),
        boot_id: machine::boot_id().unwrap_or_else(|| "unknown".to_owned()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        clock: super::stamp,
        algorithm: Algorithm::default(),
        limits: Limits::default(),
    };
    Ok(Store::open(&settings)?.store)
}

/// What a call costs beside its work and beside the log: microseconds, the median of batches of five.
///
/// # Errors
/// As [`run`].
pub fn overhead(dir: &Path) -> Made<f64> {
    let place = dir.join("empty");
    std::fs::create_dir_all(&place)?;
    let load = Load::new(&place)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(runtime.spawn(async move {
        let server = Server::start().await?;
        let nothing: Work = Arc::new(|_| Box::pin(async { Report::Done(Value::Null) }));
        let mut driver = Driver::new(surface(false)?, |policy| policy, None, nothing);
        let mut each = Vec::with_capacity(EMPTY_BATCHES);
        for _ in 0..EMPTY_BATCHES {
            let wishes = load.wishes(&server)?;
            let begun = Instant::now();
            driver.batch(wishes).await;
            each.push(begun.elapsed().as_secs_f64() * 1e6 / 5.0);
        }
        each.sort_by(f64::total_cmp);
        Made::Ok(each[EMPTY_BATCHES / 2])
    }))?
}

/// The five calls.
struct Load {
    dir: PathBuf,
}

impl Load {
    fn new(place: &Path) -> Made<Load> {
        let dir = place.join("work");
        std::fs::create_dir_all(&dir)?;
        std::fs::write(dir.join("read.bin"), vec![7_u8; FILE_BYTES])?;
        for at in 0..40 {
            std::fs::write(dir.join(format!("file-{at}.txt")), "x\n")?;
        }
        let made = std::process::Command::new("git").args(["init", "-q"]).current_dir(&dir).output()?;
        if !made.status.success() {
            return Err(format!("git init: {}", String::from_utf8_lossy(&made.stderr)).into());
        }
        Ok(Load { dir })
    }

    fn wishes(&self, server: &Server) -> Made<Vec<Wish>> {
        let inputs = [
            json!({ "verb": "hash" }),
            json!({ "verb": "git" }),
            json!({ "verb": "http", "port": server.port, "n": 1 }),
            json!({ "verb": "http", "port": server.port, "n": 2 }),
            json!({ "verb": "write", "dir": self.dir.to_string_lossy() }),
        ];
        let wish = |input: Value| {
            let (tool, args) = (ToolName::new("load")?, Args::new(input)?);
            Made::Ok(Wish {
                tool,
                args,
                parent: None,
                facts: Arc::default(),
                protective: false,
                again: None,
                classified: None,
                part: None,
            })
        };
        inputs.into_iter().map(wish).collect()
    }

    fn work(&self, server: &Server) -> Work {
        let (dir, port) = (self.dir.clone(), server.port);
        Arc::new(move |order: Order| {
            let dir = dir.clone();
            Box::pin(async move {
                let done = match order.args()["verb"].as_str().unwrap_or_default() {
                    "hash" => hash(dir).await,
                    "git" => git(dir).await,
                    "http" => fetch(port).await,
                    _ => write(dir, order.op().to_string()).await,
                };
                match done {
                    Ok(output) => Report::Done(output),
                    Err(error) => Report::Failed(Failure { code: "load", message: error.to_string() }),
                }
            })
        })
    }
}

async fn hash(dir: PathBuf) -> Made<Value> {
    let digest = tokio::task::spawn_blocking(move || {
        let bytes = std::fs::read(dir.join("read.bin"))?;
        Made::Ok(Digest::of(&bytes).to_string())
    });
    Ok(json!({ "sha256": digest.await?? }))
}

async fn git(dir: PathBuf) -> Made<Value> {
    // As `tool::process` does: a fork waits for its program, and must not hold a worker up.
    let ran = tokio::task::spawn_blocking(move || {
        std::process::Command::new("git").args(["status", "--porcelain"]).current_dir(dir).output()
    });
    let ran = ran.await??;
    if !ran.status.success() {
        return Err(format!("git status: {}", String::from_utf8_lossy(&ran.stderr)).into());
    }
    Ok(json!({ "bytes": ran.stdout.len() }))
}

async fn fetch(port: u16) -> Made<Value> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n").await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    if !answer.starts_with(b"HTTP/1.1 200") {
        return Err("another answer than 200".into());
    }
    Ok(json!({ "bytes": answer.len() }))
}

async fn write(dir: PathBuf, text: String) -> Made<Value> {
    let written = tokio::task::spawn_blocking(move || {
        let file = dir.join("written.txt");
        std::fs::write(&file, text)?;
        std::fs::File::open(&file)?.sync_all()
    });
    written.await??;
    Ok(json!({ "written": true }))
}

/// A loopback server that waits before it answers.
struct Server {
    port: u16,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    async fn start() -> Made<Server> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream));
            }
        });
        Ok(Server { port, task })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[expect(clippy::disallowed_methods, reason = "the load's wait is what is measured")]
async fn answer(mut stream: TcpStream) {
    let mut request = [0; 1024];
    // One request that fits: what cannot be read is not answered, and the load says so.
    if stream.read(&mut request).await.is_ok() {
        tokio::time::sleep(SERVER_WAIT).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok").await;
    }
}

/// One tool of four verbs, under its declared classes or with every call alone.
fn surface(alone: bool) -> Made<Surface> {
    let key = vec![Key::Named("written".to_owned())];
    let declaration = |reads: bool, class: Class| Declaration {
        class: if alone { Class::Exclusive } else { class },
        keys: if reads { Keys::default() } else { Keys { reads: Vec::new(), writes: key.clone() } },
        risk: if reads { Risk::Read } else { Risk::Operate },
        protective: false,
        contract: Arc::new(if reads { Contract::reads("load") } else { Contract::weakest("load") }),
        patience: Duration::from_secs(30),
    };
    let read = || declaration(true, Class::Safe);
    let verbs = [("hash", read()), ("git", read()), ("http", read()), ("write", declaration(false, Class::Exclusive))];
    let tool = Tool::new(Definition {
        name: ToolName::new("load")?,
        title: Text::default(),
        description: Text::default(),
        input_schema: json!({ "type": "object", "required": ["verb"] }),
        output_schema: None,
        annotations: Annotations::default(),
        kind: Kind::Declared(Declared {
            mcp: None,
            verb_in: Some("verb".to_owned()),
            verbs: verbs.into_iter().map(|(verb, declaration)| (verb.to_owned(), declaration)).collect(),
            otherwise: read(),
        }),
    })?;
    Ok(Surface::new([Arc::new(tool)]))
}

/// The 95 % percentile interval of the mean, by resampling: the same numbers at every run.
#[must_use]
pub fn bootstrap(values: &[f64]) -> [f64; 2] {
    if values.is_empty() {
        return [f64::NAN; 2];
    }
    let mut state = SEED;
    // splitmix64 (Steele, Lea and Flood, 2014).
    let mut next = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    #[expect(clippy::cast_precision_loss, reason = "a count of some tens")]
    let len = values.len() as f64;
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let sum: f64 =
                (0..values.len()).map(|_| values[usize::try_from(next() % values.len() as u64).unwrap_or(0)]).sum();
            sum / len
        })
        .collect();
    means.sort_by(f64::total_cmp);
    [means[RESAMPLES * 25 / 1000], means[RESAMPLES * 975 / 1000 - 1]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bootstrap_repeats_and_holds_the_mean() {
        let values: Vec<f64> = (0..30).map(|at| f64::from(at % 7) - 12.0).collect();
        let interval = bootstrap(&values);
        assert_eq!(interval, bootstrap(&values));
        let mean = values.iter().sum::<f64>() / 30.0;
        assert!(interval[0] < mean && mean < interval[1], "{interval:?}");
        assert_eq!(bootstrap(&[2.0]), [2.0, 2.0]);
    }

    #[test]
    fn every_call_of_a_pair_ends_as_done_and_the_declared_classes_overlap() {
        let dir = tempfile::tempdir().unwrap();
        let load = Load::new(dir.path()).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let server = Server::start().await.unwrap();
            for alone in [false, true] {
                let mut driver = Driver::new(surface(alone).unwrap(), |policy| policy, None, load.work(&server));
                let went = driver.batch(load.wishes(&server).unwrap()).await;
                let words: Vec<&str> = went.replies.iter().map(|reply| reply.ending.word()).collect();
                assert_eq!(words, ["done"; 5]);
                // With classes the four reads start before the first of them has ended.
                let starts = went.events.iter().take_while(|(_, word)| *word != "outcome");
                let started = starts.filter(|(_, word)| *word == "started").count();
                assert_eq!(started, if alone { 1 } else { 4 });
            }
        });
    }
}
