/* A connection of the truth server: its buffers, when it is due, what is on record about its request. */
#ifndef CONN_H
#define CONN_H

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "speech.h"

typedef enum { READING, CREEPING, WAITING, STREAMING, LATE_USAGE, FLUSHING } Phase;

typedef struct Conn {
    int fd;
    Phase phase;
    Buffer in, out;
    size_t out_at, head_len, body_len, answered;
    int have_head, want_out, served, stalled, at_once;
    int64_t due, schedule;
    int heap_at;
    int in_ready;
    struct Conn *next_ready;
    /* The request on record. */
    char id[96];
    int64_t number, accepted, full, role, first, last, blocked;
    Buffer times;
    Answer answer;
} Conn;

static int epoll_fd, heap_len, heap_cap;
static Conn **heap, *ready_head, *ready_tail;
static Buffer log_lines, all_times;
static uint64_t random_state = 88172645463325252ULL;

static double uniform(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (double)(random_state >> 11) / 9007199254740992.0;
}

/* -- deadlines: a binary heap; and streams that may write at once: a list */

static void swap_heap(int a, int b) {
    Conn *held = heap[a];
    heap[a] = heap[b], heap[b] = held;
    heap[a]->heap_at = a, heap[b]->heap_at = b;
}

static void sift(int i) {
    while (i && heap[(i - 1) / 2]->due > heap[i]->due) swap_heap(i, (i - 1) / 2), i = (i - 1) / 2;
    for (;;) {
        int least = i, left = 2 * i + 1;
        if (left < heap_len && heap[left]->due < heap[least]->due) least = left;
        if (left + 1 < heap_len && heap[left + 1]->due < heap[least]->due) least = left + 1;
        if (least == i) return;
        swap_heap(i, least);
        i = least;
    }
}

static void wake_at(Conn *c, int64_t due) {
    c->due = due;
    if (heap_len == heap_cap) {
        heap_cap = heap_cap ? 2 * heap_cap : 256;
        heap = realloc(heap, (size_t)heap_cap * sizeof *heap);
        if (!heap) die("realloc");
    }
    c->heap_at = heap_len;
    heap[heap_len++] = c;
    sift(c->heap_at);
}

static void forget_deadline(Conn *c) {
    int i = c->heap_at;
    if (i < 0) return;
    heap_len--;
    if (i != heap_len) {
        heap[i] = heap[heap_len], heap[i]->heap_at = i;
        sift(i);
    }
    c->heap_at = -1;
}

static void make_ready(Conn *c) {
    if (c->in_ready) return;
    c->in_ready = 1, c->next_ready = NULL;
    if (ready_tail) ready_tail->next_ready = c;
    else ready_head = c;
    ready_tail = c;
}

static void forget_ready(Conn *c) {
    if (!c->in_ready) return;
    Conn **link = &ready_head, *before = NULL;
    while (*link != c) before = *link, link = &(*link)->next_ready;
    *link = c->next_ready;
    if (ready_tail == c) ready_tail = before;
    c->in_ready = 0;
}

/* -- sockets */

static void listen_for(Conn *c, int in, int out) {
    struct epoll_event e = {.events = (in ? EPOLLIN | EPOLLRDHUP : 0) | (out ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &e);
    c->want_out = out;
}

/* 0: all is sent; 1: the socket is full; -1: the client is gone. */
static int flush(Conn *c) {
    while (c->out_at < c->out.len) {
        ssize_t sent = send(c->fd, c->out.data + c->out_at, c->out.len - c->out_at, MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (!c->want_out) listen_for(c, 1, 1);
            c->blocked++;
            return 1;
        }
        if (sent < 0) return -1;
        c->out_at += (size_t)sent;
    }
    c->out.len = c->out_at = 0;
    if (c->want_out) listen_for(c, 1, 0);
    return 0;
}

static void record(Conn *c, const char *how) {
    char line[700];
    const Answer *a = &c->answer;
    size_t at = all_times.len / sizeof(int64_t), chunks = c->times.len / sizeof(int64_t);
    if (!c->id[0]) return;
    int len = snprintf(line, sizeof line,
                       "{\"id\":\"%s\",\"fault\":\"%s\",\"how\":\"%s\",\"number\":%lld,\"accepted\":%lld,\"full\":%lld,"
                       "\"role\":%lld,\"first\":%lld,\"last\":%lld,\"end\":%lld,\"body\":%zu,\"chunks\":%zu,"
                       "\"tokens\":%d,\"at\":%zu,\"blocked\":%lld,\"reused\":%s}\n",
                       c->id, FAULT_NAMES[a->fault], how, (long long)c->number, (long long)c->accepted,
                       (long long)c->full, (long long)c->role, (long long)c->first, (long long)c->last,
                       (long long)now_ns(), c->body_len, chunks, a->sent, at, (long long)c->blocked,
                       c->served > 1 ? "true" : "false");
    put(&log_lines, line, (size_t)len);
    put(&all_times, c->times.data, c->times.len);
    c->id[0] = 0;
}

static void drop(Conn *c, const char *how) {
    if (c->phase != READING) record(c, how);
    forget_deadline(c);
    forget_ready(c);
    close(c->fd);
    release(&c->in), release(&c->out), release(&c->times);
    free(c);
}

static void hang_up(Conn *c, int hard) {
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    if (hard) setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    drop(c, hard ? "reset" : "closed");
}

#endif
