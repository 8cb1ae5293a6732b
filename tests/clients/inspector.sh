#!/bin/bash
# MCP Inspector's two command lines against a running server: lists and calls in each era, and runs a task where the
# server has slow_compute. A task of its own it cannot cancel while the task runs: a connection of its carries one
# request at a time; what it can send is the cancelling of a task that has ended.
# usage: DIR=… inspector.sh URL TOOL ARG=VALUE…
set -euo pipefail
url=$1 tool=$2
shift 2
export PATH="$DIR/node/node_modules/.bin:$PATH"
for era in legacy auto modern; do
    ask() { timeout 60 mcp-inspector --cli "$url" --transport http --protocol-era "$era" --format json "$@"; }
    list=$(ask --method tools/list)
    if ! grep -q "\"name\": *\"$tool\"" <<<"$list"; then
        echo "inspector ($era): $tool is not listed: $list" >&2
        exit 1
    fi
    args=()
    for pair in "$@"; do args+=(--tool-arg "$pair"); done
    result=$(ask --method tools/call --tool-name "$tool" "${args[@]}")
    if grep -q '"isError": *true' <<<"$result" || ! grep -q '"content"' <<<"$result"; then
        echo "inspector ($era): $tool went wrong: $result" >&2
        exit 1
    fi
    echo "inspector: $era: ok" >&2
done
if ! grep -q '"name": *"slow_compute"' <<<"$list"; then
    exit 0
fi
# The daemon of this one keeps its files to itself, and ends with us.
home=$(mktemp -d)
export HOME=$home MCP_INSPECTOR_DAEMON_DIR=$home/daemon MCP_INSPECTOR_SECRET_STORE=memory
MCP_INSPECTOR_DAEMON_TOKEN=$(head -c 24 /dev/urandom | base64 | tr -d '+/=')
export MCP_INSPECTOR_DAEMON_TOKEN
mkdir "$home/daemon"
trap 'timeout 20 mcpdo daemon stop >/dev/null 2>&1 || true; rm -rf "$home"' EXIT
for era in legacy modern; do
    ask() { timeout 60 mcpdo --format json --connection "$era" "$@" </dev/null 2>"$home/said"; }
    ask connect "$url" --transport http --era "$era" >"$home/connected" || { cat "$home/said" >&2; exit 1; }
    done=$(ask tools/call slow_compute seconds:=1 --task || cat "$home/said")
    if ! grep -q 'computed for 1 s' <<<"$done"; then
        echo "inspector ($era): the task did not end well: $done" >&2
        exit 1
    fi
    if [ "$era" = legacy ]; then
        id=$(grep -o '"taskId": *"[^"]*"' <<<"$done" | cut -d'"' -f4)
        task=$(ask tasks/get "$id" || cat "$home/said")
        grep -q '"status": *"completed"' <<<"$task" || { echo "inspector ($era): the task is $task" >&2; exit 1; }
        late=$(ask tasks/cancel "$id" || cat "$home/said")
        grep -qi 'completed' <<<"$late" || { echo "inspector ($era): a late cancel gives $late" >&2; exit 1; }
    fi
    echo "inspector: $era: a task runs: ok" >&2
done
