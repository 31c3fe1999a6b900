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
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS_MAX = 512, RECEIVE_BYTES = 64 * 1024, BACKLOG = 4096, RESPONSE_COPIES = 256 };

static char receive_buffer[RECEIVE_BYTES];
static char *responses; /* RESPONSE_COPIES copies, end to end: a pipeline is answered in one send */
static size_t response_bytes;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void read_response(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) fail(path);
    char *one = malloc(RECEIVE_BYTES);
    if (!one) fail("malloc");
    response_bytes = fread(one, 1, RECEIVE_BYTES, file);
    if (response_bytes == 0 || response_bytes == RECEIVE_BYTES) {
        fprintf(stderr, "floor: %s: empty or too long\n", path);
        exit(1);
    }
    fclose(file);
    responses = malloc(RESPONSE_COPIES * response_bytes);
    if (!responses) fail("malloc");
    for (size_t i = 0; i < RESPONSE_COPIES; i++)
        memcpy(responses + i * response_bytes, one, response_bytes);
    free(one);
}

static int listen_on(const char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0) fail("socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* accepted sockets inherit it */
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0) fail("bind");
    if (listen(fd, BACKLOG) < 0) fail("listen");
    return fd;
}

static void accept_all(int epoll, int listener) {
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno != EAGAIN) perror("floor: accept4");
            return;
        }
        struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.fd = fd};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0) fail("epoll_ctl");
    }
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
    if (argc != 3) {
        fprintf(stderr, "usage: floor PORT RESPONSE_FILE\n");
        return 2;
    }
    read_response(argv[2]);
    int listener = listen_on(argv[1]);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event) < 0) fail("epoll");
    static struct epoll_event events[EVENTS_MAX];
    for (;;) {
        int ready = epoll_wait(epoll, events, EVENTS_MAX, -1);
        if (ready < 0 && errno != EINTR) fail("epoll_wait");
        for (int i = 0; i < ready; i++) {
            if (events[i].data.fd == listener) accept_all(epoll, listener);
            else serve(events[i].data.fd, events[i].events);
        }
    }
}
