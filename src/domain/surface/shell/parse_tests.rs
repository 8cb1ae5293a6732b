//! Shell strings and what can be told of them.

use super::*;

/// The commands, each as its words in brackets; then what it could not tell.
fn told(source: &str) -> String {
    let Parsed { commands, understood, .. } = parse(source);
    let mut told: Vec<String> = commands
        .iter()
        .map(|command| {
            let assignments = command.assignments.iter().map(|one| format!("{}:={}", one.name, one.value.text));
            let words = command.words.iter().map(|word| word.text.clone());
            let targets = command
                .redirects
                .iter()
                .map(|one| format!("{}{}", if one.writes { ">" } else { "<" }, one.target.text));
            format!("[{}]", assignments.chain(words).chain(targets).collect::<Vec<_>>().join("|"))
        })
        .collect();
    match understood {
        Understood::Whole => {}
        Understood::Opaque(_) => told.push("opaque".into()),
        Understood::Unparseable(_) => told.push("unparseable".into()),
    }
    told.join(" ")
}

#[test]
fn commands_are_split_and_quotes_removed() {
    let table = [
        ("ls -l  'a b' \"c d\" e\\ f", "[ls|-l|a b|c d|e f]"),
        ("ls\ntouch canary", "[ls] [touch|canary]"),
        ("a && b || c ; d & e | f |& g", "[a] [b] [c] [d] [e] [f] [g]"),
        ("'to''uch' a; \\touch b; $'\\x74ouch' c", "[touch|a] [touch|b] [touch|c]"),
        ("to\\\nuch a", "[touch|a]"),
        ("FOO=1 B+='x y' rm -rf x", "[FOO:=1|B:=x y|rm|-rf|x]"),
        ("echo FOO=1", "[echo|FOO=1]"),
        ("git log > out 2>&1 < in", "[git|log|>out|<in]"),
        ("a >>b 2>c &>d >&e >|f <>g", "[a|>b|>c|>d|>e|>f|>g]"),
        ("echo 2 >x", "[echo|2|>x]"),
        ("echo 2>x", "[echo|>x]"),
        ("echo a#b # c; rm x", "[echo|a#b]"),
        ("! true", "[true]"),
        ("echo \"a\\\"b\\c$HOME\"", "[echo|a\"b\\c$HOME]"),
        ("echo $HOME ${X:-y} $1 $?", "[echo|$HOME|${X:-y}|$1|$?]"),
        ("echo \\", "[echo|\\]"),
        ("find . -exec rm {} \\;", "[find|.|-exec|rm|{}|;]"),
        ("", ""),
        ("cat <<< 'a b'", "[cat]"),
        // The name of a variable is never quoted: this is a command.
        ("\\nX=1 a", "[nX=1|a]"),
        ("'X'=1 a", "[X=1|a]"),
        ("X='1' a", "[X:=1|a]"),
    ];
    for (source, want) in table {
        assert_eq!(told(source), want, "{source:?}");
    }
}

#[test]
fn what_only_the_running_shell_knows_is_opaque_and_its_commands_are_found() {
    let table = [
        ("echo $(touch canary)", "[touch|canary] [echo|$(touch canary)] opaque"),
        ("echo `touch a\\`b\\``", "[b] [touch|a`b`] [echo|`touch a\\`b\\``] opaque"),
        ("echo \"x $(rm y) z\"", "[rm|y] [echo|x $(rm y) z] opaque"),
        ("diff <(rm a) b", "[rm|a] [diff|<(…)|b] opaque"),
        ("(rm a)", "[rm|a] opaque"),
        ("{ rm a; }", "[rm|a] opaque"),
        ("if true; then rm a; fi", "[true] [rm|a] opaque"),
        ("for x in a b; do rm $x; done", "[for|x|in|a|b] [rm|$x] opaque"),
        ("case a in a) rm b;; esac", "[case|a|in|a] [rm|b] opaque"),
        ("f() { rm a; }; f", "[f] [rm|a] [f] opaque"),
        ("function f { rm a; }", "[function|f] [rm|a] opaque"),
        ("$X a", "[$X|a] opaque"),
        ("/bin/r[m] a", "[/bin/r[m]|a] opaque"),
        ("~/x", "[~/x] opaque"),
        ("touch$IFS\"x\"", "[touch$IFSx] opaque"),
        ("{rm,a}", "[{rm,a}] opaque"),
        ("echo ${x@P}", "[echo|${x@P}] opaque"),
        ("echo ${!x}", "[echo|${!x}] opaque"),
        ("echo ${x:-$(rm a)}", "[rm|a] [echo|${x:-$(rm a)}] opaque"),
        ("a=(b c)", "[a:=] [b|c] opaque"),
        ("echo $((1+$(rm a)))", "[rm|a] [1+$(rm a)] [echo|$((1+$(rm a)))] opaque"),
        ("cat <<EOF\n$(rm a)\nEOF", "[cat] [rm|a] opaque"),
        ("cat <<'EOF'\n$(rm a) && b\nEOF\nc", "[cat] [c]"),
        ("cat <<-E\n\tx\n\tE\nrm b", "[cat] [rm|b] opaque"),
        ("cat <<'A' <<'B'\nrm a\nA\nrm b\nB\nrm c", "[cat] [rm|c]"),
        ("$\\\nX a", "[$\\\nX|a] opaque"),
        ("ls\rtouch canary", "[ls\rtouch|canary] opaque"),
        ("ls \u{202e}x", "[ls|\u{202e}x] opaque"),
    ];
    for (source, want) in table {
        assert_eq!(told(source), want, "{source:?}");
    }
}

#[test]
fn what_is_no_command_is_told_apart() {
    for source in ["echo 'a", "echo \"a", "echo `a", "echo $(a", "echo ${a", "(a", "a >", "a <<"] {
        assert!(told(source).ends_with("unparseable"), "{source:?}: {}", told(source));
    }
}

#[test]
fn hostile_nesting_ends_at_a_bound() {
    let many = 100_000;
    for text in ["(", "$(", "`", "${", "\"$(", "<(", "((", "{ ", "\\", "'", "a;", "<<a\n", "$((", "${x:-"] {
        let Parsed { commands, understood, .. } = parse(&text.repeat(many / text.len()));
        assert!(commands.len() <= COMMANDS_MAX, "{text:?}");
        assert_ne!(understood, Understood::Whole, "{text:?}");
    }
}

#[test]
fn any_text_has_an_answer() {
    let mut rng = fastrand::Rng::with_seed(7);
    let letters: Vec<char> = "ab \t\n;&|<>()'\"\\$`{}[]*?~#!=+-@/0127EOF<<\u{7}\u{202e}中".chars().collect();
    for _ in 0..20_000 {
        let source: String = (0..rng.usize(0..40)).map(|_| letters[rng.usize(0..letters.len())]).collect();
        let commands = parse(&source).commands;
        assert!(commands.len() <= COMMANDS_MAX);
    }
}
