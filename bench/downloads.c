/* Downloaders of one large file, each of which asks for it again as soon as it has it.
 *
 * wrk reads 8 KB at a time: it fills its core while the server's is half empty, and what the server
 * then pays depends on how often it finds room for a little more. These have the kernel throw the
 * body away (MSG_TRUNC), so that they cost next to nothing and the server is what is slow. Bytes
 * are counted, not looked at; whether they are the right ones is for the driver to see.
 *
 * When the time is over nobody asks again, but what was asked for is read to its end: the bytes
 * reported are all that the server sent, and whole files. An answer other than 200, a length other
 * than announced, an end too early and a silence of ten seconds are failures; then there is no
 * figure.
 *
 * After a turn the thread naps before it looks again. Real downloaders are on other machines: the
 * server would not pay for waking them, and here it must not either.
 *
 * Usage: downloads PORT PATH BYTES CONNECTIONS SECONDS. One line of JSON.
 */
#include "common.h"

enum { CONNECTIONS_MAX = 64, HEAD_BYTES_MAX = 2048, SILENCE_MS_MAX = 10 * 1000 };
static const uint64_t NAP_NS = 1000 * 1000;

/* While nothing is left to come, its response head does. */
static struct download {
    int fd;
    uint64_t left;
    size_t head_bytes;
    char head[HEAD_BYTES_MAX + 1];
} downloads[CONNECTIONS_MAX];
static char request[1024];
static uint64_t file_bytes, files, received_bytes;

static void ask(struct download *download) {
    size_t length = strlen(request);
    download->head_bytes = 0;
    if (send(download->fd, request, length, MSG_NOSIGNAL) != (ssize_t)length) fail("send: %m");
}

static void open_all(int epoll, int port, int count) {
    for (int i = 0; i < count; i++) {
        struct sockaddr_in to = loopback(port);
        downloads[i].fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(downloads[i].fd, (struct sockaddr *)&to, sizeof to) < 0) fail("connect: %m");
        watch(epoll, downloads[i].fd, EPOLLIN, i);
        ask(&downloads[i]);
    }
}

/* Without a buffer the bytes are thrown away. 0 if there is nothing at the moment. */
static size_t receive(struct download *download, char *buffer, size_t length) {
    int flags = MSG_DONTWAIT | (buffer ? 0 : MSG_TRUNC);
    ssize_t received = recv(download->fd, buffer, length, flags);
    if (received < 0 && errno == EAGAIN) return 0;
    if (received < 0) fail("recv: %m");
    if (received == 0) fail("an end with %lu bytes of the file to come", download->left);
    return received;
}

/* Nobody pipelines, so whatever follows the head belongs to the body. */
static void take_head(struct download *download) {
    size_t room = HEAD_BYTES_MAX - download->head_bytes;
    if (room == 0) fail("a response head too long");
    download->head_bytes += receive(download, download->head + download->head_bytes, room);
    download->head[download->head_bytes] = 0;
    char *blank = strstr(download->head, "\r\n\r\n");
    if (!blank) return;
    size_t begun = download->head + download->head_bytes - (blank + 4);
    blank[2] = 0;
    const char *field = strcasestr(download->head, "\r\ncontent-length:");
    uint64_t length = field ? strtoull(strchr(field, ':') + 1, NULL, 10) : 0;
    if (strncmp(download->head, "HTTP/1.1 200 ", 13) != 0 || length != file_bytes)
        fail("not the file: %s", download->head);
    received_bytes += begun;
    download->left = file_bytes - begun;
}

/* Returns whether it now has the whole file, which is longer than what is read with a head. */
static int take(struct download *download) {
    if (download->left == 0) {
        take_head(download);
        return 0;
    }
    size_t received = receive(download, NULL, download->left);
    received_bytes += received;
    download->left -= received;
    return download->left == 0;
}

int main(int argc, char **argv) {
    if (argc != 6) fail("usage: downloads PORT PATH BYTES CONNECTIONS SECONDS");
    int count = atoi(argv[4]), running = count, epoll = new_epoll();
    file_bytes = strtoull(argv[3], NULL, 10);
    if (count < 1 || count > CONNECTIONS_MAX) fail("1 to %d connections", CONNECTIONS_MAX);
    if (file_bytes <= HEAD_BYTES_MAX) fail("a file of more than %d bytes", HEAD_BYTES_MAX);
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\n\r\n", argv[2],
             argv[1]);
    open_all(epoll, atoi(argv[1]), count);
    uint64_t start = now_ns(), end = start + strtoull(argv[5], NULL, 10) * SECOND_NS;
    while (running > 0) {
        struct epoll_event events[CONNECTIONS_MAX];
        int ready = await(epoll, events, CONNECTIONS_MAX, SILENCE_MS_MAX);
        if (ready == 0) fail("nothing came for %d s", SILENCE_MS_MAX / 1000);
        for (int i = 0; i < ready; i++) {
            struct download *download = &downloads[events[i].data.u32];
            if (!take(download)) continue;
            files++;
            if (now_ns() < end) {
                ask(download);
            } else {
                close(download->fd);
                running--;
            }
        }
        nap(NAP_NS);
    }
    printf("{\"files\":%lu,\"bytes\":%lu,\"ns\":%lu}\n", files, received_bytes,
           now_ns() - start);
}
