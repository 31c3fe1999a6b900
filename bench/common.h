/* What the programs in C share. None of it is shared with what they measure.
 *
 * Errors end the program with a line on stderr; `%m` is the text of `errno`.
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

static const uint64_t SECOND_NS = 1000 * 1000 * 1000;

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

static inline void nap(uint64_t ns) {
    nanosleep(&(struct timespec){.tv_sec = ns / SECOND_NS, .tv_nsec = ns % SECOND_NS}, NULL);
}

static inline struct sockaddr_in loopback(int port) {
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
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

/* Reads a whole file of less than `most` bytes; returns its length. */
static inline size_t read_file(const char *path, char *bytes, size_t most) {
    FILE *file = fopen(path, "rb");
    if (!file) fail("%s: %m", path);
    size_t length = fread(bytes, 1, most, file);
    if (length == most) fail("%s: too long", path);
    fclose(file);
    return length;
}
