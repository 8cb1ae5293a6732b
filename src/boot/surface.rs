//! What a configuration makes of the tools: which there are, what the gate knows of the devices, where they work.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use interlock_domain::device::read_back::holds_what_was_written;
use interlock_domain::device::table::{Device, Devices, Does, READ, WRITE};
use interlock_domain::gate::policy::Mode;
use interlock_domain::id::ToolName;
use interlock_domain::risk::Risk;
use interlock_domain::surface::contract::{Contract, Effect, OutcomeBy};
use interlock_domain::surface::device::{ActionFacts, DeviceFacts, DeviceTable};
use interlock_domain::surface::tool::{Annotations, BadTool, Definition, Kind, Text, Tool};
use tokio::sync::watch;

use super::{BootError, Places};
use crate::config::Config;
use crate::config::policy::Classifier;
use crate::engine::classify::Classify;
use crate::engine::handle::Grounds;
use crate::engine::mediator::{Settings, own_paths};
use crate::engine::{agent, own};
use crate::store::{backup, update};
use crate::tool::device::{DeviceTool, EVERY};
use crate::tool::{About, Tools, device, files, http, shell};

/// Where tools work: the first working directory of the configuration, else one in the state directory.
pub(super) fn grounds(config: &Config, state: &Path, models: watch::Receiver<Option<Arc<agent::Settings>>>) -> Grounds {
    let own = state.join("work");
    let cwd = config.work_dirs.first().cloned().unwrap_or_else(|| own.clone());
    if cwd == own
        && let Err(error) = std::fs::create_dir_all(&cwd)
    {
        // A lost or read-only data partition stops no supervision: a command that wants to run there says so itself.
        tracing::error!(kind = "WORK_DIR", %error, "{} cannot be made: commands have no place to run in", cwd.display());
    }
    // Where another mode asks people anyway, nobody needs an opinion.
    let asked = config.classifier.as_ref().filter(|_| config.mode == Mode::BypassPermissions);
    let classify = asked.map(|asked| {
        Arc::new(match asked {
            Classifier::Command(command) => Classify::Command { command: command.clone(), cwd: cwd.clone() },
            Classifier::Model => Classify::model(models),
        })
    });
    Grounds {
        cwd,
        reach: Arc::new(super::sandbox::reach(config, state)),
        home: std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute()),
        work_dirs: config.work_dirs.iter().filter_map(|dir| dir.to_str()).map(str::to_owned).collect(),
        classify,
    }
}

/// The code that acts on the world.
pub(super) fn tools(
    config: &Config,
    devices: Arc<Devices>,
    grounds: &Grounds,
    servers: crate::tool::mcp::Servers,
) -> Result<Arc<Tools>, BootError> {
    let http = http::Http::new(http::Limits { link_local: config.http_link_local, ..http::Limits::default() })
        .map_err(|error| BootError::Other(anyhow::Error::new(error)))?;
    Ok(Arc::new(Tools {
        device: DeviceTool::new(devices),
        http,
        files: files::Limits::default(),
        shell: shell::Limits::default(),
        cwd: grounds.cwd.clone(),
        reach: Arc::clone(&grounds.reach),
        servers,
    }))
}

/// The tools of our own that every run sees.
pub(super) fn base(devices: &Devices, config: &Config) -> Result<Vec<Arc<Tool>>, BootError> {
    make(devices, config).map_err(|error| BootError::Other(anyhow::Error::new(error)))
}

fn make(devices: &Devices, config: &Config) -> Result<Vec<Arc<Tool>>, BadTool> {
    let table = Arc::new(table(devices));
    let hints = |read_only, destructive, idempotent, open_world| Annotations {
        read_only: Some(read_only),
        destructive: Some(destructive),
        idempotent: Some(idempotent),
        open_world: Some(open_world),
    };
    let mut tools = vec![
        tool(&device::ABOUT, Kind::Device(Arc::clone(&table)), hints(false, true, false, false))?,
        tool(&files::READ_FILE, Kind::ReadFile, hints(true, false, true, false))?,
        tool(&files::WRITE_FILE, Kind::WriteFile, hints(false, true, false, false))?,
        tool(&shell::SHELL, Kind::Shell, hints(false, true, false, true))?,
        tool(&http::HTTP, Kind::Http, hints(false, true, false, true))?,
    ];
    tools.extend(own::tools(table)?);
    tools.push(agent::child::tool()?);
    // Another name for the same thing: the gate judges what it does, not what it is called.
    for alias in &config.extensions.aliases {
        if let Some(tool) = tools.iter().find(|tool| *tool.name() == alias.tool) {
            tools.push(Tool::new(Definition { name: alias.name.clone(), ..tool.definition().clone() })?);
        }
    }
    let stands_for =
        |name: &ToolName| config.extensions.aliases.iter().find(|alias| alias.name == *name).map(|alias| &alias.tool);
    let promised = |tool: Tool| {
        let of = stands_for(tool.name()).cloned();
        Arc::new(tool.promised(&config.contracts, of.as_ref()))
    };
    Ok(tools.into_iter().map(promised).collect())
}

fn tool(about: &About, kind: Kind, annotations: Annotations) -> Result<Tool, BadTool> {
    let text = |[en, zh]: [&str; 2]| Text { en: en.to_owned(), zh: zh.to_owned() };
    #[expect(clippy::expect_used, reason = "a constant of letters and underscores")]
    let name = ToolName::new(about.name).expect("letters");
    Tool::new(Definition {
        name,
        title: text(about.title),
        description: text(about.description),
        input_schema: (about.input)(),
        output_schema: Some((about.output)()),
        annotations,
        kind,
    })
}

/// What the gate and the schedule know of the devices.
fn table(devices: &Devices) -> DeviceTable {
    let mut table = BTreeMap::new();
    for device in devices.iter() {
        let mut actions = BTreeMap::new();
        let facts = |risk, protective| ActionFacts { risk, protective };
        if !device.points.is_empty() {
            actions.insert(READ.to_owned(), facts(Risk::Read, false));
        }
        let writable = device.points.values().filter(|point| point.writable);
        if let Some(risk) = writable.map(|point| devices.write_risk(device, point)).max() {
            // One verb writes any point: it is as risky as the riskiest of them.
            actions.insert(WRITE.to_owned(), facts(risk, false));
        }
        for action in device.actions.values() {
            actions.insert(action.name.clone(), facts(action.risk, action.protective));
        }
        let facts = DeviceFacts {
            kind: device.kind.clone(),
            zone: device.zone.clone(),
            bus: device.bus.clone(),
            ranges: device.points.iter().filter_map(|(name, point)| Some((name.clone(), point.range?))).collect(),
            actions,
            contracts: contracts(devices, device),
        };
        table.insert(device.name.clone(), facts);
    }
    let list = ActionFacts { risk: Risk::Read, protective: false };
    table.insert(
        EVERY.to_owned(),
        DeviceFacts {
            kind: String::new(),
            zone: None,
            bus: EVERY.to_owned(),
            ranges: BTreeMap::new(),
            actions: BTreeMap::from([("list".to_owned(), list)]),
            contracts: BTreeMap::new(),
        },
    );
    DeviceTable(table)
}

/// What is true of writing to a device. A register that holds what was written can be read back, and the same value again
/// adds nothing; a press can not and does.
fn contracts(devices: &Devices, device: &Device) -> BTreeMap<String, Arc<Contract>> {
    let contract = |op_kind: String, holds: bool, effect: Effect| {
        let outcome = if holds { OutcomeBy::Query } else { OutcomeBy::None };
        Arc::new(Contract { outcome, idempotent: holds, effect, ..Contract::weakest(&op_kind) })
    };
    let mut all = BTreeMap::new();
    for point in device.points.values().filter(|point| point.writable) {
        let holds = holds_what_was_written(point);
        all.insert(format!("{WRITE}/{}", point.name), contract("device.write".to_owned(), holds, Effect::Irreversible));
    }
    for action in device.actions.values().filter(|action| matches!(action.does, Does::Writes(_))) {
        let effect = action.inverse.as_ref().map_or(Effect::Irreversible, |inverse| Effect::Reversible {
            inverse: format!("device.{}", inverse.action),
            precondition: Some(inverse.when.clone()),
            window: inverse.window,
        });
        let holds = devices.leaves_a_state(device, &action.does);
        all.insert(action.name.clone(), contract(format!("device.{}", action.name), holds, effect));
    }
    all
}

/// What a configuration says about runs.
pub(super) fn settings(config: &Config, places: &Places) -> Settings {
    Settings {
        mode: config.mode,
        order: config.rule_order,
        rules: Arc::clone(&config.rules),
        ask_patience: config.ask_patience,
        confirm_protective: config.confirm_protective,
        four_eyes: config.four_eyes,
        own_paths: own_paths(own(config, places)),
        // Old keys lie in what was moved aside.
        own_secrets: own_paths(["keys", backup::ASIDE, backup::NEW].map(|name| places.state.join(name))),
        breaker: config.breaker,
        classifier_fails_open: config.classifier_fails_open,
    }
}

/// Interlock's own files: a tool that could write them could rewrite the gate. The working directory inside the state
/// directory is not one of them.
fn own(config: &Config, places: &Places) -> Vec<PathBuf> {
    let of_state = [
        "evidence",
        "keys",
        "spill",
        "export",
        "state.db",
        "state.db-wal",
        "state.db-shm",
        "lock",
        "knowledge.db",
        "knowledge.db-wal",
        "knowledge.db-shm",
        backup::ASIDE,
        backup::NEW,
        backup::NOTE,
        update::FOLDER,
        update::FLOOR,
    ];
    let mut paths: Vec<PathBuf> = of_state.iter().map(|name| places.state.join(name)).collect();
    paths.extend(config.file.clone());
    paths.extend(config.command_files.iter().cloned());
    paths.extend(config.policy_files.iter().cloned());
    paths.extend(config.model.manifest.clone());
    paths.extend(config.extensions.manifests.iter().cloned());
    paths.extend(config.extensions.command_files.iter().cloned());
    paths.push(places.socket.clone());
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the shipped commands act on: every action of the plant that comes with it says what is true of it.
    #[test]
    fn each_action_of_the_shipped_plant_has_a_contract() {
        let (devices, _) = crate::boot::devices(&crate::config::load(None).unwrap()).unwrap();
        let (mut held, mut pressed) = (0, 0);
        for device in devices.iter() {
            let all = contracts(&devices, device);
            for action in device.actions.values().filter(|action| matches!(action.does, Does::Writes(_))) {
                let contract = &all[&action.name];
                assert_eq!(contract.op_kind, format!("device.{}", action.name), "{}", device.name);
                contract.check().unwrap();
                // What holds its value is read back, and the same again adds nothing; a press is neither.
                let holds = devices.leaves_a_state(device, &action.does);
                assert_eq!(
                    (contract.outcome == OutcomeBy::Query, contract.idempotent),
                    (holds, holds),
                    "{}",
                    device.name
                );
                if holds { held += 1 } else { pressed += 1 }
            }
        }
        assert!(held > 20, "{held} held, {pressed} pressed");
    }

    /// A reset and a restore move the keys, and the tokens of other services, into a folder of the state.
    #[test]
    fn what_was_moved_aside_stays_secret() {
        let state = tempfile::tempdir().unwrap();
        let places = Places {
            config: None,
            state: state.path().to_owned(),
            socket: state.path().join("s"),
            health: |_, _| Vec::new(),
        };
        let settings = settings(&crate::config::load(None).unwrap(), &places);
        for folder in ["keys", "aside", "restore-new"] {
            let path = state.path().join(folder).display().to_string();
            assert!(settings.own_secrets.contains(&path) && settings.own_paths.contains(&path), "{folder}");
        }
    }
}
