/* Listing the queues of a store, many topics at once: what an open would else do name by name in Python.
 *
 *     <base>/<topic>/<queue id>/<20 digits>     each file of one size, without gaps
 *
 * Only what is exactly of this shape is taken. Of a topic that holds anything else, or that cannot be read, nothing is: it is
 * called odd, and the caller looks at it in his own way, and tells what is wrong. So no error comes from here but -ENOMEM.
 * Any thread; changes nothing. Links are not followed. */
#ifndef RMQ_QUEUE_DIRS_H
#define RMQ_QUEUE_DIRS_H
#include <stdint.h>

typedef struct rmq_queue_dir {
    int32_t queue_id;
    int64_t first; /* start of its first file */
    int64_t count; /* files, one behind the other; 0: the directory is empty */
} rmq_queue_dir;

typedef struct rmq_topic_dir {
    const char *name;      /* in: of the directory */
    int odd;               /* out */
    int64_t count;         /* out: queues, in the order of their listing */
    rmq_queue_dir *queues; /* out: to be freed */
} rmq_topic_dir;

/* Fills in what lies in `base` for each of the topics. highest: no file may begin beyond. 0 or -ENOMEM. */
int rmq_queue_dirs_list(const char *base, rmq_topic_dir *topics, int64_t count, int64_t file_size, int64_t highest);

/* Of the files in a queue's directory, which `fd` is open on: where the first one begins, at `begin` or behind it. Other names
 * are passed over. -ENOENT: there is none; -errno. */
int64_t rmq_queue_dir_lowest(int fd, int64_t begin, int64_t file_size);
#endif
