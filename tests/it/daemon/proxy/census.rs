//! The census over a server that lives: its tools are listed, and none is called.

use super::*;

#[test]
fn the_census_lists_the_tools_of_the_servers_and_calls_none() {
    let home = Home::new();
    let servers = server(&home, "a", "", "");
    let daemon = daemon(home, "mode = \"default\"", &servers, &["a"]);
    let counted = daemon.cli(&["effects", "census", "--json"]);
    let counted: Value = serde_json::from_slice(&counted.stdout).unwrap();
    assert_eq!((&counted["servers"], &counted["tools"]), (&json!(1), &json!(14)), "{counted}");
    assert_eq!((&counted["paper"]["tools"], &counted["paper"]["percent"]["any_hint"]), (&json!(98_291), &json!(74.0)));
    let against = |at: usize, key: &str| counted["against"][at][key].as_u64().unwrap();
    let all = |at: usize| ["no_effect", "excluded", "limited", "open"].map(|key| against(at, key)).iter().sum::<u64>();
    assert_eq!((0..8).map(all).collect::<Vec<_>>(), [14; 8], "each tool is in one column of each anomaly");
    assert_eq!(against(0, "limited"), 1, "a hint of idempotence helps against a duplicate only: {counted}");
    for (lang, words) in [("en", ["no tool was called", "paper"]), ("zh-CN", ["未调用任何工具", "论文"])] {
        let page = daemon.cli(&["--lang", lang, "effects", "census"]);
        let page = String::from_utf8(page.stdout).unwrap();
        assert!(words.iter().all(|word| page.contains(word)), "{page}");
    }
    for file in ["acts", "waiting", "jobs"] {
        assert_eq!(lines(&daemon, "a", file), Vec::<String>::new(), "{file}");
    }
}
