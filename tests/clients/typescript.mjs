// The official TypeScript clients against a running server: SDK v1 (with its experimental tasks), SDK v2 in both eras,
// and ext-tasks in both eras. With the engine of answers behind the server. Copied into DIR/node by `run`, where its
// packages are.
//
// usage: node typescript.mjs URL
const url = new URL(process.argv[2]);
const load = (name) => import(name);

const check = (isSo, what) => {
    if (!isSo) throw new Error(what);
};
const failsWith = async (code, work, what) => {
    try {
        await work();
    } catch (error) {
        check(error.code === code, `${what}: ${error}`);
        return;
    }
    throw new Error(`${what}: did not fail`);
};
const say = (what) => console.error(`typescript: ${what}: ok`);

async function v1() {
    const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
    const { StreamableHTTPClientTransport } = await load("@modelcontextprotocol/sdk/client/streamableHttp.js");
    const { ElicitRequestSchema } = await load("@modelcontextprotocol/sdk/types.js");
    const client = new Client({ name: "ts-v1", version: "1" }, { capabilities: { elicitation: {} } });
    client.setRequestHandler(ElicitRequestSchema, () => ({
        action: "accept",
        content: { confirm: true, decision: "allow" },
    }));
    await client.connect(new StreamableHTTPClientTransport(url));
    const { tools } = await client.listTools();
    check(tools.some((tool) => tool.name === "echo"), "echo is not listed");
    const echoed = await client.callTool({ name: "echo", arguments: { text: "你好" } });
    check(echoed.structuredContent.text === "你好", "echo");
    const asked = await client.callTool({ name: "ask", arguments: {} });
    check(asked.structuredContent?.ran === true, `the person's word did not arrive: ${JSON.stringify(asked)}`);
    say("v1 calls and questions");

    const run = async (name, args) => {
        const seen = [];
        for await (const message of client.experimental.tasks.callToolStream({ name, arguments: args })) {
            seen.push(message);
        }
        return seen;
    };
    const computed = await run("slow_compute", { seconds: 1 });
    check(computed[0].type === "taskCreated", `the first is ${computed[0].type}`);
    check(computed.at(-1).type === "result", `the last is ${JSON.stringify(computed.at(-1))}`);
    check(computed.at(-1).result.content[0].text === "computed for 1 s", "the result of the task");
    const confirmed = await run("confirm_delete", {});
    check(confirmed.at(-1).result?.content[0].text === "confirmed: true", JSON.stringify(confirmed.at(-1)));
    const listed = await client.experimental.tasks.listTasks();
    check(listed.tasks.length === 2, `${listed.tasks.length} tasks are listed`);

    const stream = client.experimental.tasks.callToolStream({ name: "slow_compute", arguments: { seconds: 60 } });
    const { taskId } = (await stream.next()).value.task;
    const cancelled = await client.experimental.tasks.cancelTask(taskId);
    check(cancelled.status === "cancelled", `cancelled is ${cancelled.status}`);
    check((await client.experimental.tasks.getTask(taskId)).status === "cancelled", "it does not stay cancelled");
    await failsWith(-32602, () => client.experimental.tasks.cancelTask(taskId), "cancelling twice");
    await stream.return?.();
    await client.close();
    say("v1 tasks");
}

async function v2(mode) {
    const { Client, StreamableHTTPClientTransport } = await load("@modelcontextprotocol/client");
    const options = { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode } };
    const client = new Client({ name: "ts-v2", version: "1" }, options);
    client.setRequestHandler("elicitation/create", () => ({ action: "accept", content: { decision: "allow" } }));
    await client.connect(new StreamableHTTPClientTransport(url));
    const { tools } = await client.listTools();
    check(tools.some((tool) => tool.name === "echo"), "echo is not listed");
    const echoed = await client.callTool({ name: "echo", arguments: { text: "b" } });
    check(echoed.structuredContent.text === "b", "echo");
    const asked = await client.callTool({ name: "ask", arguments: { x: 1 } });
    check(asked.structuredContent?.ran === true, `the person's word did not arrive: ${JSON.stringify(asked)}`);
    await failsWith(-32602, () => client.callTool({ name: "no_such_tool", arguments: {} }), "a tool that is none");
    say(`v2 ${mode} (${client.getProtocolEra()})`);
    await client.close();
}

async function extTasks(mode) {
    const { Client, StreamableHTTPClientTransport } = await load("@modelcontextprotocol/client");
    const { createTaskSessionFromClient, resultFromTaskOutcome } = await load("@modelcontextprotocol/ext-tasks/client");
    const info = { name: "ext-tasks", version: "1" };
    const extensions = mode === "auto" ? { "io.modelcontextprotocol/tasks": {} } : undefined;
    const capabilities = { elicitation: { form: {} }, ...(extensions && { extensions }) };
    const client = new Client(info, { capabilities, versionNegotiation: { mode } });
    await client.connect(new StreamableHTTPClientTransport(url));
    const modern = client.getProtocolEra() === "modern";
    let id = 1000;
    // ext-tasks leaves the wire to its host where the SDK's own types refuse a task: this is the plainest host.
    const rawDispatch = async (request, { signal } = {}) => {
        const { name, uri, taskId } = request.params ?? {};
        const response = await fetch(url, {
            method: "POST",
            signal,
            headers: {
                "content-type": "application/json",
                accept: "application/json, text/event-stream",
                "mcp-protocol-version": "2026-07-28",
                "mcp-method": request.method,
                ...((name ?? uri ?? taskId) && { "mcp-name": name ?? uri ?? taskId }),
            },
            body: JSON.stringify({ jsonrpc: "2.0", id: id++, ...request }),
        });
        const text = await response.text();
        const isJson = response.headers.get("content-type") === "application/json";
        const last = () => text.split("\n").filter((line) => line.startsWith("data: {")).at(-1).slice(6);
        const answer = JSON.parse(isJson ? text : last());
        return answer.error ? { kind: "error", error: answer.error } : { kind: "result", result: answer.result };
    };
    const v2RequestFraming = { protocolVersion: "2026-07-28", clientInfo: info, clientCapabilities: capabilities };
    const { tools } = await client.listTools();
    const declared = new Map(tools.map((tool) => [tool.name, { ...tool, taskSupport: tool.execution?.taskSupport }]));
    const session = createTaskSessionFromClient(client, {
        endpointId: "interlock",
        tools: { currentTool: (name) => declared.get(name) },
        onInputRequest: async () => ({ action: "accept", content: { confirm: true } }),
        ...(modern && { rawDispatch, v2RequestFraming }),
    });
    // In the older era the client decides.
    const asTask = modern ? {} : { task: { preference: "require" } };
    const execution = await session.callTool("slow_compute", { seconds: 1 }, asTask);
    const { outcome } = await execution.settle();
    const result = resultFromTaskOutcome(outcome);
    check(result.content[0].text === "computed for 1 s", JSON.stringify(result));
    if (modern) {
        const asking = await session.callTool("confirm_delete", {});
        const confirmed = resultFromTaskOutcome((await asking.settle()).outcome);
        check(confirmed.content[0].text === "confirmed: true", JSON.stringify(confirmed));
    }
    const long = await session.callTool("slow_compute", { seconds: 60 }, asTask);
    await long.cancel();
    const ended = (await long.settle()).outcome;
    check(JSON.stringify(ended).includes("cancelled"), `a cancelled task ends as ${JSON.stringify(ended)}`);
    say(`ext-tasks ${mode} (${client.getProtocolEra()})`);
    await session.close();
    await client.close();
}

const watchdog = setTimeout(() => {
    console.error("typescript: something hangs");
    process.exit(1);
}, 60_000);
await v1();
await v2("auto");
await v2("legacy");
await extTasks("auto");
await extTasks("legacy");
clearTimeout(watchdog);
