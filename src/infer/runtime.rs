//! ONNX Runtime: found, loaded, and asked which provider really runs.
//!
//! The library is looked for in named places only, never in the working directory: whoever can put a file there could
//! run code in the daemon. Asking for a provider proves nothing (a library without it, or a machine without the
//! accelerator, goes on on the CPU without a word), so what is reported is what the session says it assigned.

use std::ffi::{CStr, c_char};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use ort::AsPointer as _;
use ort::environment::Environment;
use ort::ep::{CANN, ExecutionProvider as _};
use ort::logging::LogLevel;
use ort::session::Session;
use ort::session::builder::GraphOptimizationLevel;
use ort::value::{TensorRef, ValueType};
use thiserror::Error;

/// Where the library lies when it is not named.
const PLACES: &[&str] = &["/usr/lib/interlock"];
/// Its name, up to its version.
const LIBRARY: &str = "libonnxruntime.so";
/// The folder beside the build profiles that `cargo xtask setup` fills.
const OF_BUILD: &str = "onnxruntime";

/// Which execution provider is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Provider {
    /// Ascend where the library has it, else the CPU.
    #[default]
    Auto,
    /// Ascend; the CPU where it cannot be had, with the reason.
    Cann,
    /// The CPU.
    Cpu,
}

impl Provider {
    /// The provider of that name in a configuration.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Provider> {
        match word {
            "auto" => Some(Provider::Auto),
            "cann" => Some(Provider::Cann),
            "cpu" => Some(Provider::Cpu),
            _ => None,
        }
    }
}

/// What really runs a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// The library that was loaded.
    pub library: PathBuf,
    /// Its version and build.
    pub build: String,
    /// Each provider that got nodes, and how many.
    pub assigned: Vec<(String, usize)>,
    /// Why the provider that was asked for did not take the model, when it did not.
    pub fell_back: Option<String>,
}

impl fmt::Display for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let assigned: Vec<String> =
            self.assigned.iter().map(|(provider, nodes)| format!("{provider} ({nodes} nodes)")).collect();
        f.write_str(&assigned.join(", "))?;
        match &self.fell_back {
            Some(why) => write!(f, "; {why}"),
            None => Ok(()),
        }
    }
}

/// Why nothing can be inferred.
#[derive(Debug, Error)]
pub enum RuntimeError {
    /// There is no library in any of the places.
    #[error("no {LIBRARY} in ORT_DYLIB_PATH, <program>/../lib/interlock, /usr/lib/interlock")]
    NotFound,
    /// The library does not load.
    #[error("{path}: {why}")]
    Library {
        /// The library.
        path: PathBuf,
        /// What the loader says.
        why: String,
    },
    /// The model is not one that it runs.
    #[error("ONNX Runtime refuses the model: {0}")]
    Model(String),
    /// A run did not end well.
    #[error("ONNX Runtime: {0}")]
    Run(String),
}

/// The library that would be loaded: the one that is named, else the first of the places.
#[must_use]
pub fn find() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("ORT_DYLIB_PATH").filter(|path| !path.is_empty()) {
        return Some(PathBuf::from(named)).filter(|path| path.is_file());
    }
    let program = std::env::current_exe().ok();
    let folder = program.as_deref().and_then(Path::parent);
    let beside = folder.map(|folder| folder.join("../lib/interlock"));
    // A program that Cargo built lies in `<target>/<profile>`, its tests in `<target>/<profile>/deps`.
    let built = folder.into_iter().flat_map(Path::ancestors).take(3).filter_map(|at| {
        let target = at.parent()?;
        target.join("CACHEDIR.TAG").is_file().then(|| target.join(OF_BUILD))
    });
    beside.into_iter().chain(PLACES.iter().map(PathBuf::from)).chain(built).find_map(|place| library_in(&place))
}

fn library_in(place: &Path) -> Option<PathBuf> {
    let files = std::fs::read_dir(place).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    files.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(LIBRARY))).min()
}

/// The process's one environment, with the library that it came from. A lock and not a message: it is taken once for
/// each model that is loaded, and never while one runs.
static ENVIRONMENT: Mutex<Option<(Environment, PathBuf)>> = Mutex::new(None);

fn environment() -> Result<(Environment, PathBuf), RuntimeError> {
    let mut kept = ENVIRONMENT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some((environment, path)) = kept.as_ref() {
        return Ok((environment.clone(), path.clone()));
    }
    let path = find().ok_or(RuntimeError::NotFound)?;
    let path = path.canonicalize().unwrap_or(path);
    let bad = |why: String| RuntimeError::Library { path: path.clone(), why };
    let builder = ort::init_from(&path).map_err(|error| bad(error.to_string()))?;
    let environment =
        builder.with_name("interlock").with_telemetry(false).build().map_err(|error| bad(error.to_string()))?;
    // It writes on standard error of its own accord; what matters comes back as errors.
    environment.set_log_level(LogLevel::Fatal);
    *kept = Some((environment.clone(), path.clone()));
    Ok((environment, path))
}

/// Whether the library is built with Ascend's provider. That says nothing of the machine.
///
/// # Errors
/// When there is no library, or it does not load.
pub fn has_cann() -> Result<bool, RuntimeError> {
    environment()?;
    Ok(CANN::is_available().unwrap_or(false))
}

/// What a model takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// A table of static size: so many utterances at once, each of so many numbers.
    Table {
        /// Utterances.
        rows: usize,
        /// Numbers of each.
        columns: usize,
    },
    /// The pieces of one utterance, as many as it has.
    Pieces,
}

/// What one run gives for each utterance, row by row.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Given {
    /// A chance for each label.
    pub chances: Vec<f32>,
    /// What the head decides on; empty for a model that does not show it.
    pub hidden: Vec<f32>,
}

/// A model that runs.
pub struct Model {
    session: Session,
    running: Running,
    takes: Takes,
}

impl Model {
    /// Loads a model whose input is one table of 32-bit whole numbers with two static dimensions, or the pieces of a
    /// sentence (`ids`, and `starts`: 0 and their number). Its outputs are `chances` and, where it shows it, `hidden`.
    ///
    /// # Errors
    /// Why it does not run.
    pub fn load(bytes: &[u8], provider: Provider) -> Result<Model, RuntimeError> {
        let (environment, library) = environment()?;
        let has_cann = CANN::is_available().unwrap_or(false);
        let accelerated = match provider {
            Provider::Cpu => None,
            Provider::Auto if !has_cann => None,
            Provider::Cann if !has_cann => Some(Err("this ONNX Runtime is built without CANN".to_owned())),
            Provider::Auto | Provider::Cann => Some(session(&environment, bytes, true).map_err(|e| e.to_string())),
        };
        let (session, fell_back) = match accelerated {
            Some(Ok(session)) => (session, None),
            Some(Err(why)) => (session(&environment, bytes, false)?, Some(format!("CANN was asked for: {why}"))),
            None => (session(&environment, bytes, false)?, None),
        };
        let assigned = assignment(&session).map_err(RuntimeError::Model)?;
        let takes = match session.inputs() {
            [only] => table_of(only.dtype()),
            [ids, starts] if ids.name() == "ids" && starts.name() == "starts" => Some(Takes::Pieces),
            [] | [_, ..] => None,
        };
        let takes = takes.ok_or_else(|| {
            RuntimeError::Model("its input is neither one table of static size nor `ids` and `starts`".to_owned())
        })?;
        let running = Running { library, build: ort::info().to_owned(), assigned, fell_back };
        Ok(Model { session, running, takes })
    }

    /// What runs it.
    #[must_use]
    pub fn running(&self) -> &Running {
        &self.running
    }

    /// What it takes.
    #[must_use]
    pub fn takes(&self) -> Takes {
        self.takes
    }

    /// Runs it once, on a whole table or on the pieces of one utterance.
    ///
    /// # Errors
    /// When the run fails, or its output is not a table of so many rows.
    pub fn run(&mut self, numbers: &[i32]) -> Result<Given, RuntimeError> {
        let failed = |error: ort::Error| RuntimeError::Run(error.to_string());
        let (rows, outputs) = match self.takes {
            Takes::Table { rows, columns } => {
                let input = TensorRef::from_array_view(([rows, columns], numbers)).map_err(failed)?;
                (rows, self.session.run(ort::inputs![input]).map_err(failed)?)
            }
            Takes::Pieces => {
                let count = i64::try_from(numbers.len()).unwrap_or(i64::MAX);
                let starts = [0, count];
                let ids = TensorRef::from_array_view(([numbers.len()], numbers)).map_err(failed)?;
                let starts = TensorRef::from_array_view(([2_usize], &starts[..])).map_err(failed)?;
                let inputs = ort::inputs!["ids" => ids, "starts" => starts];
                (1, self.session.run(inputs).map_err(failed)?)
            }
        };
        let table = |at: usize| -> Result<Vec<f32>, RuntimeError> {
            let (_, values) = outputs[at].try_extract_tensor::<f32>().map_err(failed)?;
            if values.is_empty() || values.len() % rows != 0 {
                return Err(RuntimeError::Run(format!("{} values for {rows} rows", values.len())));
            }
            Ok(values.to_vec())
        };
        let hidden = if outputs.len() > 1 { table(1)? } else { Vec::new() };
        Ok(Given { chances: table(0)?, hidden })
    }
}

/// Rows and columns of a table of static size.
fn table_of(kind: &ValueType) -> Option<Takes> {
    let ValueType::Tensor { shape, .. } = kind else { return None };
    let [rows, columns] = shape[..] else { return None };
    let (rows, columns) = usize::try_from(rows).ok().zip(usize::try_from(columns).ok())?;
    Some(Takes::Table { rows, columns })
}

fn session(environment: &Environment, bytes: &[u8], cann: bool) -> Result<Session, RuntimeError> {
    let refused = |error: ort::Error| RuntimeError::Model(error.to_string());
    let builder = Session::builder(environment).map_err(refused)?;
    // One thread: a model this small gains nothing from more, and the box has few cores.
    // Mapped at each step: the builder that comes back with an error is as large as itself.
    let kept = |error: ort::Error<ort::session::builder::SessionBuilder>| refused(error.into());
    let builder = builder.with_intra_threads(1).map_err(kept)?;
    let builder = builder.with_inter_threads(1).map_err(kept)?;
    let builder = builder.with_intra_op_spinning(false).map_err(kept)?;
    let builder = builder.with_optimization_level(GraphOptimizationLevel::Level3).map_err(kept)?;
    let builder = builder.with_config_entry("session.record_ep_graph_assignment_info", "1").map_err(kept)?;
    let mut builder = match cann {
        true => builder.with_execution_providers([CANN::default().build().error_on_failure()]).map_err(kept)?,
        false => builder,
    };
    builder.commit_from_memory(bytes).map_err(refused)
}

/// Each provider that got nodes of the session's graph, and how many.
#[expect(unsafe_code, reason = "the session's assignment has no safe wrapper; the one raw call into ONNX Runtime")]
fn assignment(session: &Session) -> Result<Vec<(String, usize)>, String> {
    let api = ort::api();
    let check = |status: ort::sys::OrtStatusPtr| -> Result<(), String> {
        if status.0.is_null() {
            return Ok(());
        }
        // SAFETY: a status that is not null is a live object of ours; its message lives until it is released, which
        // happens once, here.
        unsafe {
            let message = CStr::from_ptr((api.GetErrorMessage)(status.0)).to_string_lossy().into_owned();
            (api.ReleaseStatus)(status.0);
            Err(message)
        }
    };
    let mut parts = std::ptr::null();
    let mut count = 0;
    // SAFETY: the session is alive for the call, and both places to write to are ours.
    check(unsafe { (api.Session_GetEpGraphAssignmentInfo)(session.ptr(), &raw mut parts, &raw mut count) })?;
    let mut assigned: Vec<(String, usize)> = Vec::new();
    for at in 0..count {
        let (mut name, mut nodes, mut of_part): (*const c_char, _, usize) = (std::ptr::null(), std::ptr::null(), 0);
        // SAFETY: the runtime gave `count` pointers, which belong to the session and live as long as it does; the name
        // is a C string that belongs to it too.
        let provider = unsafe {
            let part = *parts.add(at);
            check((api.EpAssignedSubgraph_GetEpName)(part, &raw mut name))?;
            check((api.EpAssignedSubgraph_GetNodes)(part, &raw mut nodes, &raw mut of_part))?;
            CStr::from_ptr(name).to_string_lossy().into_owned()
        };
        match assigned.iter_mut().find(|(known, _)| *known == provider) {
            Some((_, sum)) => *sum += of_part,
            None => assigned.push((provider, of_part)),
        }
    }
    Ok(assigned)
}
