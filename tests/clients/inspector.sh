#!/bin/bash
# MCP Inspector's CLI against a running server: lists and calls in each era.
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
