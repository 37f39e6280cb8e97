/* What io.c asks before it changes anything by name. */
#ifndef RMQ_HOME_H
#define RMQ_HOME_H
#include "rmq_io.h"

/* 0, or -ESTALE where a watched path leads to another directory than it did, or to none; ctx: a rmq_home, or NULL. */
int rmq_home_check(const void *ctx);
#endif
