/* Records, in one order, everything that a process does to the files under $RECORD_ROOT, into $RECORD_LOG: what a
 * crash can leave of it is then worked out without a disk. One operation is a line, for W followed by its bytes:
 *   C path          created          T path len      truncated        W path offset len   written
 *   S path          synced           R from\tto      renamed          U path              unlinked
 *   M path          directory made
 * Shared memory of SQLite is no file in this sense and is left out. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int out = -1;

#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static ssize_t raw_write(int fd, const void *buf, size_t n) {
  REAL(write);
  return real(fd, buf, n);
}

static int ours(const char *path) {
  const char *root = getenv("RECORD_ROOT");
  size_t n = strlen(path);
  return root && strncmp(path, root, strlen(root)) == 0 && !(n > 4 && strcmp(path + n - 4, "-shm") == 0);
}

static int path_of(int fd, char *path, size_t size) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, size - 1);
  if (n < 0) return 0;
  path[n] = 0;
  return ours(path);
}

static void say(const char *format, ...) {
  char line[9000];
  va_list args;
  va_start(args, format);
  int n = vsnprintf(line, sizeof line, format, args);
  va_end(args);
  if (out < 0) {
    static int (*real)(const char *, int, ...);
    if (!real) real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    out = real(getenv("RECORD_LOG"), O_WRONLY | O_CREAT | O_APPEND, 0600);
  }
  raw_write(out, line, n);
}

static int recorded_open(const char *symbol, const char *path, int flags, mode_t mode) {
  int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, symbol);
  if (!ours(path)) return real(path, flags, mode);
  pthread_mutex_lock(&lock);
  int existed = access(path, F_OK) == 0;
  int fd = real(path, flags, mode);
  if (fd >= 0 && !existed && (flags & O_CREAT)) say("C %s\n", path);
  if (fd >= 0 && existed && (flags & O_TRUNC)) say("T %s 0\n", path);
  pthread_mutex_unlock(&lock);
  return fd;
}

#define OPEN(name) \
  int name(const char *path, int flags, ...) { \
    va_list args; va_start(args, flags); mode_t mode = va_arg(args, mode_t); va_end(args); \
    return recorded_open(#name, path, flags, mode); \
  }
OPEN(open)
OPEN(open64)

static void wrote(const char *path, off_t at, const void *buf, ssize_t n) {
  if (n > 0) {
    say("W %s %lld %zd\n", path, (long long)at, n);
    raw_write(out, buf, n);
    raw_write(out, "\n", 1);
  }
}

ssize_t write(int fd, const void *buf, size_t n) {
  char path[4096];
  if (!path_of(fd, path, sizeof path)) return raw_write(fd, buf, n);
  pthread_mutex_lock(&lock);
  struct stat st;
  fstat(fd, &st);
  off_t at = fcntl(fd, F_GETFL) & O_APPEND ? st.st_size : lseek(fd, 0, SEEK_CUR);
  ssize_t done = raw_write(fd, buf, n);
  wrote(path, at, buf, done);
  pthread_mutex_unlock(&lock);
  return done;
}

#define PWRITE(name) \
  ssize_t name(int fd, const void *buf, size_t n, off_t at) { \
    REAL(name); \
    char path[4096]; \
    if (!path_of(fd, path, sizeof path)) return real(fd, buf, n, at); \
    pthread_mutex_lock(&lock); \
    ssize_t done = real(fd, buf, n, at); \
    wrote(path, at, buf, done); \
    pthread_mutex_unlock(&lock); \
    return done; \
  }
PWRITE(pwrite)
PWRITE(pwrite64)

#define ON_FD(name, signature, call, what) \
  int name signature { \
    REAL(name); \
    char path[4096]; \
    if (!path_of(fd, path, sizeof path)) return real call; \
    pthread_mutex_lock(&lock); \
    int done = real call; \
    if (done == 0) what; \
    pthread_mutex_unlock(&lock); \
    return done; \
  }
ON_FD(ftruncate, (int fd, off_t len), (fd, len), say("T %s %lld\n", path, (long long)len))
ON_FD(ftruncate64, (int fd, off_t len), (fd, len), say("T %s %lld\n", path, (long long)len))
ON_FD(fsync, (int fd), (fd), say("S %s\n", path))
ON_FD(fdatasync, (int fd), (fd), say("S %s\n", path))

#define ON_PATH(name, signature, call, what) \
  int name signature { \
    REAL(name); \
    if (!ours(path)) return real call; \
    pthread_mutex_lock(&lock); \
    int done = real call; \
    if (done == 0) what; \
    pthread_mutex_unlock(&lock); \
    return done; \
  }
ON_PATH(rename, (const char *path, const char *to), (path, to), say("R %s\t%s\n", path, to))
ON_PATH(unlink, (const char *path), (path), say("U %s\n", path))
ON_PATH(mkdir, (const char *path, mode_t mode), (path, mode), say("M %s\n", path))
