# shellcheck shell=sh
# After install (1) or upgrade (2): the user, the directories, whether it starts is the distribution's preset.
systemd-sysusers interlock.conf || :
systemd-tmpfiles --create interlock.conf || :
if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload || :
    [ "$1" -ne 1 ] || systemctl --no-reload preset interlock.service || :
fi
