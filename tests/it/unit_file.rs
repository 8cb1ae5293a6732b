//! The unit as systemd reads it: it keeps the rules of restart that bring the box back by itself, it has no holes that
//! nobody meant, and systemd itself finds nothing wrong with it.
//!
//! Read from the files that are installed, never from a copy of their text in here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::skipped;

/// Tenths of the exposure that `systemd-analyze security` gives (252 and later); see the unit for what the rest is.
const EXPOSURE_MAX: &str = "12";
/// The same with the devices of an accelerator.
const EXPOSURE_NPU_MAX: &str = "15";

fn systemd(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd").join(file)
}

/// The values of a key, in order; a unit may give a key several times.
fn values(unit: &str, key: &str) -> Vec<String> {
    let named = |line: &str| Some(line.strip_prefix(key)?.strip_prefix('=')?.to_owned());
    unit.lines().filter_map(named).collect()
}

fn seconds(unit: &str, key: &str) -> u64 {
    values(unit, key)[0].parse().expect("a number of seconds")
}

/// What breaks the rules of restart, of secrets and of places.
fn breaches(unit: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut must = |key: &str, expected: &[&str]| {
        let found = values(unit, key);
        if found != expected {
            wrong.push(format!("{key} is {found:?}, not {expected:?}"));
        }
    };
    must("Type", &["notify"]);
    must("ExecReload", &["/bin/kill -HUP $MAINPID"]);
    must("Restart", &["always"]);
    must("RestartPreventExitStatus", &["78"]);
    must("StateDirectory", &["interlock"]);
    must("RuntimeDirectory", &["interlock"]);
    must("Group", &["interlock"]);
    must("OOMPolicy", &["continue"]);
    must("EnvironmentFile", &[]);
    must("Environment", &[]);
    must("NoNewPrivileges", &["yes"]);
    must("CapabilityBoundingSet", &[""]);
    // Without these calls, the sandbox of commands would be missing under the service, and only there.
    let calls = values(unit, "SystemCallFilter").join(" ");
    for call in ["landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"] {
        if !calls.split(' ').any(|one| one == call) {
            wrong.push(format!("{call} is refused"));
        }
    }
    let spent = seconds(unit, "RestartSec") * seconds(unit, "StartLimitBurst");
    if spent >= seconds(unit, "StartLimitIntervalSec") {
        wrong.push(format!("{spent} s of restarts never reach the start limit"));
    }
    if seconds(unit, "WatchdogSec") < 3 {
        wrong.push("a watchdog below three scans".to_owned());
    }
    wrong
}

#[test]
fn the_unit_keeps_the_rules_of_restart_secrets_and_places() {
    let unit = fs::read_to_string(systemd("interlock.service")).expect("the unit is there");
    assert_eq!(breaches(&unit), Vec::<String>::new());

    let check = |from: &str, to: &str, expected: &str| {
        assert!(unit.contains(from), "{from} is in the unit");
        assert_eq!(breaches(&unit.replace(from, to)), [expected]);
    };
    check("RestartSec=2\n", "RestartSec=12\n", "120 s of restarts never reach the start limit");
    check("RestartPreventExitStatus=78\n", "", "RestartPreventExitStatus is [], not [\"78\"]");
    check(" landlock_add_rule", "", "landlock_add_rule is refused");
    check("User=", "EnvironmentFile=/etc/x\nUser=", "EnvironmentFile is [\"/etc/x\"], not []");
}

/// systemd's own reading. It gives no exit code for a key that it does not know, so what it writes counts.
#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    let test = "systemd_finds_nothing_wrong_with_the_units";
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return skipped(test, "systemd-analyze is not installed");
    }
    let place = tempfile::tempdir().expect("a place for the units");
    let complaints = |from: &str, to: &str| {
        let mut units = Vec::new();
        for name in ["interlock.service", "interlock-retry.service", "interlock-retry.timer"] {
            // The binary is not installed where tests run, nor is its manual.
            let text = fs::read_to_string(systemd(name))
                .expect("the unit is there")
                .replace("/usr/bin/interlock", "/bin/true");
            let text = text.replace("Documentation=man:interlock(1)\n", "").replace(from, to);
            units.push(place.path().join(name));
            fs::write(&units[units.len() - 1], text).expect("the unit is written");
        }
        let said = Command::new("systemd-analyze").arg("verify").args(&units).output().expect("systemd-analyze runs");
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        // It also reads the units of this machine that ours refer to, and has opinions on them.
        said.lines().filter(|line| line.contains("interlock")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(complaints("", ""), Vec::<String>::new());
    let unknown = complaints("OOMPolicy=continue", "OOMPolicies=continue");
    assert!(unknown.iter().any(|line| line.contains("OOMPolicies")), "{unknown:?}");
}

#[test]
fn the_unit_is_as_closed_as_it_was() {
    let exposed_beyond = |most: &str, unit: &Path| {
        let mut security = Command::new("systemd-analyze");
        security.args(["security", "--offline=true", "--no-pager", "--threshold", most]).arg(unit);
        security.output()
    };
    let exposed = |unit: &Path| exposed_beyond(EXPOSURE_MAX, unit);
    let Ok(said) = exposed(&systemd("interlock.service")) else {
        return skipped("the_unit_is_as_closed_as_it_was", "systemd-analyze is not installed");
    };
    let text = String::from_utf8_lossy(&said.stdout);
    if !text.contains("Overall exposure level") {
        let why = String::from_utf8_lossy(&said.stderr).into_owned();
        return skipped("the_unit_is_as_closed_as_it_was", why.lines().next().unwrap_or("it gives no level"));
    }
    assert!(said.status.success(), "more exposed than {EXPOSURE_MAX} tenths:\n{text}");

    let place = tempfile::tempdir().expect("a place for the unit");
    let open = place.path().join("interlock.service");
    let unit = fs::read_to_string(systemd("interlock.service")).expect("the unit is there");
    fs::write(&open, unit.replace("ProtectSystem=strict\n", "")).expect("the unit is written");
    assert!(!exposed(&open).expect("systemd-analyze runs").status.success(), "a more open unit is noticed");

    // With the drop-in for an accelerator, as systemd puts the two together.
    let drop_in = fs::read_to_string(systemd("interlock-npu.conf")).expect("the drop-in is there");
    let (_, lines) = drop_in.split_once("[Service]\n").expect("it is about the service");
    let together = unit.replace("PrivateDevices=yes\n", "").replace("\n[Install]", &format!("\n{lines}\n[Install]"));
    fs::write(&open, together).expect("the unit is written");
    let said = exposed_beyond(EXPOSURE_NPU_MAX, &open).expect("systemd-analyze runs");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
    for node in ["/dev/davinci_manager", "/dev/hisi_hdc", "/dev/davinci0"] {
        assert!(values(&drop_in, "DeviceAllow").contains(&format!("{node} rw")), "{node}");
    }
}
