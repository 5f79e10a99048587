/* Requests of the truth server: how they are read, which fault falls to them, and the routes. */
#ifndef REQUESTS_H
#define REQUESTS_H

#include <strings.h>

#include "answer.h"

#define READ_BYTES (1 << 18)
#define CREEP_BYTES (1 << 14)
#define FIELDS_WITHIN 4096 /* what is asked for stands near one end of a body, the messages in between */

static int64_t requests_seen;
static Buffer longest_body;

static const char *find(const char *in, size_t len, const char *what) { return memmem(in, len, what, strlen(what)); }

/* The integer (or true, false) behind `"name":`. A quote inside of JSON text is escaped, so no text can look like it. */
static long field_near(const char *in, size_t len, const char *name, long otherwise) {
    char key[64];
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = find(in, len, key), *end = in + len;
    if (!at) return otherwise;
    at += strlen(key);
    while (at < end && *at == ' ') at++;
    if (at < end && *at == 't') return 1;
    if (at < end && *at == 'f') return 0;
    return at < end && *at >= '0' && *at <= '9' ? strtol(at, NULL, 10) : otherwise;
}

static long field(const char *body, size_t len, const char *name, long otherwise) {
    size_t part = len < FIELDS_WITHIN ? len : FIELDS_WITHIN;
    long found = field_near(body + len - part, part, name, -1);
    if (found < 0 && part < len) found = field_near(body, part, name, -1);
    return found < 0 ? otherwise : found;
}

/* An even spread over [0, stagger) whatever the number of streams: multiples of the golden ratio. */
static int64_t stagger(int64_t number) {
    double turns = (double)number * 0.6180339887498949;
    return (int64_t)((turns - (double)(int64_t)turns) * (double)opt.stagger_ns);
}

static void start_answer(Conn *c, const char *body, int chat) {
    Answer *a = &c->answer;
    size_t len = c->body_len;
    a->chat = chat;
    a->tokens = (int)field(body, len, "max_tokens", field(body, len, "max_completion_tokens", 16));
    if (a->tokens < 1) a->tokens = 1;
    a->usage = (int)field(body, len, "include_usage", 0);
    a->usage_each = a->usage && !opt.plain && field(body, len, "continuous_usage_stats", 0) &&
                    a->fault != USAGE_LATE && a->fault != USAGE_ABSENT;
    a->ids = !opt.plain && (int)field(body, len, "return_token_ids", 0);
    a->prompt_tokens = (int)(len / 4);
    begin_answer(a, c->number);
    c->role = c->first = c->last = c->blocked = 0, c->stalled = 0, c->times.len = 0;
    if (a->fault == TOO_MANY || a->fault == UNAVAILABLE) {
        say_refusal(&c->out, a->fault);
        c->phase = FLUSHING;
        if (send_out(c) && !c->out.len) finished(c);
        return;
    }
    int64_t delay = c->id[0] ? opt.ttft_ns + stagger(c->number) : 0; /* probes are not made to wait */
    c->phase = WAITING;
    c->schedule = c->full + delay;
    if (opt.in_step && opt.gap_ns > 0 && c->id[0]) c->schedule += opt.gap_ns - c->schedule % opt.gap_ns;
    if (delay > 0) wake_at(c, c->schedule);
    else make_ready(c);
}

static void show_models(Conn *c) {
    char body[400];
    int len = snprintf(body, sizeof body,
                       "{\"object\":\"list\",\"data\":[{\"id\":\"%.100s\",\"object\":\"model\",\"created\":1767225600,"
                       "\"owned_by\":\"truth\",\"max_model_len\":1048576}]}",
                       opt.model);
    say_plainly(&c->out, "200 OK", "", "application/json", body, (size_t)len);
}

static void answer_request(Conn *c, const char *head, const char *body) {
    static const char missing[] = "{\"error\":{\"message\":\"Not Found\",\"code\":404}}";
    char path[128] = "";
    sscanf(head, "%*15s %127s", path);
    if (!strcmp(path, "/v1/chat/completions")) start_answer(c, body, 1);
    else if (!strcmp(path, "/v1/completions")) start_answer(c, body, 0);
    else {
        if (!strcmp(path, "/v1/models")) show_models(c);
        else if (!strcmp(path, "/health")) say_plainly(&c->out, "200 OK", "", "text/plain", "", 0);
        else if (!strcmp(path, "/truth/log"))
            say_plainly(&c->out, "200 OK", "", "application/x-ndjson", log_lines.data, log_lines.len);
        else if (!strcmp(path, "/truth/times"))
            say_plainly(&c->out, "200 OK", "", "application/octet-stream", all_times.data, all_times.len);
        else if (!strcmp(path, "/truth/body"))
            say_plainly(&c->out, "200 OK", "", "application/json", longest_body.data, longest_body.len);
        else say_plainly(&c->out, "404 Not Found", "", "application/json", missing, sizeof missing - 1);
        c->phase = FLUSHING;
        if (send_out(c) && !c->out.len) finished(c);
    }
}

/* A request's head is whole: how long its body is, who asks, and what will go wrong with it. */
static void read_head(Conn *c, const char *end) {
    static const char length[] = "\r\ncontent-length:", name[] = "\r\nx-request-id:";
    char *head = c->in.data, *at;
    c->head_len = (size_t)(end - head) + 4, c->have_head = 1;
    char held = head[c->head_len - 1];
    head[c->head_len - 1] = 0;
    at = strcasestr(head, length);
    c->body_len = at ? strtoul(at + sizeof length - 1, NULL, 10) : 0;
    at = strcasestr(head, name);
    c->id[0] = 0;
    if (at) sscanf(at + sizeof name - 1, " %95[^\r\n\"\\]", c->id);
    if (opt.record_all && !c->id[0] && !strncmp(head, "POST /v1/", 9)) strcpy(c->id, "without");
    head[c->head_len - 1] = held;
    c->served++;
    c->number = c->id[0] ? requests_seen++ : 0;
    c->answer.fault = c->id[0] && opt.fault_count ? opt.faults[c->number % opt.fault_count] : NONE;
    reserve(&c->in, c->head_len + c->body_len);
}

/* The request answered last makes room for what came in behind it. */
static void discard_answered(Conn *c) {
    if (!c->answered) return;
    c->in.len -= c->answered;
    memmove(c->in.data, c->in.data + c->answered, c->in.len);
    c->answered = 0;
}

/* Answers what has come in whole. The next request of a connection waits for the answer to the one before. */
static void take_requests(Conn *c) {
    discard_answered(c);
    if (!c->have_head) {
        const char *end = c->in.len ? find(c->in.data, c->in.len, "\r\n\r\n") : NULL;
        if (!end) return;
        read_head(c, end);
        if (c->answer.fault == SLOW_READ && c->in.len < c->head_len + c->body_len) {
            c->phase = CREEPING;
            listen_for(c, 0, 0);
            wake_at(c, now_ns() + opt.slow_ns);
            return;
        }
    }
    if (c->in.len < c->head_len + c->body_len) return;
    c->full = now_ns();
    c->have_head = 0, c->answered = c->head_len + c->body_len;
    const char *body = c->in.data + c->head_len;
    c->in.data[c->head_len - 1] = 0;
    if (c->id[0] && c->body_len > longest_body.len) {
        longest_body.len = 0;
        put(&longest_body, body, c->body_len);
    }
    answer_request(c, c->in.data, body);
}

/* 0 when the connection is gone. */
static int receive(Conn *c) {
    for (;;) {
        reserve(&c->in, READ_BYTES);
        ssize_t got = recv(c->fd, c->in.data + c->in.len, READ_BYTES, 0);
        if (got > 0) c->in.len += (size_t)got;
        else if (got == 0 || (errno != EAGAIN && errno != EINTR)) return drop(c, "client_closed"), 0;
        if (got < READ_BYTES) break;
    }
    if (c->phase == READING) take_requests(c);
    return 1;
}

/* A server that reads slower than its client writes. */
static void creep(Conn *c) {
    size_t whole = c->head_len + c->body_len, left = whole - c->in.len;
    ssize_t got = recv(c->fd, c->in.data + c->in.len, left < CREEP_BYTES ? left : CREEP_BYTES, 0);
    if (got > 0) c->in.len += (size_t)got;
    else if (got == 0 || (errno != EAGAIN && errno != EINTR)) return drop(c, "client_closed");
    if (c->in.len < whole) return wake_at(c, now_ns() + opt.slow_ns);
    c->phase = READING;
    listen_for(c, 1, 0);
    take_requests(c);
}

#endif
