#!/bin/bash
# The official client suite against the daemon's side towards servers: a small client behind the daemon (the test
# `drive`) does what each scenario expects of one.
# usage: DIR=… client_suite.sh TEST_BINARY
set -euo pipefail
binary=${1:?usage: client_suite.sh TEST_BINARY}
export PATH="$DIR/node/node_modules/.bin:$PATH" INTERLOCK_MCP_DRIVE=1
out=$DIR/conformance/client
rm -rf "$out"
mkdir -p "$out"
one() {
    local log=$out/${1//\//-}.log verdict=ok
    conformance client --command "$binary --exact daemon::proxy::drive::drive --nocapture" --scenario "$1" \
        -o "${log%.log}" >"$log" 2>&1 || verdict=FAILED
    echo "client $1: $verdict: $(grep -E 'Passed' "$log" | tail -n 1)"
    [ $verdict = ok ]
}
export -f one
export binary out
scenarios=(initialize tools_call elicitation-sep1034-client-defaults sse-retry request-metadata
    sep-2322-client-request-state http-standard-headers http-custom-headers http-invalid-tool-headers
    json-schema-ref-no-deref json-schema-2020-12-preservation
    auth/metadata-default auth/metadata-var1 auth/metadata-var2 auth/metadata-var3 auth/basic-cimd
    auth/scope-from-www-authenticate auth/scope-from-scopes-supported auth/scope-omitted-when-undefined
    auth/scope-step-up auth/scope-retry-limit auth/token-endpoint-auth-basic auth/token-endpoint-auth-post
    auth/token-endpoint-auth-none auth/pre-registration auth/2025-03-26-oauth-metadata-backcompat
    auth/2025-03-26-oauth-endpoint-fallback auth/resource-mismatch auth/offline-access-scope
    auth/offline-access-not-supported auth/authorization-server-migration auth/iss-supported auth/iss-not-advertised
    auth/iss-supported-missing auth/iss-wrong-issuer auth/iss-unexpected auth/iss-normalized
    auth/metadata-issuer-mismatch auth/client-credentials-basic)
skip() { # SCENARIO REASON
    echo "client $1: skipped: $2"
    [ -z "${INTERLOCK_TEST_SKIPS:-}" ] || echo "conformance client $1: $2" >>"$INTERLOCK_TEST_SKIPS"
}
for scenario in auth/client-credentials-jwt 'auth/dpop*' auth/wif-jwt-bearer; do
    skip "$scenario" "keys of a client's own are not served"
done
skip auth/enterprise-managed-authorization "a company's identity provider is not served"
skip 'sep-2640*' "skills of servers are not served"
# Each waits more than it works; xargs says with its exit code when one of them failed.
printf '%s\n' "${scenarios[@]}" | xargs -P 4 -I{} bash -c 'one {}'
