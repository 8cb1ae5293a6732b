//! What callers see: names, schemas, refusals, questions, failures in the server's own words.

use serde_json::{Value, json};

use super::*;

const ALL: &str = "allow = [\"mcp__a\", \"mcp__b\"]";

#[test]
fn two_servers_with_the_same_tool_have_names_of_their_own_and_rules_see_the_raw_pair() {
    let home = Home::new();
    let servers = server(&home, "a", "", "") + &server(&home, "b", "modern", "");
    let daemon = daemon(home, "allow = [\"mcp__a__echo\"]\ndeny = [\"mcp__b__echo\"]", &servers, &["a", "b"]);
    let mut client = Client::legacy(&daemon, json!({}));
    let names = client.names();
    assert!(names.contains(&"a__echo".to_owned()) && names.contains(&"b__act".to_owned()), "{names:?}");
    assert!(!names.contains(&"b__echo".to_owned()), "a denied tool is in no list: {names:?}");
    assert!(names.iter().all(|name| name.len() <= 64));
    let result = client.call("a__echo", json!({"x": 1}));
    assert_eq!((text(&result), code(&result)), (r#"{"x":1}"#, "done"), "{result}");
    // Called all the same: the policy says no, not "there is none", and the log has it.
    let refused = client.call("b__echo", json!({"x": 1}));
    assert_eq!((&refused["isError"], code(&refused)), (&json!(true), "denied"), "{refused}");
    assert!(text(&refused).starts_with("Refused by policy (denied)"), "{refused}");
    assert!(text(&refused).contains("mcp__b__echo"), "{refused}");
    let denied = |row: &Value| row["to"] == "not_started" && row["cause"] == "denied";
    evidence(&daemon, "settled", |rows| rows.iter().any(denied));
    let unknown = client.request("tools/call", json!({"name": "c__echo"}));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
}

#[test]
fn a_denied_server_is_hidden_with_all_that_comes_later() {
    let home = Home::new();
    let servers = server(&home, "a", "", "");
    let daemon = daemon(home, "deny = [\"mcp__a\"]", &servers, &["a"]);
    let mut client = Client::legacy(&daemon, json!({}));
    assert!(!client.names().iter().any(|name| name.starts_with("a__")));
    let welcome = client.request("prompts/list", json!({}));
    assert_eq!(welcome["error"]["code"], -32601, "its prompts are not offered either: {welcome}");
    for tool in ["a__echo", "a__grow"] {
        assert_eq!(code(&client.call(tool, json!({}))), "denied", "{tool}");
    }
    assert!(lines(&daemon, "a", "acts").is_empty());
}

#[test]
fn definitions_and_results_come_through_as_they_were_written() {
    let home = Home::new();
    let servers = server(&home, "a", "", "prefix = \"\"") + &server(&home, "b", "modern", "");
    let daemon = daemon(home, ALL, &servers, &["a", "b"]);
    let mut clients = [Client::legacy(&daemon, json!({})), Client::modern(&daemon, json!({}))];
    for client in &mut clients {
        let tools = client.tools();
        for name in ["odd", "b__odd"] {
            let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
            let mut expected = fixture::odd_tool();
            expected["name"] = name.into();
            expected["_meta"]["interlock/contract"] = tool["_meta"]["interlock/contract"].clone();
            assert_eq!(*tool, expected, "{name}");
            assert_eq!(tool["_meta"]["interlock/contract"]["provenance"], "declared");
            let mut result = client.call(name, json!({}));
            assert_eq!(result["_meta"]["interlock/outcome"]["ending"], "done", "{result}");
            result["_meta"].as_object_mut().unwrap().retain(|key, _| key == "theirs");
            result.as_object_mut().unwrap().remove("resultType");
            let content = json!([{"type": "image", "data": "AA==", "mimeType": "image/png", "new": 1}]);
            let expected = json!({"content": content, "structuredContent": {"n": 7}, "_meta": {"theirs": true}});
            assert_eq!(result, expected, "{name}");
        }
    }
}

#[test]
fn a_servers_failures_are_told_in_its_own_words_and_recorded_as_what_they_are() {
    let home = Home::new();
    let servers = server(&home, "a", "", "");
    let daemon = daemon(home, ALL, &servers, &["a"]);
    let mut client = Client::legacy(&daemon, json!({}));
    let failed = client.call("a__fail", json!({}));
    assert_eq!(
        (text(&failed), &failed["isError"], &failed["x"]),
        ("no such file", &json!(true), &json!(1)),
        "{failed}"
    );
    assert_eq!(code(&failed), "tool_error");
    let error = client.request("tools/call", json!({"name": "a__error"}));
    assert_eq!(error["error"], json!({"code": -32042, "message": "theirs", "data": {"d": 1}}));
    let lied = client.call("a__lie", json!({}));
    assert_eq!((&lied["isError"], lied.get("structuredContent")), (&json!(true), None), "{lied}");
    assert!(text(&lied).contains("breaks its own output schema at /n"), "{lied}");
    for cause in ["tool_error", "server_error"] {
        evidence(&daemon, "settled", |rows| rows.iter().any(|row| row["cause"] == cause && row["to"] == "failed"));
    }
}

#[test]
fn a_servers_question_reaches_the_client_of_the_call_in_either_era() {
    let home = Home::new();
    let servers = server(&home, "a", "", "") + &server(&home, "b", "modern", "");
    let daemon = daemon(home, ALL, &servers, &["a", "b"]);
    let forms = json!({"elicitation": {"form": {}}});
    let mut legacy = Client::legacy(&daemon, forms.clone());
    let mut modern = Client::modern(&daemon, forms);
    for tool in ["a__ask", "b__ask"] {
        let call = legacy.ask("tools/call", json!({"name": tool, "arguments": {}}));
        let question = legacy.wait("the question", |message| message["method"] == "elicitation/create");
        assert_eq!(question["params"]["message"], "Your name?", "{tool}");
        let content = json!({"action": "accept", "content": {"name": tool}});
        legacy.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": content}));
        let result = legacy.answer(call)["result"].clone();
        assert_eq!(text(&result), format!("hello {tool}"), "{result}");

        let first = modern.request("tools/call", json!({"name": tool, "arguments": {}}))["result"].clone();
        assert_eq!(first["resultType"], "input_required", "{first}");
        let (key, asked) = first["inputRequests"].as_object().unwrap().iter().next().unwrap();
        assert_eq!(asked["params"]["message"], "Your name?");
        let again = json!({"name": tool, "arguments": {}, "requestState": first["requestState"],
            "inputResponses": {key: {"action": "accept", "content": {"name": "modern"}}}});
        let result = modern.request("tools/call", again)["result"].clone();
        assert_eq!(text(&result), "hello modern", "{result}");
    }
    // A client that declared nothing is not asked, and the server is told so.
    let mut mute = Client::legacy(&daemon, json!({}));
    assert_eq!(text(&mute.call("a__ask", json!({}))), "hello nobody");
}

#[test]
fn a_client_that_shows_forms_is_not_asked_for_one_of_two_persons() {
    let daemon = Daemon::with("version = 1\n[ask]\nfour-eyes = \"dangerous\"\n");
    let mut client = Client::legacy(&daemon, json!({"elicitation": {"form": {}}}));
    let close = json!({"name": "device", "arguments": {"device": "breaker-1", "action": "close"}});
    let call = client.ask("tools/call", close);
    let question = daemon.eventually("the question", || Some(daemon.list("ask.list").first()?["question"].clone()));
    daemon.ask("ask.deny", json!({ "question": question })).unwrap();
    let result = client.answer(call)["result"].clone();
    assert_eq!(result["isError"], true, "{result}");
    let asked = client.kept.iter().find(|message| message["method"] == "elicitation/create");
    assert!(asked.is_none(), "{asked:?}");
}

#[test]
fn an_approval_is_for_one_call_with_these_arguments() {
    let home = Home::new();
    let servers = server(&home, "a", "", "");
    let daemon = daemon(home, "ask = [\"mcp__a__act\"]", &servers, &["a"]);
    let mut client = Client::legacy(&daemon, json!({"elicitation": {}}));
    let mut ask = |arguments: Value, decision: &str| {
        let call = client.ask("tools/call", json!({"name": "a__act", "arguments": arguments}));
        let question = client.wait("the question", |message| message["method"] == "elicitation/create");
        let content = json!({"action": "accept", "content": {"decision": decision}});
        client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": content}));
        client.answer(call)["result"].clone()
    };
    assert_eq!(text(&ask(json!({"n": 1}), "allow")), "acted");
    // Other arguments, and the same once more: asked again each time.
    assert_eq!(code(&ask(json!({"n": 2}), "deny")), "denied_by_person");
    assert_eq!(code(&ask(json!({"n": 1}), "deny")), "denied_by_person");
    assert_eq!(lines(&daemon, "a", "acts"), [r#"{"n":1}"#]);
}

#[test]
fn prompts_and_resources_are_passed_through() {
    let home = Home::new();
    let servers = server(&home, "a", "", "") + &server(&home, "b", "modern", "");
    let daemon = daemon(home, ALL, &servers, &["a", "b"]);
    let mut client = Client::legacy(&daemon, json!({}));
    let prompts = client.request("prompts/list", json!({}))["result"]["prompts"].clone();
    let names: Vec<&str> = prompts.as_array().unwrap().iter().map(|prompt| prompt["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a__hello", "b__hello"]);
    let got = client.request("prompts/get", json!({"name": "b__hello"}));
    assert_eq!(got["result"]["messages"][0]["content"]["text"], "hello from \"hello\"", "{got}");
    let read = client.request("resources/read", json!({"uri": "fix://one"}));
    assert_eq!(read["result"]["contents"][0]["text"], "one", "{read}");
    client.request("resources/subscribe", json!({"uri": "fix://one"}));
    client.wait("the update", |message| message["method"] == "notifications/resources/updated");
    let unknown = client.request("prompts/get", json!({"name": "c__hello"}));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
}

#[test]
fn a_changed_definition_waits_for_a_person_and_survives_a_restart_as_changed() {
    let home = Home::new();
    let servers = server(&home, "a", "", "");
    let daemon = daemon(home, ALL, &servers, &["a"]);
    let mut client = Client::legacy(&daemon, json!({}));
    assert_eq!(code(&client.call("a__echo", json!({}))), "done");
    client.call("a__mutate", json!({"change": true}));
    client.wait("the news", |message| message["method"] == "notifications/tools/list_changed");
    assert!(!client.names().contains(&"a__echo".to_owned()), "it is hidden");
    let refused = client.call("a__echo", json!({}));
    assert_eq!((code(&refused), &refused["isError"]), ("definition_changed", &json!(true)), "{refused}");
    assert!(text(&refused).starts_with("Refused by policy"), "{refused}");
    // Back to what it was: nothing to approve.
    client.call("a__mutate", json!({"change": false}));
    client.wait("the news", |message| message["method"] == "notifications/tools/list_changed");
    assert_eq!(code(&client.call("a__echo", json!({}))), "done");
    // Changed while the daemon was away.
    std::fs::write(daemon.path("a").join("changed"), "").unwrap();
    drop(client);
    let (_, home) = daemon.end();
    let path = home.path("interlock.toml");
    let daemon = home.start(Some(&path));
    let row = stands(&daemon, "a", "up");
    let echo = row["tools"].as_array().unwrap().iter().find(|tool| tool["tool"] == "echo").unwrap();
    assert_eq!(echo["state"], "changed", "{row}");
    let mut client = Client::legacy(&daemon, json!({}));
    assert_eq!(code(&client.call("a__echo", json!({}))), "definition_changed");
    assert_eq!(daemon.cli(&["mcp", "approve", "a", "nothing"]).status.code(), Some(1));
    let approved = daemon.cli(&["mcp", "approve", "a", "echo"]);
    assert_eq!(approved.status.code(), Some(0), "{approved:?}");
    client.wait("the news", |message| message["method"] == "notifications/tools/list_changed");
    assert_eq!(code(&client.call("a__echo", json!({}))), "done");
    evidence(&daemon, "mcp_tool_approved", |rows| rows.len() == 1);
}

#[test]
fn news_of_a_server_are_passed_on_only_when_our_list_changes() {
    let home = Home::new();
    let servers = server(&home, "a", "", "");
    let daemon = daemon(home, "allow = [\"mcp__a\"]\ndeny = [\"mcp__a__echo\"]", &servers, &["a"]);
    let mut client = Client::legacy(&daemon, json!({}));
    let is_news = |message: &Value| message["method"] == "notifications/tools/list_changed";
    // A tool that nobody sees changes: nothing to tell. Then one is added, which is told.
    client.call("a__mutate", json!({"change": true}));
    client.call("a__grow", json!({}));
    client.wait("the news", is_news);
    assert!(client.names().contains(&"a__grown".to_owned()));
    assert_eq!(code(&client.call("a__grown", json!({}))), "done");
    assert!(!client.kept.iter().any(is_news), "{:?}", client.kept);
}

#[test]
fn ten_thousand_tools_are_bounded_and_the_rest_works() {
    let home = Home::new();
    let servers = server(&home, "a", "many", "") + &server(&home, "b", "", "");
    let daemon = daemon(home, ALL, &servers, &["a", "b"]);
    let mut client = Client::legacy(&daemon, json!({}));
    let names = client.names();
    let of_a = names.iter().filter(|name| name.starts_with("a__")).count();
    assert_eq!(of_a, 1000, "the bound");
    assert_eq!(code(&client.call("b__echo", json!({}))), "done");
    assert!(daemon.log().contains("it lists more than is taken"), "{}", daemon.log());
}

#[test]
fn a_misshapen_list_costs_nobody_a_tool_and_a_garbled_answer_ends_its_call() {
    let home = Home::new();
    let servers = server(&home, "a", "misshapen", "") + &server(&home, "b", "", "");
    let daemon = daemon(home, ALL, &servers, &["a", "b"]);
    let mut client = Client::legacy(&daemon, json!({}));
    let tools = client.tools();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"b__echo") && names.contains(&"a__echo") && !names.contains(&"a__list_of"), "{names:?}");
    let mut mended = tools.iter().find(|tool| tool["name"] == "a__mended").unwrap().clone();
    mended.as_object_mut().unwrap().remove("_meta");
    assert_eq!(mended, json!({"name": "a__mended", "inputSchema": {"type": "object"}}), "strict clients read it");
    assert_eq!(text(&client.call("a__mended", json!({}))), "mended");
    // What it says of the outcome cannot be read, so nobody knows it; and nobody waits for the time limit.
    let garbled = client.call("a__garble", json!({}));
    assert_eq!((code(&garbled), ending(&garbled)), ("connection_lost", "unknown"), "{garbled}");
    assert_eq!(text(&client.call("a__mended", json!({}))), "mended");
}

fn ending(result: &Value) -> &str {
    result["_meta"]["interlock/outcome"]["ending"].as_str().unwrap_or("none")
}

#[test]
fn a_description_that_is_wrong_is_told_otherwise_once_a_person_says_so_and_can_be_taken_back() {
    let home = Home::new();
    let servers = server(&home, "a", "misdescribes", "");
    let daemon = daemon(home, ALL, &servers, &["a"]);
    let mut client = Client::legacy(&daemon, json!({}));
    let told = |client: &mut Client| {
        let tools = client.tools();
        let echo = tools.iter().find(|tool| tool["name"] == "a__echo").expect("it is listed");
        echo["description"].as_str().unwrap().to_owned()
    };
    let own = told(&mut client);
    assert!(own.contains("`volume`"), "{own}");
    let proposed = daemon.eventually("its repair is proposed", || {
        daemon.list("learn.list").into_iter().find(|row| row["channel"] == "D" && row["command"] == "a__echo")
    });
    assert_eq!(
        (&proposed["state"], &proposed["source"], &proposed["by"]),
        (&json!("waiting"), &json!("mcp"), &json!("a"))
    );
    assert_eq!(told(&mut client), own, "nobody is told anything before a person says so");
    let approved = daemon.ask("learn.approve", json!({"proposal": proposed["proposal"]})).unwrap();
    assert_eq!(approved["version"], 1, "{approved}");
    client.wait("the news", |message| message["method"] == "notifications/tools/list_changed");
    let mended = told(&mut client);
    assert!(!mended.contains("volume") && mended.contains("text"), "{mended}");
    // The definition that was approved is the server's own: it is not held.
    assert_eq!(code(&client.call("a__echo", json!({}))), "done");
    let row = daemon.ask("evidence.show", json!({"seq": approved["evidence"]})).unwrap();
    let detail = match &row["detail"] {
        Value::String(text) => serde_json::from_str(text).unwrap(),
        other => other.clone(),
    };
    let faults = detail["faults"].to_string();
    assert!(faults.contains("volume") && detail["proposed_by"] == "a" && detail["version"] == 1, "{row}");
    daemon.ask("learn.rollback", json!({"version": 0})).unwrap();
    client.wait("the news", |message| message["method"] == "notifications/tools/list_changed");
    assert_eq!(told(&mut client), own);
}
