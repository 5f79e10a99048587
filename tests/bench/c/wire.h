/* What the truth server and the raw client share: the clock, a growing buffer, and one way to give up. Linux only. */
#ifndef WIRE_H
#define WIRE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NS 1000000000LL

/* CLOCK_MONOTONIC in ns: the same clock as Python's time.perf_counter_ns(). */
static inline int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * NS + t.tv_nsec;
}

static inline void die(const char *what) {
    perror(what);
    exit(1);
}

typedef struct {
    char *data;
    size_t len, cap;
} Buffer;

static inline void reserve(Buffer *b, size_t more) {
    if (b->len + more <= b->cap) return;
    size_t cap = b->cap ? b->cap : 4096;
    while (cap < b->len + more) cap *= 2;
    b->data = realloc(b->data, cap);
    if (!b->data) die("realloc");
    b->cap = cap;
}

static inline void put(Buffer *b, const void *data, size_t len) {
    reserve(b, len);
    memcpy(b->data + b->len, data, len);
    b->len += len;
}

static inline void puts_to(Buffer *b, const char *text) { put(b, text, strlen(text)); }

static inline void release(Buffer *b) {
    free(b->data);
    b->data = NULL;
    b->len = b->cap = 0;
}

#endif
