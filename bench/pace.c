/* GETs at a steady rate, whatever the server does: an open loop.
 *
 * wrk asks again only when it was answered, so a server that pauses is asked less while it pauses
 * and its worst moments are hardly counted. Here each request has a moment at which it is due,
 * and its latency counts from then: when no connection is free the request waits, and that is part
 * of what its user would wait.
 *
 * It asks for real-time scheduling, because it shares a core with the readers of the streams, and
 * what it would wait for them is not the server's. Without the right to it, it says so.
 *
 * Usage: pace PORT PATH RATE SECONDS. One line of JSON.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS = 64, RECEIVE_BYTES = 64 * 1024, DRAIN_SECONDS = 5 };
static const uint64_t SECOND_NS = 1000 * 1000 * 1000;

static struct connection {
    int fd;
    int busy;
    uint64_t due_ns;
} connections[CONNECTIONS];
static char request[1024], receive_buffer[RECEIVE_BYTES];
static uint64_t *latencies;
static size_t answered;

static void fail(const char *what) {
    fprintf(stderr, "pace: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * SECOND_NS + now.tv_nsec;
}

static void open_connections(int epoll, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int one = 1;
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0) fail("connect");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0) fail("epoll_ctl");
        connections[i].fd = fd;
    }
}

/* Answers are small and come in one piece; anything else is refused rather than guessed at. */
static void take_answer(struct connection *connection) {
    ssize_t received = recv(connection->fd, receive_buffer, RECEIVE_BYTES, 0);
    if (received <= 0) fail("the server ended a connection");
    if (!connection->busy || received < 13 || memcmp(receive_buffer, "HTTP/1.1 200 ", 13) != 0) {
        errno = EPROTO;
        fail("not the answer to a GET");
    }
    latencies[answered++] = now_ns() - connection->due_ns;
    connection->busy = 0;
}

static struct connection *free_connection(void) {
    static int turn;
    for (int i = 0; i < CONNECTIONS; i++) {
        struct connection *connection = &connections[turn++ % CONNECTIONS];
        if (!connection->busy) return connection;
    }
    return NULL;
}

/* Sends what is due by now and returns when the next is. */
static uint64_t ask(uint64_t start, size_t *asked, size_t all, size_t rate) {
    for (; *asked < all; ++*asked) {
        uint64_t due = start + *asked * SECOND_NS / rate;
        if (due > now_ns()) return due;
        struct connection *connection = free_connection();
        if (!connection) return UINT64_MAX; /* the next answer frees one */
        connection->busy = 1;
        connection->due_ns = due;
        size_t length = strlen(request);
        if (send(connection->fd, request, length, MSG_NOSIGNAL) != (ssize_t)length) fail("send");
    }
    return UINT64_MAX;
}

static int compare(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static void report(size_t asked) {
    qsort(latencies, answered, sizeof *latencies, compare);
    static const double QUANTILES[] = {0.5, 0.99, 0.999};
    static const char *const NAMES[] = {"p50", "p99", "p999"};
    printf("{\"asked\":%zu,\"answered\":%zu", asked, answered);
    for (int i = 0; i < 3; i++)
        printf(",\"%s_ns\":%lu", NAMES[i], latencies[(size_t)(QUANTILES[i] * (answered - 1))]);
    printf(",\"max_ns\":%lu}\n", latencies[answered - 1]);
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: pace PORT PATH RATE SECONDS\n");
        return 2;
    }
    size_t rate = atoi(argv[3]), all = rate * atoi(argv[4]), asked = 0;
    latencies = calloc(all, sizeof *latencies);
    if (all == 0 || !latencies) fail("the numbers must be at least 1");
    struct sched_param priority = {.sched_priority = 1};
    if (sched_setscheduler(0, SCHED_FIFO, &priority) < 0) perror("pace: no real-time scheduling");
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\n\r\n", argv[2],
             argv[1]);
    int epoll = epoll_create1(0);
    if (epoll < 0) fail("epoll");
    open_connections(epoll, atoi(argv[1]));
    uint64_t start = now_ns(), give_up = start + (atoi(argv[4]) + DRAIN_SECONDS) * SECOND_NS;
    while (answered < all && now_ns() < give_up) {
        uint64_t due = ask(start, &asked, all, rate), now = now_ns();
        uint64_t wait = due == UINT64_MAX ? SECOND_NS / 10 : due > now ? due - now : 0;
        struct timespec timeout = {.tv_sec = wait / SECOND_NS, .tv_nsec = wait % SECOND_NS};
        struct epoll_event events[CONNECTIONS];
        int ready = epoll_pwait2(epoll, events, CONNECTIONS, &timeout, NULL);
        if (ready < 0 && errno != EINTR) fail("epoll_pwait2");
        for (int i = 0; i < ready; i++) take_answer(&connections[events[i].data.u32]);
    }
    if (answered == 0) {
        errno = ETIMEDOUT;
        fail("no answer");
    }
    report(asked);
}
