//! `interlock doctor --npu`: the bring-up of an Ascend accelerator, step by step, to be run on the box itself.
//!
//! Every step is tried, also after one that failed: what a first box lacks is seldom one thing. It claims nothing that it
//! did not see: what runs the model is what the session assigned, and whether it runs it right is compared with the CPU,
//! on the sentences of the regression set.

use std::env;
use std::path::{Path, PathBuf};

use interlock_domain::command::resolution::Candidate;

use super::npu::{self, Npus};
use super::{Line, Verdict, line};
use crate::boot::model;
use crate::config::regression;
use crate::infer::classifier::Classifier;
use crate::infer::runtime::{self, Provider, Running};

/// Where Ascend's driver says its version.
const DRIVER: &str = "/usr/local/Ascend/driver/version.info";

/// Where the toolkit's libraries lie, besides what `LD_LIBRARY_PATH` names.
const TOOLKIT: [&str; 2] = ["/usr/local/Ascend/ascend-toolkit/latest/lib64", "/usr/local/Ascend/driver/lib64"];

/// What ONNX Runtime's provider is linked with.
const LIBRARIES: [&str; 3] = ["libascendcl.so", "libacl_op_compiler.so", "libfmk_onnx_parser.so"];

/// The provider itself, beside ONNX Runtime.
const PROVIDER: &str = "libonnxruntime_providers_cann.so";

/// Sentences that are compared; an accelerator's first run of each shape is slow.
const SENTENCES: usize = 64;

/// How far a confidence may be from the CPU's: an accelerator works in half precision.
const TOLERANCE: f32 = 0.02;

/// What was seen.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// Device nodes.
    npus: Npus,
    /// What the driver says of itself.
    driver: Option<String>,
    /// The toolkit's libraries that were found nowhere.
    missing: Vec<&'static str>,
    /// ONNX Runtime, and whether the provider lies beside it.
    library: Option<(PathBuf, bool)>,
    /// Whether that library was built with the provider.
    built_in: Result<bool, String>,
    /// What ran the model when the accelerator was asked for.
    running: Result<Running, String>,
    /// Its answers beside the CPU's.
    compared: Option<Result<Compared, String>>,
}

/// What two runs have in common.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Compared {
    sentences: usize,
    other_labels: usize,
    furthest: f32,
}

pub(super) fn examine() -> Facts {
    let library = runtime::find();
    let accelerated = load(Provider::Cann);
    let running = accelerated.as_ref().map(|classifier| classifier.running().clone()).map_err(Clone::clone);
    let compared = match accelerated {
        Ok(npu) if npu.running().fell_back.is_none() => Some(compare(npu)),
        Ok(_) | Err(_) => None,
    };
    Facts {
        npus: npu::examine(),
        driver: std::fs::read_to_string(DRIVER).ok().map(|text| first_version(&text)),
        missing: missing_libraries(&library_path()),
        library: library.map(|path| {
            let beside = path.parent().is_some_and(|folder| folder.join(PROVIDER).is_file());
            (path, beside)
        }),
        built_in: runtime::has_cann().map_err(|error| error.to_string()),
        running,
        compared,
    }
}

fn load(provider: Provider) -> Result<Classifier, String> {
    let source = model::source(None).map_err(|error| error.to_string())?;
    Classifier::load(&source, provider).map_err(|error| error.to_string())
}

fn first_version(text: &str) -> String {
    let named = text.lines().find_map(|line| line.trim().strip_prefix("Version="));
    named.or(text.lines().next()).unwrap_or_default().trim().to_owned()
}

fn library_path() -> Vec<PathBuf> {
    let named = env::var_os("LD_LIBRARY_PATH").map(|path| env::split_paths(&path).collect::<Vec<_>>());
    named.unwrap_or_default().into_iter().chain(TOOLKIT.map(PathBuf::from)).collect()
}

fn missing_libraries(places: &[PathBuf]) -> Vec<&'static str> {
    let is_there = |name: &&str| places.iter().any(|place: &PathBuf| place.join(Path::new(*name)).exists());
    LIBRARIES.into_iter().filter(|name| !is_there(name)).collect()
}

fn compare(mut npu: Classifier) -> Result<Compared, String> {
    let mut cpu = load(Provider::Cpu)?;
    let examples = regression::read(Path::new(regression::EMBEDDED_NAME), regression::EMBEDDED);
    let examples = examples.map_err(|error| error.to_string())?;
    let apart = examples.len().div_ceil(SENTENCES).max(1);
    let sentences: Vec<&str> = examples.iter().step_by(apart).map(|example| example.sentence.as_str()).collect();
    let answers = |classifier: &mut Classifier| classifier.classify(&sentences).map_err(|error| error.to_string());
    Ok(differences(&answers(&mut cpu)?, &answers(&mut npu)?))
}

fn differences(cpu: &[Vec<Candidate>], npu: &[Vec<Candidate>]) -> Compared {
    let mut compared = Compared { sentences: cpu.len(), other_labels: 0, furthest: 0.0 };
    for (cpu, npu) in cpu.iter().zip(npu) {
        let (cpu, npu) = (cpu.first(), npu.first());
        if cpu.map(|best| &best.command) != npu.map(|best| &best.command) {
            compared.other_labels += 1;
        }
        let confidence = |best: Option<&Candidate>| best.map_or(0.0, |best| best.confidence);
        let apart = (confidence(cpu) - confidence(npu)).abs();
        // No number at all is as far as can be; `max` alone would pass over it.
        compared.furthest = compared.furthest.max(if apart.is_nan() { f32::INFINITY } else { apart });
    }
    compared.other_labels += cpu.len().abs_diff(npu.len());
    compared
}

/// A line for each step, and what follows for the daemon.
pub(super) fn lines(facts: &Facts) -> Vec<Line> {
    vec![
        nodes(&facts.npus),
        driver(facts.driver.as_deref()),
        toolkit(&facts.missing),
        library(facts),
        session(&facts.running),
        assignment(&facts.running),
        outputs(facts.compared.as_ref()),
    ]
}

fn nodes(npus: &Npus) -> Line {
    match npus.cards {
        0 if npus.refused.is_empty() => line("npu-nodes", Verdict::Bad, "no /dev/davinci*", "没有 /dev/davinci*")
            .advise(
                "install the driver and restart; in the service, the drop-in interlock-npu.conf opens them",
                "请安装驱动并重启；服务中需要 drop-in interlock-npu.conf",
            ),
        _ => Line { check: "npu-nodes", ..npu::judge(npus) },
    }
}

fn driver(version: Option<&str>) -> Line {
    match version {
        Some(version) => {
            line("npu-driver", Verdict::Good, format_args!("{DRIVER}: {version}"), format_args!("{DRIVER}：{version}"))
        }
        None => {
            line("npu-driver", Verdict::Bad, format_args!("{DRIVER} is not there"), format_args!("{DRIVER} 不存在"))
                .advise("install Ascend's driver and firmware", "请安装昇腾驱动和固件")
        }
    }
}

fn toolkit(missing: &[&str]) -> Line {
    if missing.is_empty() {
        let all = LIBRARIES.join(", ");
        return line("npu-toolkit", Verdict::Good, format_args!("{all} are there"), format_args!("{all} 均存在"));
    }
    let all = missing.join(", ");
    line("npu-toolkit", Verdict::Bad, format_args!("not found: {all}"), format_args!("未找到：{all}")).advise(
        format_args!("install the CANN toolkit; they are looked for in LD_LIBRARY_PATH and {}", TOOLKIT[0]),
        format_args!("请安装 CANN 工具包；查找位置为 LD_LIBRARY_PATH 和 {}", TOOLKIT[0]),
    )
}

fn library(facts: &Facts) -> Line {
    let bad = |en: String, zh: String| {
        line("npu-provider", Verdict::Bad, en, zh).advise(
            "install the package of a board with Ascend (its ONNX Runtime has the provider), or set ORT_DYLIB_PATH",
            "请安装带昇腾的主板软件包（其 ONNX Runtime 含该 provider），或设置 ORT_DYLIB_PATH",
        )
    };
    match (&facts.library, &facts.built_in) {
        (None, _) => bad("no ONNX Runtime".to_owned(), "没有 ONNX Runtime".to_owned()),
        (Some((path, _)), Err(why)) => {
            bad(format!("{} does not load: {why}", path.display()), format!("{} 无法加载：{why}", path.display()))
        }
        (Some((path, _)), Ok(false)) => {
            bad(format!("{} is built without CANN", path.display()), format!("{} 不含 CANN", path.display()))
        }
        (Some((path, false)), Ok(true)) => {
            bad(format!("{PROVIDER} is not beside {}", path.display()), format!("{} 旁没有 {PROVIDER}", path.display()))
        }
        (Some((path, true)), Ok(true)) => line(
            "npu-provider",
            Verdict::Good,
            format_args!("{} is built with CANN", path.display()),
            format_args!("{} 含 CANN", path.display()),
        ),
    }
}

fn session(running: &Result<Running, String>) -> Line {
    let refused = |why: &str| {
        // One line, whatever a library said.
        let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
        line("npu-session", Verdict::Bad, format_args!("refused: {why}"), format_args!("被拒绝：{why}"))
            .advise("the daemon goes on on the CPU; mend the lines above first", "守护进程将使用 CPU；请先处理以上各项")
    };
    match running {
        Ok(Running { fell_back: None, .. }) => {
            line("npu-session", Verdict::Good, "CANN took the model", "CANN 已接受模型")
        }
        Ok(Running { fell_back: Some(why), .. }) => refused(why),
        Err(why) => refused(why),
    }
}

fn assignment(running: &Result<Running, String>) -> Line {
    let is_cann = |running: &Running| running.assigned.iter().any(|(name, nodes)| name.contains("CANN") && *nodes > 0);
    match running {
        Ok(running) => {
            let verdict = if is_cann(running) { Verdict::Good } else { Verdict::Bad };
            let all: Vec<String> = running.assigned.iter().map(|(name, nodes)| format!("{name}: {nodes}")).collect();
            let all = all.join(", ");
            line("npu-nodes-of-model", verdict, format_args!("nodes run by {all}"), format_args!("节点分配：{all}"))
        }
        Err(_) => line("npu-nodes-of-model", Verdict::Bad, "nothing runs the model", "没有任何组件运行模型"),
    }
}

fn outputs(compared: Option<&Result<Compared, String>>) -> Line {
    match compared {
        None => line("npu-outputs", Verdict::Bad, "not compared: the NPU runs nothing", "未比较：NPU 未运行模型"),
        Some(Err(why)) => {
            line("npu-outputs", Verdict::Bad, format_args!("not compared: {why}"), format_args!("未比较：{why}"))
        }
        Some(Ok(Compared { sentences, other_labels, furthest })) => {
            let verdict = match *other_labels == 0 && *furthest <= TOLERANCE {
                true => Verdict::Good,
                false => Verdict::Bad,
            };
            line(
                "npu-outputs",
                verdict,
                format_args!(
                    "{sentences} sentences: {other_labels} with another label than on the CPU, furthest {furthest:.4}"
                ),
                format_args!("{sentences} 句：{other_labels} 句与 CPU 标签不同，置信度最大差 {furthest:.4}"),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Lang;
    use super::*;

    fn good() -> Facts {
        let running = Running {
            library: "/l/libonnxruntime.so".into(),
            build: "b".into(),
            assigned: vec![("CANNExecutionProvider".into(), 9)],
            fell_back: None,
        };
        Facts {
            npus: Npus { cards: 1, refused: Vec::new() },
            driver: Some("23.0".into()),
            missing: Vec::new(),
            library: Some(("/l/libonnxruntime.so".into(), true)),
            built_in: Ok(true),
            running: Ok(running),
            compared: Some(Ok(Compared { sentences: 64, other_labels: 0, furthest: 0.001 })),
        }
    }

    fn check(check: &str, change: impl FnOnce(&mut Facts), expected: &str) {
        let mut facts = good();
        change(&mut facts);
        let found = lines(&facts).into_iter().find(|line| line.check == check).map(|line| line.text(Lang::En));
        assert_eq!(found.unwrap_or_default().split(" -> ").next(), Some(expected));
    }

    #[test]
    fn a_box_on_which_all_is_well_has_nothing_bad() {
        assert!(lines(&good()).iter().all(|line| line.verdict != Verdict::Bad));
    }

    #[test]
    fn each_step_names_what_is_wrong() {
        check("npu-nodes", |facts| facts.npus.cards = 0, "BAD  npu-nodes    no /dev/davinci*");
        check(
            "npu-toolkit",
            |facts| facts.missing = vec!["libascendcl.so"],
            "BAD  npu-toolkit  not found: libascendcl.so",
        );
        check(
            "npu-provider",
            |facts| facts.built_in = Ok(false),
            "BAD  npu-provider /l/libonnxruntime.so is built without CANN",
        );
        check("npu-provider", |facts| facts.library = None, "BAD  npu-provider no ONNX Runtime");
        let fell_back = |facts: &mut Facts| {
            if let Ok(running) = &mut facts.running {
                running.fell_back = Some("CANN was asked for: no libascendcl.so".into());
                running.assigned = vec![("CPUExecutionProvider".into(), 9)];
            }
        };
        check("npu-session", fell_back, "BAD  npu-session  refused: CANN was asked for: no libascendcl.so");
        check("npu-nodes-of-model", fell_back, "BAD  npu-nodes-of-model nodes run by CPUExecutionProvider: 9");
        check("npu-outputs", |facts| facts.compared = None, "BAD  npu-outputs  not compared: the NPU runs nothing");
        let compared = |other_labels, furthest| Some(Ok(Compared { sentences: 2, other_labels, furthest }));
        check(
            "npu-outputs",
            |facts| facts.compared = compared(1, 0.0),
            "BAD  npu-outputs  2 sentences: 1 with another label than on the CPU, furthest 0.0000",
        );
        check(
            "npu-outputs",
            |facts| facts.compared = compared(0, TOLERANCE + 0.001),
            "BAD  npu-outputs  2 sentences: 0 with another label than on the CPU, furthest 0.0210",
        );
    }

    #[test]
    fn another_label_and_a_far_confidence_are_both_seen() {
        let best = |command: &str, confidence| vec![Candidate { command: command.into(), confidence }];
        let cpu = [best("a", 0.9), best("b", 0.5), Vec::new()];
        let npu = [best("a", 0.8), best("c", 0.5), Vec::new()];
        let Compared { sentences, other_labels, furthest } = differences(&cpu, &npu);
        assert_eq!((sentences, other_labels), (3, 1));
        assert!((furthest - 0.1).abs() < 1e-6, "{furthest}");
        // An answer that is missing, and one that is no number.
        let npu = [best("a", f32::NAN), best("b", 0.5)];
        assert_eq!(differences(&cpu, &npu), Compared { sentences: 3, other_labels: 1, furthest: f32::INFINITY });
    }

    #[test]
    fn a_library_is_looked_for_in_each_place() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join(LIBRARIES[1]), "").unwrap();
        assert_eq!(missing_libraries(&[place.path().to_owned()]), [LIBRARIES[0], LIBRARIES[2]]);
        assert_eq!(first_version("a\nVersion=24.1.rc2\n"), "24.1.rc2");
    }
}
