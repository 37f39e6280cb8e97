/* A bare loop of store and sync, without a message store, while its file system is shut down: shutdown DIRECTORY HOW WHAT
 * WRITTEN US.
 *
 * HOW: msync (store into a map, msync of the page), fdatasync (store into a map, fdatasync), pwrite (pwrite, fdatasync).
 * WHAT: 0, 1, 2: the flags of EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN (default, log flushed, log not flushed); or the file in
 * /sys that makes ext4 meet an error. WRITTEN: 1: all blocks were written before, 0: they are reserved only. US: when.
 * Prints the number of the last store whose sync succeeded, and the errno that ended the loop. Store i is at i * STRIDE.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { STRIDE = 700, SIZE = 32 << 20, PAGE = 4096 };
#define GOING_DOWN _IOR('X', 125, uint32_t)

static const char *directory, *what;
static unsigned int delay_us;
static volatile uint64_t last;

/* XFS answers a store into a map so. */
static void bus_error(int number)
{
    char line[64];
    int n = snprintf(line, sizeof line, "%lu %d\n", (unsigned long)last, EFAULT);
    (void)number;
    _exit(write(STDOUT_FILENO, line, (size_t)n) != n);
}

static void *end_it(void *unused)
{
    usleep(delay_us);
    int fd = open(what[0] == '/' ? what : directory, what[0] == '/' ? O_WRONLY : O_RDONLY);
    uint32_t flags = (uint32_t)atoi(what);
    if (fd < 0 || (what[0] == '/' ? write(fd, "1", 1) != 1 : ioctl(fd, GOING_DOWN, &flags) != 0)) {
        perror(what);
        exit(1);
    }
    close(fd);
    return unused;
}

static int store(int fd, char *map, const char *how, uint64_t i)
{
    size_t at = i * STRIDE;
    if (strcmp(how, "pwrite") == 0)
        return pwrite(fd, &i, sizeof i, (off_t)at) == sizeof i ? fdatasync(fd) : -1;
    memcpy(map + at, &i, sizeof i);
    size_t page = at & ~(size_t)(PAGE - 1);
    return strcmp(how, "msync") == 0 ? msync(map + page, at + sizeof i - page, MS_SYNC) : fdatasync(fd);
}

int main(int count, char **given)
{
    static const char zeros[1 << 20];
    char path[4096];
    if (count != 6)
        return 64;
    directory = given[1];
    what = given[3];
    delay_us = (unsigned int)atoi(given[5]);
    snprintf(path, sizeof path, "%s/file", directory);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || posix_fallocate(fd, 0, SIZE) != 0)
        return 2;
    for (off_t at = 0; atoi(given[4]) && at < SIZE; at += (off_t)sizeof zeros)
        if (pwrite(fd, zeros, sizeof zeros, at) != sizeof zeros)
            return 2;
    if (fsync(fd) != 0)
        return 2;
    char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pthread_t thread;
    signal(SIGBUS, bus_error);
    if (map == MAP_FAILED || pthread_create(&thread, NULL, end_it, NULL) != 0)
        return 2;
    int error = 0;
    for (uint64_t i = 1; error == 0 && (i + 1) * STRIDE < SIZE; i++) {
        if (store(fd, map, given[2], i) == 0)
            last = i;
        else
            error = errno;
    }
    printf("%lu %d\n", (unsigned long)last, error);
    fflush(stdout);
    _exit(0);
}
