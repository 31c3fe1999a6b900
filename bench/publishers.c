/* Publishers who wait for their answers: each has one PUT under way, always.
 *
 * One thread, one epoll. Every connection puts a message to a topic, waits for the answer, and puts
 * the next, to a topic drawn at random. With a rate, that many are begun in a second by all of them
 * together, at fixed times; one that comes late is counted from when it was due. What takes whole
 * milliseconds here is the server's disk; so the times are kept in steps of 10 us.
 *
 * Usage: publishers PORT CONNECTIONS TOPICS BYTES SECONDS RATE. A RATE of 0 is as fast as it goes.
 * Prints a line: answers, seconds, p50 and p99 in microseconds, refusals. Ends by itself, or by
 * SIGTERM, and then prints as well.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS_MAX = 512, ANSWER_BYTES = 4096, BODY_BYTES_MAX = 65536 };
enum { STEP_US = 10, STEPS = 1 << 20 };

struct publisher {
    int fd;
    double since_us;
};

static struct publisher *publishers;
static int *idle, idle_count;
static uint32_t steps[STEPS];
static uint64_t answers, refusals, random_state = 88172645463325252u;
static char body[BODY_BYTES_MAX + 1];
static long topics;
static size_t body_bytes;
static volatile sig_atomic_t is_over;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void end(int signal_number) {
    (void)signal_number;
    is_over = 1;
}

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static uint64_t draw(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static void put(struct publisher *publisher, double since_us) {
    char request[BODY_BYTES_MAX + 256];
    uint64_t drawn = draw();
    /* No two messages in a row are alike. */
    memcpy(body, &(char[]){'a' + drawn % 26, 'a' + drawn / 26 % 26}, 2);
    int bytes = snprintf(request, sizeof request,
                         "PUT /bench/topics/%07ld HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                         "Content-Type: text/plain\r\nContent-Length: %zu\r\n\r\n%s",
                         (long)(drawn % topics), body_bytes, body);
    publisher->since_us = since_us;
    if (send(publisher->fd, request, bytes, MSG_NOSIGNAL) != bytes) fail("send");
}

static void take_answer(struct publisher *publisher) {
    char answer[ANSWER_BYTES];
    ssize_t bytes = recv(publisher->fd, answer, sizeof answer, MSG_DONTWAIT);
    if (bytes < 0 && errno == EAGAIN) return;
    if (bytes <= 0) fail("recv");
    double taken_us = now_us() - publisher->since_us;
    size_t step = taken_us / STEP_US;
    steps[step < STEPS ? step : STEPS - 1]++;
    answers++;
    if (bytes < 12 || memcmp(answer + 9, "20", 2) != 0) {
        if (refusals++ == 0) fprintf(stderr, "publishers: %.*s\n", (int)bytes, answer);
    }
    idle[idle_count++] = publisher - publishers;
}

static double percentile(double share) {
    uint64_t before = 0, wanted = answers * share;
    for (int step = 0; step < STEPS; step++)
        if ((before += steps[step]) > wanted) return (step + 1.0) * STEP_US;
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 7) return fprintf(stderr, "usage: see the head of publishers.c\n"), 2;
    int count = atoi(argv[2]);
    double seconds = atof(argv[5]), rate = atof(argv[6]);
    topics = atol(argv[3]);
    body_bytes = atol(argv[4]);
    if (count < 1 || topics < 1 || body_bytes < 2 || body_bytes > BODY_BYTES_MAX) return 2;
    memset(body, '.', body_bytes);
    publishers = calloc(count, sizeof *publishers);
    idle = calloc(count, sizeof *idle);
    struct sigaction action = {.sa_handler = end};
    sigaction(SIGTERM, &action, NULL);
    int epoll = epoll_create1(0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0; i < count; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl");
        publishers[i].fd = fd;
        idle[idle_count++] = i;
    }
    double begin = now_us(), due = begin;
    while (!is_over && now_us() - begin < seconds * 1e6) {
        int wait_ms = 100;
        while (idle_count > 0) {
            double now = now_us();
            if (rate > 0 && due > now) {
                wait_ms = 1;
                break;
            }
            put(&publishers[idle[--idle_count]], rate > 0 ? due : now);
            if (rate > 0) due += 1e6 / rate;
        }
        struct epoll_event events[EVENTS_MAX];
        int ready = epoll_wait(epoll, events, EVENTS_MAX, wait_ms);
        if (ready < 0 && errno != EINTR) fail("epoll_wait");
        for (int i = 0; i < ready; i++) take_answer(&publishers[events[i].data.u32]);
    }
    printf("%lu %.3f %.0f %.0f %lu\n", (unsigned long)answers, (now_us() - begin) / 1e6,
           percentile(.5), percentile(.99), (unsigned long)refusals);
    return 0;
}
