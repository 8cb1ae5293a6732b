//! The accelerator: whether its device nodes are there, and whether this process may open them.

use super::{Line, Verdict, line};

/// What is there of the nodes, and what was refused: a sandbox closes those that its unit does not list, and then a
/// card looks as if it were not there.
#[derive(Debug, Clone, Default)]
pub struct Npus {
    /// Cards.
    pub cards: usize,
    /// The nodes that may not be opened.
    pub refused: Vec<String>,
}

/// Looks at them.
pub(super) fn examine() -> Npus {
    let nodes = crate::sys::npu::nodes();
    let cards = nodes.iter().filter(|node| node.is_card).count();
    Npus { cards, refused: nodes.into_iter().filter(|node| node.refused).map(|node| node.path).collect() }
}

pub(super) fn judge(npus: &Npus) -> Line {
    let count = npus.cards;
    if let Some(first) = npus.refused.first() {
        let all = npus.refused.join(", ");
        return line("npu", Verdict::Bad, format_args!("{all} may not be opened"), format_args!("{all} 无法打开"))
            .advise(
                format_args!("as a service, list each in a drop-in (interlock-npu.conf): DeviceAllow={first} rw"),
                format_args!("作为服务运行时，请在 drop-in（interlock-npu.conf）中逐个列出：DeviceAllow={first} rw"),
            );
    }
    if count == 0 {
        return line(
            "npu",
            Verdict::Note,
            "no /dev/davinci*: the checks for Ascend cannot run here",
            "没有 /dev/davinci*：昇腾的检查无法在此运行",
        );
    }
    line(
        "npu",
        Verdict::Note,
        format_args!("{count} Ascend devices are there; the line onnxruntime says whether the model runs on them"),
        format_args!("发现 {count} 个昇腾设备；模型是否在其上运行见 onnxruntime 一行"),
    )
}
