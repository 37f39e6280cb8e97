/* One io_uring and the writes that are under way on it: what the flush back end "io_uring" is made of.
 *
 * A flight is one write, or one sync. Flights are kept in the order in which they were begun and come back in that order, so
 * that whoever takes them moves its positions over the contiguous complete prefix only. What the kernel may answer besides
 * "all written" is settled in here: a short write continues from its last whole block; EINTR and EAGAIN go again, a bounded
 * number of times; a sync that was cancelled because the write before it fell short runs once that write is complete. Any
 * other answer is the ring's error, which stays. A sync that ran and failed is never tried again.
 *
 * Chains use IOSQE_IO_LINK: a failed or short write then cancels the sync behind it. (With HARDLINK or DRAIN the sync would
 * report success after a failed write.) A chain of which the kernel took only the write at first is none: its sync runs once
 * more when the write is complete. Under SQPOLL a sync is given only then.
 *
 * Thread-safety: none. rmq_ring_new, _pool and _free may be called by the thread that opens and closes, everything else by the
 * one thread that called rmq_ring_enable. Every system call but dontfork, enable and letting go of registered files goes
 * through the I/O table. */
#ifndef RMQ_RING_H
#define RMQ_RING_H
#include "rmq_io.h"

typedef struct rmq_ring rmq_ring;

enum { RMQ_RING_SQPOLL = 1, RMQ_RING_IOPOLL = 2 };  /* wishes */
enum { RMQ_RING_SLOTS = 2 };                        /* registered files at a time; the kernel keeps a deleted one's space */
enum { RMQ_RING_TRY_S = 5 };                         /* what a try waits for the kernel's answer */
enum { RMQ_RING_BLOCK = 4096 };                     /* direct writes begin and end at multiples of it */

typedef struct rmq_ring_facts {
    unsigned depth;         /* flights at a time */
    unsigned setup_flags;   /* IORING_SETUP_*: what the kernel took */
    unsigned features;      /* IORING_FEAT_* */
    int buffers_error;      /* 0: the pool's memory is registered; else why not (-ENOMEM: memlock), 1: not tried */
    int files_error;        /* the same for files */
    int64_t writes, syncs;  /* entries submitted, those that went again included */
    int64_t again;          /* of these, the rest of a short write, EINTR, EAGAIN, a sync that was cancelled, or early */
    int64_t submits;        /* calls of ring_submit */
} rmq_ring_facts;

typedef struct rmq_flight {
    int64_t end;            /* the caller's: log position that is reached when this one and all before are complete */
    void *owner;            /* the caller's */
    const unsigned char *from;
    size_t left;
    int64_t offset;         /* in the file */
    int fd;
    int slot;               /* registered file, -1 none */
    uint64_t entry;         /* the number of its last entry, from 1 */
    int kind, state, chain, durable, tries;
    int early;              /* of a sync: it may have run before its write had ended; it goes once more */
} rmq_flight;

/* A ring for `depth` flights (1 to 256), disabled until rmq_ring_enable. Of the set-up flags that spare interrupts and locks
 * the best that this kernel takes are used. wishes: RMQ_RING_SQPOLL | RMQ_RING_IOPOLL, refused if the kernel refuses them.
 * entries: 0, or a smaller number of submission entries (and of completion entries) for tests. Returns 0 or -errno. */
int rmq_ring_new(const rmq_io *io, unsigned depth, unsigned wishes, unsigned entries, rmq_ring **out);
/* In the thread that will use the ring. Returns 0 or -errno. */
int rmq_ring_enable(rmq_ring *r);
/* Registers [base, base + size) and [second, second + second_size) as fixed buffers (second may be NULL), and the file table.
 * A refusal is no error: writes then name their memory and files each time; see facts. */
void rmq_ring_pool(rmq_ring *r, void *base, size_t size, void *second, size_t second_size);
/* Waits for nothing: rmq_ring_drain first. */
void rmq_ring_free(rmq_ring *r);
const rmq_ring_facts *rmq_ring_facts_of(const rmq_ring *r);

/* Makes the registered file `slot` (0 to RMQ_RING_SLOTS - 1) stand for fd. Returns 0, or -errno (-EBUSY: a flight uses the
 * slot): then write with slot -1. */
int rmq_ring_file(rmq_ring *r, int slot, int fd);
unsigned rmq_ring_room(const rmq_ring *r);      /* flights that may still begin */
unsigned rmq_ring_count(const rmq_ring *r);     /* flights begun and not taken */
/* The newest flight not taken, NULL: none. Its `end` may be moved up: what lies behind it needs no write. */
rmq_flight *rmq_ring_newest(rmq_ring *r);

/* Begins a write of n bytes at `offset`; `from` stays as it is until the flight is taken. durable: RWF_DSYNC. link: the next
 * call is rmq_ring_sync, chained behind it. block: what a short write continues from (RMQ_RING_BLOCK direct, 1 buffered).
 * Nothing reaches the kernel before rmq_ring_turn. Needs room (a chain: for two). */
void rmq_ring_write(rmq_ring *r, int slot, int fd, const void *from, size_t n, int64_t offset, int64_t end, void *owner,
                    int durable, int link);
void rmq_ring_sync(rmq_ring *r, int slot, int fd, int64_t end, void *owner);
/* Submits what has begun, waits for `wait` completions (0: none), takes note of all that are there. Returns 0 or the ring's
 * error, -errno. *in_sync: 1 if it was a sync's. */
int rmq_ring_turn(rmq_ring *r, unsigned wait, int *in_sync);
/* The oldest flight, if it is complete: 1 and a copy of it; else 0. */
int rmq_ring_take(rmq_ring *r, rmq_flight *out);
/* After an error, or before the end: waits until the kernel uses no memory of a flight any more, for at most about a second
 * if it does not answer, and lets go of registered files. Returns the number of flights still in the kernel's hands. */
unsigned rmq_ring_drain(rmq_ring *r);
/* The oldest flight whatever became of it: 1, or 0 if there is none. For giving owners back after a drain. */
int rmq_ring_abandon(rmq_ring *r, rmq_flight *out);

/* Behind a drain and with no flight left: the error is forgotten, and the ring begins again. 0; -EBUSY: the kernel has, or may
 * still get, entries of before, or a sync failed, whose error is the ring's then. */
int rmq_ring_again(rmq_ring *r);

/* What a ring with these wishes and `memory` registered gets of the kernel: 0 or -errno. */
int rmq_ring_look(const rmq_io *io, unsigned wishes, void *memory, size_t size, rmq_ring_facts *out);
/* On a ring of its own, one write of a block out of `memory` to the beginning of fd, and, if synced is not NULL, a linked sync.
 * 0 or -errno of the ring or the write; *synced: 0 or -errno of the sync. -ETIMEDOUT: the kernel has not answered within
 * RMQ_RING_TRY_S; a write may still read `memory`, which the kernel holds as long as it does. */
int rmq_ring_try(const rmq_io *io, unsigned wishes, void *memory, size_t size, int fd, int durable, int *synced);

/* pwrite of whole blocks (or RWF_DSYNC with durable != 0) for a direct descriptor: a short write continues from its last whole
 * block, EINTR goes again. 0 or -errno. */
int rmq_pwrite_blocks(const rmq_io *io, int fd, const void *from, size_t n, int64_t offset, size_t block, int durable);
#endif
