/* raw_client: the least a client can do. One thread, epoll, kept connections; it reads, looks at the clock and counts.
 *
 * Each stream sends the same body again as soon as its answer is whole; the first requests are all meant to go out at
 * the same moment and open their connections then. Results: OUT, one JSON line a request with times in CLOCK_MONOTONIC
 * ns, and OUT.times, the arrivals of chunks that carried tokens as int64, request after request.
 * Usage: raw_client PORT STREAMS REQUESTS PATH BODY_FILE OUT */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire.h"

#define READ_BYTES (1 << 18)

typedef struct {
    int fd, writing, done, last_frame;
    size_t written, head_len;
    char head[256];
    int64_t number, intended, start, sent;
    Buffer line; /* a line that has not ended yet */
    Buffer times;
} Stream;

static int epoll_fd, port;
static int64_t started, finished, wanted;
static const char *path;
static Buffer body, results, arrivals;

static void listen_for(Stream *s, int op, uint32_t events) {
    struct epoll_event e = {.events = events, .data.ptr = s};
    if (epoll_ctl(epoll_fd, op, s->fd, &e)) die("epoll_ctl");
}

static void write_on(Stream *s) {
    while (s->written < s->head_len + body.len) {
        int in_head = s->written < s->head_len;
        const char *from = in_head ? s->head + s->written : body.data + (s->written - s->head_len);
        size_t len = in_head ? s->head_len - s->written : body.len - (s->written - s->head_len);
        ssize_t sent = send(s->fd, from, len, MSG_NOSIGNAL | (in_head ? MSG_MORE : 0));
        if (sent < 0 && (errno == EAGAIN || errno == ENOTCONN)) return;
        if (sent < 0) die("send");
        s->written += (size_t)sent;
    }
    s->sent = now_ns();
    s->writing = 0;
    listen_for(s, EPOLL_CTL_MOD, EPOLLIN);
}

static void begin(Stream *s, int64_t intended) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    s->number = started++, s->intended = intended, s->start = now_ns();
    s->written = 0, s->done = s->last_frame = 0, s->writing = 1, s->times.len = s->line.len = 0;
    s->head_len = (size_t)snprintf(s->head, sizeof s->head,
                                   "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
                                   "X-Request-Id: raw-%lld\r\nContent-Length: %zu\r\n\r\n",
                                   path, port, (long long)s->number, body.len);
    if (s->fd) {
        listen_for(s, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
        write_on(s);
        return;
    }
    int one = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(s->fd, (void *)&address, sizeof address) && errno != EINPROGRESS) die("connect");
    listen_for(s, EPOLL_CTL_ADD, EPOLLIN | EPOLLOUT);
    write_on(s);
}

static void end(Stream *s, int64_t now) {
    char line[400];
    int64_t *times = (int64_t *)s->times.data;
    size_t chunks = s->times.len / sizeof *times;
    put(&results, line,
        (size_t)snprintf(line, sizeof line,
                         "{\"id\":\"raw-%lld\",\"intended\":%lld,\"start\":%lld,\"sent\":%lld,\"first\":%lld,"
                         "\"last\":%lld,\"end\":%lld,\"chunks\":%zu}\n",
                         (long long)s->number, (long long)s->intended, (long long)s->start, (long long)s->sent,
                         (long long)(chunks ? times[0] : 0), (long long)(chunks ? times[chunks - 1] : 0),
                         (long long)now, chunks));
    put(&arrivals, s->times.data, s->times.len);
    finished++;
    if (started < wanted) begin(s, now);
}

static int carries_token(const char *line, size_t len) {
    const char *at = memmem(line, len, "\"content\":\"", 11);
    if (at) return at[11] != '"';
    at = memmem(line, len, "\"text\":\"", 8);
    return at && at[8] != '"';
}

/* One line, without its newline. */
static void take_line(Stream *s, const char *line, size_t len, int64_t now) {
    if (len > 6 && !memcmp(line, "data: ", 6)) {
        if (line[6] == '[') s->done = 1;
        else if (carries_token(line, len)) put(&s->times, &now, sizeof now);
    } else if (s->done && len == 2 && line[0] == '0')
        s->last_frame = 1;
    else if (s->last_frame && len == 1)
        end(s, now);
}

static void read_on(Stream *s) {
    static char data[READ_BYTES];
    ssize_t got = recv(s->fd, data, sizeof data, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) die("the server went away");
    int64_t now = now_ns();
    const char *at = data, *stop = data + got, *newline;
    while ((newline = memchr(at, '\n', (size_t)(stop - at)))) {
        if (s->line.len) {
            put(&s->line, at, (size_t)(newline - at));
            size_t len = s->line.len;
            s->line.len = 0;
            take_line(s, s->line.data, len, now);
        } else
            take_line(s, at, (size_t)(newline - at), now);
        at = newline + 1;
    }
    put(&s->line, at, (size_t)(stop - at));
}

static void load(const char *name) {
    char part[1 << 16];
    FILE *file = fopen(name, "rb");
    if (!file) die(name);
    for (size_t got; (got = fread(part, 1, sizeof part, file));) put(&body, part, got);
    fclose(file);
}

static void save(const char *name, const char *suffix, const Buffer *what) {
    char full[4096];
    snprintf(full, sizeof full, "%s%s", name, suffix);
    FILE *file = fopen(full, "wb");
    if (!file || fwrite(what->data, 1, what->len, file) != what->len || fclose(file)) die(full);
}

int main(int argc, char **argv) {
    if (argc != 7) {
        fprintf(stderr, "usage: raw_client PORT STREAMS REQUESTS PATH BODY_FILE OUT\n");
        return 2;
    }
    int streams = atoi(argv[2]);
    port = atoi(argv[1]), wanted = atoll(argv[3]), path = argv[4];
    load(argv[5]);
    epoll_fd = epoll_create1(0);
    Stream *all = calloc((size_t)streams, sizeof *all);
    if (!all) die("calloc");
    int64_t intended = now_ns();
    for (int i = 0; i < streams && started < wanted; i++) begin(&all[i], intended);
    struct epoll_event events[512];
    while (finished < wanted) {
        int count = epoll_wait(epoll_fd, events, 512, -1);
        if (count < 0 && errno != EINTR) die("epoll_wait");
        for (int i = 0; i < count; i++) {
            Stream *s = events[i].data.ptr;
            if (s->writing && (events[i].events & EPOLLOUT)) write_on(s);
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) read_on(s);
        }
    }
    save(argv[6], "", &results);
    save(argv[6], ".times", &arrivals);
    return 0;
}
