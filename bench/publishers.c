/* Publishers who wait for their answers: each has one PUT under way, always.
 *
 * One thread, one epoll. Every connection puts a message to a topic, waits for the answer, and puts
 * the next, to a topic drawn at random. With a rate, that many are begun in a second by all of them
 * together, at fixed times; one that comes late is counted from when it was due.
 *
 * Usage: publishers PORT CONNECTIONS TOPICS BYTES SECONDS RATE. A RATE of 0 is as fast as it goes.
 * Prints a line: answers, seconds, p50 and p99 in microseconds, refusals. Ends by itself, or by
 * SIGTERM, and then prints as well.
 */
#include "common.h"

#include <signal.h>

enum { EVENTS_MAX = 512, ANSWER_BYTES = 4096, BODY_BYTES_MAX = 65536 };

struct publisher {
    int fd;
    uint64_t since_ns;
};

static struct publisher *publishers;
static int *idle, idle_count;
static struct histogram times;
static uint64_t refusals, random_state = 88172645463325252u;
static char body[BODY_BYTES_MAX + 1];
static long topics;
static size_t body_bytes;
static volatile sig_atomic_t is_over;

static void end(int signal_number) {
    (void)signal_number;
    is_over = 1;
}

static uint64_t draw(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static void put(struct publisher *publisher, uint64_t since_ns) {
    char request[BODY_BYTES_MAX + 256];
    uint64_t drawn = draw();
    /* No two messages in a row are alike. */
    memcpy(body, &(char[]){'a' + drawn % 26, 'a' + drawn / 26 % 26}, 2);
    int bytes = snprintf(request, sizeof request,
                         "PUT /bench/topics/%07ld HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                         "Content-Type: text/plain\r\nContent-Length: %zu\r\n\r\n%s",
                         (long)(drawn % topics), body_bytes, body);
    publisher->since_ns = since_ns;
    if (send(publisher->fd, request, bytes, MSG_NOSIGNAL) != bytes) fail("send: %m");
}

static void take_answer(struct publisher *publisher) {
    char answer[ANSWER_BYTES];
    ssize_t bytes = recv(publisher->fd, answer, sizeof answer, MSG_DONTWAIT);
    if (bytes < 0 && errno == EAGAIN) return;
    if (bytes <= 0) fail("recv: %m");
    record(&times, now_ns() - publisher->since_ns);
    if (bytes < 12 || memcmp(answer + 9, "20", 2) != 0) {
        if (refusals++ == 0) fprintf(stderr, "publishers: %.*s\n", (int)bytes, answer);
    }
    idle[idle_count++] = publisher - publishers;
}

int main(int argc, char **argv) {
    if (argc != 7) fail("usage: see the head of publishers.c");
    int count = atoi(argv[2]), epoll = new_epoll();
    double seconds = atof(argv[5]), rate = atof(argv[6]);
    topics = atol(argv[3]);
    body_bytes = atol(argv[4]);
    if (count < 1 || topics < 1 || body_bytes < 2 || body_bytes > BODY_BYTES_MAX) return 2;
    memset(body, '.', body_bytes);
    publishers = calloc(count, sizeof *publishers);
    idle = calloc(count, sizeof *idle);
    struct sigaction action = {.sa_handler = end};
    sigaction(SIGTERM, &action, NULL);
    for (int i = 0; i < count; i++) {
        publishers[i].fd = connect_to(atoi(argv[1]));
        watch(epoll, publishers[i].fd, EPOLLIN, i);
        idle[idle_count++] = i;
    }
    uint64_t begin = now_ns(), due = begin;
    while (!is_over && now_ns() - begin < seconds * SECOND_NS) {
        int wait_ms = 100;
        while (idle_count > 0) {
            uint64_t now = now_ns();
            if (rate > 0 && due > now) {
                wait_ms = 1;
                break;
            }
            put(&publishers[idle[--idle_count]], rate > 0 ? due : now);
            if (rate > 0) due += SECOND_NS / rate;
        }
        struct epoll_event events[EVENTS_MAX];
        int ready = await(epoll, events, EVENTS_MAX, wait_ms);
        for (int i = 0; i < ready; i++) take_answer(&publishers[events[i].data.u32]);
    }
    printf("%lu %.3f %.0f %.0f %lu\n", times.count, (now_ns() - begin) / 1e9,
           quantile_ns(&times, .5) / 1e3, quantile_ns(&times, .99) / 1e3, refusals);
    return 0;
}
