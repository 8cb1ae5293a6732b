# shellcheck shell=sh
# Before the last version goes (0); an upgrade leaves the daemon at work.
if [ "$1" -eq 0 ] && [ -d /run/systemd/system ]; then
    systemctl --no-reload disable --now interlock-retry.timer interlock.service || :
fi
