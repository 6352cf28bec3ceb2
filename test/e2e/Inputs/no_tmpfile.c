// Loaded before the C library, takes O_TMPFILE away from every file system, as some network ones lack it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>

typedef int (*Open)(const char *, int, ...);

static int openBy(const char *function, const char *path, int flags, va_list rest) {
  if ((flags & O_TMPFILE) == O_TMPFILE) {
    errno = EOPNOTSUPP;
    return -1;
  }
  return ((Open)dlsym(RTLD_NEXT, function))(path, flags, flags & O_CREAT ? va_arg(rest, int) : 0);
}

int open(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  int fd = openBy("open", path, flags, rest);
  va_end(rest);
  return fd;
}

int open64(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  int fd = openBy("open64", path, flags, rest);
  va_end(rest);
  return fd;
}
