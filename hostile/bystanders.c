/* Bystanders of an attack: everybody who uses a server while somebody else attacks it.
 *
 * One process and one thread play COUNT clients that ask at a steady rate, COUNT each that read a
 * topic by Server-Sent Events, WebSocket and long-poll, newcomers that open a connection for one
 * request, a publisher of that topic, and an operator who opens a connection for each of his
 * requests. Each connection to the public listener comes from an address of its own in
 * 127.2.0.0/16, so that a ceiling for an address is not met by them.
 *
 * All of it is an open loop: a request counts from when it was due, whatever the server does, and a
 * message counts from when it was due to be published. What is not answered is not left out: at a
 * report whatever has waited for a second or longer counts with its age, as a request without an
 * answer or a message that is missing. A reader that hears of a newer message first learns the
 * older ones' news with it, which is when they count as delivered (a long-poll sees the newest
 * value only). Who is cut comes back, and what it missed meanwhile is late.
 *
 * It asks for real-time scheduling because the attackers share its core, and says how late it was
 * itself: a figure of the server's below that is the instrument's.
 *
 * Reads lines: "report" prints one line of JSON of all since the last, and begins anew. The end of
 * the input is the end.
 *
 * Usage: bystanders PORT CONTROL_PORT COUNT GETS_PER_SECOND MESSAGES_PER_SECOND VALUE TOPIC
 */
#include "common.h"

#include <sched.h>

enum {
    BUFFER_BYTES = 16 * 1024,
    EVENTS_MAX = 256,
    NUMBERS = 8192,        /* messages whose time is remembered */
    ERRANDS = 512,         /* connections for one request that may be open at once */
    ERRANDS_PER_SECOND = 4, /* of each kind */
    WAITING_MAX = 64 * 1024,
};
static const uint64_t RETRY_NS = 200 * 1000 * 1000;

enum kind { GET, SSE, WEBSOCKET, LONG_POLL, PUBLISHER, STATUS, HEALTH, PUT, NEWCOMER, NEWREADER };
enum figure {
    GETS, SSES, WEBSOCKETS, LONG_POLLS, DELIVERIES, CONTROLS, NEWCOMERS, LATENESS, FIGURES
};
static const char *const NAMES[FIGURES] = {"get",      "sse",     "websocket", "long_poll",
                                           "delivery", "control", "newcomer",  "lateness"};

static struct figures {
    struct histogram times;
    uint64_t unanswered, wrong;
} figures[FIGURES];

enum state { CLOSED, CONNECTING, OPEN, STREAMING };

static struct client {
    enum kind kind;
    enum state state;
    int fd;
    int busy;
    uint64_t due_ns;   /* of the request under way */
    uint64_t retry_ns; /* when to come back after being cut */
    uint32_t last;     /* number of the newest message it knows */
    size_t held;
    char tag[64];
    char buffer[BUFFER_BYTES];
} *clients;

static int epoll, port, control_port, count, clients_all;
static const char *value, *topic;
static uint64_t cut, published_ns[NUMBERS];
static uint32_t newest;
static char last_error[128];

/* Requests due that found no free connection, or whose answers come in order on one. */
struct queue {
    uint64_t due_ns[WAITING_MAX];
    size_t first, length;
};
static struct queue gets_waiting, puts_waiting;

/* ---- What is counted ---- */

static void add(enum figure figure, uint64_t since_ns, uint64_t now) {
    record(&figures[figure].times, now > since_ns ? now - since_ns : 0);
}

/* What has waited so long is as good as unanswered. */
static void add_old(enum figure figure, uint64_t since_ns, uint64_t now) {
    if (since_ns == 0 || now < since_ns + SECOND_NS) return;
    add(figure, since_ns, now);
    figures[figure].unanswered++;
}

static enum figure figure_of(enum kind kind) {
    switch (kind) {
    case GET: return GETS;
    case SSE: return SSES;
    case WEBSOCKET: return WEBSOCKETS;
    case LONG_POLL: return LONG_POLLS;
    case NEWCOMER:
    case NEWREADER: return NEWCOMERS;
    default: return CONTROLS;
    }
}

static void wrong(enum kind kind, const char *bytes, size_t length) {
    figures[figure_of(kind)].wrong++;
    size_t end = 0;
    while (end < length && end + 1 < sizeof last_error && bytes[end] >= ' ' && bytes[end] != '"' &&
           bytes[end] != '\\')
        end++;
    snprintf(last_error, sizeof last_error, "%.*s", (int)end, bytes);
}

static void push(struct queue *queue, uint64_t due) {
    if (queue->length == WAITING_MAX) return; /* a minute behind: it shows already */
    queue->due_ns[(queue->first + queue->length++) % WAITING_MAX] = due;
}

static uint64_t pop(struct queue *queue) {
    uint64_t due = queue->due_ns[queue->first];
    queue->first = (queue->first + 1) % WAITING_MAX;
    queue->length--;
    return due;
}

static void report(void) {
    uint64_t now = now_ns();
    for (size_t i = 0; i < gets_waiting.length; i++)
        add_old(GETS, gets_waiting.due_ns[(gets_waiting.first + i) % WAITING_MAX], now);
    for (size_t i = 0; i < puts_waiting.length; i++)
        add_old(CONTROLS, puts_waiting.due_ns[(puts_waiting.first + i) % WAITING_MAX], now);
    for (int i = 0; i < clients_all; i++) {
        struct client *client = &clients[i];
        enum figure figure = figure_of(client->kind);
        if (client->busy) add_old(figure, client->due_ns, now);
        if (client->kind < SSE || client->kind > LONG_POLL) continue;
        uint32_t from = client->last ? client->last + 1 : 1;
        for (uint32_t n = newest - from < NUMBERS ? from : newest + 1; n <= newest; n++) {
            add_old(figure, published_ns[n % NUMBERS], now);
            add_old(DELIVERIES, published_ns[n % NUMBERS], now);
        }
    }
    printf("{");
    for (int i = 0; i < FIGURES; i++) {
        struct figures *figure = &figures[i];
        printf("\"%s\":{\"count\":%lu,\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"max_ms\":%.3f,"
               "\"unanswered\":%lu,\"wrong\":%lu},",
               NAMES[i], figure->times.count, quantile_ns(&figure->times, 0.5) / 1e6,
               quantile_ns(&figure->times, 0.99) / 1e6, figure->times.max_ns / 1e6,
               figure->unanswered, figure->wrong);
        memset(figure, 0, sizeof *figure);
    }
    printf("\"cut\":%lu,\"last_error\":\"%s\"}\n", cut, last_error);
    fflush(stdout);
    cut = 0;
    last_error[0] = 0;
}

/* ---- Connections ---- */

static void close_client(struct client *client) {
    if (client->fd >= 0) close(client->fd);
    client->fd = -1;
    client->state = CLOSED;
    client->held = 0;
}

static void lose(struct client *client, uint64_t now) {
    if (client->kind == GET && client->busy) {
        push(&gets_waiting, client->due_ns);
        client->busy = 0;
    }
    if (client->kind >= STATUS) {
        if (client->busy) add(figure_of(client->kind), client->due_ns, now);
        if (client->busy) figures[figure_of(client->kind)].unanswered++;
        client->busy = 0;
    } else {
        cut++;
        client->retry_ns = now + RETRY_NS;
    }
    if (client->kind == PUBLISHER)
        for (; puts_waiting.length > 0; figures[CONTROLS].unanswered++)
            add(CONTROLS, pop(&puts_waiting), now);
    close_client(client);
}

__attribute__((format(printf, 2, 3))) static void send_text(struct client *client,
                                                            const char *format, ...) {
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (send(client->fd, text, length, MSG_NOSIGNAL) != length) lose(client, now_ns());
}

static void ask(struct client *client) {
    const char *host = "Host: stentor.test\r\n";
    char condition[96] = "";
    switch (client->kind) {
    case GET:
    case NEWCOMER: send_text(client, "GET %s HTTP/1.1\r\n%s\r\n", value, host); break;
    case SSE:
    case NEWREADER:
        send_text(client, "GET %s HTTP/1.1\r\n%sAccept: text/event-stream\r\n\r\n", topic, host);
        break;
    case WEBSOCKET:
        send_text(client, "GET %s HTTP/1.1\r\n%sConnection: Upgrade\r\nUpgrade: websocket\r\n"
                  "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                  "\r\n", topic, host);
        break;
    case LONG_POLL:
        if (client->tag[0])
            snprintf(condition, sizeof condition, "If-None-Match: %s\r\n", client->tag);
        send_text(client, "GET %s HTTP/1.1\r\n%sPrefer: wait=25\r\n%s\r\n", topic, host, condition);
        break;
    case STATUS: send_text(client, "GET /-/status HTTP/1.1\r\nHost: localhost\r\n\r\n"); break;
    case HEALTH: send_text(client, "GET /-/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); break;
    case PUT:
        send_text(client, "PUT %s-aside HTTP/1.1\r\nHost: localhost\r\n"
                  "Content-Length: 4\r\n\r\nhere", value);
        break;
    case PUBLISHER: break;
    }
}

/* On loopback connecting does not wait, unless the queue of the listener is full. */
static void open_client(struct client *client, int index) {
    int is_control = client->kind >= PUBLISHER && client->kind <= PUT;
    struct sockaddr_in to = loopback(is_control ? control_port : port);
    uint32_t own = 0x7f020000 + (index / 250 + 1) * 256 + index % 250 + 1;
    client->fd = socket_from(is_control ? INADDR_LOOPBACK : own, SOCK_NONBLOCK);
    setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    client->state = CONNECTING;
    client->held = 0;
    if (connect(client->fd, (struct sockaddr *)&to, sizeof to) < 0 && errno != EINPROGRESS) {
        lose(client, now_ns());
        return;
    }
    watch(epoll, client->fd, EPOLLOUT | EPOLLONESHOT, client - clients);
}

/* ---- What they are told ---- */

static void learn(struct client *client, uint32_t number, uint64_t now) {
    if (number == 0 || number > newest) return;
    enum figure figure = figure_of(client->kind);
    for (uint32_t n = client->last + 1; n <= number; n++) {
        add(figure, published_ns[n % NUMBERS], now);
        add(DELIVERIES, published_ns[n % NUMBERS], now);
    }
    if (number > client->last) client->last = number;
}

/* The newcomer to a stream knows what is there when it comes; only later news is a delivery. */
static void take_message(void *reader, const char *bytes, size_t length) {
    struct client *client = reader;
    const char *at = memmem(bytes, length, "number=", 7);
    if (!at) return;
    uint32_t number = strtoul(at + 7, NULL, 10);
    if (client->last == 0) client->last = number;
    else learn(client, number, now_ns());
}

/* The length of the first answer in the buffer and of its head, or 0 if it is not whole. */
static size_t answer_length(struct client *client, size_t *head_length) {
    char *blank = memmem(client->buffer, client->held, "\r\n\r\n", 4);
    if (!blank) return 0;
    size_t head = blank + 4 - client->buffer;
    char *field = memmem(client->buffer, head, "\r\nContent-Length: ", 18);
    size_t body = field ? strtoul(field + 18, NULL, 10) : 0;
    *head_length = head;
    return client->held >= head + body ? head + body : 0;
}

/* Returns the bytes that were whole; the client may be closed afterwards. */
static size_t take_answer(struct client *client, uint64_t now) {
    size_t head = 0, length = answer_length(client, &head);
    if (client->kind == NEWREADER || client->kind == SSE || client->kind == WEBSOCKET) {
        length = head;
    }
    if (length == 0) return 0;
    int status = client->held > 12 ? atoi(client->buffer + 9) : 0;
    int wanted = client->kind == WEBSOCKET ? 101 : 200;
    char *tag = memmem(client->buffer, head, "\r\nETag: ", 8);
    int writes = client->kind == PUT || client->kind == PUBLISHER;
    int good = status == wanted || (writes && (status == 201 || status == 204)) ||
               (client->kind == LONG_POLL && (status == 304 || status == 204));
    if (!good) wrong(client->kind, client->buffer, client->held);
    switch (client->kind) {
    case GET:
        if (client->busy) add(GETS, client->due_ns, now);
        client->busy = 0;
        break;
    case SSE:
    case WEBSOCKET:
        if (good) client->state = STREAMING;
        else lose(client, now);
        break;
    case LONG_POLL:
        if (!good) {
            lose(client, now);
            break;
        }
        if (tag) sscanf(tag + 8, "%63[^\r]", client->tag);
        if (status == 200) take_message(client, client->buffer + head, length - head);
        break;
    case PUBLISHER:
        if (puts_waiting.length > 0) add(CONTROLS, pop(&puts_waiting), now);
        break;
    default:
        add(figure_of(client->kind), client->due_ns, now);
        client->busy = 0;
        close_client(client);
    }
    return length;
}

static void take(struct client *client, uint64_t now) {
    for (;;) {
        size_t taken = client->state != STREAMING ? take_answer(client, now)
            : client->kind == WEBSOCKET
                ? take_websocket(client->fd, client->buffer, client->held, take_message, client)
                : take_sse(client->buffer, client->held, take_message, client);
        if (taken == 0 || client->fd < 0) return;
        memmove(client->buffer, client->buffer + taken, client->held -= taken);
        if (client->kind == LONG_POLL) ask(client);
        if (client->held == 0 || client->fd < 0) return;
    }
}

static void on_event(struct client *client, uint32_t events) {
    if (client->fd < 0) return;
    if (events & EPOLLOUT) {
        int error = 0;
        socklen_t size = sizeof error;
        getsockopt(client->fd, SOL_SOCKET, SO_ERROR, &error, &size);
        if (error) {
            lose(client, now_ns());
            return;
        }
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = client - clients};
        epoll_ctl(epoll, EPOLL_CTL_MOD, client->fd, &event);
        client->state = OPEN;
        if (client->kind != GET) ask(client);
        return;
    }
    ssize_t received = recv(client->fd, client->buffer + client->held,
                            BUFFER_BYTES - client->held, 0);
    if (received < 0 && errno == EAGAIN) return;
    if (received <= 0) {
        lose(client, now_ns());
        return;
    }
    client->held += received;
    take(client, now_ns());
    if (client->held == BUFFER_BYTES) lose(client, now_ns());
}

/* ---- What is due ---- */

static void give_gets(void) {
    static int turn;
    for (int tries = 0; gets_waiting.length > 0 && tries < count; tries++) {
        struct client *client = &clients[turn++ % count];
        if (client->state != OPEN || client->busy) continue;
        client->busy = 1;
        client->due_ns = pop(&gets_waiting);
        ask(client);
    }
}

static void publish(struct client *publisher, uint64_t due) {
    newest++;
    published_ns[newest % NUMBERS] = due;
    if (publisher->state != OPEN) { /* was cut, and is coming back */
        add(CONTROLS, due, now_ns());
        figures[CONTROLS].unanswered++;
        return;
    }
    push(&puts_waiting, due);
    char body[64];
    int length = snprintf(body, sizeof body, "number=%u of the bystanders", newest);
    send_text(publisher, "PUT %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
              "Content-Length: %d\r\n\r\n%s", topic, length, body);
}

static void run_errand(enum kind kind, uint64_t due) {
    static int index = 0;
    for (int i = 0; i < ERRANDS; i++) {
        struct client *client = &clients[clients_all - 1 - i];
        if (client->busy) continue;
        *client = (struct client){.kind = kind, .fd = -1, .busy = 1, .due_ns = due};
        open_client(client, 40000 + index++ % 20000);
        return;
    }
}

/* Gives up those without an answer for five seconds, and lets those that were cut come back. */
static void tidy(uint64_t now) {
    for (int i = 0; i < clients_all; i++) {
        struct client *client = &clients[i];
        if (client->kind >= STATUS && client->busy && now > client->due_ns + 5 * SECOND_NS)
            lose(client, now);
        if (client->kind < STATUS && client->fd < 0 && now >= client->retry_ns)
            open_client(client, i);
    }
}

struct clockwork {
    uint64_t gets, messages, errands, tidied;
};

/* Does all that is due; returns when the next is. */
static uint64_t see_to(struct clockwork *next, uint64_t get_ns, uint64_t message_ns) {
    static const enum kind KINDS[] = {STATUS, HEALTH, PUT, NEWCOMER, NEWREADER};
    uint64_t now = now_ns();
    for (; next->gets <= now; next->gets += get_ns) {
        add(LATENESS, next->gets, now);
        push(&gets_waiting, next->gets);
    }
    for (; next->messages <= now; next->messages += message_ns)
        publish(&clients[4 * count], next->messages);
    for (; next->errands <= now; next->errands += SECOND_NS / (5 * ERRANDS_PER_SECOND)) {
        static int turn;
        run_errand(KINDS[turn++ % 5], next->errands);
    }
    if (next->tidied <= now) {
        tidy(now);
        next->tidied = now + SECOND_NS / 20;
    }
    give_gets();
    uint64_t first = next->gets < next->messages ? next->gets : next->messages;
    return first < next->errands ? first : next->errands;
}

static void make_clients(void) {
    clients_all = 4 * count + 1 + ERRANDS;
    clients = calloc(clients_all, sizeof *clients);
    if (!clients) fail("memory: %m");
    for (int i = 0; i < clients_all; i++) {
        clients[i].fd = -1;
        clients[i].kind = i < 4 * count ? (enum kind)(i / count) : PUBLISHER;
        if (i > 4 * count) clients[i].kind = STATUS;
        if (clients[i].kind < STATUS) open_client(&clients[i], i);
    }
}

/* 0 at the end of the input. */
static int take_order(void) {
    char line[64];
    ssize_t length = read(0, line, sizeof line);
    if (length > 0) report();
    return length > 0;
}

int main(int argc, char **argv) {
    if (argc != 8) fail("usage: see the head of bystanders.c");
    port = atoi(argv[1]), control_port = atoi(argv[2]), count = atoi(argv[3]);
    uint64_t get_ns = SECOND_NS / atoi(argv[4]), message_ns = SECOND_NS / atoi(argv[5]);
    value = argv[6], topic = argv[7];
    struct sched_param priority = {.sched_priority = 1};
    if (sched_setscheduler(0, SCHED_FIFO, &priority) < 0)
        perror("bystanders: no real-time scheduling");
    epoll = new_epoll();
    watch(epoll, STDIN_FILENO, EPOLLIN, UINT32_MAX);
    make_clients();
    uint64_t start = now_ns();
    struct clockwork next = {start, start + SECOND_NS, start, start};
    for (;;) {
        uint64_t due = see_to(&next, get_ns, message_ns), now = now_ns();
        struct timespec timeout = duration(due > now ? due - now : 0);
        struct epoll_event events[EVENTS_MAX];
        int ready = epoll_pwait2(epoll, events, EVENTS_MAX, &timeout, NULL);
        if (ready < 0 && errno != EINTR) fail("epoll_pwait2: %m");
        for (int i = 0; i < ready; i++) {
            if (events[i].data.u32 != UINT32_MAX)
                on_event(&clients[events[i].data.u32], events[i].events);
            else if (!take_order())
                return 0;
        }
    }
}
