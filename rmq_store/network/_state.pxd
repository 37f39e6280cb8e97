# What the network thread works with. One Service a front; everything in it but what `tables` is told is the network thread's
# while that runs.
from libc.stdint cimport int32_t, int64_t, uint64_t

from rmq_store.access.reader._request cimport Found, GetCounts
from rmq_store.access.writer._ahead cimport Ahead, Sink
from rmq_store.access.writer._put cimport Replicas
from rmq_store.base.io._sync cimport rmq_mutex
from rmq_store.codec._record cimport RecordArgs
from rmq_store.log.commitlog._log cimport Log
from rmq_store.log.dispatch._dispatch cimport Dispatcher
from rmq_store.network._access cimport Access
from rmq_store.network._net cimport rmq_net, rmq_text
from rmq_store.network._tables cimport Tables
from rmq_store.queues.consumequeue._queue cimport Queue, QueueTable
from rmq_store.queues.consumequeue._structs cimport Hub
from rmq_store.services.consumer._offsets cimport OffsetTable

cdef enum:
    UNIQUE_MAX = 64             # bytes of a UNIQ_KEY that goes into answers
    STAMP_MAX = 1024
    WAITING_MAX = 1 << 17       # sends that wait for the device, or for slaves
    BATCH_MAX = 1024            # messages of a batch; a larger one is Python's
    ID_SIZE = 56                # of the id of a message, at most

    FOUND_MAX = 1000            # messages of one pull
    HELD_MAX = 200_000          # pulls, one with many tags for several
    HELD_BUCKETS = 1 << 14
    HELD_TAG_BUCKETS = 1 << 16
    HELD_SLOTS = 1 << 14        # of a quarter of a second: more than a pull may wait
    CODES_MAX = 64              # tags of one pull
    NOTED = 1 << 12

cdef struct Held
cdef struct HeldTag

cdef struct HeldQueue:
    # A queue for which pulls are held.
    Queue *queue
    HeldQueue *next             # of the bucket
    HeldTag *tags               # all of this queue
    HeldTag *all                # the one of pulls that take every message; NULL: there is none
    HeldQueue *next_due         # of those that got messages nobody has looked at
    int64_t scanned             # queue offset: entries below have woken whom they concern
    int64_t removed             # removed_below of the queue by then
    int64_t tags_count          # without `all`
    bint due

cdef struct HeldPlace:
    # A pull under one of its tags.
    Held *held
    HeldTag *tag
    HeldPlace *next
    HeldPlace *before

cdef struct HeldTag:
    # The pulls of one queue that wait for one tag, or for any message.
    HeldQueue *at
    HeldTag *next               # of the bucket
    HeldTag *next_of_queue
    HeldTag *before_of_queue
    HeldTag *next_waking        # of those of which pulls are to be tried
    HeldPlace *first
    HeldPlace *following        # who is tried next
    int64_t wakes_from          # queue offset of the first message that is to be looked at; -1: nobody is to be tried
    int64_t again_from          # that of one that came since this began; -1: none
    int32_t code
    bint any

cdef struct Pull:
    # A pull that was checked.
    Queue *queue
    rmq_text group              # of a held one: behind it
    int64_t generation          # of the tables by which
    int64_t offset
    int64_t suspend_ns
    uint64_t connection
    int32_t opaque
    int32_t serialize
    int32_t count_max
    int32_t bytes_max
    int32_t codes_count         # 0: all messages
    int32_t codes[CODES_MAX]

cdef struct Held:
    Held *next                  # of those that expire with it, and of the connection
    Held *before
    Held *next_of_connection
    Held *before_of_connection
    HeldQueue *at
    int64_t slot                # number of the quarter of a second in which it expires
    int64_t weight              # in HELD_MAX
    int32_t places_count
    HeldPlace *places           # behind it
    Pull pull

cdef struct Waiting:
    # A send that is stored, and whose answer waits for the device, or for slaves. They are in the order of the log.
    int64_t end
    int64_t offset
    int64_t queue_offset
    int64_t since_ns            # it began to wait: for the device, then for slaves
    int wants                   # WAIT_ bits of a put
    int32_t code                # of its answer, as far as is known
    uint64_t connection
    int32_t opaque
    int32_t serialize
    int32_t queue_id
    int32_t unique_size
    int32_t count               # of a batch's messages; 0: one message, no batch
    int64_t *offsets            # of a batch's messages, malloc's
    char unique[UNIQUE_MAX]

cdef struct Beat:
    # The last heartbeat of a connection that Python has registered.
    uint64_t connection
    uint64_t hash               # of its body
    int64_t generation          # of the tables before Python read it; 0: none has it
    int64_t heard_ns            # atomic: monotonic, when the network thread last heard one; 0: not since Python read one
    int32_t size
    int32_t version             # the client's

cdef struct Service:
    rmq_net *net
    # ---- of the store, which outlives the network thread
    Log *log
    QueueTable *queues
    Dispatcher *dispatcher
    const int *put_checks       # of StorePut: not 0: Python has to look at puts
    const int64_t *body_size_max
    const int64_t *record_size_max
    const int *flags            # of StoreCore: running flags
    const int64_t *memory_bytes     # of StoreGet, as the next ones
    const int64_t *bytes_max_memory
    const int64_t *count_max_memory
    const int64_t *bytes_max_disk
    const int64_t *count_max_disk
    const int64_t *scan_bytes_max
    GetCounts *gets
    int64_t units_per_file
    bint ext_enabled
    RecordArgs plain            # a put's, but for what the request says
    bint compat5
    bint sync_mode
    int waits                   # WAIT_ bits of a put that is told nothing else
    Replicas *replicas          # of StorePut
    bint lights                 # light queues are on: their sends are Python's
    const int64_t *flush_deadline_ns
    # ---- of the broker
    int32_t version             # of answers
    char region[64]
    int32_t region_size
    bint trace_on
    char stamp[STAMP_MAX]       # properties that the broker adds to each message
    int32_t stamp_size
    Tables tables
    Access *access              # NULL: requests need no signature
    # ---- consumers
    OffsetTable *group_offsets  # NULL: they are Python's
    rmq_mutex beats_lock
    Beat *beats                 # by the slots of connections
    # ---- sends
    int64_t patience_ns         # a send that has waited so long for room is answered "busy"
    int64_t turn                # picks queues
    bint dispatch_due           # log_dispatch is to be called
    int64_t commit_asked        # when the committer was last woken for a held pull
    bint nudge_due              # somebody does not wait for the device, and it is synchronous
    Ahead ahead
    Sink sink
    Waiting *waiting            # a ring of waiting_room
    int64_t waiting_first
    int64_t waiting_count
    int64_t waiting_room
    int64_t durable_count       # so many of them, from the first on, wait for slaves alone
    int64_t asked               # the log up to here is on its way to the device and to slaves
    int64_t replicate           # slaves have to acknowledge the log up to here,
    int acks                    # so many of them at most
    # ---- pulls
    bint long_polling
    int64_t short_polling_ns
    Hub *hub                    # of the queues that pulls are held for
    int hub_fd
    HeldQueue *held_queues[HELD_BUCKETS]
    HeldTag *held_tags[HELD_TAG_BUCKETS]
    Held *held_slots[HELD_SLOTS]    # by when they expire
    int64_t held_count
    int64_t held_weight
    int64_t held_of_one         # how many one connection may have
    int64_t held_slot           # number of the first one in which pulls wait,
    int64_t expired_to          # and of the first one whose time is not over
    uint64_t tag_seed           # no peer knows who shares a bucket
    HeldQueue *due_first        # queues to be looked at,
    HeldQueue *due_last
    HeldTag *waking_first       # and tags of which pulls are to be tried
    HeldTag *waking_last
    int64_t waking_turn         # how many of the first one were tried in a row
    int64_t units_left          # of this round: how many entries may be looked at,
    int64_t tries_left          # how many pulls be tried,
    int64_t expired_left        # and how many be tried because their time is over
    int64_t noted[NOTED][2]     # hash of (group, topic, queue), and when its offset was last passed on
    # ---- counts: rmq_count
    int64_t sends, sends_long, batches
    int64_t pulls, pulls_lite
    int64_t tries               # of held pulls
    int64_t queries, updates, heartbeats
    int64_t pulled_messages
    int64_t pulled_bytes
    # ---- of the request at hand
    Found found[FOUND_MAX]
    char properties[1 << 16]    # of the send at hand
    int32_t crcs[BATCH_MAX]
    int64_t offsets[BATCH_MAX]
    char ids[BATCH_MAX * (ID_SIZE + 1)]
