#!/bin/sh
# Runs inside a Debian of its own, made by `cargo xtask package-trial`: installs, upgrades, removes and purges the
# packages in /packages, and ends at the first thing that is not as promised.
set -eu
export DEBIAN_FRONTEND=noninteractive
CONFIG=/etc/interlock/interlock.toml
STATE=/var/lib/interlock

say() { echo "trial: $*"; }
wrong() {
    echo "trial: WRONG: $*" >&2
    [ ! -f /run/daemon.log ] || tail -n 20 /run/daemon.log >&2
    exit 1
}
is() { [ "$2" = "$3" ] || wrong "$1 is '$2', not '$3'"; }
there() { [ -e "$1" ] || wrong "$1 is not there"; }
gone() { [ ! -e "$1" ] || wrong "$1 is still there"; }
mode() { is "owner and mode of $1" "$(stat -c '%U:%G %a' "$1")" "$2"; }
rows() { interlock evidence stats --json --state $STATE | sed -n 's/.*"rows": *\([0-9]*\).*/\1/p' | head -n 1; }
intact() { interlock evidence verify --state $STATE | grep -q INTACT || wrong "the evidence is not INTACT"; }
pid() { cat /run/daemon.pid; }

say "a package for another processor names it"
if dpkg -i /packages/foreign.deb >/run/said 2>&1; then wrong "it was installed"; fi
grep -q "$(cat /packages/foreign.txt)" /run/said || wrong "dpkg did not name the architecture: $(cat /run/said)"
dpkg --purge interlock >/dev/null 2>&1 || true

say "install of the older version"
dpkg -i /packages/old.deb >/run/said 2>&1 || wrong "$(cat /run/said)"
mode $CONFIG 'root:interlock 640'
mode /etc/interlock 'root:interlock 750'
is "the user's shell" "$(getent passwd interlock | cut -d: -f7)" /usr/sbin/nologin
there /usr/lib/systemd/system/interlock.service
there /etc/systemd/system/multi-user.target.wants/interlock.service
there /usr/share/man/man1/interlock.1.gz
grep -q 'start interlock.service' /run/asked || wrong "the service was not started"
interlock status >/dev/null || wrong "the daemon does not answer"
interlock doctor --state $STATE | grep -q 'onnxruntime *.*/usr/lib/interlock/libonnxruntime.so' || wrong "ONNX Runtime is not found: $(interlock doctor --state $STATE)"

say "state and a changed configuration"
interlock say 启动二号泵 >/dev/null || wrong "a command was not carried out"
echo '# changed here' >>$CONFIG
rows=$(rows)
[ "$rows" -gt 3 ] || wrong "only '$rows' rows of evidence"
before=$(pid)
touch /run/older

# Outside of this root, state.db is set back by one step of its schema, which only xtask can (it has SQLite).
say "waiting for an older schema"
i=0
while [ -e /run/older ]; do
    sleep 0.1
    i=$((i + 1))
    [ $i -lt 600 ] || wrong "the schema was not set back"
done

say "upgrade: state, configuration and evidence stay, the daemon is a new one"
dpkg -i /packages/new.deb >/run/said 2>&1 || wrong "$(cat /run/said)"
tail -n 1 $CONFIG | grep -q '# changed here' || wrong "the changed configuration is gone"
mode $CONFIG 'root:interlock 640'
grep -q 'restart interlock.service' /run/asked || wrong "the service was not restarted"
[ "$(pid)" != "$before" ] || wrong "the daemon is the old one"
[ "$(rows)" -ge "$rows" ] || wrong "rows are lost"
intact
touch /run/upgraded

say "an upgrade that refuses the configuration leaves the daemon at work"
cp $CONFIG /run/good.toml
echo 'no-such-key = 1' >>$CONFIG
before=$(pid)
dpkg -i /packages/new.deb >/run/said 2>&1 || wrong "$(cat /run/said)"
for word in 'NOT restarted' no-such-key; do
    grep -q "$word" /run/said || wrong "it does not say why: $(cat /run/said)"
done
is "the daemon" "$(pid)" "$before"
cat /run/good.toml >$CONFIG

say "what an administrator disabled stays so"
/usr/bin/systemctl.real --root=/ disable interlock.service >/dev/null 2>&1
dpkg -i /packages/new.deb >/run/said 2>&1 || wrong "$(cat /run/said)"
gone /etc/systemd/system/multi-user.target.wants/interlock.service

say "remove: configuration and state stay"
dpkg --remove interlock >/run/said 2>&1 || wrong "$(cat /run/said)"
grep -q 'stop .*interlock.service' /run/asked || wrong "the service was not stopped"
gone /run/daemon.pid
gone /usr/bin/interlock
gone /usr/lib/interlock
there $CONFIG
there $STATE/evidence

say "install again: it goes on with what it had"
dpkg -i /packages/new.deb >/run/said 2>&1 || wrong "$(cat /run/said)"
intact
[ "$(rows)" -ge "$rows" ] || wrong "rows are lost"

say "purge: nothing is left but what others put there"
touch /etc/interlock/provider.key
dpkg --purge interlock >/run/said 2>&1 || wrong "$(cat /run/said)"
gone $STATE
gone $CONFIG
there /etc/interlock/provider.key
gone /etc/systemd/system/interlock.service
rm -r /etc/interlock
if dpkg -S interlock >/run/said 2>&1; then wrong "dpkg still knows files: $(cat /run/said)"; fi
say "the .deb is as promised"
