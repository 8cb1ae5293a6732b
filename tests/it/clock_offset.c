/* The wall clock as a person might set it: CLOCK_REALTIME is shifted by the seconds that stand in $CLOCK_OFFSET (read
 * again on each call), and nobody may ask how good the clock is. All other clocks are as they are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int code = real(clock, time);
  const char *path = getenv("CLOCK_OFFSET");
  if (clock != CLOCK_REALTIME || code != 0 || !path) return code;
  char text[32] = {0};
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    if (read(fd, text, sizeof text - 1) > 0) time->tv_sec += atoll(text);
    close(fd);
  }
  return code;
}

int adjtimex(struct timex *ignored) {
  (void)ignored;
  errno = EPERM;
  return -1;
}
