/* Preloaded: of the allocations that the native code of the package makes, the n-th one fails. Which call is its the return
 * address tells. What failing_malloc_leave_out names is left out: the probe is the test's. */
#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t count, size_t n);
extern void *__libc_realloc(void *at, size_t n);
extern void *__libc_memalign(size_t align, size_t n);

enum { RANGES = 256, LEFT_OUT = 2048 };
static uintptr_t begins[RANGES], ends[RANGES], base, others[LEFT_OUT], other_ends[LEFT_OUT];
static int ranges, left_out;
static long left, seen, hits;

static int collect(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size, (void)unused;
    if (strstr(info->dlpi_name, "/rmq_store/") == NULL) return 0;
    base = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum && ranges < RANGES; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X)) continue;
        begins[ranges] = info->dlpi_addr + part->p_vaddr;
        ends[ranges] = begins[ranges] + part->p_memsz;
        ranges++;
    }
    return 0;
}

/* A function, by its place in the shared object and its size. 0, or -1: there are too many. */
int failing_malloc_leave_out(uintptr_t at, size_t size) {
    if (left_out == LEFT_OUT) return -1;
    others[left_out] = at;
    other_ends[left_out++] = at + size;
    return 0;
}

/* The n-th from now on; 0: none. Every extension is loaded by then. Returns how many extensions there are. */
int failing_malloc_at(long n) {
    __atomic_store_n(&left, 0, __ATOMIC_SEQ_CST);
    ranges = 0;
    dl_iterate_phdr(collect, NULL);
    __atomic_store_n(&seen, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&hits, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&left, n, __ATOMIC_SEQ_CST);
    return ranges;
}
long failing_malloc_hits(void) { return __atomic_load_n(&hits, __ATOMIC_SEQ_CST); }

static int fails(const void *caller) {
    uintptr_t at = (uintptr_t)caller;
    if (__atomic_load_n(&left, __ATOMIC_RELAXED) <= 0) return 0;
    for (int i = 0; i < ranges; i++)
        if (at >= begins[i] && at < ends[i]) {
            for (int j = 0; j < left_out; j++)
                if (at - base >= others[j] && at - base < other_ends[j]) return 0;
            if (__atomic_add_fetch(&seen, 1, __ATOMIC_SEQ_CST) != __atomic_load_n(&left, __ATOMIC_SEQ_CST)) return 0;
            __atomic_add_fetch(&hits, 1, __ATOMIC_SEQ_CST);
            errno = ENOMEM;
            return 1;
        }
    return 0;
}

void *malloc(size_t n) { return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(n); }
void *calloc(size_t count, size_t n) { return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, n); }
void *realloc(void *at, size_t n) { return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(at, n); }
void *aligned_alloc(size_t align, size_t n) { return fails(__builtin_return_address(0)) ? NULL : __libc_memalign(align, n); }
int posix_memalign(void **out, size_t align, size_t n) {
    void *at = fails(__builtin_return_address(0)) ? NULL : __libc_memalign(align, n);
    if (at == NULL) return ENOMEM;
    *out = at;
    return 0;
}
char *strdup(const char *text) {
    size_t n = strlen(text) + 1;
    char *out = fails(__builtin_return_address(0)) ? NULL : __libc_malloc(n);
    return out == NULL ? NULL : memcpy(out, text, n);
}
