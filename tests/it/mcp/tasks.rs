//! Tasks in both forms, as clients see them and as the supervisor feeds them.

use interlock::agents::engine::{Answer, Ending, EngineRequest, Output, ReplyView, WorkerState, WorkerView};
use interlock::agents::tasks::record::Status;
use interlock_domain::id::{QuestionId, TaskId};
use serde_json::{Value, json};

use super::fake::Seen;
use super::{World, answer_of as read, events, quick, refused, world};

/// The extension, declared with a request.
fn declared(mut params: Value) -> Value {
    let capabilities = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    params["_meta"] = json!({"io.modelcontextprotocol/clientCapabilities": capabilities});
    params
}

impl World {
    async fn modern_task(&self, method: &str, params: Value) -> Value {
        read(self.modern(1, method, declared(params)).await).await["result"].clone()
    }

    async fn legacy_task(&self, session: &str, method: &str, params: Value) -> Value {
        let body = json!({"jsonrpc": "2.0", "id": method, "method": method, "params": params});
        read(self.legacy(session, body).await).await["result"].clone()
    }
}

fn worker(state: WorkerState, cause: &str) -> WorkerView {
    WorkerView {
        task: TaskId(5),
        generation: 1,
        state,
        cause: cause.into(),
        last_beat_ms: Some(31_000),
        progress: Some(7),
        evidence: Some(99),
        end: None,
    }
}

fn ended(ending: Ending) -> ReplyView {
    ReplyView {
        ending,
        code: "ok".into(),
        output: Some(Output::Object(json!({"reached": true}))),
        message: String::new(),
        evidence: Some(100),
        task: None,
    }
}

#[tokio::test]
async fn a_worker_is_followed_from_its_zombie_days_to_its_death() {
    let world = world(quick()).await;
    let made = world.modern_task("tools/call", json!({"name": "watch"})).await;
    assert_eq!((&made["resultType"], &made["status"]), (&json!("task"), &json!("working")));
    let id = made["taskId"].clone();
    let listen = declared(json!({"notifications": {"taskIds": [id]}}));
    let mut news = events(world.modern(9, "subscriptions/listen", listen).await);
    assert_eq!(news.next().await.expect("the acknowledgement")["params"]["notifications"], json!({"taskIds": [id]}));
    assert_eq!(news.next().await.expect("how it stands")["params"]["status"], "working");

    world.core.tasks.observe(&[worker(WorkerState::Zombie, "NO_BEAT")]);
    let told = news.next().await.expect("news")["params"].clone();
    assert_eq!(told["status"], "working");
    assert_eq!(
        told["statusMessage"],
        "ZOMBIE (NO_BEAT): t5 gives no sign of life, last beat 31000 ms ago; evidence row 99"
    );
    assert_eq!(told["_meta"]["interlock/liveness"]["state"], "ZOMBIE");
    assert_eq!(told["_meta"]["io.modelcontextprotocol/subscriptionId"], 9);

    world.core.tasks.observe(&[worker(WorkerState::Running, "")]);
    let back = news.next().await.expect("news")["params"].clone();
    assert!(back.get("statusMessage").is_none(), "it beats again: {back}");
    let asked = world.modern_task("tasks/get", json!({"taskId": id})).await;
    assert_eq!(asked["lastUpdatedAt"], made["lastUpdatedAt"], "the status has not changed");

    world.core.tasks.observe(&[worker(WorkerState::Dead, "PANIC: boom")]);
    let dead = world.modern_task("tasks/get", json!({"taskId": id})).await;
    assert_eq!(dead["status"], "failed");
    assert_eq!(dead["error"]["code"], -32603);
    assert_eq!(dead["statusMessage"], "worker t5 died (PANIC: boom); evidence row 99");
    world.core.tasks.observe(&[worker(WorkerState::Running, "")]);
    assert_eq!(world.modern_task("tasks/get", json!({"taskId": id})).await, dead, "terminal is final");
}

#[tokio::test]
async fn a_worker_that_ends_gives_its_task_a_result_that_fits_the_schema() {
    let world = world(quick()).await;
    let made = world.modern_task("tools/call", json!({"name": "watch"})).await;
    let done = WorkerView { end: Some(ended(Ending::Done)), ..worker(WorkerState::Stopped, "") };
    world.core.tasks.observe(&[done]);
    let task = world.modern_task("tasks/get", json!({"taskId": made["taskId"]})).await;
    assert_eq!((&task["status"], &task["result"]["resultType"]), (&json!("completed"), &json!("complete")));
    assert_eq!(task["result"]["structuredContent"], json!({"task": "t5"}), "what the tool promised");
    assert_eq!(task["result"]["content"][0]["text"], json!({"reached": true}).to_string());
}

#[tokio::test]
async fn a_client_that_does_not_know_tasks_gets_the_handshake() {
    let world = world(quick()).await;
    let plain = read(world.modern(1, "tools/call", json!({"name": "watch"})).await).await;
    assert_eq!(plain["result"]["structuredContent"], json!({"task": "t5"}));
    assert_eq!(refused(world.modern(1, "tasks/get", json!({"taskId": "x"})).await).await, (400, -32021));
}

#[tokio::test]
async fn a_legacy_client_augments_lists_cancels_and_asks_for_the_result() {
    let mut world = world(quick()).await;
    let session = world.open(json!({})).await;
    let made = world.legacy_task(&session, "tools/call", json!({"name": "watch", "task": {"ttl": 5000}})).await;
    let task = &made["task"];
    assert_eq!((&task["status"], &task["ttl"]), (&json!("working"), &json!(5000)));
    let id = task["taskId"].clone();
    let listed = world.legacy_task(&session, "tasks/list", json!({})).await;
    assert_eq!(listed["tasks"][0]["taskId"], id);
    let other = world.open(json!({})).await;
    assert_eq!(world.legacy_task(&other, "tasks/list", json!({})).await, json!({"tasks": []}));
    let cancelled = world.legacy_task(&session, "tasks/cancel", json!({"taskId": id})).await;
    assert_eq!(cancelled["status"], "cancelled");
    world.saw(Seen::Stopped(TaskId(5))).await;
    for (method, params) in [
        ("tasks/cancel", json!({"taskId": id})),
        ("tasks/get", json!({"taskId": "none"})),
        ("tasks/list", json!({"cursor": "bad"})),
    ] {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        assert_eq!(refused(world.legacy(&session, body).await).await, (200, -32602), "{method}");
    }
    for (tool, task) in [("echo", json!({})), ("failing_job", Value::Null)] {
        let mut params = json!({"name": tool});
        if !task.is_null() {
            params["task"] = task;
        }
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        assert_eq!(refused(world.legacy(&session, body).await).await, (200, -32601), "{tool}");
    }
    // A tool's own error is a failed task in this era, and its result is what the call would have given.
    let made = world.legacy_task(&session, "tools/call", json!({"name": "failing_job", "task": {}})).await;
    let id = made["task"]["taskId"].clone();
    let result = world.legacy_task(&session, "tasks/result", json!({"taskId": id})).await;
    assert_eq!((&result["isError"], &result["content"][0]["text"]), (&json!(true), &json!("the job failed")));
    assert_eq!(result["_meta"]["io.modelcontextprotocol/related-task"], json!({"taskId": id}));
    assert_eq!(world.legacy_task(&session, "tasks/get", json!({"taskId": id})).await["status"], "failed");
}

#[tokio::test]
async fn a_question_of_a_legacy_task_comes_on_the_stream_of_its_result() {
    let world = world(quick()).await;
    let session = world.open(json!({"elicitation": {}})).await;
    let made = world.legacy_task(&session, "tools/call", json!({"name": "confirm_delete", "task": {}})).await;
    let id = made["task"]["taskId"].clone();
    let body = json!({"jsonrpc": "2.0", "id": 2, "method": "tasks/result", "params": {"taskId": id}});
    let mut open = events(world.legacy(&session, body).await);
    let form = open.next().await.expect("the form");
    assert_eq!(form["method"], "elicitation/create");
    assert_eq!(form["params"]["_meta"]["io.modelcontextprotocol/related-task"], json!({"taskId": id}));
    assert_eq!(world.legacy_task(&session, "tasks/get", json!({"taskId": id})).await["status"], "input_required");
    let said = json!({"action": "accept", "content": {"confirm": true}});
    let answer = json!({"jsonrpc": "2.0", "id": form["id"], "result": said});
    assert_eq!(world.legacy(&session, answer).await.status(), 202);
    let result = open.next().await.expect("the result");
    assert_eq!(result["result"]["content"][0]["text"], "confirmed: true");
}

#[tokio::test]
async fn a_status_is_pushed_on_the_streams_of_both_eras() {
    let world = world(quick()).await;
    let session = world.open(json!({})).await;
    let get = world.client.get(world.url()).header("accept", "text/event-stream").header("mcp-session-id", &session);
    let mut legacy = events(get.send().await.unwrap());
    world.legacy_task(&session, "tools/call", json!({"name": "watch", "task": {}})).await;
    // The call has to have started its worker before the supervisor can speak of it.
    let record = world.core.tasks.made_in(&session, 0).remove(0);
    let mut changes = record.changes();
    while record.worker().is_none() {
        changes.changed().await.expect("a record");
    }
    world.core.tasks.observe(&[worker(WorkerState::Dead, "SIGNAL")]);
    let told = legacy.next().await.expect("news");
    assert_eq!((&told["method"], &told["params"]["status"]), (&json!("notifications/tasks/status"), &json!("failed")));
}

#[tokio::test]
async fn a_client_that_knows_tasks_can_wait_for_a_person_without_a_form() {
    let mut world = world(quick()).await;
    let made = world.modern_task("tools/call", json!({"name": "ask"})).await;
    assert_eq!((&made["resultType"], &made["status"]), (&json!("task"), &json!("working")));
    // Somebody at the box allows it.
    let by = "cli".to_owned();
    world.engine.tell(EngineRequest::Answer { question: QuestionId(1), answer: Answer::Allow, by: by.clone() }).await;
    world.saw(Seen::Answered(QuestionId(1), Answer::Allow, by)).await;
    let record = world.core.tasks.made_in("http", 0).remove(0);
    let mut changes = record.changes();
    while !record.status().is_terminal() {
        changes.changed().await.expect("a record");
    }
    let task = world.modern_task("tasks/get", json!({"taskId": made["taskId"]})).await;
    assert_eq!(task["result"]["structuredContent"], json!({"ran": true}));
}

#[tokio::test]
async fn a_cancelled_task_says_how_its_call_ended() {
    let world = world(quick()).await;
    let made = world.modern_task("tools/call", json!({"name": "slow_compute", "arguments": {"seconds": 60}})).await;
    let id = made["taskId"].clone();
    assert_eq!(world.modern_task("tasks/cancel", json!({"taskId": id})).await["resultType"], "complete");
    let record = world.core.tasks.made_in("http", 0).remove(0);
    let mut changes = record.changes();
    while !record.status().is_terminal() {
        changes.changed().await.expect("a record");
    }
    assert_eq!(world.modern_task("tasks/get", json!({"taskId": id})).await["status"], "cancelled");
    assert_eq!(world.modern_task("tasks/cancel", json!({"taskId": id})).await["resultType"], "complete", "again");
}

#[tokio::test]
async fn after_a_restart_no_task_of_the_dead_process_is_at_work() {
    let before = world(quick()).await;
    let made = before.modern_task("tools/call", json!({"name": "watch"})).await;
    let failed = before.modern_task("tools/call", declared(json!({"name": "failing_job"}))).await;
    let saved = before.core.tasks.saved();
    assert_eq!(saved.len(), 2);
    let after = world(quick()).await;
    after.core.tasks.restore(saved);
    let task = after.modern_task("tasks/get", json!({"taskId": made["taskId"]})).await;
    assert_eq!((&task["status"], &task["error"]["code"]), (&json!("failed"), &json!(-32603)));
    assert!(task["statusMessage"].as_str().unwrap().starts_with("the daemon ended"), "{task}");
    let kept = after.modern_task("tasks/get", json!({"taskId": failed["taskId"]})).await;
    assert_eq!(kept["result"]["isError"], true, "what had ended stays as it was");
    assert!(after.core.tasks.saved().iter().all(|saved| saved.status != Status::Working));
}
