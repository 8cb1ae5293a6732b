//! What `doctor` says of updates of commands and of the classifier.

use std::io::ErrorKind;
use std::path::Path;

use super::{Line, Verdict, line};
use crate::boot::update::{self, InForce};
use crate::config;
use crate::store::update::{Kept, UpdateError};

/// What was seen of updates.
#[derive(Debug, Clone)]
pub enum Updates {
    /// What counts.
    Seen(InForce),
    /// Whoever looks may not see it.
    Hidden,
    /// Without a configuration nobody can say what counts.
    NoConfig(String),
}

pub(super) fn examine(state: &Path, file: Option<&Path>) -> Updates {
    if let Err(UpdateError::Io { source, .. }) = Kept::of(state).active()
        && source.kind() == ErrorKind::PermissionDenied
    {
        return Updates::Hidden;
    }
    match config::load(file) {
        Ok(mut config) => Updates::Seen(update::settle(&mut config, state)),
        Err(error) => Updates::NoConfig(error.to_string()),
    }
}

pub(super) fn judge(updates: &Updates) -> Line {
    match updates {
        Updates::Seen(seen) => {
            let [en, zh] = seen.line();
            match (seen.refused.is_empty(), seen.overridden.is_empty()) {
                (true, true) => line("update", Verdict::Good, en, zh),
                (true, false) => line("update", Verdict::Note, en, zh).advise(
                    "an update is active and does not count: take [commands] files or [model] manifest out, or \
                     interlock update none",
                    "有升级已激活但未生效：请从配置中删除 [commands] files 或 [model] manifest，或执行 interlock update none",
                ),
                (false, _) => line("update", Verdict::Bad, en, zh).advise(
                    "apply it again, or interlock update none",
                    "请重新安装升级，或执行 interlock update none",
                ),
            }
        }
        Updates::Hidden => line(
            "update",
            Verdict::Note,
            "only the daemon's user and root may look; `interlock status` tells what counts",
            "只有守护进程用户和 root 可查看；interlock status 会显示生效内容",
        ),
        Updates::NoConfig(why) => line(
            "update",
            Verdict::Bad,
            format_args!("the configuration is wrong, so nothing counts: {why}"),
            format_args!("配置有误，无法判断：{why}"),
        )
        .advise("interlock check", "请执行 interlock check"),
    }
}
