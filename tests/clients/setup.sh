#!/bin/bash
# Installs the pinned clients into DIR. A second run is quick and changes nothing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=${1:?usage: setup.sh DIR}
mkdir -p "$dir"
if ! [ -x "$dir/py/bin/python" ]; then
    python3 -m venv "$dir/py"
fi
"$dir/py/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
mkdir -p "$dir/node"
if ! cmp -s "$here/package.json" "$dir/node/package.json"; then
    (
        cd "$dir/node"
        npm install --silent --no-audit --no-fund --prefix "$dir/node" $(python3 -c '
import json, sys
for name, version in json.load(open(sys.argv[1]))["dependencies"].items():
    print(f"{name}@{version}")' "$here/package.json")
        cp "$here/package.json" "$dir/node/package.json"
    )
fi
