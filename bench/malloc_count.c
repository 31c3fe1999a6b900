/* Counts heap allocations of the program it is preloaded into (LD_PRELOAD).
 *
 * Every call that may obtain memory (malloc, calloc, realloc, the aligned kinds) adds one to a
 * 64-bit counter in the file named by MALLOC_COUNT_FILE, mapped shared, so that the driver reads
 * it at any moment without stopping or signalling the server. Calls go on to glibc's own entry
 * points (__libc_malloc ...), which spares the usual recursion through dlsym.
 *
 * Sees what goes through libc's malloc, as Rust's default allocator does; a program that brings
 * an allocator of its own would leave the counter near 0, and the driver refuses such a run.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static _Atomic uint64_t before_mapping;
static _Atomic uint64_t *counter = &before_mapping;

__attribute__((constructor)) static void map_counter(void) {
    const char *path = getenv("MALLOC_COUNT_FILE");
    int fd = path ? open(path, O_RDWR | O_CREAT, 0600) : -1;
    if (fd < 0) return;
    if (ftruncate(fd, sizeof *counter) == 0) {
        void *map = mmap(NULL, sizeof *counter, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (map != MAP_FAILED) counter = map;
    }
    close(fd);
}

static void count(void) { atomic_fetch_add_explicit(counter, 1, memory_order_relaxed); }

void *malloc(size_t bytes) {
    count();
    return __libc_malloc(bytes);
}

void *calloc(size_t items, size_t bytes) {
    count();
    return __libc_calloc(items, bytes);
}

void *realloc(void *old, size_t bytes) {
    count();
    return __libc_realloc(old, bytes);
}

void *memalign(size_t alignment, size_t bytes) {
    count();
    return __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    count();
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **result, size_t alignment, size_t bytes) {
    count();
    void *memory = __libc_memalign(alignment, bytes);
    if (!memory) return ENOMEM;
    *result = memory;
    return 0;
}
