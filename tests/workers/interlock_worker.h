/* A worker in C under Interlock (or under systemd: the protocol is sd_notify's).
 *
 * Interlock sets NOTIFY_SOCKET and WATCHDOG_USEC. From the first beat on, beats are due within WATCHDOG_USEC; a
 * program that sends none is only watched for its end. Every call is one datagram and never waits. */
#ifndef INTERLOCK_WORKER_H
#define INTERLOCK_WORKER_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Sends one or more lines NAME=VALUE. 0 when nobody listens or the message was lost, 1 when it went out. */
static inline int interlock_tell(const char *message) {
    const char *name = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!name || !(name[0] == '@' || name[0] == '/') || strlen(name) >= sizeof address.sun_path) return 0;
    memcpy(address.sun_path, name, strlen(name));
    if (name[0] == '@') address.sun_path[0] = 0;
    int socket_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (socket_fd < 0) return 0;
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    ssize_t sent = sendto(socket_fd, message, strlen(message), MSG_NOSIGNAL, (struct sockaddr *)&address, length);
    close(socket_fd);
    return sent >= 0;
}

/* "I am at work." */
static inline int interlock_beat(void) { return interlock_tell("WATCHDOG=1"); }

/* "So much is done": never backwards. */
static inline int interlock_progress(unsigned long long done) {
    char message[64];
    snprintf(message, sizeof message, "X_PROGRESS=%llu", done);
    return interlock_tell(message);
}

/* One line for a person. */
static inline int interlock_status(const char *text) {
    char message[256];
    snprintf(message, sizeof message, "STATUS=%s", text);
    return interlock_tell(message);
}

#endif
