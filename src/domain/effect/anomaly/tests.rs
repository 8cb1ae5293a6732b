//! Each definition by itself, what is strange but legal, what is malformed; and random histories against the
//! definitions by brute force.

use super::{Event, History, Kind, Malformed, Seen, Terms, Verdict, View};

#[path = "../../../../tests/experiments/oracle.rs"]
mod oracle;

/// A history in short: events between `;`, words between spaces.
fn read(text: &str) -> Result<History, Malformed> {
    let mut history = History::new();
    for event in text.split(';') {
        let words: Vec<&str> = event.split_whitespace().collect();
        let event = match words.as_slice() {
            ["begin", workflow, required @ ..] => Event::Begin { workflow, required },
            ["attempt", attempt, op, workflow, branch] => Event::Attempt { attempt, op, workflow, branch },
            ["effect", effect, attempt, resource, staged @ ..] => {
                Event::Effect { effect, attempt, resource, staged: !staged.is_empty() }
            }
            ["observe", attempt, seen] => {
                let seen = match *seen {
                    "yes" => Seen::Confirmed,
                    "no" => Seen::Failed,
                    _ => Seen::Unknown,
                };
                Event::Observe { attempt, seen }
            }
            ["comp", compensation, attempt] => Event::Compensate { compensation, attempt },
            ["neut", compensation, effect] => Event::Neutralise { compensation, effect },
            ["dep", later, earlier] => Event::Depends { later, earlier },
            ["order", first, second] => Event::Order { first, second },
            ["react", reaction, effect] => Event::React { reaction, effect },
            ["unreact", reaction] => Event::Unreact { reaction },
            ["release", effect] => Event::Release { effect },
            ["discard", effect] => Event::Discard { effect },
            ["commit", workflow, branches @ ..] => Event::Commit { workflow, branches },
            ["abort", workflow, branch @ ..] => Event::Abort { workflow, branch: branch.first().copied() },
            other => panic!("{other:?} is no event"),
        };
        history.take(event)?;
    }
    Ok(history)
}

/// What is said in the view of the world and in that of the runtime: `A1! A2?` for certain and possible.
#[track_caller]
fn check(text: &str, world: &str, runtime: &str) {
    let history = read(text).unwrap();
    let said = |view, held| {
        let terms = Terms { view, held, commuting: vec![("add".to_owned(), "add".to_owned())] };
        let word = |verdict| if verdict == Verdict::Certain { '!' } else { '?' };
        let found = history.check(&terms);
        found.iter().map(|it| format!("{}{}", it.kind.word(), word(it.verdict))).collect::<Vec<_>>().join(" ")
    };
    let held = text.contains(" staged");
    assert_eq!((said(View::World, held), said(View::Runtime, held)), (world.to_owned(), runtime.to_owned()), "{text}");
}

#[test]
fn what_the_runtime_does_not_know_is_open() {
    // The fork lemma (section 4): one attempt, nobody knows. Each ending has a bad world.
    let fork = "begin w pay; attempt a1 pay w m; observe a1 ?;";
    check(&format!("{fork} attempt a2 pay w m; effect e2 a2 acct; observe a2 yes; commit w m"), "", "A1?");
    check(&format!("{fork} commit w m"), "A2!", "A2?");
    check(&format!("{fork} abort w"), "", "A4?");
    check(&format!("{fork} attempt c1 refund w m; comp c1 a1; observe c1 ?; abort w"), "A3!", "A3! A4? A8?");
    check("begin w pay; attempt a1 pay w m; observe a1 ?", "", "");
    // A log of the runtime lists no effects: a confirmed attempt has one.
    check("begin w pay; attempt a1 pay w m; observe a1 yes; commit w m", "A2!", "");
    check("begin w; attempt a1 pay w m; observe a1 yes; attempt a2 pay w m; observe a2 yes", "", "A1!");
    // The tool gave the original result back.
    let given = "begin w; attempt a1 pay w m; effect e1 a1 r; observe a1 yes; attempt a2 pay w m; observe a2 yes";
    check(given, "", "");
    // What failed is not there, whatever is listed.
    check("begin w pay; attempt a1 pay w m; effect e1 a1 r; observe a1 no; commit w m", "", "A2!");
    // A compensation that is confirmed undid what it aims at; one that is unknown may have.
    let undo = "begin w; attempt a1 pay w m; effect e1 a1 r; observe a1 yes; attempt c1 refund w m; comp c1 a1;";
    check(&format!("{undo} observe c1 yes; abort w"), "A4!", "A8?");
    check(&format!("{undo} observe c1 ?; abort w"), "A4!", "A4? A8?");
    check(&format!("{undo} observe c1 no; abort w"), "A4!", "A4!");
}

#[test]
fn each_definition_to_the_letter() {
    // A1 counts what was produced, also if it was undone or dropped later, and by branches too.
    let twice = "begin w; attempt a1 pay w m; effect e1 a1 r; attempt a2 pay w n; effect e2 a2 r;";
    check(&format!("{twice} observe a1 yes; observe a2 yes; discard e2"), "A1!", "A1!");
    check("begin w; begin v; attempt a1 add w m; effect e1 a1 r; attempt a2 add v m; effect e2 a2 r", "", "");
    // A2 looks at the commit, in the kept branches, at what survives then.
    let pay = "begin w pay; attempt a1 pay w b; effect e1 a1 r; observe a1 yes;";
    check(&format!("{pay} commit w c"), "A2! A4!", "A2! A4!");
    check(&format!("{pay} commit w b; discard e1"), "", "");
    check(&format!("{pay} discard e1; commit w b"), "A2!", "A2!");
    check("begin w pay; attempt a1 pay w b; observe a1 yes; commit w b; effect e1 a1 r", "A2!", "A2!");
    check("begin w pay; commit w", "A2!", "A2!");
    // A4 by branch, by what the commit dropped, and by what comes late.
    check("begin w; attempt a1 pay w b; effect e1 a1 r; observe a1 yes; abort w b; commit w b", "A4!", "A4!");
    check("begin w; attempt a1 pay w b; observe a1 yes; abort w; effect e1 a1 r", "A4!", "A4!");
    // A5 only under a hold, also when nothing was settled.
    check("begin w; attempt a1 pay w b; effect e1 a1 r staged; observe a1 yes; release e1", "A5!", "A5!");
    check("begin w; attempt a1 pay w b; effect e1 a1 r staged; observe a1 yes; release e1; commit w b", "A5!", "A5!");
    check("begin w; attempt a1 pay w b; effect e1 a1 r staged; observe a1 yes; abort w; release e1", "A4!", "A4!");
    // A8 whatever the order in time, unless it was taken back.
    let undone = "begin w; attempt a1 pay w b; effect e1 a1 r; observe a1 yes; attempt c u w b; observe c yes; comp c a1; neut c e1;";
    check(&format!("{undone} react x e1"), "A8!", "A8!");
    check(&format!("{undone} react x e1; unreact x"), "", "A8?");
}

#[test]
fn what_is_kept_must_not_rest_on_what_is_not() {
    let three = "begin w; attempt a1 p w x; attempt a2 q w y; attempt a3 s w y; observe a1 yes; observe a2 yes; \
                 observe a3 yes; effect e1 a1 r; effect e2 a2 s; effect e3 a3 t; discard e1;";
    check(&format!("{three} dep e3 e2; dep e2 e1; commit w y"), "A6!", "A6!");
    check(&format!("{three} dep e1 e2; dep e1 e3; commit w y"), "", "");
    // A cycle is legal.
    check(&format!("{three} dep e2 e3; dep e3 e2; dep e2 e2; commit w y"), "", "");
    check(&format!("{three} dep e2 e3; dep e3 e2; dep e2 e1; commit w y"), "A6!", "A6!");
    // What another workflow has not settled is not kept.
    check(
        "begin w; begin v; attempt a p w m; attempt b q v m; observe a yes; observe b yes; effect e a r; effect f b s; dep e f; commit w m",
        "A6!",
        "A6!",
    );
    // Both ends hang on one attempt: if the one is there, so is the other.
    let one = "begin w; attempt a p w m; effect e1 a r; effect e2 a s; dep e2 e1; commit w m";
    check(one, "A1!", "A1?");
}

#[test]
fn a_resource_with_two_workflows_needs_an_order_or_a_kind_that_commutes() {
    let pair = |op: &str, rest: &str| {
        format!(
            "begin w; begin v; attempt a {op}#1 w m; attempt b {op}#2 v m; observe a yes; observe b yes; \
             effect e a row; effect f b row; {rest} commit w m; commit v m"
        )
    };
    check(&pair("set", ""), "A7!", "A7!");
    check(&pair("add", ""), "", "");
    check(&pair("set", "order f e;"), "", "");
    // A path through an effect of elsewhere, and a cycle, which orders both ways.
    let via = "attempt c set#3 w m; observe c yes; effect g c other; order e g; order g f;";
    check(&pair("set", via), "", "");
    check(&pair("set", "order e f; order f e;"), "", "");
    check(&pair("set", "order e e; order f f;"), "A7!", "A7!");
    let apart = "attempt c set#3 w m; observe c yes; effect g c x; attempt d set#4 v m; observe d yes; effect h d y; \
                 order e g; order f h;";
    check(&pair("set", apart), "A7!", "A7!");
    // Two chains out of one start: what they share does not order them.
    let fork = "attempt c set#3 w m; observe c yes; effect g c row; order g e; order g f;";
    check(&pair("set", fork), "A7!", "A7!");
    let diamond = "attempt c set#3 w m; observe c yes; effect g c row; order e g; order f g; order e f;";
    check(&pair("set", diamond), "", "");
    // Nothing was observed: to the runtime both may be there.
    check("begin w; begin v; attempt a s w m; attempt b s v m; effect e a r; effect f b r", "A7!", "A7?");
}

#[test]
fn a_history_that_names_what_is_not_there_is_refused_with_the_event() {
    let check = |text: &str, said: &str| {
        assert_eq!(read(text).map(|_| ()).map_err(|error| error.to_string()), Err(said.to_owned()), "{text}");
    };
    check("begin w; begin w", "event 1: workflow \"w\" is there already");
    check("attempt a p w m", "event 0: workflow \"w\" is not known here");
    check("begin w; attempt a p w m; attempt a q w m", "event 2: attempt \"a\" is there already");
    check("begin w; effect e a r; attempt a p w m", "event 1: effect \"e\" comes before its attempt \"a\"");
    check("begin w; attempt a p w m; effect e a r; effect e a r", "event 3: effect \"e\" is there already");
    check("begin w; observe a yes", "event 1: attempt \"a\" is not known here");
    check("begin w; attempt a p w m; comp b a", "event 2: attempt \"b\" is not known here");
    check("begin w; attempt a p w m; comp a b", "event 2: attempt \"b\" is not known here");
    check("begin w; attempt a p w m; neut a e", "event 2: effect \"e\" is not known here");
    check("begin w; dep e f", "event 1: effect \"e\" is not known here");
    check("begin w; release e", "event 1: effect \"e\" is not known here");
    check("begin w; unreact x", "event 1: reaction \"x\" is not known here");
    check("begin w; attempt a p w m; effect e a r; react x e; react x e", "event 4: reaction \"x\" is there already");
    check("commit w m", "event 0: workflow \"w\" is not known here");
    check("begin w; commit w m; abort w", "event 2: workflow \"w\" was settled by event 1");
    check("begin w; abort w; abort w m", "event 2: workflow \"w\" was settled by event 1");
    // Branches may be given up one by one before that.
    assert!(read("begin w; abort w a; abort w b; abort w a; commit w c").is_ok());
}

#[test]
fn one_anomaly_of_each_kind_with_its_first_events() {
    let history = read(
        "begin w; attempt a1 p w m; effect e1 a1 r; attempt a2 p w m; effect e2 a2 r; attempt a3 p w m; \
         effect e3 a3 r; abort w",
    );
    let found = history.unwrap().check(&Terms::default());
    let shown: Vec<_> = found.iter().map(|it| (it.kind, it.events.clone(), it.why.as_str())).collect();
    let expected = [
        (Kind::A1, vec![2, 4], "operation p of w has two effects (and 1 more)"),
        (Kind::A4, vec![2, 7], "an effect of p of w is left after it was given up (and 2 more)"),
    ];
    assert_eq!(shown, expected);
}

/// The experiment `effects-oracle` runs 100,000 of them.
#[test]
fn random_histories_are_judged_as_the_definitions_judge_them() {
    let wrong = oracle::differ(0..4000);
    assert!(wrong.is_empty(), "{} differ; the first:\n{}", wrong.len(), wrong[0]);
}

#[test]
fn a_long_order_and_a_deep_dependency_need_no_deep_stack() {
    let mut history = read("begin w; begin v").unwrap();
    for number in 0..60_000 {
        let (attempt, effect, op) = (format!("a{number}"), format!("e{number}"), format!("set#{number}"));
        let workflow = if number % 2 == 0 { "w" } else { "v" };
        history.take(Event::Attempt { attempt: &attempt, op: &op, workflow, branch: "m" }).unwrap();
        history.take(Event::Effect { effect: &effect, attempt: &attempt, resource: "r", staged: false }).unwrap();
        if number > 0 {
            let before = format!("e{}", number - 1);
            history.take(Event::Order { first: &before, second: &effect }).unwrap();
            history.take(Event::Depends { later: &effect, earlier: &before }).unwrap();
        }
    }
    assert_eq!(history.check(&Terms::default()), []);
    history.take(Event::Commit { workflow: "v", branches: &["m"] }).unwrap();
    let found = history.check(&Terms::default());
    assert_eq!(found.iter().map(|it| it.kind).collect::<Vec<_>>(), [Kind::A6]);
}
