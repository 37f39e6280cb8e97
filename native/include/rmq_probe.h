/* THE PROBE: an I/O table for tests. It records every call, forwards it to the table below, and can make chosen calls fail,
 * fall short, wait, or (after a freeze) do nothing while they claim success.
 *
 * A frozen probe is a process that was killed at that call, as far as its directory can tell: what came before is there, what
 * comes after is not, and the program above runs on without noticing, so that it can be closed in order.
 * Fences of the model: map stores are known only where the program announces them (rmq_io.map_store); after a freeze writable
 * maps turn private, so later stores through them stay out of the file. Ring writes are seen when they are submitted.
 * Behind every map lies a page that nobody may touch: who reads on there dies.
 *
 * Thread-safety: every function may be called from any thread at any time. One mutex; never held across a call below.
 * Lifetime: the probe outlives every descriptor and map made through its table. */
#ifndef RMQ_PROBE_H
#define RMQ_PROBE_H
#include "rmq_io.h"

typedef enum rmq_call_kind {
    RMQ_CALL_OPEN, RMQ_CALL_CLOSE, RMQ_CALL_SIZE, RMQ_CALL_MODIFIED_MS, RMQ_CALL_ALONE, RMQ_CALL_NEXT_DATA, RMQ_CALL_PREAD,
    RMQ_CALL_PWRITE,
    RMQ_CALL_MMAP, RMQ_CALL_MUNMAP, RMQ_CALL_RELEASE, RMQ_CALL_MSYNC, RMQ_CALL_FDATASYNC, RMQ_CALL_FSYNC,
    RMQ_CALL_FALLOCATE,
    RMQ_CALL_FTRUNCATE, RMQ_CALL_RENAME, RMQ_CALL_UNLINK, RMQ_CALL_MKDIR, RMQ_CALL_RMDIR, RMQ_CALL_SYNC_DIR, RMQ_CALL_LOCK,
    RMQ_CALL_DIRECT_ALIGN, RMQ_CALL_RING_SETUP, RMQ_CALL_RING_BUFFERS, RMQ_CALL_RING_FILES, RMQ_CALL_RING_FILE,
    RMQ_CALL_RING_SUBMIT, RMQ_CALL_RING_WRITE, RMQ_CALL_RING_SYNC, RMQ_CALL_RING_REAP, RMQ_CALL_MAP_STORE,
    RMQ_CALL_MONO_NS, /* never traced and never spoilt: a place where a gate can stop a thread between its calls */
    RMQ_CALL_MARK, /* no call: a note of the test's, see rmq_probe_mark */
    RMQ_CALL_KINDS
} rmq_call_kind;

/* Sets of kinds: bit k is kind k. MUTATE stands for every call that changes the directory: an open counts only with O_CREAT or
 * O_TRUNC, syncs do not count. */
#define RMQ_CALLS(kind) (UINT64_C(1) << (kind))
#define RMQ_CALLS_MUTATE (UINT64_C(1) << 63)

typedef struct rmq_call {
    rmq_call_kind kind;
    int fd;             /* -1: none */
    int flags;          /* open: its flags; mmap: 1 writable; ring_write: sqe flags; pwrite, ring_write: RMQ_CALL_DSYNC;
                         * ring_setup: IORING_SETUP_* */
    int ignored;        /* 1: came after a freeze; the directory does not know of it */
    int64_t offset;     /* in the file; mark: the note's number */
    int64_t length;     /* bytes asked for; open, mkdir: the mode */
    int64_t result;     /* what the caller got; ring_write, ring_sync: 0, the outcome is in their ring_reap */
    int64_t begin;      /* how many calls the trace held when this one began; ring_reap: the number of the submission */
    int64_t time_ns;    /* monotonic, at the end */
    const char *path;   /* owned by the probe; NULL: none. A file follows its renames */
    const char *target; /* rename: the new name */
    const unsigned char *data; /* written bytes, data_size of them, where they are kept; else NULL */
    int64_t data_size;
} rmq_call;
#define RMQ_CALL_DSYNC 0x10000 /* the write carries RWF_DSYNC */

typedef struct rmq_probe rmq_probe;

/* keep_bytes: keep a copy of everything written. NULL: out of memory. */
rmq_probe *rmq_probe_new(const rmq_io *below, int keep_bytes);
void rmq_probe_free(rmq_probe *p);
const rmq_io *rmq_probe_table(rmq_probe *p);

/* ---- rules. A call of `kinds` whose path contains `path` (NULL: any) counts for the rule; counting starts now, at 1. All
 * return 0 or -ENOMEM, and -EINVAL where nothing could ever match. */
/* The nth such call returns -error without being made (a close is made); sticky: and every later one. */
int rmq_probe_fail(rmq_probe *p, uint64_t kinds, int64_t nth, int error, const char *path, int sticky);
/* The nth such read or write transfers only half (at least one byte). */
int rmq_probe_shorten(rmq_probe *p, uint64_t kinds, int64_t nth, const char *path, int sticky);
/* The nth such call is the last that the directory sees; 0: freeze now. */
int rmq_probe_freeze(rmq_probe *p, uint64_t kinds, int64_t nth, const char *path);
void rmq_probe_clear(rmq_probe *p); /* forgets the rules; a freeze stays */
int rmq_probe_frozen(rmq_probe *p);
int64_t rmq_probe_hits(rmq_probe *p); /* calls that a rule touched so far */

/* ---- holding: such calls wait before they are made, until released (kinds 0). */
int rmq_probe_hold(rmq_probe *p, uint64_t kinds, const char *path);
/* Waits until n calls are held. Returns 0 or -ETIMEDOUT. */
int rmq_probe_wait_held(rmq_probe *p, int n, int64_t timeout_ns);

/* ---- gates: a call that one matches stands still before it is made, until it is let go by its ticket. A ring's completion
 * (RMQ_CALL_RING_REAP) stands after the kernel gave it and before anybody learns of it: its write is still under way. */
typedef struct rmq_standing {
    int64_t ticket; /* from 1 on, in the order of arrival */
    rmq_call_kind kind;
    int thread;       /* gettid() */
    const char *path; /* owned by the probe; NULL: none */
} rmq_standing;
/* One more gate; thread 0: any. 0 or -ENOMEM. */
int rmq_probe_gate(rmq_probe *p, uint64_t kinds, const char *path, int thread);
void rmq_probe_ungate(rmq_probe *p);                                    /* no gate any more; all continue */
int rmq_probe_let(rmq_probe *p, int64_t ticket);                        /* 0; -EINVAL: it stands nowhere */
int rmq_probe_standing(rmq_probe *p, int i, rmq_standing *out);         /* the i-th oldest; -EINVAL: fewer stand */
int rmq_probe_wait_standing(rmq_probe *p, int n, int64_t timeout_ns);   /* until n stand: 0 or -ETIMEDOUT */

/* ---- clock: wall_ms gives ms, then ms + step, then ms + 2 step ...; real != 0: the table below again. */
void rmq_probe_clock(rmq_probe *p, int real, int64_t ms, int64_t step);

/* ---- trace */
/* Traces no more than so many calls and kept bytes: what comes later is made and counted, not traced. */
void rmq_probe_limit(rmq_probe *p, int64_t calls, int64_t bytes);
int rmq_probe_full(rmq_probe *p);                 /* 1: that happened */
int rmq_probe_mark(rmq_probe *p, int64_t number); /* 0 or -ENOMEM */
int64_t rmq_probe_length(rmq_probe *p);           /* -ENOMEM: the trace has a hole */
int rmq_probe_at(rmq_probe *p, int64_t i, rmq_call *out); /* -EINVAL: no such call */
int64_t rmq_probe_count(rmq_probe *p, rmq_call_kind kind); /* calls made so far, also those not traced (empty reaps) */
const char *rmq_probe_kind_name(rmq_call_kind kind);
#endif
