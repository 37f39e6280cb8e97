/* A disk that remembers in which order it was written and flushed: logdisk IMAGE LOG MOUNTPOINT SEED (FUSE 3).
 *
 * MOUNTPOINT/disk is IMAGE, for a loop device. Each write that ends and each flush is one record in LOG, and so is each line
 * that a test writes to MOUNTPOINT/marks, in the order in which this process saw them. A write that is still under way when a
 * flush comes is logged behind it: no flush covers what had not completed before it began.
 *
 * MOUNTPOINT/control takes one command a write:
 *   hold PERCENT MS     so many of the writes take up to so long, and others overtake them
 *   slow US             each write takes so long
 *   fail-writes N SIZE  the next N writes of at least SIZE bytes fail (EIO)
 *   fail-reads PERCENT  so many of the reads fail (EIO)
 *
 * A record: u32 kind (1 write, 2 flush, 3 mark), u32 length, u64 offset on the disk, then so many bytes.
 */
#define FUSE_USE_VERSION 312
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { ROOT = FUSE_ROOT_ID, DISK, MARKS, CONTROL, NODES };
enum { WRITE = 1, FLUSH = 2, MARK = 3 };
enum { HELD_MAX = 64 };
static const char *const names[NODES] = {[DISK] = "disk", [MARKS] = "marks", [CONTROL] = "control"};

struct held {
    fuse_req_t request;
    off_t at;
    size_t size;
    char *bytes;
    int64_t due_ms;
};

static int image;
static off_t image_size;
static FILE *log_file;
static struct held held[HELD_MAX];
static int held_count;
static unsigned int chance;
static int hold_percent, hold_ms, slow_us, fail_writes, fail_size, fail_reads_percent;

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int percent(int of_hundred)
{
    return of_hundred > 0 && (int)(rand_r(&chance) % 100) < of_hundred;
}

/* A log that is not whole proves nothing: the disk goes, and whoever uses it fails. */
static void must(int done, const char *what)
{
    if (!done) {
        perror(what);
        abort();
    }
}

static void note(uint32_t kind, off_t offset, const char *bytes, size_t length)
{
    struct { uint32_t kind, length; uint64_t offset; } head = {kind, (uint32_t)length, (uint64_t)offset};
    must(fwrite(&head, sizeof head, 1, log_file) == 1, "log");
    must(length == 0 || fwrite(bytes, length, 1, log_file) == 1, "log");
}

static void complete(fuse_req_t request, const char *bytes, size_t size, off_t at)
{
    must(pwrite(image, bytes, size, at) == (ssize_t)size, "image");
    note(WRITE, at, bytes, size);
    fuse_reply_write(request, size);
}

static void release(int i)
{
    struct held one = held[i];
    held[i] = held[--held_count];
    complete(one.request, one.bytes, one.size, one.at);
    free(one.bytes);
}

/* What is under way in [at, at + size) ends now: two requests on one block have an order. */
static void release_overlapping(off_t at, size_t size)
{
    for (int i = held_count - 1; i >= 0; i--)
        if (held[i].at < at + (off_t)size && at < held[i].at + (off_t)held[i].size)
            release(i);
}

static void release_due(void)
{
    int64_t now = now_ms();
    for (int i = held_count - 1; i >= 0; i--)
        if (held[i].due_ms <= now)
            release(i);
}

/* Milliseconds until the next one is due, -1 where nothing is held. */
static int next_due(void)
{
    int64_t first = INT64_MAX;
    for (int i = 0; i < held_count; i++)
        if (held[i].due_ms < first)
            first = held[i].due_ms;
    if (held_count == 0)
        return -1;
    int64_t left = first - now_ms();
    return left > 0 ? (int)left : 0;
}

static void hold(fuse_req_t request, const char *bytes, size_t size, off_t at)
{
    struct held *one = &held[held_count];
    *one = (struct held){request, at, size, malloc(size), now_ms() + 1 + rand_r(&chance) % hold_ms};
    must(one->bytes != NULL, "held");
    memcpy(one->bytes, bytes, size);
    held_count++;
}

static void write_disk(fuse_req_t request, const char *bytes, size_t size, off_t at)
{
    release_overlapping(at, size);
    if (slow_us > 0)
        usleep((useconds_t)slow_us);
    if (fail_writes > 0 && size >= (size_t)fail_size) {
        fail_writes--;
        fuse_reply_err(request, EIO);
    } else if (hold_ms > 0 && held_count < HELD_MAX && percent(hold_percent)) {
        hold(request, bytes, size, at);
    } else {
        complete(request, bytes, size, at);
    }
}

static int obey(const char *bytes, size_t size)
{
    char line[64] = {0};
    memcpy(line, bytes, size < sizeof line - 1 ? size : sizeof line - 1);
    if (sscanf(line, "hold %d %d", &hold_percent, &hold_ms) == 2 || sscanf(line, "slow %d", &slow_us) == 1
        || sscanf(line, "fail-writes %d %d", &fail_writes, &fail_size) == 2
        || sscanf(line, "fail-reads %d", &fail_reads_percent) == 1)
        return 0;
    return EINVAL;
}

static void do_write(fuse_req_t request, fuse_ino_t node, const char *bytes, size_t size, off_t at, struct fuse_file_info *file)
{
    (void)file;
    if (node == DISK) {
        write_disk(request, bytes, size, at);
        return;
    }
    int error = 0;
    if (node == MARKS)
        note(MARK, 0, bytes, size);
    else
        error = obey(bytes, size);
    if (error)
        fuse_reply_err(request, error);
    else
        fuse_reply_write(request, size);
}

static void do_read(fuse_req_t request, fuse_ino_t node, size_t size, off_t at, struct fuse_file_info *file)
{
    static char bytes[1 << 20];
    (void)file;
    if (node != DISK) {
        fuse_reply_buf(request, NULL, 0);
        return;
    }
    release_overlapping(at, size);
    ssize_t got = percent(fail_reads_percent) ? -1 : pread(image, bytes, size < sizeof bytes ? size : sizeof bytes, at);
    if (got < 0)
        fuse_reply_err(request, EIO);
    else
        fuse_reply_buf(request, bytes, (size_t)got);
}

static void do_fsync(fuse_req_t request, fuse_ino_t node, int data_only, struct fuse_file_info *file)
{
    (void)data_only;
    (void)file;
    if (node == DISK)
        note(FLUSH, 0, NULL, 0);
    fuse_reply_err(request, 0);
}

static struct stat status(fuse_ino_t node)
{
    struct stat found = {.st_ino = node, .st_nlink = 1, .st_mode = node == ROOT ? S_IFDIR | 0700 : S_IFREG | 0600};
    found.st_size = node == DISK ? image_size : 0;
    return found;
}

static void do_lookup(fuse_req_t request, fuse_ino_t parent, const char *name)
{
    for (fuse_ino_t node = DISK; parent == ROOT && node < NODES; node++)
        if (strcmp(name, names[node]) == 0) {
            struct fuse_entry_param found = {.ino = node, .attr = status(node), .attr_timeout = 3600, .entry_timeout = 3600};
            fuse_reply_entry(request, &found);
            return;
        }
    fuse_reply_err(request, ENOENT);
}

static void do_getattr(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *file)
{
    (void)file;
    struct stat found = status(node);
    fuse_reply_attr(request, &found, 3600);
}

static void do_open(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *file)
{
    (void)node;
    file->direct_io = 1;
    fuse_reply_open(request, file);
}

static const struct fuse_lowlevel_ops operations = {
    .lookup = do_lookup, .getattr = do_getattr, .open = do_open, .read = do_read, .write = do_write, .fsync = do_fsync,
};

static void serve(struct fuse_session *session)
{
    struct fuse_buf buffer = {.mem = NULL};
    struct pollfd ready = {.fd = fuse_session_fd(session), .events = POLLIN};
    while (!fuse_session_exited(session)) {
        int some = poll(&ready, 1, next_due());
        release_due();
        if (some <= 0)
            continue;
        int got = fuse_session_receive_buf(session, &buffer);
        if (got == -EINTR || got == -EAGAIN)
            continue;
        if (got <= 0)
            break;
        fuse_session_process_buf(session, &buffer);
    }
    free(buffer.mem);
}

int main(int count, char **given)
{
    if (count != 5) {
        fprintf(stderr, "logdisk IMAGE LOG MOUNTPOINT SEED\n");
        return 64;
    }
    image = open(given[1], O_RDWR | O_CLOEXEC);
    must(image >= 0, given[1]);
    image_size = lseek(image, 0, SEEK_END);
    log_file = fopen(given[2], "we");
    must(log_file != NULL, given[2]);
    setvbuf(log_file, NULL, _IOFBF, 1 << 20);
    chance = (unsigned int)atoi(given[4]);
    char *options[] = {given[0], "-o", "fsname=logdisk", NULL};
    struct fuse_args arguments = FUSE_ARGS_INIT(3, options);
    struct fuse_session *session = fuse_session_new(&arguments, &operations, sizeof operations, NULL);
    if (session == NULL || fuse_set_signal_handlers(session) != 0 || fuse_session_mount(session, given[3]) != 0)
        return 1;
    serve(session);
    while (held_count > 0)
        release(0);
    fuse_session_unmount(session);
    fuse_session_destroy(session);
    must(fclose(log_file) == 0, "log");
    return 0;
}
