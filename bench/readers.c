/* Readers of streams: one process that holds some thousands of them and checks what each is told.
 *
 * It is the measure for `bench/run` and shares no line with what it measures. It must weigh little,
 * because it runs on the same machine. A reader is a record of 32 bytes and a socket. An event is
 * taken apart where it was received; only one that was cut by the end of a read is kept, on the
 * heap, until its rest comes.
 *
 * One thread reads and one takes orders. An address has about 28,000 ports, and the search for a
 * free one grows long: readers come from addresses in 127.1.0.0/16, a new one every few thousand,
 * and leave the port to the kernel until they connect (IP_BIND_ADDRESS_NO_PORT), which then asks
 * only that the pair of both ends be new.
 *
 * Every message says "n=NUMBER t=NANOSECONDS": a number that grows by one with each message, and
 * CLOCK_MONOTONIC when it was published. So each reader can tell what is missing, double or out of
 * order, and how long it took. A number that is skipped after a gap event was told, one skipped on
 * a path with mode=latest was conflated; any other was lost in silence, and is what must not be.
 *
 * After a turn with few events the reading thread naps before it asks for more. Real readers are on
 * other machines: the server would not pay for waking them, and here it must not either.
 *
 * Speaks to the driver by lines. It reads:
 *   hold N        open connections until there are N, each with its response head; "held N"
 *   mark          what was published before now is no longer counted; "marked"
 *   await N S     wait until all have message number N, at most S seconds; "got COUNT"
 *   stall         the share given by --stall reads one more time, then no more; "stalled"
 *   resume        they read again; "resumed"
 *   catch-up S    wait until these have the newest message too, at most S seconds; "got COUNT"
 *   report        one line of JSON
 * A failure is a line "failed REASON" and the end. So is the end of the input, without the line.
 *
 * Usage: readers --port PORT --most N [--path PATH]... [--ws] [--stall PERCENT] [--rcvbuf BYTES]
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    READERS_PER_ADDRESS = 4096,
    OPENING_MAX = 64, /* connections that wait for their response head */
    EVENTS_MAX = 512,
    RECEIVE_BYTES = 64 * 1024,
    EVENT_BYTES_MAX = 64 * 1024,
    PATHS_MAX = 16,
    MESSAGES_TRACKED = 4096, /* numbers for which count and time of the last reader are kept */
    SUB_BUCKETS = 32,        /* of each power of two: latencies to 3 % */
    BUCKETS = 64 * SUB_BUCKETS,
    NO_PROGRESS_SECONDS = 30,
};
static const long NAP_NS = 200 * 1000;
static const uint64_t SECOND_NS = 1000 * 1000 * 1000;

enum flag { OPEN = 1, ENDED = 2, STALLABLE = 4, STALLED = 8, GAP = 16, LATEST = 32 };

/* The beginning of an event whose rest has not come yet. */
struct tail {
    uint32_t length;
    char bytes[];
};

struct reader {
    struct tail *tail;
    uint32_t next;     /* the number that must come next; 0 before the first */
    uint32_t messages; /* received since the mark */
    uint32_t bytes;    /* of everything, modulo 2^32 */
    int32_t fd;
    uint8_t flags;
};
_Static_assert(sizeof(struct reader) == 32, "they must be small");

/* How far one message has come. */
struct progress {
    uint32_t number;
    uint32_t count;
    uint64_t first_ns, last_ns; /* after it was published */
};

struct counts {
    uint64_t messages, bytes, initial, gaps, conflated, told, silent, repeated, other;
    uint64_t stalled_messages, stalled_conflated;
};

/* All of them. Every function below takes it, and none but the driver's orders names it. */
static struct worker {
    pthread_mutex_t lock; /* over everything below, except while the thread waits */
    struct reader *readers;
    int epoll, wake;
    int target, opened, answered, ended;
    int stall; /* whether those that can stall should; the thread obeys `order` */
    enum { NONE, RESUME } order;
    uint64_t mark_ns;
    struct counts counts;
    struct progress progress[MESSAGES_TRACKED];
    uint64_t histogram[BUCKETS];
    char failure[160];
    char buffer[EVENT_BYTES_MAX + RECEIVE_BYTES];
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct {
    int port, most, stall_percent, receive_bytes, websocket, paths;
    const char *path[PATHS_MAX];
    char *request[PATHS_MAX];
} options;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * SECOND_NS + now.tv_nsec;
}

static void nap(long ns) {
    struct timespec pause = {.tv_sec = ns / (long)SECOND_NS, .tv_nsec = ns % (long)SECOND_NS};
    nanosleep(&pause, NULL);
}

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
}

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *format, ...) {
    va_list arguments;
    printf("failed ");
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
    exit(1);
}

/* ---- What is counted ---- */

static int bucket_of(uint64_t ns) {
    if (ns < SUB_BUCKETS) return ns;
    int shift = 63 - __builtin_clzll(ns) - 5; /* 2^5 = SUB_BUCKETS */
    return (shift + 1) * SUB_BUCKETS + (ns >> shift) - SUB_BUCKETS;
}

/* The middle of a bucket. */
static uint64_t bucket_ns(int bucket) {
    if (bucket < SUB_BUCKETS) return bucket;
    int shift = bucket / SUB_BUCKETS - 1;
    uint64_t low = (uint64_t)(SUB_BUCKETS + bucket % SUB_BUCKETS) << shift;
    return low + ((1ull << shift) >> 1);
}

static void count_delivery(struct worker *worker, uint32_t number, uint64_t latency_ns) {
    worker->histogram[bucket_of(latency_ns)]++;
    struct progress *progress = &worker->progress[number % MESSAGES_TRACKED];
    if (progress->count == 0 || progress->number != number)
        *progress = (struct progress){.number = number, .first_ns = UINT64_MAX};
    progress->count++;
    if (latency_ns > progress->last_ns) progress->last_ns = latency_ns;
    if (latency_ns < progress->first_ns) progress->first_ns = latency_ns;
}

static void take_message(struct worker *worker, struct reader *reader, uint32_t number,
                         uint64_t published_ns, uint64_t now) {
    if (reader->next && number < reader->next) {
        worker->counts.repeated++;
        return;
    }
    uint32_t skipped = reader->next ? number - reader->next : 0;
    if (reader->flags & GAP) worker->counts.told += skipped;
    else if ((reader->flags & (LATEST | STALLABLE)) == LATEST) worker->counts.conflated += skipped;
    else if (reader->flags & LATEST) worker->counts.stalled_conflated += skipped;
    else worker->counts.silent += skipped;
    reader->flags &= ~GAP;
    reader->next = number + 1;
    reader->messages++;
    if (published_ns < worker->mark_ns) {
        worker->counts.initial++;
        return;
    }
    if (reader->flags & STALLABLE) {
        worker->counts.stalled_messages++;
        return;
    }
    worker->counts.messages++;
    count_delivery(worker, number, now > published_ns ? now - published_ns : 0);
}

/* Digits at `at`, which must be followed by something else before `end`; 0 if there are none. */
static const char *digits(const char *at, const char *end, uint64_t *value) {
    const char *begin = at;
    for (*value = 0; at < end && *at >= '0' && *at <= '9'; at++) *value = *value * 10 + *at - '0';
    return at > begin && at < end ? at : NULL;
}

/* One whole event or text frame: a message, a gap, or something that is only counted. */
static void take_event(struct worker *worker, struct reader *reader, const char *event,
                       size_t length, uint64_t now) {
    const char *end = event + length, *at = event;
    uint64_t number, published_ns;
    while ((at = memmem(at, end - at, "n=", 2))) {
        at += 2;
        const char *after = digits(at, end, &number);
        if (after && end - after > 3 && memcmp(after, " t=", 3) == 0 &&
            digits(after + 3, end, &published_ns)) {
            take_message(worker, reader, number, published_ns, now);
            return;
        }
    }
    const char *gap = options.websocket ? "{\"gap\"" : "event: gap";
    if (memmem(event, length, gap, strlen(gap))) {
        worker->counts.gaps++;
        reader->flags |= GAP;
    } else {
        worker->counts.other++;
    }
}

/* ---- Taking streams apart: each returns how many bytes were whole events ---- */

static size_t take_sse(struct worker *worker, struct reader *reader, const char *bytes,
                       size_t length, uint64_t now) {
    size_t at = 0;
    for (;;) {
        /* Ends of chunks, where a server chunks its stream. Their sizes precede an event and are
         * taken for one more line of it. */
        while (at < length && (bytes[at] == '\r' || bytes[at] == '\n')) at++;
        const char *blank = memmem(bytes + at, length - at, "\n\n", 2);
        if (!blank) return at;
        size_t end = blank + 2 - bytes;
        take_event(worker, reader, bytes + at, end - at, now);
        at = end;
    }
}

/* Zero is a mask too, and leaves the payload as it is. */
static void pong(struct reader *reader, const uint8_t *payload, size_t length) {
    uint8_t frame[6 + 125] = {0x8a, 0x80 | length};
    memcpy(frame + 6, payload, length);
    send(reader->fd, frame, 6 + length, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static size_t take_websocket(struct worker *worker, struct reader *reader, const char *bytes,
                             size_t length, uint64_t now) {
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
        if (opcode == 1 || opcode == 2)
            take_event(worker, reader, bytes + at + head, payload, now);
        else if (opcode == 9 && payload <= 125)
            pong(reader, frame + head, payload);
        else
            worker->counts.other++;
        at += head + payload;
    }
    return at;
}

static size_t take_head(struct worker *worker, struct reader *reader, const char *bytes,
                        size_t length) {
    const char *blank = memmem(bytes, length, "\r\n\r\n", 4);
    if (!blank) return 0;
    const char *wanted = options.websocket ? "HTTP/1.1 101 " : "HTTP/1.1 200 ";
    if (memcmp(bytes, wanted, strlen(wanted)) != 0) {
        const char *line_end = memchr(bytes, '\r', length);
        snprintf(worker->failure, sizeof worker->failure, "the server answered: %.*s",
                 (int)(line_end - bytes), bytes);
    }
    reader->flags |= OPEN;
    worker->answered++;
    return blank + 4 - bytes;
}

static size_t take(struct worker *worker, struct reader *reader, const char *bytes, size_t length,
                   uint64_t now) {
    size_t taken = 0;
    if (!(reader->flags & OPEN)) {
        taken = take_head(worker, reader, bytes, length);
        if (taken == 0) return 0;
    }
    size_t (*rest)(struct worker *, struct reader *, const char *, size_t, uint64_t) =
        options.websocket ? take_websocket : take_sse;
    return taken + rest(worker, reader, bytes + taken, length - taken, now);
}

/* ---- One reader ---- */

static void end_reader(struct worker *worker, struct reader *reader) {
    close(reader->fd);
    free(reader->tail);
    reader->tail = NULL;
    reader->flags |= ENDED;
    worker->ended++;
}

static void keep_tail(struct worker *worker, struct reader *reader, const char *bytes,
                      size_t length) {
    free(reader->tail);
    reader->tail = NULL;
    if (length == 0) return;
    if (length > EVENT_BYTES_MAX || !(reader->tail = malloc(sizeof(struct tail) + length))) {
        snprintf(worker->failure, sizeof worker->failure, "an event of %zu bytes", length);
        return;
    }
    reader->tail->length = length;
    memcpy(reader->tail->bytes, bytes, length);
}

/* An edge is told once: one that tells of data and of the end is read until the end. */
static void read_some(struct worker *worker, struct reader *reader, uint32_t events) {
    int has_ended = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    ssize_t received;
    do {
        size_t held = reader->tail ? reader->tail->length : 0;
        if (held) memcpy(worker->buffer, reader->tail->bytes, held);
        received = recv(reader->fd, worker->buffer + held, RECEIVE_BYTES, MSG_DONTWAIT);
        if (received <= 0) {
            if (received == 0 || errno != EAGAIN) end_reader(worker, reader);
            return;
        }
        reader->bytes += received;
        worker->counts.bytes += received;
        size_t whole = take(worker, reader, worker->buffer, held + received, now_ns());
        if (held || whole < (size_t)received)
            keep_tail(worker, reader, worker->buffer + whole, held + received - whole);
    } while (received == RECEIVE_BYTES || has_ended);
    if (worker->stall && reader->flags & STALLABLE) {
        epoll_ctl(worker->epoll, EPOLL_CTL_DEL, reader->fd, NULL);
        reader->flags |= STALLED;
    }
}

static void watch(struct worker *worker, int index) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.u32 = index};
    if (epoll_ctl(worker->epoll, EPOLL_CTL_ADD, worker->readers[index].fd, &event) < 0)
        snprintf(worker->failure, sizeof worker->failure, "epoll_ctl: %s", strerror(errno));
}

/* Why the connection could not be opened, or NULL. On loopback connecting does not wait. */
static const char *open_reader(struct worker *worker) {
    int index = worker->opened, one = 1;
    int address = index / READERS_PER_ADDRESS + 1;
    struct sockaddr_in from = {.sin_family = AF_INET}, to = {.sin_family = AF_INET};
    from.sin_addr.s_addr = htonl(0x7f010000 + address);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(options.port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0) return "socket";
    if (options.receive_bytes)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &options.receive_bytes,
                   sizeof options.receive_bytes);
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&from, sizeof from) < 0) return "bind";
    if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0) return "connect";
    const char *request = options.request[index % options.paths];
    size_t length = strlen(request);
    if (send(fd, request, length, MSG_NOSIGNAL) != (ssize_t)length) return "send";
    struct reader *reader = &worker->readers[index];
    reader->fd = fd;
    if (strstr(options.path[index % options.paths], "mode=latest")) reader->flags |= LATEST;
    if (index % 100 < options.stall_percent) reader->flags |= STALLABLE;
    worker->opened++;
    watch(worker, index);
    return NULL;
}

/* ---- The thread ---- */

/* Opens what it may now. Returns for how many milliseconds to wait at most; -1 is for ever. */
static int open_some(struct worker *worker) {
    for (int i = 0; i < OPENING_MAX && worker->opened < worker->target; i++) {
        if (worker->opened - worker->answered >= OPENING_MAX) return 100;
        const char *failed = open_reader(worker);
        if (failed) {
            snprintf(worker->failure, sizeof worker->failure, "%s: %s", failed, strerror(errno));
            worker->target = worker->opened;
        }
    }
    return worker->opened < worker->target ? 0 : -1;
}

static void obey(struct worker *worker) {
    uint64_t woken;
    if (read(worker->wake, &woken, sizeof woken) < 0 || worker->order != RESUME) return;
    worker->order = NONE;
    for (int i = 0; i < worker->opened; i++) {
        if (!(worker->readers[i].flags & STALLED)) continue;
        worker->readers[i].flags &= ~STALLED;
        watch(worker, i);
    }
}

static void *run(void *argument) {
    struct worker *worker = argument;
    worker->epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = UINT32_MAX};
    if (epoll_ctl(worker->epoll, EPOLL_CTL_ADD, worker->wake, &event) < 0)
        fail("epoll_ctl: %s", strerror(errno));
    struct epoll_event events[EVENTS_MAX];
    for (;;) {
        pthread_mutex_lock(&worker->lock);
        int wait_ms = open_some(worker);
        pthread_mutex_unlock(&worker->lock);
        int ready = epoll_wait(worker->epoll, events, EVENTS_MAX, wait_ms);
        pthread_mutex_lock(&worker->lock);
        for (int i = 0; i < ready; i++) {
            if (events[i].data.u32 == UINT32_MAX) obey(worker);
            else read_some(worker, &worker->readers[events[i].data.u32], events[i].events);
        }
        pthread_mutex_unlock(&worker->lock);
        if (ready > 0 && ready < EVENTS_MAX && wait_ms < 0) nap(NAP_NS);
    }
}

/* ---- The driver's orders ---- */

static void lock(void) { pthread_mutex_lock(&all.lock); }
static void unlock(void) { pthread_mutex_unlock(&all.lock); }

static void check_failures(void) {
    if (all.failure[0]) fail("%s", all.failure);
}

static void wake(void) {
    uint64_t one = 1;
    if (write(all.wake, &one, sizeof one) < 0) fail("eventfd: %s", strerror(errno));
}

static void hold(int count) {
    if (count > options.most) fail("at most %d readers were announced", options.most);
    lock();
    all.target = count;
    unlock();
    wake();
    uint64_t moved = now_ns();
    for (int before = -1;;) {
        int answered = __atomic_load_n(&all.answered, __ATOMIC_RELAXED);
        check_failures();
        if (answered >= count) break;
        uint64_t now = now_ns();
        if (answered != before) moved = now;
        if (now - moved > NO_PROGRESS_SECONDS * SECOND_NS) fail("only %d readers", answered);
        before = answered;
        nap(2 * 1000 * 1000);
    }
    say("held %d", count);
}

static void mark(void) {
    lock();
    all.mark_ns = now_ns();
    all.counts = (struct counts){0};
    memset(all.progress, 0, sizeof all.progress);
    memset(all.histogram, 0, sizeof all.histogram);
    for (int i = 0; i < all.opened; i++) all.readers[i].messages = 0;
    unlock();
    say("marked");
}

/* How many readers that always read there are, and how many of these have message `number`. */
static void count_progress(uint32_t number, int *have, int *steady) {
    *have = *steady = 0;
    lock();
    for (int i = 0; i < all.opened; i++) {
        if (all.readers[i].flags & STALLABLE) continue;
        *have += all.readers[i].next > number;
        ++*steady;
    }
    unlock();
}

static void await_message(uint32_t number, int seconds) {
    uint64_t give_up = now_ns() + seconds * SECOND_NS;
    for (;;) {
        int have, steady;
        count_progress(number, &have, &steady);
        check_failures();
        if (have == steady || now_ns() > give_up) {
            say("got %d", have);
            return;
        }
        nap(5 * 1000 * 1000);
    }
}

struct stalled {
    int readers, behind, ended;
    uint32_t messages_min, messages_max;
};

/* Those that stall, or could, on paths with mode=latest or on all others. Those that are behind
 * lack the newest message anybody has. */
static struct stalled count_stalled(uint32_t newest, int latest) {
    struct stalled found = {.messages_min = UINT32_MAX};
    lock();
    for (int i = 0; i < all.opened; i++) {
        const struct reader *reader = &all.readers[i];
        int is_latest = (reader->flags & LATEST) != 0;
        if (!(reader->flags & STALLABLE) || is_latest != latest) continue;
        found.readers++;
        found.behind += reader->next != newest + 1;
        found.ended += (reader->flags & ENDED) != 0;
        if (reader->messages > found.messages_max) found.messages_max = reader->messages;
        if (reader->messages < found.messages_min) found.messages_min = reader->messages;
    }
    unlock();
    if (found.readers == 0) found.messages_min = 0;
    return found;
}

static uint32_t newest_message(void) {
    uint32_t next = 1;
    lock();
    for (int i = 0; i < all.opened; i++)
        if (all.readers[i].next > next) next = all.readers[i].next;
    unlock();
    return next - 1;
}

static void catch_up(int seconds) {
    uint64_t give_up = now_ns() + seconds * SECOND_NS;
    for (;;) {
        uint32_t newest = newest_message();
        struct stalled others = count_stalled(newest, 0), latest = count_stalled(newest, 1);
        int readers = others.readers + latest.readers, behind = others.behind + latest.behind;
        check_failures();
        if (behind == 0 || now_ns() > give_up) {
            say("got %d", readers - behind);
            return;
        }
        nap(5 * 1000 * 1000);
    }
}

static void order(int stall, int order) {
    lock();
    all.stall = stall;
    all.order = order;
    unlock();
    wake();
    say(stall ? "stalled" : "resumed");
}

static void print_histogram(void) {
    static const double QUANTILES[] = {0.5, 0.9, 0.99, 0.999, 1};
    static const char *const NAMES[] = {"p50", "p90", "p99", "p999", "max"};
    uint64_t count = 0;
    for (int i = 0; i < BUCKETS; i++) count += all.histogram[i];
    for (int q = 0, i = 0; q < 5; q++) {
        uint64_t below = 0, wanted = QUANTILES[q] * count;
        if (wanted == 0) wanted = 1;
        for (i = 0; count && i < BUCKETS - 1; i++)
            if ((below += all.histogram[i]) >= wanted) break;
        printf(",\"%s_ns\":%lu", NAMES[q], count ? bucket_ns(i) : 0);
    }
}

/* [number, readers, nanoseconds until the first, until the last] of every message tracked. */
static void print_progress(void) {
    const char *comma = "";
    printf(",\"progress\":[");
    for (int slot = 0; slot < MESSAGES_TRACKED; slot++) {
        const struct progress *one = &all.progress[slot];
        if (one->count == 0) continue;
        printf("%s[%u,%u,%lu,%lu]", comma, one->number, one->count, one->first_ns, one->last_ns);
        comma = ",";
    }
    printf("]");
}

static void print_stalled(const char *name, struct stalled stalled) {
    printf(",\"%s\":{\"readers\":%d,\"behind\":%d,\"ended\":%d,\"messages_min\":%u,"
           "\"messages_max\":%u}", name, stalled.readers, stalled.behind, stalled.ended,
           stalled.messages_min, stalled.messages_max);
}

static void report(void) {
    uint32_t newest = newest_message();
    int steady, current;
    uint64_t bytes_min = UINT64_MAX;
    count_progress(newest, &current, &steady);
    struct stalled others = count_stalled(newest, 0), latest = count_stalled(newest, 1);
    check_failures();
    lock();
    for (int i = 0; i < all.opened; i++)
        if (all.readers[i].bytes < bytes_min) bytes_min = all.readers[i].bytes;
    const struct counts *sum = &all.counts;
    printf("{\"readers\":%d,\"ended\":%d,\"newest\":%u,\"steady\":%d,\"current\":%d,"
           "\"messages\":%lu,\"bytes\":%lu,\"bytes_min\":%lu,\"initial\":%lu,\"gaps\":%lu,"
           "\"conflated\":%lu,\"told\":%lu,\"silent\":%lu,\"repeated\":%lu,\"other\":%lu,"
           "\"stalled_messages\":%lu,\"stalled_conflated\":%lu", all.opened, all.ended, newest,
           steady, current, sum->messages, sum->bytes, bytes_min, sum->initial, sum->gaps,
           sum->conflated, sum->told, sum->silent, sum->repeated, sum->other,
           sum->stalled_messages, sum->stalled_conflated);
    print_histogram();
    print_progress();
    unlock();
    print_stalled("stalled_all", others);
    print_stalled("stalled_latest", latest);
    say("}");
}

static void serve_driver(void) {
    char line[100];
    unsigned number, seconds;
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "hold %u", &number) == 1) hold(number);
        else if (strcmp(line, "mark\n") == 0) mark();
        else if (sscanf(line, "await %u %u", &number, &seconds) == 2)
            await_message(number, seconds);
        else if (strcmp(line, "stall\n") == 0) order(1, NONE);
        else if (strcmp(line, "resume\n") == 0) order(0, RESUME);
        else if (sscanf(line, "catch-up %u", &seconds) == 1) catch_up(seconds);
        else if (strcmp(line, "report\n") == 0) report();
        else fail("not an order: %s", line);
    }
}

/* ---- The beginning ---- */

static void prepare_requests(void) {
    /* The key of RFC 6455's own example; every reader may have the same. */
    const char *fields = options.websocket
        ? "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
          "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        : "Accept: text/event-stream\r\n";
    if (options.paths == 0) options.path[options.paths++] = "/";
    for (int i = 0; i < options.paths; i++)
        if (asprintf(&options.request[i], "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n%s\r\n",
                     options.path[i], options.port, fields) < 0) fail("no memory");
}

static void parse_options(int argc, char **argv) {
    static const struct option LONG[] = {
        {"port", required_argument, NULL, 'p'},   {"most", required_argument, NULL, 'm'},
        {"path", required_argument, NULL, 'a'},   {"ws", no_argument, NULL, 'w'},
        {"stall", required_argument, NULL, 's'},  {"rcvbuf", required_argument, NULL, 'b'},
        {NULL, 0, NULL, 0},
    };
    for (int option; (option = getopt_long(argc, argv, "", LONG, NULL)) != -1;) {
        if (option == 'p') options.port = atoi(optarg);
        else if (option == 'm') options.most = atoi(optarg);
        else if (option == 'a' && options.paths < PATHS_MAX) options.path[options.paths++] = optarg;
        else if (option == 'w') options.websocket = 1;
        else if (option == 's') options.stall_percent = atoi(optarg);
        else if (option == 'b') options.receive_bytes = atoi(optarg);
        else fail("the options were not understood");
    }
    if (options.port < 1 || options.most < 1) fail("--port and --most are needed");
}

int main(int argc, char **argv) {
    parse_options(argc, argv);
    prepare_requests();
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    all.wake = eventfd(0, EFD_NONBLOCK);
    all.readers = calloc(options.most, sizeof *all.readers);
    pthread_t thread;
    if (all.wake < 0 || !all.readers || pthread_create(&thread, NULL, run, &all))
        fail("the thread could not be started");
    serve_driver();
}
