/* The floor: the cheapest HTTP-shaped server the kernel allows, with nothing it could leave out.
 *
 * One thread, one epoll, one recv and one send per readable connection. It does not parse: it
 * counts the blank lines that end request heads and answers each with the same bytes, read from a
 * file. The driver captures those bytes from Stentor first, so both servers answer exactly the
 * same response, and what Stentor costs above this is what its features cost.
 *
 * Edge-triggered, because that measured cheaper: a level-triggered connection goes back onto the
 * ready list after it was reported, and the next epoll_wait polls its socket once more to find
 * nothing there. An edge is safe with a single recv as long as the buffer was not filled, and as
 * long as the end of the stream is read off the event itself (EPOLLRDHUP).
 *
 * Left out on purpose: requests split over two reads (a request is answered when its last byte
 * comes, if its blank line came in one piece), answers the socket will not take whole (the
 * connection is closed and the fact reported), time-outs, logging, every header field.
 *
 * Usage: floor PORT RESPONSE_FILE. Listens on 127.0.0.1; SIGTERM ends it.
 */
#include "common.h"

enum { EVENTS_MAX = 512, RECEIVE_BYTES = 64 * 1024, RESPONSE_COPIES = 256 };

static char receive_buffer[RECEIVE_BYTES];
static char *responses; /* RESPONSE_COPIES copies, end to end: a pipeline is answered in one send */
static size_t response_bytes;

static void read_response(const char *path) {
    static char one[RECEIVE_BYTES];
    response_bytes = read_file(path, one, RECEIVE_BYTES);
    if (response_bytes == 0) fail("%s: empty", path);
    responses = malloc(RESPONSE_COPIES * response_bytes);
    if (!responses) fail("malloc: %m");
    for (size_t i = 0; i < RESPONSE_COPIES; i++)
        memcpy(responses + i * response_bytes, one, response_bytes);
}

static void accept_all(int epoll, int listener) {
    for (int fd; (fd = accept_next(listener, SOCK_NONBLOCK)) >= 0;)
        watch(epoll, fd, EPOLLIN | EPOLLRDHUP | EPOLLET, fd);
}

static size_t count_requests(const char *bytes, size_t length) {
    size_t count = 0;
    const char *end = bytes + length, *found;
    while ((found = memmem(bytes, end - bytes, "\r\n\r\n", 4))) {
        count++;
        bytes = found + 4;
    }
    return count;
}

/* Sends `count` responses; 0 when the socket did not take them. */
static int answer(int fd, size_t count) {
    while (count > 0) {
        size_t copies = count < RESPONSE_COPIES ? count : RESPONSE_COPIES;
        ssize_t sent = send(fd, responses, copies * response_bytes, MSG_NOSIGNAL);
        if (sent != (ssize_t)(copies * response_bytes)) {
            if (sent >= 0 || errno == EAGAIN) fprintf(stderr, "floor: the socket is full\n");
            return 0;
        }
        count -= copies;
    }
    return 1;
}

static void serve(int fd, uint32_t events) {
    ssize_t received;
    do {
        received = recv(fd, receive_buffer, RECEIVE_BYTES, 0);
        if (received <= 0 || !answer(fd, count_requests(receive_buffer, received))) {
            if (received < 0 && errno == EAGAIN) break;
            close(fd);
            return;
        }
    } while (received == RECEIVE_BYTES);
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) close(fd);
}

int main(int argc, char **argv) {
    if (argc != 3) fail("usage: floor PORT RESPONSE_FILE");
    read_response(argv[2]);
    int listener = listen_on(argv[1]), epoll = new_epoll();
    watch(epoll, listener, EPOLLIN, listener);
    static struct epoll_event events[EVENTS_MAX];
    for (;;) {
        int ready = await(epoll, events, EVENTS_MAX, -1);
        for (int i = 0; i < ready; i++) {
            if (events[i].data.fd == listener) accept_all(epoll, listener);
            else serve(events[i].data.fd, events[i].events);
        }
    }
}
