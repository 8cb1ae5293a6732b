//! Why the gate decided so, in the language of the page.
//!
//! The gate says its reasons in English, and the evidence keeps them so: one wording, whoever reads. Here they are told
//! in Chinese too. What is not known here (what a hook or a server said) stays as it was written.

/// The sentences, with `{}` where a path or a name stands. A part of the second column after `{}` that is a sentence of
/// this table is told in Chinese itself.
const REASONS: &[(&str, &str)] = &[
    ("a protective action runs at once", "保护性操作立即执行"),
    ("the path cannot be resolved", "无法解析路径"),
    ("the directory to run in cannot be resolved", "无法解析运行目录"),
    ("in plan mode only what is proven to read goes on", "计划模式下只允许确定为只读的操作"),
    ("its declared risk is dangerous", "声明的风险等级为危险"),
    ("it only reads", "只读操作"),
    ("the mode asks for nothing", "当前模式不询问"),
    ("the mode accepts edits in the working directories", "当前模式允许在工作目录内修改"),
    ("an operator operates", "由操作员发起"),
    ("no rule allows this, and it is not an operator who wishes for it", "没有规则允许，且并非操作员发起"),
    ("no rule allows the command {}", "没有规则允许命令 {}"),
    ("no rule allows the command", "没有规则允许该命令"),
    ("no rule allows this", "没有规则允许"),
    ("a rule denies it", "规则禁止"),
    ("a rule asks for a person", "规则要求由人决定"),
    ("a rule allows it", "规则允许"),
    ("the classifier wants a person to look", "分类器要求由人查看"),
    ("the classifier takes it for harmful", "分类器判定为有害"),
    ("the classifier gave no answer", "分类器没有给出结果"),
    ("there is nothing that could be judged", "没有可以判断的内容"),
    ("it has no command that could be judged", "没有可以判断的命令"),
    ("it runs more commands, or deeper wrapped ones, than are looked at", "命令过多或嵌套过深，超出检查范围"),
    ("it writes files that are named inside of a patch", "会写入补丁内部指定的文件"),
    ("it opens a file whose name is only known when it runs", "要打开的文件名在运行时才确定"),
    ("it goes to another directory and runs git there", "会切换到其他目录并运行 git"),
    ("it goes to another directory and writes there", "会切换到其他目录并写入"),
    ("it takes the machine down", "会使整台机器停止"),
    ("it writes to a device", "会写入设备文件"),
    ("it changes disks", "会更改磁盘"),
    ("it stops the machine", "会使机器关机"),
    ("it stops a service or the machine", "会停止服务或关机"),
    ("it kills everything", "会终止所有进程"),
    ("it changes the rights of everything", "会更改所有文件的权限"),
    ("it takes down the firewall", "会关闭防火墙"),
    ("it changes the kernel", "会更改内核"),
    ("it changes who may log in", "会更改可登录的用户"),
    ("it changes what runs by itself", "会更改自动运行的程序"),
    ("it takes other rights", "会取得其他权限"),
    ("its container may do everything", "容器拥有全部权限"),
    ("it leaves its container", "会脱离容器"),
    ("a shell runs what another command prints", "会把其他命令的输出当作脚本执行"),
    ("a shell runs what it is fed", "会把输入当作脚本执行"),
    ("an interpreter runs what it is fed", "会把输入当作程序执行"),
    ("secrets of the cluster", "集群的机密"),
    ("credentials of a cloud", "云平台的凭据"),
    ("secrets of the vault", "保险库中的机密"),
    ("the timetable of cron", "cron 定时任务"),
    ("the units of systemd", "systemd 单元"),
    ("the settings of git, which name programs", "可指定程序的 git 设置"),
    ("a password", "密码"),
    ("a password of the keychain", "钥匙串中的密码"),
    ("a password of the keyring", "密钥环中的密码"),
    ("a key of the kernel's keyring", "内核密钥环中的密钥"),
    ("a token", "令牌"),
    ("a key", "密钥"),
    ("it is Interlock's own", "属于 Interlock 自身"),
    ("it is a part of the system", "属于系统的一部分"),
    ("what lies there is run or obeyed later", "其中的内容以后会被执行或采用"),
    ("it is run or obeyed later", "以后会被执行或采用"),
    ("it holds keys of Interlock", "含有 Interlock 的密钥"),
    ("it holds the passwords of this machine", "含有本机的密码"),
    ("it shows the memory of a process", "可读出进程内存"),
    ("it is a way around the path of a file", "可绕过文件路径"),
    ("it is an environment file, which holds secrets", "环境变量文件，含有机密"),
    ("it is a private key", "私钥"),
    ("it holds passwords or tokens", "含有密码或令牌"),
    ("it holds credentials", "含有凭据"),
    ("keys of Interlock are below it", "其下有 Interlock 的密钥"),
    ("the passwords of this machine are below it", "其下有本机的密码"),
    ("the memory of processes is below it", "其下有进程内存"),
    ("keys and tokens of a person are below it", "其下有个人的密钥和令牌"),
    ("it holds keys or credentials", "含有密钥或凭据"),
    ("it is a dangerous command: {}", "危险命令：{}"),
    ("it cannot be told beforehand what it runs: {}", "无法预知会执行什么：{}"),
    ("it changes what is run or obeyed later: {}", "会更改以后被执行或采用的内容：{}"),
    ("it gives away {}", "会泄露{}"),
    ("it removes {}, which is more than a part of the work", "会删除 {}，超出工作范围"),
    ("it runs in {}, which is outside the working directories", "在工作目录之外的 {} 中运行"),
    ("it takes all of {}, and a rule is about something below it", "涉及整个 {}，而其下有受规则约束的内容"),
    ("its code names {}, which is protected: {}", "代码中提到受保护的 {}：{}"),
    ("writing {} is protected: {}", "禁止直接写入 {}：{}"),
    ("reading {} gives away a secret: {}", "读取 {} 会泄露机密：{}"),
    ("it reads all of {}: {}", "会读取整个 {}：{}"),
    ("it reads {}: {}", "会读取 {}：{}"),
    ("it names {}: {}", "提到 {}：{}"),
    ("{} is outside the working directories", "{} 在工作目录之外"),
    ("a hook says {}", "钩子判定：{}"),
    ("denied {} times by the mode, and wished for again: {}", "已被当前模式拒绝 {} 次，再次请求：{}"),
    // Of what is to be learned.
    ("it is understood already", "已经能够理解"),
    ("the command is dangerous: a person decides", "该命令有危险，由人决定"),
    ("the policy is strict", "策略要求逐条审核"),
    ("changes no other sentence", "不影响其他句子"),
    ("what an agent is told is for a person to approve", "告知智能体的内容须由人批准"),
    ("back to {}", "回退到版本 {}"),
];

/// The reason in Chinese, as far as it is one of the gate's.
pub(super) fn chinese(reason: &str) -> String {
    REASONS.iter().find_map(|(en, zh)| told(reason, en, zh)).unwrap_or_else(|| reason.to_owned())
}

/// The second sentence with what stood in the holes of the first; `None` where the first is another one.
fn told(reason: &str, en: &str, zh: &str) -> Option<String> {
    let mut pieces = en.split("{}");
    let mut rest = reason.strip_prefix(pieces.next()?)?;
    let mut holes = Vec::new();
    for piece in pieces {
        // What stands last goes on to the end: it may hold anything.
        let at = if piece.is_empty() { rest.len() } else { rest.find(piece)? };
        holes.push(&rest[..at]);
        rest = &rest[at + piece.len()..];
    }
    if !rest.is_empty() {
        return None;
    }
    let mut holes = holes.into_iter();
    let mut text = String::new();
    for (at, piece) in zh.split("{}").enumerate() {
        if at > 0 {
            text.push_str(&chinese(holes.next()?));
        }
        text.push_str(piece);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_stay_and_what_nobody_here_said_stays_whole() {
        for (en, zh) in [
            ("it only reads", "只读操作"),
            ("/etc/passwd is outside the working directories", "/etc/passwd 在工作目录之外"),
            (
                "writing /a/.git/hooks is protected: it is run or obeyed later",
                "禁止直接写入 /a/.git/hooks：以后会被执行或采用",
            ),
            ("no rule allows the command \"ls\"", "没有规则允许命令 \"ls\""),
            ("it is a dangerous command: it changes disks", "危险命令：会更改磁盘"),
            ("it is a dangerous command: something else", "危险命令：something else"),
            ("a server said so", "a server said so"),
            ("", ""),
        ] {
            assert_eq!(chinese(en), zh);
        }
    }

    /// What the gate says in words that stand in its own text, each of them.
    #[test]
    fn every_sentence_of_the_gate_is_known() {
        let sources = [
            include_str!("../domain/gate/decide.rs"),
            include_str!("../domain/gate/shell.rs"),
            include_str!("../domain/gate/matches.rs"),
            include_str!("../domain/gate/protected.rs"),
            include_str!("../domain/gate/danger.rs"),
        ];
        let (mut count, mut unknown) = (0, Vec::new());
        for line in sources.iter().flat_map(|source| source.split("#[cfg(test)]").next().unwrap().lines()) {
            let is_said =
                ["Verdict::", "Some(\"", "some(\"", "ask(", "let reason = ", "=> \"it ", ".map(|why| format!("];
            if !is_said.iter().any(|mark| line.contains(mark)) {
                continue;
            }
            // Pieces between quotes that are sentences.
            for said in line.split('"').skip(1).step_by(2).filter(|said| said.split(' ').count() > 2) {
                let (mut plain, mut inside) = (String::new(), false);
                for letter in said.chars() {
                    match letter {
                        '{' => {
                            inside = true;
                            // What may be there or not brings its space along.
                            if plain.ends_with(char::is_alphanumeric) {
                                plain.push(' ');
                            }
                        }
                        '}' => {
                            inside = false;
                            plain.push('x');
                        }
                        _ if !inside => plain.push(letter),
                        _ => {}
                    }
                }
                if chinese(&plain) == plain {
                    unknown.push(said);
                }
                count += 1;
            }
        }
        assert!(count > 50, "{count}");
        assert!(unknown.is_empty(), "without Chinese: {unknown:#?}");
    }
}
