/* What the programs in C share. None of it is shared with what they measure.
 *
 * Errors end the program with a line on stderr; `%m` is the text of `errno`. Latencies are counted
 * in buckets of less than a hundredth of their value.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SUB_BUCKETS_BITS = 7, SUB_BUCKETS = 1 << SUB_BUCKETS_BITS, BUCKETS = 64 * SUB_BUCKETS };
static const uint64_t SECOND_NS = 1000 * 1000 * 1000;

struct histogram {
    uint64_t count, max_ns, buckets[BUCKETS];
};

__attribute__((format(printf, 1, 2), noreturn)) static inline void fail(const char *format, ...) {
    va_list arguments;
    fflush(stdout);
    dprintf(STDERR_FILENO, "%s: ", program_invocation_short_name);
    va_start(arguments, format);
    vdprintf(STDERR_FILENO, format, arguments);
    va_end(arguments);
    dprintf(STDERR_FILENO, "\n");
    exit(1);
}

static inline uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * SECOND_NS + now.tv_nsec;
}

static inline struct timespec duration(uint64_t ns) {
    return (struct timespec){.tv_sec = ns / SECOND_NS, .tv_nsec = ns % SECOND_NS};
}

static inline void nap(uint64_t ns) {
    struct timespec pause = duration(ns);
    nanosleep(&pause, NULL);
}

/* Each power of two has SUB_BUCKETS buckets; below that number each value has its own. */
static inline void record(struct histogram *histogram, uint64_t ns) {
    int shift = ns < SUB_BUCKETS ? -1 : 63 - __builtin_clzll(ns) - SUB_BUCKETS_BITS;
    histogram->buckets[shift < 0 ? ns : shift * SUB_BUCKETS + (ns >> shift)]++;
    histogram->count++;
    if (ns > histogram->max_ns) histogram->max_ns = ns;
}

/* The middle of the bucket in which so great a share of the values has been seen. */
static inline uint64_t quantile_ns(const struct histogram *histogram, double share) {
    uint64_t seen = 0, wanted = (uint64_t)(share * histogram->count);
    for (int bucket = 0; bucket < BUCKETS; bucket++) {
        seen += histogram->buckets[bucket];
        if (seen <= wanted) continue;
        int shift = bucket / SUB_BUCKETS - 1;
        if (shift < 0) return bucket;
        return ((2 * (uint64_t)(SUB_BUCKETS + bucket % SUB_BUCKETS) + 1) << shift) / 2;
    }
    return histogram->max_ns;
}

static inline struct sockaddr_in loopback(int port) {
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static inline int connect_to(int port) {
    struct sockaddr_in address = loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        fail("connect: %m");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    return fd;
}

static inline int listen_on(const char *port) {
    struct sockaddr_in address = loopback(atoi(port));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0) fail("socket: %m");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    /* Accepted sockets inherit it. */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0) fail("bind: %m");
    if (listen(fd, 4096) < 0) fail("listen: %m");
    return fd;
}

/* The next connection, or -1 if there is none. */
static inline int accept_next(int listener, int flags) {
    int fd = accept4(listener, NULL, NULL, flags);
    if (fd < 0 && errno != EAGAIN) perror("accept4");
    return fd;
}

/* A socket of 127.0.0.0/8 that has its port from the kernel once it is connected. */
static inline int socket_from(uint32_t address, int flags) {
    struct sockaddr_in from = loopback(0);
    from.sin_addr.s_addr = htonl(address);
    int fd = socket(AF_INET, SOCK_STREAM | flags, 0);
    if (fd < 0) fail("socket: %m");
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &(int){1}, sizeof(int));
    if (bind(fd, (struct sockaddr *)&from, sizeof from) < 0) fail("bind: %m");
    return fd;
}

static inline int new_epoll(void) {
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0) fail("epoll: %m");
    return epoll;
}

/* The events of `fd` come with `index`. */
static inline void watch(int epoll, int fd, uint32_t events, uint32_t index) {
    struct epoll_event event = {.events = events, .data.u32 = index};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0) fail("epoll_ctl: %m");
}

/* How many events there are; -1 is to wait for ever. */
static inline int await(int epoll, struct epoll_event *events, int most, int wait_ms) {
    int ready = epoll_wait(epoll, events, most, wait_ms);
    if (ready < 0 && errno != EINTR) fail("epoll_wait: %m");
    return ready;
}

/* What is done with an event or a frame. */
typedef void taker(void *reader, const char *event, size_t length);

/* Each of these returns how many bytes were whole events. Ends of chunks stand before an event if a
 * server chunks its stream; their sizes are taken for one more line of it. */
static inline size_t take_sse(const char *bytes, size_t length, taker *take, void *reader) {
    for (size_t at = 0;;) {
        while (at < length && (bytes[at] == '\r' || bytes[at] == '\n')) at++;
        const char *blank = memmem(bytes + at, length - at, "\n\n", 2);
        if (!blank) return at;
        take(reader, bytes + at, blank + 2 - bytes - at);
        at = blank + 2 - bytes;
    }
}

/* Answers pings on `fd`: zero is a mask too, and leaves the payload as it is. */
static inline size_t take_websocket(int fd, const char *bytes, size_t length, taker *take,
                                    void *reader) {
    size_t at = 0;
    while (length - at >= 2) {
        const uint8_t *frame = (const uint8_t *)bytes + at;
        size_t head = 2, payload = frame[1] & 127;
        if (payload > 125) {
            size_t wide = payload == 126 ? 2 : 8;
            head += wide;
            if (length - at < head) break;
            for (payload = 0; wide > 0; wide--) payload = payload << 8 | frame[head - wide];
        }
        if (payload > length - at - head) break;
        int opcode = frame[0] & 15;
        if (opcode == 1 || opcode == 2) take(reader, bytes + at + head, payload);
        if (opcode == 9 && payload <= 125) {
            uint8_t pong[6 + 125] = {0x8a, 0x80 | payload};
            memcpy(pong + 6, frame + head, payload);
            send(fd, pong, 6 + payload, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        at += head + payload;
    }
    return at;
}

/* Reads a whole file of less than `most` bytes; returns its length. */
static inline size_t read_file(const char *path, char *bytes, size_t most) {
    FILE *file = fopen(path, "rb");
    if (!file) fail("%s: %m", path);
    size_t length = fread(bytes, 1, most, file);
    if (length == most) fail("%s: too long", path);
    fclose(file);
    return length;
}
