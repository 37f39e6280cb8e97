/* SHA-1 and HMAC-SHA1. Contract in rmq_sha1.h. */
#include "rmq_sha1.h"
#include <string.h>
#include "rmq_bytes.h"

static uint32_t turned(uint32_t x, int n) { return x << n | x >> (32 - n); }

static void blocks_portable(uint32_t state[5], const unsigned char *at, size_t count) {
    static const uint32_t constants[4] = {0x5A827999, 0x6ED9EBA1, 0x8F1BBCDC, 0xCA62C1D6};
    for (; count > 0; count--, at += RMQ_SHA1_BLOCK) {
        uint32_t w[80], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f;
        for (int i = 0; i < 16; i++) w[i] = (uint32_t)rmq_get32(at + 4 * i);
        for (int i = 16; i < 80; i++) w[i] = turned(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
        for (int i = 0; i < 80; i++) {
            if (i < 20) f = d ^ (b & (c ^ d));
            else if (i < 40 || i >= 60) f = b ^ c ^ d;
            else f = (b & c) | (d & (b | c));
            f += turned(a, 5) + e + constants[i / 20] + w[i];
            e = d;
            d = c;
            c = turned(b, 30);
            b = a;
            a = f;
        }
        state[0] += a;
        state[1] += b;
        state[2] += c;
        state[3] += d;
        state[4] += e;
    }
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

int rmq_sha1_fast(void) {
    unsigned a, b, c, d, ssse3 = 1u << 9, sse41 = 1u << 19, sha = 1u << 29;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & ssse3) || !(c & sse41)) return 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & sha) ? 1 : 0;
}

/* Four rounds: w has their words, made of the sixteen before them; e the fifth variable. */
#define ROUNDS(i)                                                                                                    \
    w[i & 3] = i < 4 ? _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(at + 16 * (i & 3))), order)  \
                     : _mm_sha1msg2_epu32(_mm_xor_si128(_mm_sha1msg1_epu32(w[i & 3], w[(i + 1) & 3]), w[(i + 2) & 3]), \
                                          w[(i + 3) & 3]);                                                           \
    e = i == 0 ? _mm_add_epi32(e, w[0]) : _mm_sha1nexte_epu32(before, w[i & 3]);                                     \
    before = abcd;                                                                                                   \
    abcd = _mm_sha1rnds4_epu32(abcd, e, i / 5);

__attribute__((target("sha,sse4.1"))) static void blocks_fast(uint32_t state[5], const unsigned char *at, size_t count) {
    const __m128i order = _mm_set_epi64x(0x0001020304050607, 0x08090A0B0C0D0E0F);
    __m128i abcd = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)state), 0x1B);
    __m128i e = _mm_set_epi32((int)state[4], 0, 0, 0), w[4] = {order, order, order, order}, before = abcd;
    for (; count > 0; count--, at += RMQ_SHA1_BLOCK) {
        __m128i abcd_begin = abcd, e_begin = e;
        ROUNDS(0) ROUNDS(1) ROUNDS(2) ROUNDS(3) ROUNDS(4) ROUNDS(5) ROUNDS(6) ROUNDS(7) ROUNDS(8) ROUNDS(9)
        ROUNDS(10) ROUNDS(11) ROUNDS(12) ROUNDS(13) ROUNDS(14) ROUNDS(15) ROUNDS(16) ROUNDS(17) ROUNDS(18) ROUNDS(19)
        e = _mm_sha1nexte_epu32(before, e_begin);
        abcd = _mm_add_epi32(abcd, abcd_begin);
    }
    _mm_storeu_si128((__m128i *)(void *)state, _mm_shuffle_epi32(abcd, 0x1B));
    state[4] = (uint32_t)_mm_extract_epi32(e, 3);
}
#else
int rmq_sha1_fast(void) { return 0; }
#define blocks_fast blocks_portable
#endif

static void blocks(rmq_sha1 *s, const unsigned char *at, size_t count) {
    (s->fast ? blocks_fast : blocks_portable)(s->state, at, count);
}

void rmq_sha1_begin(rmq_sha1 *s, int fast) {
    static const uint32_t first[5] = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0};
    memcpy(s->state, first, sizeof first);
    s->fast = fast;
    s->size = 0;
}

void rmq_sha1_add(rmq_sha1 *s, const void *data, size_t n) {
    const unsigned char *at = data;
    size_t used = (size_t)(s->size % RMQ_SHA1_BLOCK), room = RMQ_SHA1_BLOCK - used;
    if (n == 0) return;
    s->size += n;
    if (used > 0) {
        if (n < room) room = n;
        memcpy(s->block + used, at, room);
        at += room;
        n -= room;
        if (used + room < RMQ_SHA1_BLOCK) return;
        blocks(s, s->block, 1);
    }
    if (n >= RMQ_SHA1_BLOCK) blocks(s, at, n / RMQ_SHA1_BLOCK);
    memcpy(s->block, at + n - n % RMQ_SHA1_BLOCK, n % RMQ_SHA1_BLOCK);
}

void rmq_sha1_end(rmq_sha1 *s, unsigned char out[RMQ_SHA1_SIZE]) {
    static const unsigned char padding[RMQ_SHA1_BLOCK] = {0x80};
    unsigned char bits[8];
    rmq_put64(bits, (int64_t)(s->size * 8));
    rmq_sha1_add(s, padding, 1 + (size_t)(119 - s->size % RMQ_SHA1_BLOCK) % RMQ_SHA1_BLOCK);
    rmq_sha1_add(s, bits, sizeof bits);
    for (int i = 0; i < 5; i++) rmq_put32(out + 4 * i, (int32_t)s->state[i]);
}

/* ---- HMAC */

void rmq_hmac_key_make(rmq_hmac_key *key, const void *secret, size_t n, int fast) {
    unsigned char padded[RMQ_SHA1_BLOCK] = {0};
    rmq_sha1 s;
    rmq_sha1_begin(&s, fast);
    if (n > RMQ_SHA1_BLOCK) {
        rmq_sha1_add(&s, secret, n);
        rmq_sha1_end(&s, padded);
        rmq_sha1_begin(&s, fast);
    } else if (n > 0) {
        memcpy(padded, secret, n);
    }
    key->fast = fast;
    for (int i = 0; i < RMQ_SHA1_BLOCK; i++) padded[i] ^= 0x36;
    rmq_sha1_add(&s, padded, sizeof padded);
    memcpy(key->inner, s.state, sizeof key->inner);
    for (int i = 0; i < RMQ_SHA1_BLOCK; i++) padded[i] ^= 0x36 ^ 0x5C;
    rmq_sha1_begin(&s, fast);
    rmq_sha1_add(&s, padded, sizeof padded);
    memcpy(key->outer, s.state, sizeof key->outer);
}

static void continue_from(rmq_sha1 *s, const uint32_t state[5], int fast) {
    memcpy(s->state, state, sizeof s->state);
    s->fast = fast;
    s->size = RMQ_SHA1_BLOCK;
}

void rmq_hmac_begin(rmq_sha1 *s, const rmq_hmac_key *key) { continue_from(s, key->inner, key->fast); }

void rmq_hmac_end(rmq_sha1 *s, const rmq_hmac_key *key, unsigned char out[RMQ_SHA1_SIZE]) {
    rmq_sha1_end(s, out);
    continue_from(s, key->outer, key->fast);
    rmq_sha1_add(s, out, RMQ_SHA1_SIZE);
    rmq_sha1_end(s, out);
}

/* ---- signatures as text */

void rmq_sha1_base64(const unsigned char digest[RMQ_SHA1_SIZE], char out[RMQ_SHA1_BASE64]) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (int i = 0, to = 0; i < RMQ_SHA1_SIZE; i += 3) {
        unsigned third = i + 2 < RMQ_SHA1_SIZE ? digest[i + 2] : 0;
        unsigned n = (unsigned)digest[i] << 16 | (unsigned)digest[i + 1] << 8 | third;
        for (int shift = 18; shift >= 0; shift -= 6) out[to++] = letters[n >> shift & 63];
    }
    out[RMQ_SHA1_BASE64 - 1] = '=';
}

int rmq_bytes_same(const void *a, const void *b, size_t n) {
    const unsigned char *x = a, *y = b;
    unsigned char differ = 0;
    for (size_t i = 0; i < n; i++) differ |= (unsigned char)(x[i] ^ y[i]);
    return differ == 0;
}
