/* truth_server: an OpenAI-style server that streams made-up tokens and knows when it wrote each one.
 *
 * One thread, epoll, deadlines with ns resolution. Requests that carry an X-Request-Id are on record:
 *   GET /truth/log    one JSON line a request, times in CLOCK_MONOTONIC ns; `at` is its first entry in /truth/times
 *   GET /truth/times  int64, the moment just before the send() of every chunk that carried tokens
 *   GET /truth/body   the longest request body so far
 * Build: cc -O2 -D_GNU_SOURCE -o truth_server truth_server.c. It prints its port on stdout. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "requests.h"

static void usage(const char *flag) {
    fprintf(stderr, "truth_server: what is %s? Flags take a value: --port --model --ttft-ms --gap-ms --jitter-ms "
                    "--stagger-ms --in-step --tokens-per-chunk --burst --plain --record-all --faults A,B --stall-ms --slow-ms --long-bytes\n",
            flag);
    exit(2);
}

static void read_faults(char *list) {
    for (char *name = strtok(list, ","); name; name = strtok(NULL, ",")) {
        int found = NONE;
        while (found < FAULTS && strcmp(name, FAULT_NAMES[found])) found++;
        if (found == FAULTS || opt.fault_count == 512) usage(name);
        opt.faults[opt.fault_count++] = (Fault)found;
    }
}

static void read_options(int argc, char **argv) {
    for (int i = 1; i < argc; i += 2) {
        const char *flag = argv[i];
        char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!value) usage(flag);
        int64_t ns = (int64_t)(atof(value) * 1e6);
        if (!strcmp(flag, "--port")) opt.port = atoi(value);
        else if (!strcmp(flag, "--model")) opt.model = value;
        else if (!strcmp(flag, "--ttft-ms")) opt.ttft_ns = ns;
        else if (!strcmp(flag, "--gap-ms")) opt.gap_ns = ns; /* 0: as fast as the client reads */
        else if (!strcmp(flag, "--jitter-ms")) opt.jitter_ns = ns; /* of each chunk, either way */
        else if (!strcmp(flag, "--stagger-ms")) opt.stagger_ns = ns; /* first chunks are up to so much later */
        else if (!strcmp(flag, "--in-step")) opt.in_step = atoi(value); /* all streams together, as a batch's step */
        else if (!strcmp(flag, "--tokens-per-chunk")) opt.tokens_per_chunk = atoi(value);
        else if (!strcmp(flag, "--burst")) opt.burst = atoi(value); /* chunks in one send, without a gap */
        else if (!strcmp(flag, "--plain")) opt.plain = atoi(value); /* neither token ids nor usage in each chunk */
        else if (!strcmp(flag, "--record-all")) opt.record_all = atoi(value); /* also requests without an id */
        else if (!strcmp(flag, "--faults")) read_faults(value); /* taken in turn by the requests on record */
        else if (!strcmp(flag, "--stall-ms")) opt.stall_ns = ns;
        else if (!strcmp(flag, "--slow-ms")) opt.slow_ns = ns; /* between reads of 16 KB */
        else if (!strcmp(flag, "--long-bytes")) opt.long_bytes = (size_t)atol(value);
        else usage(flag);
    }
    if (opt.tokens_per_chunk < 1 || opt.burst < 1) usage("a count below one");
}

static int open_listener(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1, small = CREEP_BYTES;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port)};
    socklen_t len = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    for (int i = 0; i < opt.fault_count; i++) /* so that a client notices a slow reader before all is in the kernel */
        if (opt.faults[i] == SLOW_READ) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    if (bind(fd, (void *)&address, sizeof address) || listen(fd, 4096)) die("listen");
    if (getsockname(fd, (void *)&address, &len)) die("getsockname");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

static void accept_all(int listener) {
    for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        int one = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        Conn *c = calloc(1, sizeof *c);
        if (!c) die("calloc");
        c->fd = fd, c->heap_at = -1, c->accepted = now_ns();
        struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = c};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e);
    }
}

static void serve_due(void) {
    int64_t now = now_ns();
    while (heap_len && heap[0]->due <= now) {
        Conn *c = heap[0];
        forget_deadline(c);
        if (c->phase == CREEPING) creep(c);
        else if (step(c) && c->phase == READING) take_requests(c);
    }
    Conn *list = ready_head;
    ready_head = ready_tail = NULL;
    for (Conn *next; list; list = next) {
        next = list->next_ready;
        list->in_ready = 0;
        if (step(list) && list->phase == READING) take_requests(list);
    }
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    int listener = open_listener();
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event mine = {.events = EPOLLIN, .data.ptr = NULL}, events[512];
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &mine);
    for (;;) {
        struct timespec wait, *limit = NULL;
        if (ready_head || heap_len) {
            int64_t left = ready_head ? 0 : heap[0]->due - now_ns();
            if (left < 0) left = 0;
            wait = (struct timespec){left / NS, left % NS}, limit = &wait;
        }
        long count = syscall(SYS_epoll_pwait2, epoll_fd, events, 512, limit, NULL, 0);
        if (count < 0 && errno != EINTR) die("epoll");
        for (long i = 0; i < count; i++) {
            Conn *c = events[i].data.ptr;
            if (!c) accept_all(listener);
            else if (!(events[i].events & ~(uint32_t)EPOLLOUT) || receive(c))
                if (events[i].events & EPOLLOUT) resume(c);
        }
        serve_due();
    }
}
