/* A disk that hangs: whoever makes, writes, reads or syncs a file below $FROZEN_DISK waits as long as $FROZEN_DISK.frozen is
 * there, and notices nothing else. Signals don't wake him, as in the kernel; SIGKILL does. To be preloaded (LD_PRELOAD).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static char disk[PATH_MAX];
static char flag[PATH_MAX + 16];

__attribute__((constructor)) static void prepare(void) {
    const char *path = getenv("FROZEN_DISK");
    if (path != NULL && strlen(path) < sizeof disk) {
        strcpy(disk, path);
        snprintf(flag, sizeof flag, "%s.frozen", path);
    }
}

static int is_frozen(void) { return disk[0] != 0 && access(flag, F_OK) == 0; }

static void hang(void) {
    const struct timespec pause = {0, 10 * 1000 * 1000};
    do {
        nanosleep(&pause, NULL);
    } while (is_frozen());
}

static void touch_path(const char *path) {
    size_t size = strlen(disk);
    if (is_frozen() && strncmp(path, disk, size) == 0 && path[size] == '/')
        hang();
}

static void touch_file(int file) {
    char link[64], path[PATH_MAX];
    ssize_t size;
    if (!is_frozen())
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    size = readlink(link, path, sizeof path - 1);
    if (size > 0) {
        path[size] = 0;
        touch_path(path);
    }
}

#define PASS_ON(name, arguments)                                                                                    \
    static __typeof__(&name) real;                                                                                  \
    if (real == NULL)                                                                                               \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name);                                                          \
    return real arguments;

#define ON_PATH(result, name, parameters, arguments)                                                                \
    result name parameters {                                                                                        \
        touch_path(path);                                                                                           \
        PASS_ON(name, arguments)                                                                                    \
    }

#define ON_FILE(result, name, parameters, arguments)                                                                \
    result name parameters {                                                                                        \
        touch_file(file);                                                                                           \
        PASS_ON(name, arguments)                                                                                    \
    }

#define OPENING(name, parameters, arguments)                                                                        \
    int name parameters {                                                                                           \
        va_list more;                                                                                               \
        mode_t mode;                                                                                                \
        va_start(more, flags);                                                                                      \
        mode = (mode_t)va_arg(more, int);                                                                           \
        va_end(more);                                                                                               \
        touch_path(path);                                                                                           \
        PASS_ON(name, arguments)                                                                                    \
    }

OPENING(open, (const char *path, int flags, ...), (path, flags, mode))
OPENING(open64, (const char *path, int flags, ...), (path, flags, mode))
OPENING(openat, (int folder, const char *path, int flags, ...), (folder, path, flags, mode))
OPENING(openat64, (int folder, const char *path, int flags, ...), (folder, path, flags, mode))
ON_PATH(int, mkdir, (const char *path, mode_t mode), (path, mode))
ON_PATH(int, unlink, (const char *path), (path))
ON_PATH(int, rename, (const char *path, const char *to), (path, to))
ON_FILE(ssize_t, write, (int file, const void *data, size_t size), (file, data, size))
ON_FILE(ssize_t, pwrite, (int file, const void *data, size_t size, off_t at), (file, data, size, at))
ON_FILE(ssize_t, pwrite64, (int file, const void *data, size_t size, off64_t at), (file, data, size, at))
ON_FILE(ssize_t, pread, (int file, void *data, size_t size, off_t at), (file, data, size, at))
ON_FILE(ssize_t, pread64, (int file, void *data, size_t size, off64_t at), (file, data, size, at))
ON_FILE(int, fsync, (int file), (file))
ON_FILE(int, fdatasync, (int file), (file))
