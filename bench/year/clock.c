// A clock that a file moves by whole days, for every process that loads this library (LD_PRELOAD).
//
// CLOCK_TABLE names a file of 64-bit numbers: how many days have begun, then for each the second at
// which it began by the kernel's clock and the seconds to add since then. The kernel's own times of
// files go through the same table: what was written on the third day stays of the third day, and
// comparing a file's time with the clock gives its age in days.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define MOST_DAYS 4000
struct table {
    int64_t days;
    struct { int64_t begun_s, shift_s; } day[MOST_DAYS];
};
static const volatile struct table *table;
static int (*kernel_clock)(clockid_t, struct timespec *);

__attribute__((constructor)) static void open_table(void) {
    const char *path = getenv("CLOCK_TABLE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *found = mmap(0, sizeof(struct table), PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED) table = found;
    close(file);
}

static int64_t moved(int64_t kernel_s) {
    for (int64_t i = table ? table->days : 0; i-- > 0;)
        if (kernel_s >= table->day[i].begun_s) return kernel_s + table->day[i].shift_s;
    return kernel_s;
}

static int64_t moved_back(int64_t s) {
    for (int64_t i = table ? table->days : 0; i-- > 0;)
        if (s - table->day[i].shift_s >= table->day[i].begun_s) return s - table->day[i].shift_s;
    return s;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    if (!kernel_clock) *(void **)&kernel_clock = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = kernel_clock(clock, at);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        at->tv_sec = moved(at->tv_sec);
    return failed;
}

time_t time(time_t *to) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (to) *to = at.tv_sec;
    return at.tv_sec;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

static int look(int directory, const char *path, struct stat *found, int flags) {
    int failed = syscall(SYS_newfstatat, directory, path, found, flags);
    if (!failed) {
        found->st_atim.tv_sec = moved(found->st_atim.tv_sec);
        found->st_mtim.tv_sec = moved(found->st_mtim.tv_sec);
        found->st_ctim.tv_sec = moved(found->st_ctim.tv_sec);
    }
    return failed;
}

#define AS(found) ((struct stat *)(found)) /* both structs are one where longs have 64 bits */
int fstatat(int directory, const char *restrict path, struct stat *restrict found, int flags) {
    return look(directory, path, found, flags);
}
int fstatat64(int directory, const char *restrict path, struct stat64 *restrict found, int flags) {
    return look(directory, path, AS(found), flags);
}
int stat(const char *restrict path, struct stat *restrict found) {
    return look(AT_FDCWD, path, found, 0);
}
int stat64(const char *restrict path, struct stat64 *restrict found) {
    return look(AT_FDCWD, path, AS(found), 0);
}
int lstat(const char *restrict path, struct stat *restrict found) {
    return look(AT_FDCWD, path, found, AT_SYMLINK_NOFOLLOW);
}
int lstat64(const char *restrict path, struct stat64 *restrict found) {
    return look(AT_FDCWD, path, AS(found), AT_SYMLINK_NOFOLLOW);
}
int fstat(int file, struct stat *found) { return look(file, "", found, AT_EMPTY_PATH); }
int fstat64(int file, struct stat64 *found) { return look(file, "", AS(found), AT_EMPTY_PATH); }

/* What libraries built for an older glibc call. */
int __xstat(int v, const char *path, struct stat *found) { return stat(path, found); }
int __xstat64(int v, const char *path, struct stat64 *found) { return stat64(path, found); }
int __lxstat(int v, const char *path, struct stat *found) { return lstat(path, found); }
int __lxstat64(int v, const char *path, struct stat64 *found) { return lstat64(path, found); }
int __fxstat(int v, int file, struct stat *found) { return fstat(file, found); }
int __fxstat64(int v, int file, struct stat64 *found) { return fstat64(file, found); }

int statx(int directory, const char *restrict path, int flags, unsigned mask,
          struct statx *restrict found) {
    int failed = syscall(SYS_statx, directory, path, flags, mask, found);
    if (!failed) {
        found->stx_atime.tv_sec = moved(found->stx_atime.tv_sec);
        found->stx_mtime.tv_sec = moved(found->stx_mtime.tv_sec);
        found->stx_ctime.tv_sec = moved(found->stx_ctime.tv_sec);
        found->stx_btime.tv_sec = moved(found->stx_btime.tv_sec);
    }
    return failed;
}

static int set(int directory, const char *path, const struct timespec *at, int flags) {
    struct timespec kernel[2];
    if (at) {
        memcpy(kernel, at, sizeof kernel);
        for (int i = 0; i < 2; i++) kernel[i].tv_sec = moved_back(kernel[i].tv_sec);
    }
    return syscall(SYS_utimensat, directory, path, at ? kernel : 0, flags);
}
int utimensat(int directory, const char *path, const struct timespec at[2], int flags) {
    return set(directory, path, at, flags);
}
int futimens(int file, const struct timespec at[2]) { return set(file, 0, at, 0); }
