//! What keeps a sentence that mentions a command from being one: negation, questions, reported speech, conditions,
//! deferral, history.
//!
//! The words are rules in code, not data: a file that is edited on a plant must not be able to make 不要 mean yes.
//! They err on the safe side: a character that forbids counts wherever it stands, unless it is inside a word that
//! is known to mean something else, or inside an exactly matched phrase of a command (不用吹了 stops a fan).

use super::lexicon::ByFirst;
use super::number::Measure;
use super::resolution::HazardKind;
use super::utterance::Utterance;

/// A place in an utterance that forbids, asks, or speaks of another time or person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hazard {
    /// Its first character.
    pub start: usize,
    /// One past its last.
    pub end: usize,
    /// What it does to the sentence.
    pub kind: HazardKind,
    /// A question about a state (多少, 了吗): harmless to a command that only reads.
    pub soft: bool,
}

/// The words of all rules: built once, looked up for each place.
pub struct Rules {
    words: ByFirst<Means>,
}

/// What a word does, and whether that is harmless to a command that only reads; [`None`] for a harmless word.
type Means = Option<(HazardKind, bool)>;

/// The longest word of the rules at a place, by its length.
type Listed<'a> = Option<(usize, &'a Means)>;

impl Default for Rules {
    fn default() -> Rules {
        let rule = |word: &str, means| (word.chars().collect(), means);
        let mut words: Vec<(Box<[char]>, Means)> = BENIGN.split(' ').map(|word| rule(word, None)).collect();
        for (list, kind, soft) in HAZARDS {
            words.extend(list.split(' ').map(|word| rule(word, Some((*kind, *soft)))));
        }
        Rules { words: ByFirst::new(words) }
    }
}

/// What `word` does to a sentence; none when it can be passed over.
#[must_use]
pub fn of_word(word: &str) -> Option<HazardKind> {
    let utterance = Utterance::unheard(word).ok()?;
    hazards(&Rules::default(), &utterance).first().map(|hazard| hazard.kind)
}

/// The hazards of `utterance`, in order.
#[must_use]
pub fn hazards(rules: &Rules, utterance: &Utterance) -> Vec<Hazard> {
    let chars = &utterance.chars;
    let mut found = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let listed = rules.words.longest(chars[at..].iter().copied());
        if let Some(len) = benign(chars, at, listed) {
            at += len;
            continue;
        }
        match word(chars, at, listed) {
            Some((len, kind, soft)) => {
                found.push(Hazard { start: at, end: at + len, kind, soft });
                at += len;
            }
            None => at += 1,
        }
    }
    for amount in &utterance.amounts {
        let (start, end) = (usize::from(amount.start), usize::from(amount.end));
        let after = chars.get(end).copied();
        // 八点启动, but not 大一点; 三分钟后.
        let clock = amount.measure == Measure::Count
            && chars[end - 1] == '点'
            && (amount.value != 1.0 || matches!(after, Some('钟' | '半' | '整')))
            && !matches!(after, Some('几'));
        let later = amount.measure == Measure::Seconds && matches!(after, Some('后' | '以' | '之' | '再'));
        if clock || later {
            found.push(Hazard { start, end, kind: HazardKind::Deferral, soft: false });
        }
    }
    // 可以启动了吗 asks for leave; 状态可以看一下吗 asks to see.
    let shown = chars.iter().any(|ch| "看查报显告".contains(*ch));
    let modal = chars.iter().position(|ch| "能可该要会".contains(*ch));
    if let (false, Some(at), Some(last)) = (shown, modal, chars.iter().rposition(|ch| !"啊呀呢了".contains(*ch)))
        && matches!(chars[last], '吗' | '没' | '不' | '么')
        && at < last
    {
        found.push(Hazard { start: at, end: at + 1, kind: HazardKind::Question, soft: false });
    }
    if utterance.asked {
        // Behind the last character: no word can make it harmless.
        let end = chars.len();
        found.push(Hazard { start: end, end: end + 1, kind: HazardKind::Question, soft: true });
    }
    found.sort_unstable_by_key(|hazard| (hazard.start, hazard.end));
    found
}

/// The length of a harmless word at `at` that contains the characters of a hazard.
fn benign(chars: &[char], at: usize, listed: Listed) -> Option<usize> {
    let rest = &chars[at..];
    if let Some((len, None)) = listed {
        return Some(len);
    }
    // 没人了, 没电了: a reason, and not a negation of what follows.
    if rest[0] == '没' && rest.get(1).is_some_and(|next| "人电水油货气料活事风声网信劲".contains(*next))
    {
        return Some(2);
    }
    None
}

fn word(chars: &[char], at: usize, listed: Listed) -> Option<(usize, HazardKind, bool)> {
    use HazardKind::{Condition, Correction, Deferral, History, Negation, Question, Reported};
    let rest = &chars[at..];
    let before = at.checked_sub(1).map(|at| chars[at]);
    let after = rest.get(1).copied();
    let to_end = |len: usize| rest[len..].iter().all(|ch| "啊呀呢了吧嘛么吗哦".contains(*ch));
    // 正常不正常, 开没开: a question, not a negation.
    if matches!(rest[0], '不' | '没') {
        let doubled = |len: usize| at >= len && rest.len() > len && chars[at - len..at] == rest[1..=len];
        if doubled(1) || doubled(2) {
            let modal = before.is_some_and(|ch| "要能可该会用许准行".contains(ch));
            return Some((2, Question, !modal));
        }
        // 可不可以, 需不需要: the first half is cut short.
        if before.is_some() && before == after {
            let modal = before.is_some_and(|ch| "要能可该会许准需应".contains(ch));
            return Some((2, Question, !modal));
        }
    }
    // 一会儿把空调打开; but 停一会儿.
    if rest[0] == '一' && after == Some('会') && !to_end(if rest.get(2) == Some(&'儿') { 3 } else { 2 }) {
        return Some((2, Deferral, false));
    }
    // 跳过闸没有: at the end it asks.
    if rest[0] == '没' && after == Some('有') && at > 0 && to_end(2) {
        return Some((2, Question, true));
    }
    if let Some((len, Some((kind, soft)))) = listed {
        return Some((len, *kind, *soft));
    }
    match rest[0] {
        '别' | '勿' | '莫' | '甭' | '未' | '禁' | '拒' => Some((1, Negation, false)),
        '没' | '不' if at > 0 && to_end(1) => Some((1, Question, true)),
        '没' | '不' => Some((1, Negation, false)),
        '说' | '讲' => Some((1, Reported, false)),
        '谁' => Some((1, Question, false)),
        '若' | '等' => Some((1, Condition, false)),
        // 没人时关灯; but 小时, 时间, 及时.
        '时' if at > 0
            && !to_end(1)
            && !before.is_some_and(|ch| "小实及同准定按随暂临平对校工当延计届适历费几何顿即这此".contains(ch))
            && !after.is_some_and(|ch| "间候钟长刻段效速".contains(ch)) =>
        {
            Some((1, Condition, false))
        }
        // 用打开阀门: what was cut off said 不用; but 备用, 使用.
        '用' if !before.is_some_and(|ch| "备使启停投调专常公通应利不免试占耗".contains(ch))
            && after.is_some_and(|ch| "打开关停启动合分吹转".contains(ch)) =>
        {
            Some((1, Negation, false))
        }
        '他' | '她' => Some((1, Reported, false)),
        '刚' => Some((1, History, false)),
        '过' if before.is_some_and(|ch| "动开关停启合分闸用换排取卸充".contains(ch)) => {
            Some((1, History, false))
        }
        '吗' | '么' | '呢' if to_end(1) => Some((1, Question, true)),
        '吗' => Some((1, Question, false)),
        // 启动前, 停泵后.
        '前' | '后'
            if before
                .is_some_and(|ch| "动闸作开关停机启用除换投切合分拉完毕束成车泵阀电火炉位门钟天时炸".contains(ch)) =>
        {
            Some((1, Condition, false))
        }
        // 合上断路器再: what follows was lost.
        '再' if at > 0 && to_end(1) => Some((1, HazardKind::Several, false)),
        // 先停再启: an order of two acts.
        '再' if chars[..at].contains(&'先') => Some((1, HazardKind::Several, false)),
        // 换完刀再启动, 满了再启动; but 再启动一次 only says again.
        '再' if chars[..at].contains(&'完') || before.is_some_and(|ch| "了好后时候毕度米下来".contains(ch)) => {
            Some((1, Deferral, false))
        }
        // 超过八十度就停; at the beginning it fills.
        '就' if at > 0 && !before.is_some_and(|ch| "那这现赶早马".contains(ch)) => Some((1, Condition, false)),
        '才' => Some((1, Condition, false)),
        // 我把泵停了 tells what was done; 帮我把 asks for it.
        '我' if after == Some('把') && !before.is_some_and(|ch| "帮给替为请要让".contains(ch)) => {
            Some((1, Reported, false))
        }
        '错' if after == Some('了') => Some((2, Correction, false)),
        _ => None,
    }
}

/// Words that contain the characters of a hazard and are none.
const BENIGN: &str = "让我看 让我查 让我瞧 叫我看 天黑了 天亮了 分别 特别 级别 区别 识别 别的 不锈钢 不间断 不好意思 说一下 说一说 说下 跟我说 和我说 给我说 告诉我 等级 \
     等于 其他 他励 咋看 什么情况 当前 目前 提前 前面 前门 前级 前端 前轴 前后 后台 后备 后门 后面 后端 后级 \
     后轴 最后 只准 过滤 过来 过去 通过 经过 超过滤 过热 过载 过流 过压 讲解 只不过 没问题 没关系 就这样 就行 \
     就好 就是了 不停机 怎么样 过一下 过一遍 太热 才对 不动了 热得不行 热的不行 受不了 不得了 不准了 不太准 \
     时间不准 不够亮 看不见 看不清 听不清 听不见 不够用 不够大 不够了 不制冷了 不亮 不太够 差不多 不通风 不透气 \
     不行了 不多了 不足了 不好了 不够热 不够冷 不凉快 不透亮 不利索 没活干 没什么人 没啥人 没几个人 不错 不太行 \
     不给力 不太好 不出水了 不来水了 不稳定 不稳 不达标 不大对 没力 没动静 没反应 没用了 没亮 没开灯 天不亮 \
     不怎么凉 不怎么热 不凉 不热 不冷 不太凉 不太热 不太亮 级别高 等人 等料 等货 等活 他人 说明 前头 前段 \
     后段 后头 前进 后退 前后压差 工前 班前会 声音不对 颜色不对 味道不对 情况不对 有人受伤 有人被夹 有人被卡 有人夹 有人卡 有人触电 有人摔 有人倒 有人卷 有人被卷 提前把 从前 以前的 之前的 刚性 若干 才好";

/// The words of each kind; the longest word at a place decides.
const HAZARDS: &[(&str, HazardKind, bool)] = &[
    (
        "是不是 要不要 能不能 可不可以 该不该 会不会 用不用 需不需要 行不行 可不可 应不应该 好不好 能否 是否 \
         可否 为什么 为啥 为何 干嘛 干什么 凭什么 怎么 咋 如何 啥时候 几个人 几步 原因 原理 步骤 流程 注意事项 \
         条件 次数 统计 按钮 规程 规定 要求 标准 影响 方法 办法 作用 意思 说明书 手册 教程 培训 操作票 视频 新闻 \
         照片 算不算 算正常 算高 算低 算超标 应该多少 正常值 报警值 上限值 下限值 整定值 区别在 有没有必要 谁 \
         吗还 难道 何时 能吗 可以吗 行吗 对吗 好吗 是吗 对吧 是吧 没错吧 需要吗 要吗 要紧吗 危险吗",
        HazardKind::Question,
        false,
    ),
    (
        "哪 咋样 咋样了 了没有 了没 了吗 了么 有没有 是多少 多少 几度 几档 几个 几号 怎样了 在吗 着吗 着没 着没有 什么 啥 哪些 \
         哪个 哪里 哪儿 在哪 几点 多久 多长时间 多大 多高 几次 几回 怎样 哪位 哪一 还是 没有吗",
        HazardKind::Question,
        true,
    ),
    (
        "不要 先别 千万别 别去 不用 不必 不需要 无需 无须 不许 不准 不让 不得 不能 不可以 不可 不该 不应该 禁止 \
         严禁 切勿 请勿 没让 没叫 没说 没有 没要 不想 不打算 暂不 先不 暂时不 暂缓 缓一缓 不是 并非 算了 拒绝 \
         免了 免谈 作罢 拉倒 防止 避免 以免 免得 取消启动 取消操作 停止操作 放弃 撤销 不行 休想 绝不 决不",
        HazardKind::Negation,
        false,
    ),
    ("说错 口误 不对 更正 我说的是 应该是 改口 重说", HazardKind::Correction, false),
    (
        "让我 叫我 要我 催我 逼我 老婆 老公 孩子 儿子 女儿 爸 妈 邻居 隔壁 保安 保洁 司机 听说 据说 传说 说是 说要 告诉 通知 转告 让他 让她 叫他 叫她 让老 叫老 老王 老张 老李 老刘 老陈 老赵 \
         老杨 老周 老吴 老板 小王 小李 小张 小刘 小陈 小赵 小杨 小周 师傅 师父 班长 主任 领导 经理 厂长 队长 \
         组长 同事 人家 有人 别人 他们 她们 大家 我们把 你们 我已经 以为 觉得 认为 记得 念一遍 读一遍 抄一遍 名叫 叫做 名为 这句话 四个字 两个字 几个字 字样 歌名 片名 题目 标题 标签 印着 口令是 暗号 台词 看到有 看见 听见 听到 \
         发现 写着 写的 要求我 工人 徒弟 值班员 夜班 白班 上一班 交班的 甲方 客户 学员 新来的",
        HazardKind::Reported,
        false,
    ),
    (
        "如果 要是 假如 假设 假使 倘若 若是 若要 万一 一旦 只要 只有 除非 的话 的时候 时候 之前 之后 以前 以后 \
         见到 看到 遇到 遇上 碰到 碰上 赶上 口令 到齐 齐了 降下来 升上来 降下去 涨上来 掉下来 超过 低于 高于 大于 小于 达到 到达后 等到 当温 当压 当液 一到 每次 每当 每天 每隔 凡是 无论 不管 才能 \
         才可以 之际 前提 期间 直到 满足",
        HazardKind::Condition,
        false,
    ),
    (
        "月底 月初 年底 年初 周一 周二 周三 周四 周五 周六 周日 星期 礼拜 下月 明年 完饭 饭后 天亮 天黑 春节 国庆 过年 放假 待会儿 待会 等会儿 等会 等一会 等一下 等下 等等 等一等 稍后 稍等 稍候 过会儿 过会 过一会 一会儿再 \
         一会再 回头再 回头 晚点 晚些 晚一点 明天 明早 后天 下午 晚上 今晚 早上 上午 中午 凌晨 半夜 下班 下个班 \
         下一班 下周 下个月 点钟 点半 到点 定时 准备 打算 计划 预计 预定 将要 快要 即将 正要 改天 有空 迟点 随后 \
         到时 分钟后 小时后 秒后 过两 过十 过五 过半 过三 过一",
        HazardKind::Deferral,
        false,
    ),
    (
        "昨天 前天 昨晚 昨夜 刚才 刚刚 上次 上回 上周 上个月 上个班 曾经 已经 早就 早已 去年 那次 那天 当时 原来 \
         本来 历史 前几天 这几天 今早 早班",
        HazardKind::History,
        false,
    ),
    ("最近 正在 一直在 这阵子", HazardKind::History, true),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::sound::{Confusions, Sounds};

    fn check(text: &str, expected: &[(&str, HazardKind, bool)]) {
        let sounds = Sounds::new(&Confusions::default());
        let utterance = Utterance::read(text, &sounds).expect("an utterance");
        let found: Vec<(String, HazardKind, bool)> = hazards(&Rules::default(), &utterance)
            .iter()
            .map(|h| (utterance.chars[h.start..h.end].iter().collect(), h.kind, h.soft))
            .collect();
        let expected: Vec<(String, HazardKind, bool)> =
            expected.iter().map(|(text, kind, soft)| ((*text).to_owned(), *kind, *soft)).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn each_kind_is_seen() {
        use HazardKind::{Condition, Correction, Deferral, History, Negation, Question, Reported};
        check("不要启动一号泵", &[("不要", Negation, false)]);
        check("主轴别启动", &[("别", Negation, false)]);
        check("暂时不开空调", &[("暂时不", Negation, false)]);
        check("一号水泵启动了吗", &[("了吗", Question, true)]);
        check("水泵怎么启动", &[("怎么", Question, false)]);
        check("跳过闸没有", &[("没有", Question, true)]);
        check("要不要启动水泵", &[("要不要", Question, false)]);
        check("水泵正不正常", &[("不正", Question, true)]);
        check("老王把泵停了", &[("老王", Reported, false)]);
        check("我把泵停了", &[("我", Reported, false)]);
        check("如果满了停泵", &[("如果", Condition, false)]);
        check("温度超过八十度就停泵", &[("超过", Condition, false), ("就", Condition, false)]);
        check("十分钟后停泵", &[("十分钟", Deferral, false), ("分钟后", Deferral, false)]);
        check("八点启动水泵", &[("八点", Deferral, false)]);
        check("满了再停泵", &[("再", Deferral, false)]);
        check("昨天停过泵", &[("昨天", History, false), ("过", History, false)]);
        check("启动一号泵不对是二号", &[("不对", Correction, false)]);
    }

    #[test]
    fn a_word_may_be_passed_over_unless_it_is_a_hazard() {
        for (word, expected) in [
            ("请", None),
            ("麻烦你", None),
            ("不要", Some(HazardKind::Negation)),
            ("别", Some(HazardKind::Negation)),
            ("如果", Some(HazardKind::Condition)),
            ("老王", Some(HazardKind::Reported)),
        ] {
            assert_eq!(of_word(word), expected, "{word}");
        }
    }

    #[test]
    fn words_that_only_look_like_hazards_are_none() {
        for text in [
            "帮我把泵停了",
            "声音大一点",
            "查看当前报警",
            "不间断电源状态",
            "小车没电了去充电",
            "再启动一次水泵",
            "告诉我压力",
        ] {
            check(text, &[]);
        }
    }
}
