/* Where a frame ends, and its header: JSON or binary. Contract in rmq_frame.h. */
#include "rmq_frame.h"
#include <string.h>
#include "rmq_bytes.h"

enum { DEPTH_MAX = 16 };        /* of values under keys that nobody knows */

int32_t rmq_frame_size(const unsigned char *at, size_t n) {
    if (n < 4) return 0;
    int32_t total = rmq_get32(at);
    if (total < 4 || total > RMQ_FRAME_MAX - 4) return -1;
    if (n < 8) return 0;
    uint32_t mark = (uint32_t)rmq_get32(at + 4), header = mark & 0xFFFFFF;
    if (mark >> 24 > RMQ_BINARY || header > (uint32_t)total - 4 || header > RMQ_HEADER_MAX) return -1;
    return 4 + total;
}

int rmq_text_integer(rmq_text t, int64_t *out) {
    uint64_t n = 0;
    int32_t i = 0;
    int minus = t.size > 0 && t.at[0] == '-';
    if (t.at == NULL || t.size - minus < 1 || t.size > 20) return -1;
    for (i = minus; i < t.size; i++) {
        unsigned digit = (unsigned)(unsigned char)t.at[i] - '0';
        if (digit > 9 || n > ((uint64_t)INT64_MAX - digit) / 10) return -1;
        n = n * 10 + digit;
    }
    *out = minus ? -(int64_t)n : (int64_t)n;
    return 0;
}

/* ---- JSON. A cursor that never passes `end`; every function returns -1 on what is no JSON. */

typedef struct json {
    const unsigned char *p, *end;
    rmq_frame *f;
} json;

static void blanks(json *j) {
    while (j->p < j->end && (*j->p == ' ' || *j->p == '\t' || *j->p == '\n' || *j->p == '\r')) j->p++;
}

static int next_is(json *j, unsigned char c) {
    blanks(j);
    if (j->p == j->end || *j->p != c) return 0;
    j->p++;
    return 1;
}

/* How many bytes the UTF-8 character at p takes; 0: none. */
static int utf8_size(const unsigned char *p, const unsigned char *end) {
    unsigned c = p[0], low = 0x80, high = 0xBF;
    int more = c >= 0xC2 && c <= 0xDF ? 1 : (c & 0xF0) == 0xE0 ? 2 : c >= 0xF0 && c <= 0xF4 ? 3 : 0;
    if (more == 0 || end - p <= more) return 0;
    if (c == 0xE0) low = 0xA0;
    if (c == 0xED) high = 0x9F;         /* surrogates */
    if (c == 0xF0) low = 0x90;
    if (c == 0xF4) high = 0x8F;
    if (p[1] < low || p[1] > high) return 0;
    for (int i = 2; i <= more; i++)
        if ((p[i] & 0xC0) != 0x80) return 0;
    return more + 1;
}

static int is_digit(unsigned char c) { return c >= '0' && c <= '9'; }

static int hex4(const unsigned char *p, const unsigned char *end, unsigned *out) {
    unsigned n = 0;
    if (end - p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        unsigned c = p[i] | 0x20u, digit;
        if (is_digit(p[i])) digit = p[i] - '0';
        else if (c >= 'a' && c <= 'f') digit = c - 'a' + 10;
        else return -1;
        n = n << 4 | digit;
    }
    *out = n;
    return 0;
}

static char *utf8_put(char *to, unsigned c) {
    if (c < 0x80) {
        *to++ = (char)c;
        return to;
    }
    if (c < 0x800) {
        *to++ = (char)(0xC0 | c >> 6);
    } else if (c < 0x10000) {
        *to++ = (char)(0xE0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 0x3F));
    } else {
        *to++ = (char)(0xF0 | c >> 18);
        *to++ = (char)(0x80 | (c >> 12 & 0x3F));
        *to++ = (char)(0x80 | (c >> 6 & 0x3F));
    }
    *to++ = (char)(0x80 | (c & 0x3F));
    return to;
}

/* Behind a backslash. Half of a pair alone is a question mark, as when Java makes bytes of it. */
static int escape(json *j, char **to) {
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    unsigned c, low;
    if (j->p == j->end) return -1;
    unsigned char kind = *j->p++;
    const char *found = kind ? strchr(from, kind) : NULL;
    if (found) {
        *(*to)++ = into[found - from];
        return 0;
    }
    if (kind != 'u' || hex4(j->p, j->end, &c) < 0) return -1;
    j->p += 4;
    if (c >= 0xD800 && c <= 0xDBFF && j->end - j->p >= 6 && j->p[0] == '\\' && j->p[1] == 'u'
        && hex4(j->p + 2, j->end, &low) == 0 && low >= 0xDC00 && low <= 0xDFFF) {
        j->p += 6;
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    }
    *to = utf8_put(*to, c >= 0xD800 && c <= 0xDFFF ? '?' : c);
    return 0;
}

/* A string, behind its first quote. Where it has escapes it is copied: what they stand for is never longer than they are, so
 * that the scratch, as long as the longest header, has room. */
static int string(json *j, rmq_text *out) {
    const unsigned char *begin = j->p;
    char *to = NULL, *copy = j->f->scratch + j->f->used;
    int n;
    for (;;) {
        const unsigned char *from = j->p;
        while (j->p < j->end && *j->p >= 0x20 && *j->p < 0x80 && *j->p != '"' && *j->p != '\\') j->p++;
        if (to && j->p > from) {
            memcpy(to, from, (size_t)(j->p - from));
            to += j->p - from;
        }
        if (j->p == j->end || *j->p < 0x20) return -1;
        if (*j->p == '"') break;
        if (*j->p == '\\') {
            if (!to) {
                memcpy(copy, begin, (size_t)(j->p - begin));
                to = copy + (j->p - begin);
            }
            j->p++;
            if (escape(j, &to) < 0) return -1;
        } else {
            if ((n = utf8_size(j->p, j->end)) == 0) return -1;
            if (to) {
                memcpy(to, j->p, (size_t)n);
                to += n;
            }
            j->p += n;
        }
    }
    out->at = to ? copy : (const char *)begin;
    out->size = (int32_t)(to ? to - copy : j->p - begin);
    if (to) j->f->used += out->size;
    j->p++;
    return 0;
}

/* A number as it stands. */
static int number(json *j, rmq_text *out) {
    const unsigned char *begin = j->p, *digits;
    if (j->p < j->end && *j->p == '-') j->p++;
    for (digits = j->p; j->p < j->end && is_digit(*j->p); j->p++) {}
    if (j->p == digits || (*digits == '0' && j->p - digits > 1)) return -1;
    if (j->p < j->end && *j->p == '.') {
        for (digits = ++j->p; j->p < j->end && is_digit(*j->p); j->p++) {}
        if (j->p == digits) return -1;
    }
    if (j->p < j->end && (*j->p | 0x20) == 'e') {
        j->p++;
        if (j->p < j->end && (*j->p == '+' || *j->p == '-')) j->p++;
        for (digits = j->p; j->p < j->end && is_digit(*j->p); j->p++) {}
        if (j->p == digits) return -1;
    }
    out->at = (const char *)begin;
    out->size = (int32_t)(j->p - begin);
    return 0;
}

static int word(json *j, const char *text, size_t n, rmq_text *out) {
    if ((size_t)(j->end - j->p) < n || memcmp(j->p, text, n) != 0) return -1;
    out->at = (const char *)j->p;
    out->size = (int32_t)n;
    j->p += n;
    return 0;
}

/* A value that is no object and no list; null: out->at is NULL. */
static int scalar(json *j, rmq_text *out) {
    blanks(j);
    if (j->p == j->end) return -1;
    switch (*j->p) {
    case '"': j->p++; return string(j, out);
    case 't': return word(j, "true", 4, out);
    case 'f': return word(j, "false", 5, out);
    case 'n':
        if (word(j, "null", 4, out) < 0) return -1;
        out->at = NULL;
        return 0;
    default: return number(j, out);
    }
}

/* A value that nobody asks for. */
static int skip(json *j, int depth) {
    rmq_text unused;
    blanks(j);
    if (j->p == j->end) return -1;
    unsigned char open = *j->p, close = open == '{' ? '}' : ']';
    if (open != '{' && open != '[') return scalar(j, &unused);
    if (depth == DEPTH_MAX) return -1;
    j->p++;
    if (next_is(j, close)) return 0;
    do {
        if (open == '{' && (!next_is(j, '"') || string(j, &unused) < 0 || !next_is(j, ':'))) return -1;
        if (skip(j, depth + 1) < 0) return -1;
    } while (next_is(j, ','));
    return next_is(j, close) ? 0 : -1;
}

static int ext(json *j) {
    rmq_field field;
    rmq_text none;
    j->f->fields = 0;
    blanks(j);
    if (j->p < j->end && *j->p == 'n') return scalar(j, &none);
    if (!next_is(j, '{')) return -1;
    if (next_is(j, '}')) return 0;
    do {
        if (!next_is(j, '"') || string(j, &field.name) < 0 || !next_is(j, ':') || scalar(j, &field.value) < 0) return -1;
        if (field.value.at == NULL) continue;
        if (j->f->fields == RMQ_EXT_MAX) return -1;
        j->f->field[j->f->fields++] = field;
    } while (next_is(j, ','));
    return next_is(j, '}') ? 0 : -1;
}

static int integer(json *j, int32_t *out) {
    rmq_text t;
    int64_t n;
    blanks(j);
    if (j->p == j->end || *j->p == '"' || scalar(j, &t) < 0 || rmq_text_integer(t, &n) < 0 || n < INT32_MIN || n > INT32_MAX)
        return -1;
    *out = (int32_t)n;
    return 0;
}

static int json_decode(rmq_frame *f, const unsigned char *at, int32_t size) {
    json j = {at, at + size, f};
    rmq_text name;
    int rc, coded = 0;
    if (!next_is(&j, '{')) return -1;
    do {
        if (!next_is(&j, '"') || string(&j, &name) < 0 || !next_is(&j, ':')) return -1;
        if (rmq_text_is(name, "code", 4)) {
            rc = integer(&j, &f->code);
            coded = 1;
        } else if (rmq_text_is(name, "extFields", 9)) {
            rc = ext(&j);
        } else if (rmq_text_is(name, "flag", 4)) {
            rc = integer(&j, &f->flag);
        } else if (rmq_text_is(name, "opaque", 6)) {
            rc = integer(&j, &f->opaque);
        } else if (rmq_text_is(name, "version", 7)) {
            rc = integer(&j, &f->version);
        } else {
            rc = skip(&j, 0);
        }
        if (rc < 0) return -1;
    } while (next_is(&j, ','));
    if (!next_is(&j, '}') || !coded) return -1;
    blanks(&j);
    return j.p == j.end ? 0 : -1;
}

/* ---- the binary header */

static int sized(const unsigned char **p, const unsigned char *end, int width, rmq_text *out) {
    if (end - *p < width) return -1;
    int32_t n = width == 2 ? rmq_get16(*p) : rmq_get32(*p);
    if (n < 0 || n > end - *p - width) return -1;
    out->at = (const char *)*p + width;
    out->size = n;
    *p += width + n;
    return 0;
}

static int utf8_all(rmq_text t) {
    const unsigned char *p = (const unsigned char *)t.at, *end = p + t.size;
    while (p < end) {
        int n = *p < 0x80 ? 1 : utf8_size(p, end);
        if (n == 0) return 0;
        p += n;
    }
    return 1;
}

static int binary_decode(rmq_frame *f, const unsigned char *at, int32_t size) {
    const unsigned char *p = at + 13, *end = at + size;
    rmq_text remark, map;
    if (size < 13) return -1;
    f->code = rmq_get16(at);
    f->version = rmq_get16(at + 3);
    f->opaque = rmq_get32(at + 5);
    f->flag = rmq_get32(at + 9);
    if (sized(&p, end, 4, &remark) < 0 || sized(&p, end, 4, &map) < 0 || p != end || !utf8_all(remark)) return -1;
    p = (const unsigned char *)map.at;
    while (p < end) {
        rmq_field *field = &f->field[f->fields];
        if (f->fields == RMQ_EXT_MAX || sized(&p, end, 2, &field->name) < 0 || sized(&p, end, 4, &field->value) < 0
            || !utf8_all(field->name) || !utf8_all(field->value))
            return -1;
        f->fields++;
    }
    return 0;
}

int rmq_frame_decode(const unsigned char *at, int32_t size, rmq_frame *f) {
    int32_t header = (int32_t)((uint32_t)rmq_get32(at + 4) & 0xFFFFFF);
    f->start = at;
    f->size = size;
    f->body = at + 8 + header;
    f->body_size = size - 8 - header;
    f->serialize = at[4];
    f->code = f->flag = f->opaque = f->version = f->fields = f->used = 0;
    return (f->serialize == RMQ_BINARY ? binary_decode : json_decode)(f, at + 8, header);
}
