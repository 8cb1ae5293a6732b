#!/bin/bash
# The official client suite against the daemon's side towards servers: a small client behind the daemon (the test
# `drive`) does what each scenario expects of one.
# usage: DIR=… client_suite.sh TEST_BINARY
# The scenarios auth/* are not among them: there is no OAuth client here. Their tokens come from credentials.
set -euo pipefail
binary=$1
export PATH="$DIR/node/node_modules/.bin:$PATH" INTERLOCK_MCP_DRIVE=1
out=$DIR/conformance/client
mkdir -p "$out"
failed=0
for scenario in initialize tools_call elicitation-sep1034-client-defaults sse-retry request-metadata \
    sep-2322-client-request-state http-standard-headers http-custom-headers http-invalid-tool-headers \
    json-schema-ref-no-deref json-schema-2020-12-preservation; do
    log=$out/$scenario.log
    conformance client --command "$binary --exact daemon::proxy::drive::drive --nocapture" --scenario "$scenario" \
        -o "$out/$scenario" >"$log" 2>&1 || failed=1
    echo "client $scenario: $(grep -E 'Passed' "$log" | tail -n 1)"
done
exit $failed
