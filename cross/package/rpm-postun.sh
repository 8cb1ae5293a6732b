# shellcheck shell=sh
# After the old version is gone (1: an upgrade). A daemon that works is better than one that refuses its configuration.
if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload || :
    if [ "$1" -ge 1 ]; then
        if [ -f /etc/interlock/interlock.toml ] && ! /usr/bin/interlock check --config /etc/interlock/interlock.toml >&2; then
            echo "interlock: NOT restarted: this version refuses its configuration (above); the old one goes on" >&2
        else
            systemctl try-restart interlock.service || :
        fi
    fi
fi
