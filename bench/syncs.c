/* The raw disk: blocks written one behind the other into a file that was written before, each
 * brought to the disk by fdatasync(2), which is what a store does for its publishers.
 *
 * Usage: syncs FILE BYTES SECONDS PAUSE_US. Prints a line: syncs, p50 and p99 in microseconds. The
 * file is made, and removed. With a pause between two of them, whoever syncs has to be given a core
 * again each time, as a store has that waits for messages.
 */
#include "common.h"

enum { FILE_BYTES = 16 << 20 };

static struct histogram times;

int main(int argc, char **argv) {
    if (argc != 5) fail("usage: syncs FILE BYTES SECONDS PAUSE_US");
    size_t bytes = atol(argv[2]);
    unsigned pause_us = atoi(argv[4]);
    if (bytes < 1 || bytes > FILE_BYTES) return 2;
    char *block = malloc(FILE_BYTES);
    memset(block, 'x', FILE_BYTES);
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || unlink(argv[1])) fail("%s: %m", argv[1]);
    if (pwrite(fd, block, FILE_BYTES, 0) != FILE_BYTES || fsync(fd)) fail("write: %m");
    size_t offset = 0;
    for (uint64_t end = now_ns() + atof(argv[3]) * SECOND_NS; now_ns() < end;) {
        if (pause_us) usleep(pause_us);
        uint64_t since = now_ns();
        if (pwrite(fd, block, bytes, offset) != (ssize_t)bytes || fdatasync(fd)) fail("sync: %m");
        record(&times, now_ns() - since);
        offset = offset + 2 * bytes > FILE_BYTES ? 0 : offset + bytes;
    }
    printf("%lu %.0f %.0f\n", times.count, quantile_ns(&times, .5) / 1e3,
           quantile_ns(&times, .99) / 1e3);
    return 0;
}
