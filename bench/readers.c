/* Readers of one stream, and a check of each: the instrument that `stentor bench push` is compared
 * with. It shares no line with that program or with the server.
 *
 * Every message says "n=NUMBER t=NANOSECONDS": a number that grows by one with each message, and
 * CLOCK_MONOTONIC when it was published. So each reader can tell what is missing, repeated or out
 * of order, and how long it took.
 *
 * After a turn with few events the program naps before it asks for more. Real readers are on
 * other machines: the server would not pay for waking them, and here it must not either.
 *
 * Usage: readers PORT PATH COUNT. Reads lines "await NUMBER": waits until all are there and have
 * that message (-1 is none), for half a minute at most, and prints a line of JSON of what came
 * since the last: messages, those that were wrong, and the mean of the times until the last reader
 * had each. The end of the input is the end; so is any failure, with its reason on stderr.
 */
#include "common.h"

#include <sys/resource.h>

enum {
    READERS_PER_ADDRESS = 4096,
    OPENING_MAX = 64, /* connections that wait for their response head */
    EVENTS_MAX = 512,
    BYTES_MAX = 64 * 1024,
    TRACKED = 4096, /* messages whose last reader is known */
    PATIENCE_SECONDS = 30,
    LOOK_MS = 5,
};
static const uint64_t NAP_NS = 200 * 1000;

static struct reader {
    int fd;
    uint32_t next; /* the number that must come next; 0 before the first */
    uint32_t held; /* bytes of an event whose rest has not come yet */
    char *tail;
    int is_open;
} *readers;
static int epoll, port, count, opened, answered;
static const char *path;
static int awaited, is_awaiting;
static uint64_t now, give_up_ns, messages, wrong, last_ns[TRACKED];

static void take_message(struct reader *reader, const char *event, size_t length) {
    const char *at = memmem(event, length, "n=", 2);
    char *end;
    if (!at) return;
    uint32_t number = strtoul(at + 2, &end, 10);
    if (strncmp(end, " t=", 3) != 0) return;
    uint64_t took = now - strtoul(end + 3, NULL, 10), *last = &last_ns[number % TRACKED];
    wrong += reader->next && number != reader->next;
    reader->next = number + 1;
    messages++;
    if (took > *last) *last = took;
}

/* Returns how many bytes were whole events. Between two of them are the end of a chunk and the size
 * of the next, which is taken for one more line of an event. */
static size_t take_events(struct reader *reader, const char *bytes, size_t length) {
    for (size_t at = 0;;) {
        const char *blank = memmem(bytes + at, length - at, "\n\n", 2);
        if (!blank) return at;
        take_message(reader, bytes + at, blank + 2 - bytes - at);
        at = blank + 2 - bytes;
    }
}

static size_t take_head(struct reader *reader, const char *bytes, size_t length) {
    const char *blank = memmem(bytes, length, "\r\n\r\n", 4);
    if (!blank) return 0;
    if (memcmp(bytes, "HTTP/1.1 200 ", 13) != 0) fail("the server answered: %.40s", bytes);
    reader->is_open = 1;
    answered++;
    return blank + 4 - bytes;
}

static void read_some(struct reader *reader) {
    static char bytes[2 * BYTES_MAX + 1]; /* the last byte stays 0 */
    memcpy(bytes, reader->tail, reader->held);
    ssize_t received = recv(reader->fd, bytes + reader->held, BYTES_MAX, MSG_DONTWAIT);
    if (received < 0 && errno == EAGAIN) return;
    if (received <= 0) fail("a stream has ended");
    size_t length = reader->held + received, taken = 0;
    now = now_ns();
    if (!reader->is_open) taken = take_head(reader, bytes, length);
    if (reader->is_open)
        taken += take_events(reader, bytes + taken, length - taken);
    reader->held = length - taken;
    if (reader->held > BYTES_MAX) fail("an event that is too long");
    reader->tail = realloc(reader->tail, reader->held + 1);
    memcpy(reader->tail, bytes + taken, reader->held);
}

static void open_reader(void) {
    struct sockaddr_in to = loopback(port), from = loopback(0);
    char request[1024];
    int length = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                          "Accept: text/event-stream\r\n\r\n", path);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    /* The kernel finds a port for each address and server, once it is connected. */
    from.sin_addr.s_addr = htonl(0x7f010001 + opened / READERS_PER_ADDRESS);
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &(int){1}, sizeof(int));
    if (bind(fd, (struct sockaddr *)&from, sizeof from) < 0) fail("bind: %m");
    if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0) fail("connect: %m");
    if (send(fd, request, length, MSG_NOSIGNAL) != length) fail("send: %m");
    readers[opened].fd = fd;
    watch(epoll, fd, EPOLLIN, opened++);
}

/* Whether all are there and have the message that is waited for. */
static int have_all(void) {
    for (int i = 0; i < opened; i++)
        if ((int64_t)readers[i].next <= awaited) return 0;
    return answered == count;
}

static void report(void) {
    uint64_t tracked = 0, sum_ns = 0;
    for (int i = 0; i < TRACKED; i++) tracked += last_ns[i] > 0, sum_ns += last_ns[i];
    printf("{\"messages\":%lu,\"wrong\":%lu,\"last_ms\":%.3f}\n", messages, wrong,
           tracked ? sum_ns / 1e6 / tracked : 0);
    fflush(stdout);
    messages = wrong = 0;
    memset(last_ns, 0, sizeof last_ns);
}

/* Looking at all readers is not for every turn. */
static void look(void) {
    static uint64_t look_ns;
    if (!is_awaiting || now_ns() < look_ns) return;
    look_ns = now_ns() + LOOK_MS * SECOND_NS / 1000;
    if (have_all()) report(), is_awaiting = 0;
    else if (now_ns() > give_up_ns) fail("not all readers have message %d", awaited);
}

/* 0 at the end of the input. */
static int take_order(void) {
    char line[64] = "";
    if (read(STDIN_FILENO, line, sizeof line - 1) <= 0) return 0;
    if (sscanf(line, "await %d", &awaited) != 1) fail("not an order: %s", line);
    is_awaiting = 1, give_up_ns = now_ns() + PATIENCE_SECONDS * SECOND_NS;
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 4) fail("usage: readers PORT PATH COUNT");
    port = atoi(argv[1]), path = argv[2], count = atoi(argv[3]);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    epoll = new_epoll();
    watch(epoll, STDIN_FILENO, EPOLLIN, UINT32_MAX);
    readers = calloc(count, sizeof *readers);
    if (!readers) fail("no memory");
    for (;; look()) {
        static struct epoll_event events[EVENTS_MAX];
        while (opened < count && opened - answered < OPENING_MAX) open_reader();
        int ready = await(epoll, events, EVENTS_MAX, is_awaiting ? LOOK_MS : -1);
        for (int i = 0; i < ready; i++) {
            if (events[i].data.u32 != UINT32_MAX) read_some(&readers[events[i].data.u32]);
            else if (!take_order()) return 0;
        }
        if (ready > 0 && ready < EVENTS_MAX && opened == count) nap(NAP_NS);
    }
}
