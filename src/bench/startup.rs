//! From exec to ready: the daemon itself, started as systemd starts it.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How many starts: the median of few is steady enough, and each takes its time.
const STARTS: usize = 5;

/// How long a start may take before it counts as none.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long the daemon rests before its memory is read: what a start needs and gives back is not what it costs.
const REST: Duration = Duration::from_secs(2);

/// Measures in `directory`, which is empty and the caller's.
///
/// # Errors
/// When the daemon does not start.
pub fn run(directory: &Path) -> std::io::Result<Value> {
    let binary = std::env::current_exe()?;
    let mut ready = Vec::new();
    let mut resident = Vec::new();
    for start in 0..STARTS {
        let home = directory.join(format!("start-{start}"));
        std::fs::create_dir_all(&home)?;
        let (took, bytes) = once(&binary, &home)?;
        ready.push(took.as_secs_f64() * 1000.0);
        resident.push(bytes);
    }
    ready.sort_by(f64::total_cmp);
    resident.sort_unstable();
    let mib = |bytes: u64| (bytes as f64 / f64::from(1 << 20) * 10.0).round() / 10.0;
    Ok(json!({
        "ready_ms": (ready[STARTS / 2] * 10.0).round() / 10.0,
        "ready_ms_max": (ready[STARTS - 1] * 10.0).round() / 10.0,
        "rss_mib": mib(resident[STARTS / 2]),
        "binary_mib": mib(std::fs::metadata(&binary)?.len()),
        "starts": STARTS,
    }))
}

fn once(binary: &Path, home: &Path) -> std::io::Result<(Duration, u64)> {
    let notify = home.join("notify");
    let listener = UnixDatagram::bind(&notify)?;
    listener.set_read_timeout(Some(PATIENCE))?;
    let config = home.join("interlock.toml");
    // What stands in /etc must not decide a figure.
    std::fs::write(&config, "version = 1\n")?;
    let mut command = Command::new(binary);
    command.arg("--socket").arg(home.join("interlock.sock")).arg("run").arg("--state").arg(home.join("state"));
    command.arg("--config").arg(&config).env("NOTIFY_SOCKET", &notify).env_remove("WATCHDOG_USEC");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begun = Instant::now();
    let mut child = command.spawn()?;
    let measured = wait_ready(&listener).map(|()| begun.elapsed()).and_then(|took| {
        // Nothing tells when memory has been given back; this is a figure, not a test.
        std::thread::park_timeout(REST);
        Ok((took, crate::sys::machine::resident_bytes_of(child.id())?))
    });
    child.kill()?;
    child.wait()?;
    measured
}

fn wait_ready(listener: &UnixDatagram) -> std::io::Result<()> {
    let mut message = [0; 4096];
    loop {
        let length = listener.recv(&mut message)?;
        if String::from_utf8_lossy(&message[..length]).lines().any(|line| line == "READY=1") {
            return Ok(());
        }
    }
}
