/* Readers of streams: one process that holds some thousands of them and checks what each is told.
 *
 * It is the measure for `bench/run` and shares no line with what it measures. It must weigh little,
 * because it runs on the same machine. A reader is a record of 24 bytes and a socket. An event is
 * taken apart where it was received; only one that was cut by the end of a read is kept, on the
 * heap, until its rest comes.
 *
 * An address has about 28,000 ports, and the search for a free one grows long: readers come from
 * addresses in 127.1.0.0/16, a new one every few thousand, and leave the port to the kernel until
 * they connect (IP_BIND_ADDRESS_NO_PORT), which then asks only that the pair of both ends be new.
 *
 * Every message says "n=NUMBER t=NANOSECONDS": a number that grows by one with each message, and
 * CLOCK_MONOTONIC when it was published. So each reader can tell what is missing, double or out of
 * order, and how long it took. A number that is skipped after a gap event was told, one skipped on
 * a path with mode=latest was conflated; any other was lost in silence, and is what must not be.
 *
 * After a turn with few events the program naps before it asks for more. Real readers are on
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
 * A failure is its reason on stderr and the end. So is the end of the input, without a reason.
 *
 * Usage: readers --port PORT --most N --path PATH... [--ws] [--stall PERCENT] [--rcvbuf BYTES]
 */
#include "common.h"

#include <getopt.h>
#include <sys/resource.h>

enum {
    READERS_PER_ADDRESS = 4096,
    OPENING_MAX = 64, /* connections that wait for their response head */
    EVENTS_MAX = 512,
    RECEIVE_BYTES = 64 * 1024,
    EVENT_BYTES_MAX = 64 * 1024,
    PATHS_MAX = 16,
    MESSAGES_TRACKED = 4096, /* numbers for which count and time of the last reader are kept */
    NO_PROGRESS_SECONDS = 30,
    LOOK_MS = 5,
};
static const uint64_t NAP_NS = 200 * 1000;

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
    int32_t fd;
    uint8_t flags;
};
_Static_assert(sizeof(struct reader) == 24, "they must be small");

/* How far one message has come. */
struct progress {
    uint32_t number;
    uint64_t last_ns; /* after it was published */
};

struct counts {
    uint64_t messages, gaps, conflated, told, silent, repeated, other;
    uint64_t stalled_messages, stalled_conflated;
};

static struct {
    struct reader *readers;
    int epoll, target, opened, answered, ended;
    int stall; /* whether those that can stall should */
    uint64_t now_ns, mark_ns; /* when the last bytes were received; what is counted since */
    struct counts counts;
    struct progress progress[MESSAGES_TRACKED];
    struct histogram latencies;
    char buffer[EVENT_BYTES_MAX + RECEIVE_BYTES];
} all;

static struct {
    int port, most, stall_percent, receive_bytes, websocket, paths;
    const char *path[PATHS_MAX];
    char *request[PATHS_MAX];
} options;

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
}

/* ---- What is counted ---- */

static void count_delivery(uint32_t number, uint64_t latency_ns) {
    record(&all.latencies, latency_ns);
    struct progress *progress = &all.progress[number % MESSAGES_TRACKED];
    if (progress->number != number) *progress = (struct progress){.number = number};
    if (latency_ns > progress->last_ns) progress->last_ns = latency_ns;
}

static void take_message(struct reader *reader, uint32_t number, uint64_t published_ns) {
    if (reader->next && number < reader->next) {
        all.counts.repeated++;
        return;
    }
    uint32_t skipped = reader->next ? number - reader->next : 0;
    if (reader->flags & GAP) all.counts.told += skipped;
    else if ((reader->flags & (LATEST | STALLABLE)) == LATEST) all.counts.conflated += skipped;
    else if (reader->flags & LATEST) all.counts.stalled_conflated += skipped;
    else all.counts.silent += skipped;
    reader->flags &= ~GAP;
    reader->next = number + 1;
    reader->messages++;
    if (published_ns < all.mark_ns) return;
    if (reader->flags & STALLABLE) {
        all.counts.stalled_messages++;
        return;
    }
    all.counts.messages++;
    count_delivery(number, all.now_ns > published_ns ? all.now_ns - published_ns : 0);
}

/* Digits at `at`, which must be followed by something else before `end`; 0 if there are none. */
static const char *digits(const char *at, const char *end, uint64_t *value) {
    const char *begin = at;
    for (*value = 0; at < end && *at >= '0' && *at <= '9'; at++) *value = *value * 10 + *at - '0';
    return at > begin && at < end ? at : NULL;
}

/* One whole event or text frame: a message, a gap, or something that is only counted. */
static void take_event(void *of, const char *event, size_t length) {
    struct reader *reader = of;
    const char *end = event + length, *at = event;
    uint64_t number, published_ns;
    while ((at = memmem(at, end - at, "n=", 2))) {
        at += 2;
        const char *after = digits(at, end, &number);
        if (after && end - after > 3 && memcmp(after, " t=", 3) == 0 &&
            digits(after + 3, end, &published_ns)) {
            take_message(reader, number, published_ns);
            return;
        }
    }
    const char *gap = options.websocket ? "{\"gap\"" : "event: gap";
    if (memmem(event, length, gap, strlen(gap))) {
        all.counts.gaps++;
        reader->flags |= GAP;
    } else {
        all.counts.other++;
    }
}

static size_t take_head(struct reader *reader, const char *bytes, size_t length) {
    const char *blank = memmem(bytes, length, "\r\n\r\n", 4);
    if (!blank) return 0;
    const char *wanted = options.websocket ? "HTTP/1.1 101 " : "HTTP/1.1 200 ";
    if (memcmp(bytes, wanted, strlen(wanted)) != 0) {
        const char *line_end = memchr(bytes, '\r', length);
        fail("the server answered: %.*s", (int)(line_end - bytes), bytes);
    }
    reader->flags |= OPEN;
    all.answered++;
    return blank + 4 - bytes;
}

static size_t take(struct reader *reader, const char *bytes, size_t length) {
    size_t taken = 0;
    if (!(reader->flags & OPEN)) {
        taken = take_head(reader, bytes, length);
        if (taken == 0) return 0;
    }
    bytes += taken, length -= taken;
    if (options.websocket)
        return taken + take_websocket(reader->fd, bytes, length, take_event, reader);
    return taken + take_sse(bytes, length, take_event, reader);
}

/* ---- One reader ---- */

static void end_reader(struct reader *reader) {
    close(reader->fd);
    free(reader->tail);
    reader->tail = NULL;
    reader->flags |= ENDED;
    all.ended++;
}

static void keep_tail(struct reader *reader, const char *bytes, size_t length) {
    free(reader->tail);
    reader->tail = NULL;
    if (length == 0) return;
    if (length > EVENT_BYTES_MAX || !(reader->tail = malloc(sizeof(struct tail) + length)))
        fail("an event of %zu bytes", length);
    reader->tail->length = length;
    memcpy(reader->tail->bytes, bytes, length);
}

/* An edge is told once: one that tells of data and of the end is read until the end. */
static void read_some(struct reader *reader, uint32_t events) {
    int has_ended = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    ssize_t received;
    do {
        size_t held = reader->tail ? reader->tail->length : 0;
        if (held) memcpy(all.buffer, reader->tail->bytes, held);
        received = recv(reader->fd, all.buffer + held, RECEIVE_BYTES, MSG_DONTWAIT);
        if (received <= 0) {
            if (received == 0 || errno != EAGAIN) end_reader(reader);
            return;
        }
        all.now_ns = now_ns();
        size_t whole = take(reader, all.buffer, held + received);
        if (held || whole < (size_t)received)
            keep_tail(reader, all.buffer + whole, held + received - whole);
    } while (received == RECEIVE_BYTES || has_ended);
    if (all.stall && reader->flags & STALLABLE) {
        epoll_ctl(all.epoll, EPOLL_CTL_DEL, reader->fd, NULL);
        reader->flags |= STALLED;
    }
}

static const uint32_t READABLE = EPOLLIN | EPOLLRDHUP | EPOLLET;

/* On loopback connecting does not wait. */
static void open_reader(void) {
    int index = all.opened++, fd = socket_from(0x7f010000 + index / READERS_PER_ADDRESS + 1, 0);
    struct sockaddr_in to = loopback(options.port);
    if (options.receive_bytes)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &options.receive_bytes,
                   sizeof options.receive_bytes);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0) fail("connect: %m");
    const char *request = options.request[index % options.paths];
    size_t length = strlen(request);
    if (send(fd, request, length, MSG_NOSIGNAL) != (ssize_t)length) fail("send: %m");
    struct reader *reader = &all.readers[index];
    reader->fd = fd;
    if (strstr(options.path[index % options.paths], "mode=latest")) reader->flags |= LATEST;
    if (index % 100 < options.stall_percent) reader->flags |= STALLABLE;
    watch(all.epoll, fd, READABLE, index);
}

/* Opens what it may now. Returns whether there are more to open at once. */
static int open_some(void) {
    for (int i = 0; i < OPENING_MAX && all.opened < all.target; i++) {
        if (all.opened - all.answered >= OPENING_MAX) return 0;
        open_reader();
    }
    return all.opened < all.target;
}

/* Reads for at most `wait_ms`; -1 is until there is an order. Returns whether there is one. */
static int turn(int wait_ms) {
    static struct epoll_event events[EVENTS_MAX];
    int is_opening = open_some(), has_order = 0;
    int ready = await(all.epoll, events, EVENTS_MAX, is_opening ? 0 : wait_ms);
    for (int i = 0; i < ready; i++) {
        if (events[i].data.u32 == UINT32_MAX) has_order = 1;
        else read_some(&all.readers[events[i].data.u32], events[i].events);
    }
    if (ready > 0 && ready < EVENTS_MAX && all.opened == all.target) nap(NAP_NS);
    return has_order;
}

/* ---- The driver's orders ---- */

/* Reads for a while: looking at all readers is not for every turn. */
static void read_on(void) {
    uint64_t until = now_ns() + LOOK_MS * SECOND_NS / 1000;
    do turn(LOOK_MS);
    while (now_ns() < until);
}

static void hold(int count) {
    if (count > options.most) fail("at most %d readers were announced", options.most);
    all.target = count;
    uint64_t moved = now_ns();
    for (int before = -1; all.answered < count; before = all.answered) {
        if (all.answered != before) moved = now_ns();
        if (now_ns() - moved > NO_PROGRESS_SECONDS * SECOND_NS)
            fail("only %d readers", all.answered);
        turn(LOOK_MS);
    }
    say("held %d", count);
}

static void mark(void) {
    all.mark_ns = now_ns();
    all.counts = (struct counts){0};
    memset(all.progress, 0, sizeof all.progress);
    all.latencies = (struct histogram){0};
    for (int i = 0; i < all.opened; i++) all.readers[i].messages = 0;
    say("marked");
}

/* How many readers that always read there are, and how many of these have message `number`. */
static void count_progress(uint32_t number, int *have, int *steady) {
    *have = *steady = 0;
    for (int i = 0; i < all.opened; i++) {
        if (all.readers[i].flags & STALLABLE) continue;
        *have += all.readers[i].next > number;
        ++*steady;
    }
}

static void await_message(uint32_t number, int seconds) {
    uint64_t give_up = now_ns() + seconds * SECOND_NS;
    for (int have, steady;; read_on()) {
        count_progress(number, &have, &steady);
        if (have < steady && now_ns() <= give_up) continue;
        say("got %d", have);
        return;
    }
}

struct stalled {
    int readers, behind, ended;
    uint32_t messages_max;
};

/* Those that stall, or could, on paths with mode=latest or on all others. Those that are behind
 * lack the newest message anybody has. */
static struct stalled count_stalled(uint32_t newest, int latest) {
    struct stalled found = {0};
    for (int i = 0; i < all.opened; i++) {
        const struct reader *reader = &all.readers[i];
        int is_latest = (reader->flags & LATEST) != 0;
        if (!(reader->flags & STALLABLE) || is_latest != latest) continue;
        found.readers++;
        found.behind += reader->next != newest + 1;
        found.ended += (reader->flags & ENDED) != 0;
        if (reader->messages > found.messages_max) found.messages_max = reader->messages;
    }
    return found;
}

static uint32_t newest_message(void) {
    uint32_t next = 1;
    for (int i = 0; i < all.opened; i++)
        if (all.readers[i].next > next) next = all.readers[i].next;
    return next - 1;
}

static void catch_up(int seconds) {
    uint64_t give_up = now_ns() + seconds * SECOND_NS;
    for (;; read_on()) {
        uint32_t newest = newest_message();
        struct stalled others = count_stalled(newest, 0), latest = count_stalled(newest, 1);
        int readers = others.readers + latest.readers, behind = others.behind + latest.behind;
        if (behind > 0 && now_ns() <= give_up) continue;
        say("got %d", readers - behind);
        return;
    }
}

static void resume(void) {
    all.stall = 0;
    for (int i = 0; i < all.opened; i++) {
        if (!(all.readers[i].flags & STALLED)) continue;
        all.readers[i].flags &= ~STALLED;
        watch(all.epoll, all.readers[i].fd, READABLE, i);
    }
    say("resumed");
}

/* [number, nanoseconds until the last reader had it] of every message tracked. */
static void print_progress(void) {
    const char *comma = "";
    printf(",\"last_ns\":[");
    for (int slot = 0; slot < MESSAGES_TRACKED; slot++) {
        const struct progress *one = &all.progress[slot];
        if (one->last_ns == 0) continue;
        printf("%s[%u,%lu]", comma, one->number, one->last_ns);
        comma = ",";
    }
    printf("]");
}

static void print_stalled(const char *name, struct stalled stalled) {
    printf(",\"%s\":{\"readers\":%d,\"behind\":%d,\"ended\":%d,\"messages_max\":%u}", name,
           stalled.readers, stalled.behind, stalled.ended, stalled.messages_max);
}

static void report(void) {
    uint32_t newest = newest_message();
    int steady, current;
    count_progress(newest, &current, &steady);
    struct stalled others = count_stalled(newest, 0), latest = count_stalled(newest, 1);
    const struct counts *sum = &all.counts;
    printf("{\"ended\":%d,\"newest\":%u,\"steady\":%d,\"current\":%d,\"messages\":%lu,"
           "\"gaps\":%lu,\"conflated\":%lu,\"told\":%lu,\"silent\":%lu,\"repeated\":%lu,"
           "\"other\":%lu,\"stalled_messages\":%lu,\"stalled_conflated\":%lu,\"p99_ns\":%lu",
           all.ended, newest, steady, current, sum->messages, sum->gaps, sum->conflated, sum->told,
           sum->silent, sum->repeated, sum->other, sum->stalled_messages, sum->stalled_conflated,
           quantile_ns(&all.latencies, 0.99));
    print_progress();
    print_stalled("stalled_all", others);
    print_stalled("stalled_latest", latest);
    say("}");
}

static void serve_driver(void) {
    char line[100];
    unsigned number, seconds;
    for (;;) {
        while (!turn(-1)) continue;
        if (!fgets(line, sizeof line, stdin)) return;
        if (sscanf(line, "hold %u", &number) == 1) hold(number);
        else if (strcmp(line, "mark\n") == 0) mark();
        else if (sscanf(line, "await %u %u", &number, &seconds) == 2)
            await_message(number, seconds);
        else if (strcmp(line, "stall\n") == 0) all.stall = 1, say("stalled");
        else if (strcmp(line, "resume\n") == 0) resume();
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
    if (options.port < 1 || options.most < 1 || options.paths < 1)
        fail("--port, --most and --path are needed");
}

int main(int argc, char **argv) {
    parse_options(argc, argv);
    prepare_requests();
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    all.epoll = new_epoll();
    all.readers = calloc(options.most, sizeof *all.readers);
    if (!all.readers) fail("no memory");
    watch(all.epoll, STDIN_FILENO, EPOLLIN, UINT32_MAX);
    serve_driver();
}
