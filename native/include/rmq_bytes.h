/* Big-endian load and store, as Java's ByteBuffer writes them. Any thread; no alignment needed. */
#ifndef RMQ_BYTES_H
#define RMQ_BYTES_H
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "rmq_store is written for little-endian machines (x86-64, arm64)"
#endif

static inline void rmq_put16(unsigned char *p, int16_t v) {
    uint16_t x = __builtin_bswap16((uint16_t)v);
    memcpy(p, &x, 2);
}
static inline void rmq_put32(unsigned char *p, int32_t v) {
    uint32_t x = __builtin_bswap32((uint32_t)v);
    memcpy(p, &x, 4);
}
static inline void rmq_put64(unsigned char *p, int64_t v) {
    uint64_t x = __builtin_bswap64((uint64_t)v);
    memcpy(p, &x, 8);
}
/* With one store, after all before it: to a kill, and to a process that reads the same map, what it makes valid is whole or not
 * there. On x86 the fence is the compiler's alone. */
static inline void rmq_put64_last(unsigned char *p, int64_t v) {
    __atomic_thread_fence(__ATOMIC_RELEASE);
    rmq_put64(p, v);
}
static inline int16_t rmq_get16(const unsigned char *p) {
    uint16_t x;
    memcpy(&x, p, 2);
    return (int16_t)__builtin_bswap16(x);
}
static inline int32_t rmq_get32(const unsigned char *p) {
    uint32_t x;
    memcpy(&x, p, 4);
    return (int32_t)__builtin_bswap32(x);
}
static inline int64_t rmq_get64(const unsigned char *p) {
    uint64_t x;
    memcpy(&x, p, 8);
    return (int64_t)__builtin_bswap64(x);
}
#endif
