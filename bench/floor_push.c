/* The floor of fan-out: the cheapest way the kernel allows to send one event to many readers.
 *
 * One thread, one epoll. A reader that sends a request head gets the same bytes as every other,
 * read from a file that the driver captured from Stentor: the head of an event stream, or the
 * answer to a WebSocket handshake; the floor does not know which. Then it is on the list, in the
 * order of accepting. A PUT on the second port holds a message. Between the bytes that were before
 * and behind one when Stentor sent it, which are in two more files, it goes to every reader with
 * one send(2) each. What Stentor costs above this is what its features cost: topics, cursors,
 * history, fairness to requests, deadlines.
 *
 * Left out on purpose, besides what floor.c leaves out: a socket that does not take an event whole
 * loses its reader (and the fact is reported), nothing else is served during a fan-out, and the
 * publisher is read with blocking calls, because there is one and it is the driver.
 *
 * Usage: floor_push PORT PUBLISH_PORT HEAD_FILE BEFORE_FILE BEHIND_FILE. Listens on 127.0.0.1;
 * SIGTERM ends it. The messages must be as long as the one that was captured, since a WebSocket
 * frame begins with its length.
 */
#include "common.h"

enum { EVENTS_MAX = 512, RECEIVE_BYTES = 64 * 1024, FILES_MAX = 1 << 20 };

static const char PUBLISHED[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

static char receive_buffer[RECEIVE_BYTES + 1]; /* the last byte stays 0, for strtoul */

/* Of a file; BEHIND_FILE may be empty. */
struct bytes {
    size_t length;
    char bytes[RECEIVE_BYTES];
};
static struct bytes head, before, behind;

/* Readers in the order of accepting; -1 where one has gone. `position` finds a reader by its
 * descriptor and is -1 for a connection that has asked for nothing yet. */
static int readers[FILES_MAX];
static int reader_count;
static int position[FILES_MAX];

static void read_bytes(const char *path, struct bytes *bytes) {
    bytes->length = read_file(path, bytes->bytes, sizeof bytes->bytes);
}

static void accept_all(int epoll, int listener, int flags) {
    for (int fd; (fd = accept_next(listener, flags)) >= 0;) {
        if (fd >= FILES_MAX) {
            close(fd);
            continue;
        }
        position[fd] = -1;
        uint32_t edge = flags & SOCK_NONBLOCK ? (uint32_t)EPOLLET : 0;
        watch(epoll, fd, EPOLLIN | EPOLLRDHUP | edge, fd);
    }
}

static void drop(int fd) {
    if (position[fd] >= 0) readers[position[fd]] = -1;
    position[fd] = -1;
    close(fd);
}

/* A reader's request, or its end. */
static void serve_reader(int fd, uint32_t events) {
    ssize_t received = recv(fd, receive_buffer, RECEIVE_BYTES, 0);
    if (received < 0 && errno == EAGAIN) return;
    if (received <= 0 || events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
        drop(fd);
        return;
    }
    if (position[fd] >= 0 || !memmem(receive_buffer, received, "\r\n\r\n", 4)) return;
    if (reader_count == FILES_MAX || send(fd, head.bytes, head.length, MSG_NOSIGNAL) < 0) {
        drop(fd);
        return;
    }
    position[fd] = reader_count;
    readers[reader_count++] = fd;
}

static void fan_out(const char *message, size_t length) {
    static char event[3 * RECEIVE_BYTES];
    char *end = mempcpy(event, before.bytes, before.length);
    end = mempcpy(end, message, length);
    end = mempcpy(end, behind.bytes, behind.length);
    const ssize_t bytes = end - event;
    int kept = 0;
    for (int i = 0; i < reader_count; i++) {
        int fd = readers[i];
        if (fd < 0) continue;
        if (send(fd, event, bytes, MSG_NOSIGNAL) != bytes) {
            fprintf(stderr, "floor_push: a reader did not take an event whole\n");
            drop(fd);
            continue;
        }
        position[fd] = kept;
        readers[kept++] = fd;
    }
    reader_count = kept;
}

/* One PUT, read to its end. The publisher waits for each answer, so nothing follows a body. */
static void serve_publisher(int fd) {
    size_t held = 0;
    for (;;) {
        ssize_t received = recv(fd, receive_buffer + held, RECEIVE_BYTES - held, 0);
        if (received <= 0) break;
        held += received;
        receive_buffer[held] = 0;
        char *body = memmem(receive_buffer, held, "\r\n\r\n", 4);
        char *length = strcasestr(receive_buffer, "\r\nContent-Length:");
        if (!body || !length || length > body) continue;
        body += 4;
        size_t bytes = strtoul(length + 17, NULL, 10);
        if (held - (body - receive_buffer) < bytes) continue;
        fan_out(body, bytes);
        if (send(fd, PUBLISHED, sizeof PUBLISHED - 1, MSG_NOSIGNAL) < 0) break;
        return;
    }
    close(fd);
}

int main(int argc, char **argv) {
    if (argc != 6) fail("usage: PORT PUBLISH_PORT HEAD_FILE BEFORE_FILE BEHIND_FILE");
    read_bytes(argv[3], &head);
    read_bytes(argv[4], &before);
    read_bytes(argv[5], &behind);
    int listener = listen_on(argv[1]), publish_listener = listen_on(argv[2]);
    int epoll = new_epoll(), publish_epoll = new_epoll();
    watch(epoll, listener, EPOLLIN, listener);
    /* Publishers have an epoll of their own inside the first, which tells them from readers. */
    watch(epoll, publish_epoll, EPOLLIN, publish_epoll);
    watch(publish_epoll, publish_listener, EPOLLIN, publish_listener);
    static struct epoll_event events[EVENTS_MAX], event;
    for (;;) {
        int ready = await(epoll, events, EVENTS_MAX, -1);
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                accept_all(epoll, listener, SOCK_NONBLOCK);
            } else if (fd == publish_epoll) {
                if (epoll_wait(publish_epoll, &event, 1, 0) < 1) continue;
                fd = event.data.fd;
                if (fd == publish_listener) accept_all(publish_epoll, publish_listener, 0);
                else serve_publisher(fd);
            } else {
                serve_reader(fd, events[i].events);
            }
        }
    }
}
