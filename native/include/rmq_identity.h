/* The file that a path led to while its descriptor was open. Code that closes it compares the name with this later. */
#ifndef RMQ_IDENTITY_H
#define RMQ_IDENTITY_H
#include <stdint.h>
#include <sys/stat.h>

typedef struct rmq_identity {
    const char *path; /* the owner's; lives as long as this */
    uint64_t device;
    uint64_t inode; /* 0: of no file */
} rmq_identity;

static inline rmq_identity rmq_identity_of(const char *path, int fd) {
    struct stat s;
    rmq_identity i = {path, 0, 0};
    if (fstat(fd, &s) == 0) {
        i.device = (uint64_t)s.st_dev;
        i.inode = (uint64_t)s.st_ino;
    }
    return i;
}

static inline int rmq_identity_is(const rmq_identity *i, const struct stat *s) {
    return i->inode != 0 && i->device == (uint64_t)s->st_dev && i->inode == (uint64_t)s->st_ino;
}
static inline int rmq_identity_at(const rmq_identity *i, int fd) {
    struct stat s;
    return fstat(fd, &s) == 0 && rmq_identity_is(i, &s);
}
#endif
