//! Process interlocks hold for a language model's calls as for anybody's.

use super::*;

#[test]
fn a_models_call_meets_the_interlock_and_is_told_the_reading() {
    let wire = Wire::Chat;
    let close = json!({ "device": "breaker-1", "action": "close" });
    let open = json!({ "device": "isolator-1", "action": "open" });
    let server = Server::start(vec![
        calls(wire, &[("c1", "device", close)]),
        calls(wire, &[("c2", "device", open)]),
        text(wire, "不行。"),
    ]);
    let daemon = daemon(&server, wire, "", "");
    let mut run = Run::of(&daemon, json!({ "text": "拉开一号隔离刀闸" }));
    for device in ["breaker-1", "isolator-1"] {
        let question = run.until("question");
        assert!(question["about"].as_str().unwrap().contains(device), "{question}");
        daemon.ask("ask.allow", json!({ "question": question["question"] })).unwrap();
    }
    let (_, all) = run.end();
    let codes: Vec<(String, String)> = results(&all);
    assert_eq!(codes[0], ("done".to_owned(), "-".to_owned()), "{all:?}");
    assert_eq!(codes[1].0, "failed", "{all:?}");
    let told = told_model(&server, 2);
    assert!(told.contains("isolator-not-under-load") && told.contains("nothing was sent"), "{told}");
}
