#!/bin/bash
# The official conformance suite against a running server.
# usage: DIR=… conformance.sh URL [SCENARIO…]      without scenarios: both revisions as they are required
set -euo pipefail
url=$1
shift
export PATH="$DIR/node/node_modules/.bin:$PATH"
# Two scenarios pass on a server that has no tools at all.
list=$(mcp-inspector --cli "$url" --transport http --method tools/list --format json)
for tool in test_simple_text test_error_handling; do
    grep -q "\"$tool\"" <<<"$list" || { echo "conformance: $tool is not listed" >&2; exit 1; }
done
part=server
[ $# -eq 0 ] || part=scenarios
out=$DIR/conformance/$part
rm -rf "$out"
mkdir -p "$out"
failed=0
if [ $# -eq 0 ]; then
    for revision in 2025-11-25 2026-07-28; do
        log=$out/$revision.log
        verdict=ok
        conformance server --url "$url" --requirements "$revision" -o "$out/$revision" >"$log" 2>&1 || verdict=FAILED
        echo "conformance $revision: $verdict: $(grep "^Total" "$log")"
        if [ $verdict != ok ]; then
            failed=1
            grep '^✗' "$log" || tail -n 5 "$log"
        fi
    done
else
    for scenario in "$@"; do
        log=$out/$scenario.log
        conformance server --url "$url" --scenario "$scenario" -o "$out/$scenario" >"$log" 2>&1 || failed=1
        echo "conformance $scenario: $(grep -E 'Passed|passed|Total' "$log" | tail -n 1)"
    done
fi
exit $failed
