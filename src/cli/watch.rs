//! `interlock watch`: supervises the threads of a process that knows nothing of us.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::args::WatchArgs;
use super::error::{CliError, Exit};
use super::out::{Out, on_one_line};
use crate::engine::supervisor::ChildSpec;
use crate::engine::watch::{Ended, Options, Target, run};
use crate::sys::child::Exit as ChildExit;
use crate::sys::signal::Signals;

/// Watches until the process ends or a signal comes. The exit code is the program's own, as a shell gives it.
pub(super) fn watch(args: &WatchArgs, out: &Out) -> Result<ExitCode, CliError> {
    let target = match (args.pid, args.command.split_first()) {
        (Some(pid), None) => Target::Pid(pid),
        (None, Some((program, rest))) => Target::Command(ChildSpec {
            program: OsString::from(program),
            args: rest.iter().map(OsString::from).collect(),
            envs: Vec::new(),
            folder: None,
        }),
        (Some(_), Some(_)) | (None, None) => {
            return Err(CliError::new(Exit::Usage, "either --pid N or -- COMMAND is watched")
                .hint("interlock watch -- python3 worker.py"));
        }
    };
    let mut options = Options::new(target);
    if let Some(tau) = args.tau {
        options.tau = seconds("--tau", tau)?;
    }
    if let Some(scan) = args.scan {
        options.scan = seconds("--scan", scan)?;
    }
    stop_on_signal(Arc::clone(&options.stop))?;
    let ended = run(&options, |seen| {
        let line = if args.json {
            seen.json().to_string()
        } else {
            let cause = seen.cause.map(|cause| format!(" {cause}")).unwrap_or_default();
            format!(
                "{:>8} ms  {}/{} {}  {}{cause}  {}",
                seen.ms,
                seen.pid,
                seen.tid,
                on_one_line(&seen.name),
                seen.event.name(),
                on_one_line(&seen.detail)
            )
        };
        // A reader that went away does not end the watch.
        let _ = out.line(&line);
    })
    .map_err(|error| CliError::new(Exit::NoInput, error.to_string()))?;
    Ok(match ended {
        Ended::Exited(ChildExit::Code(code)) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Ended::Exited(ChildExit::Signal(signal)) => ExitCode::from(u8::try_from(128 + signal).unwrap_or(255)),
        Ended::Gone | Ended::Stopped => ExitCode::SUCCESS,
    })
}

fn seconds(flag: &str, value: f64) -> Result<Duration, CliError> {
    if (0.05..=86_400.0).contains(&value) {
        return Ok(Duration::from_secs_f64(value));
    }
    Err(CliError::new(Exit::Usage, format!("{flag} {value} is outside 0.05 to 86400 seconds")))
}

/// The signals are read by a thread of their own, which ends with the process.
fn stop_on_signal(stop: Arc<AtomicBool>) -> Result<(), CliError> {
    let signals = Signals::take().map_err(|error| CliError::new(Exit::Bug, error.to_string()))?;
    let wait = move || {
        use std::os::fd::AsFd;
        let mut wait = [nix::poll::PollFd::new(signals.as_fd(), nix::poll::PollFlags::POLLIN)];
        let _ = nix::poll::poll(&mut wait, nix::poll::PollTimeout::NONE);
        stop.store(true, Ordering::Release);
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)
        .map(|_| ())
        .map_err(|error| CliError::new(Exit::Bug, error.to_string()))
}
