/* A disk that fails, for one process and what it starts: load it with LD_PRELOAD.
 *
 * DISK_UNDER   the directory whose calls are counted; others are left alone
 * DISK_COUNTS  a file shared by all processes: KINDS counters, then the path where a call failed first
 * DISK_FAULT   "KIND NUMBER ERRNO STAYS": the NUMBER-th call of a kind (-1: each kind by itself) fails
 *              with ERRNO, and all later ones too where STAYS is 1; ERRNO 0 kills the process instead
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE, FLUSH, RENAME, CREATE, REMOVE, RESIZE, MKDIR, KINDS };

enum { PATH = 4096 };

static struct { _Atomic long counts[KINDS]; char path[PATH]; } *shared;

/* What the environment says may change after a fork, so it is read anew. */
static int planned(int kind, const char *path) {
    const char *file = getenv("DISK_COUNTS"), *fault = getenv("DISK_FAULT");
    int which = -1, code = 0, stays = 0;
    long number = 0, at;
    if (!file) return 0;
    if (!shared) {
        int fd = open(file, O_RDWR | O_CLOEXEC);
        void *found = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (found == MAP_FAILED) abort();
        close(fd);
        shared = found;
    }
    at = ++shared->counts[kind];
    if (!fault || sscanf(fault, "%d %ld %d %d", &which, &number, &code, &stays) != 4) return 0;
    if ((which != kind && which >= 0) || (stays ? at < number : at != number)) return 0;
    if (!shared->path[0]) strncpy(shared->path, path, PATH - 1);
    if (!code) kill(getpid(), SIGKILL);
    errno = code;
    return 1;
}

static int below(const char *path) {
    const char *under = getenv("DISK_UNDER");
    return under && !strncmp(path, under, strlen(under));
}

static int fails_fd(int kind, int fd) {
    char link[64], path[PATH];
    ssize_t size;
    int before = errno;
    if (!getenv("DISK_COUNTS")) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    size = readlink(link, path, sizeof path - 1);
    errno = before;
    if (size < 0) return 0;
    path[size] = 0;
    return below(path) && planned(kind, path);
}

static int fails(int kind, int directory, const char *path) {
    char whole[2 * PATH];
    if (!getenv("DISK_COUNTS")) return 0;
    if (path[0] == '/') return below(path) && planned(kind, path);
    if (directory != AT_FDCWD) return fails_fd(kind, directory);
    if (!getcwd(whole, PATH)) return 0;
    strncat(strcat(whole, "/"), path, PATH - 2);
    return below(whole) && planned(kind, whole);
}

#define REAL(type, name, ...)                                          \
    static type (*real)(__VA_ARGS__);                                  \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

#define ON_FD(type, name, kind, parameters, arguments)                 \
    type name parameters {                                             \
        static type(*real) parameters;                                 \
        if (!real) real = (type(*) parameters)dlsym(RTLD_NEXT, #name); \
        return fails_fd(kind, fd) ? (type)-1 : real arguments;         \
    }

#define ON_PATH(name, kind, directory, parameters, arguments)          \
    int name parameters {                                              \
        static int(*real) parameters;                                  \
        if (!real) real = (int (*) parameters)dlsym(RTLD_NEXT, #name); \
        return fails(kind, directory, path) ? -1 : real arguments;     \
    }

#define OPENS(name)                                                    \
    int name(const char *path, int flags, ...) {                       \
        va_list rest;                                                  \
        va_start(rest, flags);                                         \
        int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0; \
        va_end(rest);                                                  \
        REAL(int, #name, const char *, int, ...);                      \
        if (flags & (O_CREAT | O_WRONLY | O_RDWR) && fails(CREATE, AT_FDCWD, path)) return -1; \
        return real(path, flags, mode);                                \
    }

#define OPENS_AT(name)                                                 \
    int name(int directory, const char *path, int flags, ...) {        \
        va_list rest;                                                  \
        va_start(rest, flags);                                         \
        int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0; \
        va_end(rest);                                                  \
        REAL(int, #name, int, const char *, int, ...);                 \
        if (flags & (O_CREAT | O_WRONLY | O_RDWR) && fails(CREATE, directory, path)) return -1; \
        return real(directory, path, flags, mode);                     \
    }

OPENS(open)
OPENS(open64)
OPENS_AT(openat)
OPENS_AT(openat64)

ON_FD(ssize_t, write, WRITE, (int fd, const void *data, size_t size), (fd, data, size))
ON_FD(ssize_t, writev, WRITE, (int fd, const struct iovec *data, int count), (fd, data, count))
ON_FD(ssize_t, pwrite, WRITE, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
ON_FD(ssize_t, pwrite64, WRITE, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
ON_FD(ssize_t, sendfile, WRITE, (int fd, int from, off_t *at, size_t size), (fd, from, at, size))
ON_FD(ssize_t, sendfile64, WRITE, (int fd, int from, off64_t *at, size_t size), (fd, from, at, size))
ON_FD(int, fsync, FLUSH, (int fd), (fd))
ON_FD(int, fdatasync, FLUSH, (int fd), (fd))
ON_FD(int, ftruncate, RESIZE, (int fd, off_t size), (fd, size))
ON_FD(int, ftruncate64, RESIZE, (int fd, off64_t size), (fd, size))
ON_FD(int, fallocate, RESIZE, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size))

ON_PATH(rename, RENAME, AT_FDCWD, (const char *from, const char *path), (from, path))
ON_PATH(renameat, RENAME, to, (int of, const char *from, int to, const char *path), (of, from, to, path))
ON_PATH(renameat2, RENAME, to, (int of, const char *from, int to, const char *path, unsigned how),
        (of, from, to, path, how))
ON_PATH(link, RENAME, AT_FDCWD, (const char *from, const char *path), (from, path))
ON_PATH(linkat, RENAME, to, (int of, const char *from, int to, const char *path, int how),
        (of, from, to, path, how))
ON_PATH(unlink, REMOVE, AT_FDCWD, (const char *path), (path))
ON_PATH(rmdir, REMOVE, AT_FDCWD, (const char *path), (path))
ON_PATH(unlinkat, REMOVE, directory, (int directory, const char *path, int how), (directory, path, how))
ON_PATH(mkdir, MKDIR, AT_FDCWD, (const char *path, mode_t mode), (path, mode))
ON_PATH(mkdirat, MKDIR, directory, (int directory, const char *path, mode_t mode), (directory, path, mode))
