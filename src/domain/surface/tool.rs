//! A tool as the chain sees it: what it is called, what it takes, and how class, keys, risk and contract follow from
//! an input.
//!
//! One description serves every surface: MCP lists it, the agent loop offers it to a model, the gate and the schedule
//! read it. The tool itself, the code that acts, lives elsewhere and is found by [`Kind`].

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jsonschema::Validator;
use serde_json::Value;
use thiserror::Error;

use crate::id::ToolName;
use crate::request::args::Args;
use crate::request::paths::PathFacts;
use crate::request::why::Why;

use super::contract::{Contract, Effect, Visibility};
use super::device::DeviceTable;
use super::nature::{Class, Deed, Key, Keys, Lane, Nature};
use super::outputs::{Outputs, Validity};
use super::promise::Promise;
use super::shell::{self, Script};
use crate::risk::Risk;

/// How long a device may take: a field bus answers in milliseconds or not at all.
pub const DEVICE_PATIENCE: Duration = Duration::from_secs(10);
/// How long a file operation may take.
pub const FILE_PATIENCE: Duration = Duration::from_secs(30);
/// How long a shell command or an HTTP request may take, unless the tool stops it sooner.
pub const WORK_PATIENCE: Duration = Duration::from_secs(120);
/// How long a background tool may take to give its receipt.
pub const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(5);

/// A text in the two languages of this product.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Text {
    /// English.
    pub en: String,
    /// Simplified Chinese.
    pub zh: String,
}

/// The hints of an MCP tool, as we declare them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Annotations {
    /// `readOnlyHint`.
    pub read_only: Option<bool>,
    /// `destructiveHint`.
    pub destructive: Option<bool>,
    /// `idempotentHint`.
    pub idempotent: Option<bool>,
    /// `openWorldHint`.
    pub open_world: Option<bool>,
}

/// What a tool is made from.
#[derive(Debug, Clone)]
pub struct Definition {
    /// As callers write it.
    pub name: ToolName,
    /// A short name for people.
    pub title: Text,
    /// What it does, for people and models.
    pub description: Text,
    /// JSON schema of the input: an object.
    pub input_schema: Value,
    /// JSON schema of the output, where the tool promises one.
    pub output_schema: Option<Value>,
    /// MCP hints.
    pub annotations: Annotations,
    /// What it is.
    pub kind: Kind,
}

/// What a tool is, and from that how the nature of a call is found.
#[derive(Debug, Clone)]
pub enum Kind {
    /// `device`: input `device`, `action`, and what the action takes.
    Device(Arc<DeviceTable>),
    /// `read_file`: input `path`.
    ReadFile,
    /// `write_file`: input `path`.
    WriteFile,
    /// `shell`: input `command`, and perhaps `cwd`.
    Shell,
    /// `http`: input `url`, and perhaps `method`.
    Http,
    /// `monitor`: input `device`; a background task that reads.
    Monitor(Arc<DeviceTable>),
    /// A tool that says itself what its calls are: the daemon's own, and later those of downstream MCP servers.
    Declared(Declared),
}

/// A tool that declares the nature of its calls, by verb where it has verbs.
#[derive(Debug, Clone)]
pub struct Declared {
    /// The raw (server, tool) pair of a downstream tool; `None` for the daemon's own.
    pub mcp: Option<(String, String)>,
    /// The member of the input that holds the verb.
    pub verb_in: Option<String>,
    /// By verb.
    pub verbs: BTreeMap<String, Declaration>,
    /// For every other verb, and for a tool without verbs.
    pub otherwise: Declaration,
}

/// What a declared call is.
#[derive(Debug, Clone)]
pub struct Declaration {
    /// How it stands towards others in time.
    pub class: Class,
    /// What it touches.
    pub keys: Keys,
    /// Its risk.
    pub risk: Risk,
    /// It brings the plant into its safe state.
    pub protective: bool,
    /// What is promised about it.
    pub contract: Arc<Contract>,
    /// How long it may run before it is asked to stop.
    pub patience: Duration,
}

/// A tool whose description is wrong: a bug of ours, or of a downstream server.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadTool {
    /// The schema of the input cannot be used.
    #[error("tool {tool}: its input schema is wrong: {fact}")]
    InputSchema {
        /// The tool.
        tool: ToolName,
        /// What is wrong.
        fact: String,
    },
    /// The schema of the output cannot be used.
    #[error("tool {tool}: its output schema is wrong: {fact}")]
    OutputSchema {
        /// The tool.
        tool: ToolName,
        /// What is wrong.
        fact: String,
    },
}

/// A tool with its schemas compiled once.
#[derive(Debug)]
pub struct Tool {
    definition: Definition,
    input: Validator,
    output: Option<Outputs>,
    /// The whole output schema, for a tool of another server: what it promises is for programs, and held as a whole.
    whole: Option<Validator>,
    contracts: Contracts,
    promises: Vec<Promise>,
}

impl Tool {
    /// Compiles the schemas.
    ///
    /// # Errors
    /// When a schema is not a schema.
    pub fn new(definition: Definition) -> Result<Tool, BadTool> {
        let input = jsonschema::validator_for(&definition.input_schema)
            .map_err(|error| BadTool::InputSchema { tool: definition.name.clone(), fact: error.to_string() })?;
        let output = definition
            .output_schema
            .as_ref()
            .map(Outputs::new)
            .transpose()
            .map_err(|fact| BadTool::OutputSchema { tool: definition.name.clone(), fact })?;
        let whole = match (&definition.kind, &definition.output_schema) {
            (Kind::Declared(Declared { mcp: Some(_), .. }), Some(schema)) => {
                Some(jsonschema::validator_for(schema).map_err(|error| BadTool::OutputSchema {
                    tool: definition.name.clone(),
                    fact: error.to_string(),
                })?)
            }
            _ => None,
        };
        Ok(Tool { definition, input, output, whole, contracts: Contracts::new(), promises: Vec::new() })
    }

    /// The same tool with what a person promises about its calls; of several that fit a call, the first counts. What
    /// is promised of a tool holds for its other names too, after what is promised of the name itself.
    #[must_use]
    pub fn promised(mut self, promises: &[Promise], stands_for: Option<&ToolName>) -> Tool {
        let names = std::iter::once(&self.definition.name).chain(stands_for);
        let of = |name: &ToolName| promises.iter().filter(|promise| promise.tool == *name).cloned().collect::<Vec<_>>();
        self.promises = names.flat_map(of).collect();
        // What these do is an effect, whoever says otherwise, and by whatever name.
        let acts = matches!(self.definition.kind, Kind::Device(_) | Kind::WriteFile);
        self.promises.retain(|promise| !acts || promise.contract.changes());
        self
    }

    /// As callers write it.
    #[must_use]
    pub fn name(&self) -> &ToolName {
        &self.definition.name
    }

    /// All that it was made from.
    #[must_use]
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        &self.definition.kind
    }

    /// The weakest promise of all its calls: what is true whatever the input. For lists of tools, where there is no
    /// input yet.
    #[must_use]
    pub fn weakest_contract(&self) -> Contract {
        match &self.definition.kind {
            Kind::ReadFile => (*self.contracts.read_file).clone(),
            Kind::WriteFile => (*self.contracts.write_file).clone(),
            Kind::Shell => (*self.contracts.shell).clone(),
            Kind::Http => (*self.contracts.http_send).clone(),
            Kind::Monitor(_) => (*self.contracts.monitor).clone(),
            Kind::Device(_) => Contract::weakest(self.definition.name.as_str()),
            Kind::Declared(declared) => {
                let changing = declared.verbs.values().find(|verb| verb.contract.changes());
                (*changing.unwrap_or(&declared.otherwise).contract).clone()
            }
        }
    }

    /// Where an output breaks the schema that another server declared for it, and what is expected there.
    #[must_use]
    pub fn output_breach(&self, output: &Value) -> Option<(String, String)> {
        self.whole.as_ref().and_then(|schema| breach(schema, output))
    }

    /// Each parameter of an output against what the tool promised of it, and each reading of a device against the range
    /// of its point. None for a tool that promises nothing.
    #[must_use]
    pub fn examine(&self, output: &Value) -> Option<Validity> {
        let promised = self.output.as_ref()?;
        Some(match &self.definition.kind {
            Kind::Device(devices) => {
                let mut validity = promised.judge(output);
                validity.findings.extend(devices.judge_ranges(output));
                validity
            }
            // A downstream server promises its structured content, which lies beside the text for people.
            Kind::Declared(Declared { mcp: Some(_), .. }) => {
                promised.judge(output.get("structuredContent").unwrap_or(output))
            }
            Kind::ReadFile | Kind::WriteFile | Kind::Shell | Kind::Http | Kind::Monitor(_) | Kind::Declared(_) => {
                promised.judge(output)
            }
        })
    }

    /// Is anything about its calls decided by where paths lead? Then `sys` looks at the disk before it is submitted.
    #[must_use]
    pub fn acts_on_paths(&self) -> bool {
        match &self.definition.kind {
            Kind::ReadFile | Kind::WriteFile | Kind::Shell => true,
            Kind::Http | Kind::Device(_) | Kind::Monitor(_) | Kind::Declared(_) => false,
        }
    }

    /// The texts of the input that are paths `sys` should look at before the call is submitted.
    #[must_use]
    pub fn paths(&self, args: &Value) -> Vec<String> {
        let member = |key: &str| args.get(key).and_then(Value::as_str).map(str::to_owned);
        match &self.definition.kind {
            Kind::ReadFile | Kind::WriteFile => member("path").into_iter().collect(),
            Kind::Shell => {
                let mut paths: Vec<String> = member("cwd").into_iter().collect();
                paths.extend(member("command").iter().flat_map(|command| Script::parse(command).path_words()));
                paths
            }
            Kind::Http | Kind::Device(_) | Kind::Monitor(_) | Kind::Declared(_) => Vec::new(),
        }
    }

    /// What a call with this input is by nature; the input is checked against the schema first.
    ///
    /// # Errors
    /// When the input does not fit, or names what is not there.
    pub fn nature(&self, args: &Args, facts: &PathFacts) -> Result<Nature, Why> {
        if let Some((path, expected)) = breach(&self.input, args.value()) {
            return Err(Why::BadInput { path, expected });
        }
        let mut nature = self.nature_by_itself(args, facts)?;
        if let Some(promise) = self.promises.iter().find(|promise| promise.fits(args.value())) {
            nature.contract = Arc::clone(&promise.contract);
        }
        Ok(nature)
    }

    fn nature_by_itself(&self, args: &Args, facts: &PathFacts) -> Result<Nature, Why> {
        match &self.definition.kind {
            Kind::Device(devices) => self.device(devices, args),
            Kind::ReadFile => {
                let (written, canonical) = path_of(args, facts)?;
                Ok(Nature {
                    deed: Deed::Read { path: written, below: false },
                    class: Class::Safe,
                    keys: Keys { reads: vec![Key::Path(canonical)], writes: Vec::new() },
                    risk: Risk::Read,
                    protective: false,
                    contract: Arc::clone(&self.contracts.read_file),
                    patience: FILE_PATIENCE,
                })
            }
            Kind::WriteFile => {
                let (written, canonical) = path_of(args, facts)?;
                Ok(Nature {
                    deed: Deed::Write { path: written },
                    class: Class::Safe,
                    keys: Keys { reads: Vec::new(), writes: vec![Key::Path(canonical)] },
                    risk: Risk::Operate,
                    protective: false,
                    contract: Arc::clone(&self.contracts.write_file),
                    patience: FILE_PATIENCE,
                })
            }
            Kind::Shell => {
                let script = Arc::new(Script::parse(text_of(args, "command")?));
                let reads = shell::reads::proven(&script);
                let keys = if reads { read_keys(args, &script, facts) } else { Keys::default() };
                let contract = if reads { &self.contracts.shell_read } else { &self.contracts.shell };
                Ok(Nature {
                    deed: Deed::Shell { script, cwd: args.text("cwd").map(str::to_owned) },
                    class: if reads { Class::Safe } else { Class::Exclusive },
                    keys,
                    risk: if reads { Risk::Read } else { Risk::Operate },
                    protective: false,
                    contract: Arc::clone(contract),
                    patience: WORK_PATIENCE,
                })
            }
            Kind::Http => {
                let url = text_of(args, "url")?.to_owned();
                let reads = args.text("method").is_none_or(|method| matches!(method, "GET" | "HEAD"));
                let contract = if reads { &self.contracts.http_read } else { &self.contracts.http_send };
                Ok(Nature {
                    class: if reads { Class::Safe } else { Class::Queue(Lane(origin(&url).into())) },
                    deed: Deed::Fetch { url, reads },
                    keys: Keys::default(),
                    risk: if reads { Risk::Read } else { Risk::Operate },
                    protective: false,
                    contract: Arc::clone(contract),
                    patience: WORK_PATIENCE,
                })
            }
            Kind::Monitor(devices) => {
                let device = text_of(args, "device")?;
                if !devices.0.contains_key(device) {
                    return Err(Why::NoSuchDevice { device: device.to_owned() });
                }
                Ok(Nature {
                    deed: Deed::Own { tool: self.definition.name.as_str().to_owned(), verb: None },
                    class: Class::Background,
                    keys: Keys::default(),
                    risk: Risk::Read,
                    protective: false,
                    contract: Arc::clone(&self.contracts.monitor),
                    patience: HANDSHAKE_PATIENCE,
                })
            }
            Kind::Declared(declared) => Ok(self.declared(declared, args)),
        }
    }

    fn device(&self, devices: &DeviceTable, args: &Args) -> Result<Nature, Why> {
        let (device, action) = (text_of(args, "device")?, text_of(args, "action")?);
        let Some(facts) = devices.0.get(device) else {
            return Err(Why::NoSuchDevice { device: device.to_owned() });
        };
        let Some(risk) = facts.actions.get(action) else {
            return Err(Why::NoSuchAction {
                device: device.to_owned(),
                action: action.to_owned(),
                known: facts.actions.keys().cloned().collect(),
            });
        };
        let key = vec![Key::Device(device.to_owned())];
        let reads = risk.risk == Risk::Read;
        Ok(Nature {
            deed: Deed::Device { device: device.to_owned(), action: action.to_owned(), zone: facts.zone.clone() },
            class: Class::Queue(Lane(format!("bus:{}", facts.bus).into())),
            keys: if reads { Keys { reads: key, writes: vec![] } } else { Keys { reads: vec![], writes: key } },
            risk: risk.risk,
            protective: risk.protective,
            contract: if reads {
                Arc::clone(&self.contracts.device_read)
            } else {
                let written = args.text("point").filter(|_| action == "write").map(|point| format!("write/{point}"));
                let promised = facts.contracts.get(written.as_deref().unwrap_or(action));
                promised.map_or_else(|| Arc::new(Contract::weakest(&format!("device.{action}"))), Arc::clone)
            },
            patience: DEVICE_PATIENCE,
        })
    }

    fn declared(&self, declared: &Declared, args: &Args) -> Nature {
        let verb = declared.verb_in.as_deref().and_then(|key| args.text(key));
        let found = verb.and_then(|verb| declared.verbs.get(verb)).unwrap_or(&declared.otherwise);
        let deed = match &declared.mcp {
            Some((server, tool)) => Deed::Mcp { server: server.clone(), tool: tool.clone() },
            None => Deed::Own { tool: self.definition.name.as_str().to_owned(), verb: verb.map(str::to_owned) },
        };
        Nature {
            deed,
            class: found.class.clone(),
            keys: found.keys.clone(),
            risk: found.risk,
            protective: found.protective,
            contract: Arc::clone(&found.contract),
            patience: found.patience,
        }
    }
}

/// The contracts of the built-in tools: the fields that are true of them, made once.
#[derive(Debug)]
struct Contracts {
    read_file: Arc<Contract>,
    write_file: Arc<Contract>,
    shell: Arc<Contract>,
    shell_read: Arc<Contract>,
    http_read: Arc<Contract>,
    http_send: Arc<Contract>,
    monitor: Arc<Contract>,
    device_read: Arc<Contract>,
}

impl Contracts {
    fn new() -> Contracts {
        let private = |contract: Contract| Contract { visibility: Visibility::Private, ..contract };
        Contracts {
            read_file: Arc::new(Contract::reads("read_file")),
            write_file: Arc::new(private(Contract::weakest("write_file"))),
            shell: Arc::new(Contract::weakest("shell")),
            shell_read: Arc::new(Contract::reads("shell.read")),
            // The server may log or count it, which nobody here can promise away.
            http_read: Arc::new(Contract { effect: Effect::None, ..Contract::weakest("http.read") }),
            http_send: Arc::new(Contract::weakest("http.send")),
            // The task lives and ends with this process and only reads.
            monitor: Arc::new(private(Contract::reads("monitor"))),
            device_read: Arc::new(Contract::reads("device.read")),
        }
    }
}

fn breach(schema: &Validator, value: &Value) -> Option<(String, String)> {
    /// A schema with many alternatives writes long messages; a person needs the first line.
    const EXPECTED_CHARS_MAX: usize = 300;
    schema.iter_errors(value).next().map(|error| {
        let expected: String = error.masked().to_string().chars().take(EXPECTED_CHARS_MAX).collect();
        (error.instance_path().to_string(), expected)
    })
}

fn text_of<'a>(args: &'a Args, key: &str) -> Result<&'a str, Why> {
    args.text(key).ok_or_else(|| Why::BadInput { path: format!("/{key}"), expected: "a text".to_owned() })
}

fn path_of(args: &Args, facts: &PathFacts) -> Result<(String, String), Why> {
    let written = text_of(args, "path")?;
    let canonical = facts.resolve(written).ok_or_else(|| Why::BadInput {
        path: "/path".to_owned(),
        expected: "a path that can be resolved (absolute, or below a working directory)".to_owned(),
    })?;
    Ok((written.to_owned(), canonical))
}

/// What a command that only reads looks at: where it runs, and what it names.
fn read_keys(args: &Args, script: &Script, facts: &PathFacts) -> Keys {
    let here = args.text("cwd").unwrap_or(&facts.cwd);
    let named = shell::reads::read_paths(script).map(shell::Word::path);
    let paths = std::iter::once(Cow::Borrowed(here)).chain(named);
    Keys { reads: paths.filter_map(|path| facts.resolve(&path)).map(Key::Path).collect(), writes: Vec::new() }
}

/// Scheme and host, as far as one can tell without judging the address: the lane of what is sent there.
fn origin(url: &str) -> String {
    let after = url.find("://").map_or(0, |at| at + 3);
    let end = url[after..].find(['/', '?', '#']).map_or(url.len(), |at| after + at);
    url[..end].to_ascii_lowercase()
}
