/* Makes one sync of a write-ahead log fail with EIO, once the file that $FSYNC_FAILS_AFTER names is there, and then
 * removes that file. As on a real disk, what was to be synced may be lost, and the next sync reports success. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fails(int fd) {
  const char *trigger = getenv("FSYNC_FAILS_AFTER");
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  if (!trigger || n < 0) return 0;
  path[n] = 0;
  if (!strstr(path, ".db-wal") || unlink(trigger) != 0) return 0;
  errno = EIO;
  return 1;
}

int fsync(int fd) {
  static int (*real)(int);
  if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  return fails(fd) ? -1 : real(fd);
}

int fdatasync(int fd) {
  static int (*real)(int);
  if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
  return fails(fd) ? -1 : real(fd);
}
