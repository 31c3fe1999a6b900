/* The raw disk: blocks written one behind the other into a file that was written before, each
 * brought to the disk by fdatasync(2), which is what a store does for its publishers.
 *
 * Usage: syncs FILE BYTES SECONDS PAUSE_US. Prints a line: syncs, p50 and p99 in microseconds. The
 * file is made, and removed. With a pause between two of them, whoever syncs has to be given a core
 * again each time, as a store has that waits for messages.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { FILE_BYTES = 16 << 20, SYNCS_MAX = 1 << 20 };

static double times_us[SYNCS_MAX];

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static int order(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

int main(int argc, char **argv) {
    if (argc != 5) return fprintf(stderr, "usage: syncs FILE BYTES SECONDS PAUSE_US\n"), 2;
    size_t bytes = atol(argv[2]);
    unsigned pause_us = atoi(argv[4]);
    if (bytes < 1 || bytes > FILE_BYTES) return 2;
    char *block = malloc(FILE_BYTES);
    memset(block, 'x', FILE_BYTES);
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || unlink(argv[1])) fail(argv[1]);
    if (pwrite(fd, block, FILE_BYTES, 0) != FILE_BYTES || fsync(fd)) fail("write");
    int count = 0;
    size_t offset = 0;
    for (double end = now_us() + atof(argv[3]) * 1e6; now_us() < end && count < SYNCS_MAX;) {
        if (pause_us) usleep(pause_us);
        double since = now_us();
        if (pwrite(fd, block, bytes, offset) != (ssize_t)bytes || fdatasync(fd)) fail("sync");
        times_us[count++] = now_us() - since;
        offset = offset + 2 * bytes > FILE_BYTES ? 0 : offset + bytes;
    }
    qsort(times_us, count, sizeof *times_us, order);
    printf("%d %.0f %.0f\n", count, times_us[count / 2], times_us[count * 99L / 100]);
    return 0;
}
