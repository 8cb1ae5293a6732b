//! What `doctor` says of ONNX Runtime: it loads the model and tells what really runs it.

use std::path::PathBuf;

use super::doctor::{Line, Verdict, line};
use crate::boot::model;
use crate::infer::classifier::Classifier;
use crate::infer::runtime::{self, Provider};

/// What came of trying the model.
#[derive(Debug, Clone)]
pub enum ModelFacts {
    /// There is no ONNX Runtime.
    NoRuntime,
    /// It runs: the library, and what runs it.
    Runs {
        /// The library.
        library: PathBuf,
        /// Providers and nodes.
        running: String,
    },
    /// It does not, and why.
    Fails {
        /// In one sentence.
        why: String,
    },
}

/// Loads the model as the daemon would.
pub(super) fn examine() -> ModelFacts {
    if runtime::find().is_none() && std::env::var_os("ORT_DYLIB_PATH").is_none() {
        return ModelFacts::NoRuntime;
    }
    let loaded = model::source(None)
        .map_err(|error| error.to_string())
        .and_then(|source| Classifier::load(&source, Provider::Auto).map_err(|error| error.to_string()));
    match loaded {
        Ok(classifier) => {
            let running = classifier.running();
            ModelFacts::Runs { library: running.library.clone(), running: running.to_string() }
        }
        Err(why) => ModelFacts::Fails { why },
    }
}

pub(super) fn model_line(facts: &ModelFacts) -> Line {
    match facts {
        ModelFacts::NoRuntime => {
            line("onnxruntime", Verdict::Note, "not found; model stage off", "未找到；模型阶段关闭").advise(
                "most sentences need none; else put it into /usr/lib/interlock, or name it with ORT_DYLIB_PATH",
                "多数语句无需模型；否则请放入 /usr/lib/interlock，或用 ORT_DYLIB_PATH 指定",
            )
        }
        ModelFacts::Runs { library, running } => line(
            "onnxruntime",
            Verdict::Good,
            format_args!("{}: the model runs on {running}", library.display()),
            format_args!("{}：模型运行于 {running}", library.display()),
        ),
        ModelFacts::Fails { why } => line(
            "onnxruntime",
            Verdict::Bad,
            format_args!("the model does not run: {why}; model stage off"),
            format_args!("模型无法运行：{why}；模型阶段关闭"),
        )
        .advise("install the library of the release again", "请重新安装随发行版提供的库"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::args::Lang;
    use super::*;

    fn check(facts: &ModelFacts, expected: &str) {
        assert_eq!(model_line(facts).text(Lang::En), expected);
    }

    #[test]
    fn each_finding_has_its_words() {
        check(
            &ModelFacts::NoRuntime,
            "note onnxruntime  not found; model stage off -> most sentences need none; else put it into \
             /usr/lib/interlock, or name it with ORT_DYLIB_PATH",
        );
        check(
            &ModelFacts::Runs {
                library: "/l/libonnxruntime.so".into(),
                running: "CPUExecutionProvider (9 nodes)".into(),
            },
            "ok   onnxruntime  /l/libonnxruntime.so: the model runs on CPUExecutionProvider (9 nodes)",
        );
        check(
            &ModelFacts::Fails { why: "it is cut short".into() },
            "BAD  onnxruntime  the model does not run: it is cut short; model stage off -> install the library of the \
             release again",
        );
    }
}
