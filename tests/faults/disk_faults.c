// A library for LD_PRELOAD that makes the disk slow or faulty, for files whose name contains a word.
//
// The file named by DISK_FAULTS holds "key=value" lines and is read again for every call, so that a test can change it
// while the program runs:
//   file=directory.db   which files: those whose path contains the text
//   sync_ms=20          a sync takes this long
//   sync_error=EIO      a sync fails
//   write_error=ENOSPC  a write fails
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct faults {
    char file[64];
    int sync_ms;
    int sync_error;
    int write_error;
};

static int error_number(const char *name) {
    if (!strcmp(name, "ENOSPC")) return ENOSPC;
    if (!strcmp(name, "EROFS")) return EROFS;
    return EIO;
}

// Reads the faults that apply to a file. Uses system calls that this library does not replace.
static int faults_of(int fd, struct faults *faults) {
    const char *control = getenv("DISK_FAULTS");
    if (!control) return 0;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0 || path[0] != '/') return 0;
    path[length] = 0;
    if (!strstr(path, ".db")) return 0;
    int file = open(control, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    char text[512];
    length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0) return 0;
    text[length] = 0;
    memset(faults, 0, sizeof *faults);
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *value = strchr(line, '=');
        if (!value) continue;
        *value++ = 0;
        if (!strcmp(line, "file")) snprintf(faults->file, sizeof faults->file, "%s", value);
        if (!strcmp(line, "sync_ms")) faults->sync_ms = atoi(value);
        if (!strcmp(line, "sync_error")) faults->sync_error = error_number(value);
        if (!strcmp(line, "write_error")) faults->write_error = error_number(value);
    }
    return strstr(path, faults->file) != NULL;
}

static int sync_fails(int fd) {
    int saved = errno;
    struct faults faults;
    int failed = 0;
    if (faults_of(fd, &faults)) {
        if (faults.sync_ms) {
            struct timespec pause = {faults.sync_ms / 1000, (faults.sync_ms % 1000) * 1000000L};
            nanosleep(&pause, NULL);
        }
        failed = faults.sync_error;
    }
    errno = failed ? failed : saved;
    return failed != 0;
}

static int write_fails(int fd) {
    int saved = errno;
    struct faults faults;
    int failed = faults_of(fd, &faults) ? faults.write_error : 0;
    errno = failed ? failed : saved;
    return failed != 0;
}

#define NEXT(name) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))

int fsync(int fd) { return sync_fails(fd) ? -1 : NEXT(fsync)(fd); }

int fdatasync(int fd) { return sync_fails(fd) ? -1 : NEXT(fdatasync)(fd); }

ssize_t write(int fd, const void *bytes, size_t count) {
    return write_fails(fd) ? -1 : NEXT(write)(fd, bytes, count);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) {
    return write_fails(fd) ? -1 : NEXT(pwrite)(fd, bytes, count, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset) {
    return write_fails(fd) ? -1 : NEXT(pwrite64)(fd, bytes, count, offset);
}

int ftruncate(int fd, off_t length) { return write_fails(fd) ? -1 : NEXT(ftruncate)(fd, length); }

int ftruncate64(int fd, off64_t length) { return write_fails(fd) ? -1 : NEXT(ftruncate64)(fd, length); }
