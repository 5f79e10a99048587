/* What the truth server says: its options, the faults it can commit, and the bytes of every part of an answer.
 *
 * Chunks have the members vLLM 0.32 sends, in its order, so that parsing them costs what parsing vLLM costs. */
#ifndef SPEECH_H
#define SPEECH_H

#include "wire.h"

typedef enum {
    NONE, RESET, CLOSE, ERROR_EVENT, NO_END, NO_FINISH, TOO_MANY, UNAVAILABLE, STALL, LONG_LINE, SPLIT, CRLF, COMMENTS,
    USAGE_LATE, USAGE_ABSENT, SLOW_READ, FAULTS
} Fault;

static const char *const FAULT_NAMES[FAULTS] = {
    "none", "reset", "close", "error_event", "no_end", "no_finish", "429", "503", "stall", "long_line", "split", "crlf",
    "comments", "usage_late", "usage_absent", "slow_read"};

typedef struct {
    int port, tokens_per_chunk, burst, plain, record_all, in_step;
    int64_t ttft_ns, gap_ns, jitter_ns, stagger_ns, stall_ns, slow_ns;
    size_t long_bytes;
    const char *model;
    Fault faults[512];
    int fault_count;
} Options;

static Options opt = {.tokens_per_chunk = 1, .burst = 1, .stall_ns = NS, .slow_ns = 20000000, .long_bytes = 10 << 20,
                      .model = "truth", .ttft_ns = 50000000, .gap_ns = 20000000};

/* One answer in the making. */
typedef struct {
    Fault fault;
    int chat, usage, usage_each, ids;
    int tokens;          /* asked for */
    int sent;            /* tokens written so far */
    int prompt_tokens;
    char head[320];      /* a chunk up to its text */
    int head_len;
} Answer;

static const char *const WORDS[16] = {" def", " ret", " the", " int", " for", " str", " arg", " obj",
                                      " key", " val", " map", " set", " get", " put", " run", " log"};
static const char WIDE[] = " \xc3\xa9\xe2\x80\x93\xe2\x9c\x93\xf0\x9d\x84\x9e"; /* 2, 3, 3 and 4 bytes a character */

/* An HTTP chunk around `len` bytes. */
static void frame(Buffer *out, const void *data, size_t len) {
    char size[24];
    put(out, size, (size_t)snprintf(size, sizeof size, "%zx\r\n", len));
    put(out, data, len);
    put(out, "\r\n", 2);
}

static void begin_answer(Answer *a, int64_t number) {
    const char *kind = a->chat ? "chatcmpl" : "cmpl", *object = a->chat ? "chat.completion.chunk" : "text_completion";
    const char *text = a->chat ? "\"delta\":{\"content\":\"" : "\"text\":\"";
    a->head_len = snprintf(a->head, sizeof a->head,
                           "data: {\"id\":\"%s-%032llx\",\"object\":\"%s\",\"created\":1767225600,\"model\":\"%.100s\","
                           "\"choices\":[{\"index\":0,%s",
                           kind, (unsigned long long)number, object, opt.model, text);
    a->sent = 0;
}

static void say_headers(Buffer *out) {
    puts_to(out, "HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 2026 00:00:00 GMT\r\nserver: uvicorn\r\n"
                 "content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n");
}

static int usage_text(char *text, size_t size, const Answer *a) {
    return snprintf(text, size, "\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d,\"completion_tokens\":%d}",
                    a->prompt_tokens, a->prompt_tokens + a->sent, a->sent);
}

static void end_line(Buffer *event, const Answer *a) { puts_to(event, a->fault == CRLF ? "\r\n\r\n" : "\n\n"); }

/* Chat streams open with an empty content that carries no token. */
static void say_role(Buffer *out, const Answer *a) {
    Buffer event = {0};
    char usage[160];
    put(&event, a->head, (size_t)a->head_len - strlen("\"content\":\""));
    puts_to(&event, "\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}],"
                    "\"prompt_token_ids\":null");
    if (a->usage_each) {
        puts_to(&event, ",");
        put(&event, usage, (size_t)usage_text(usage, sizeof usage, a));
    }
    puts_to(&event, "}");
    end_line(&event, a);
    frame(out, event.data, event.len);
    release(&event);
}

static void put_text(Buffer *event, const Answer *a, int from, int count) {
    if (a->fault == LONG_LINE && from == 0) {
        reserve(event, opt.long_bytes);
        memset(event->data + event->len, 'x', opt.long_bytes);
        event->len += opt.long_bytes;
    }
    for (int i = from; i < from + count; i++) puts_to(event, a->fault == SPLIT ? WIDE : WORDS[i & 15]);
}

static void put_ids(Buffer *event, const Answer *a, int from, int count) {
    char id[16];
    puts_to(event, ",\"token_ids\":");
    if (!a->ids) {
        puts_to(event, "null");
        return;
    }
    for (int i = from; i < from + count; i++)
        put(event, id, (size_t)snprintf(id, sizeof id, "%c%d", i == from ? '[' : ',', 1000 + i));
    puts_to(event, "]");
}

/* The next chunk of up to `tokens_per_chunk` tokens as one event; the caller frames it. */
static void say_tokens(Buffer *event, Answer *a) {
    int from = a->sent, count = opt.tokens_per_chunk;
    char usage[160];
    if (count > a->tokens - from) count = a->tokens - from;
    a->sent += count;
    if (a->fault == COMMENTS) puts_to(event, ": still here\n\n:\n\n");
    put(event, a->head, (size_t)a->head_len);
    put_text(event, a, from, count);
    puts_to(event, a->chat ? "\"},\"logprobs\":null,\"finish_reason\":" : "\",\"logprobs\":null,\"finish_reason\":");
    puts_to(event, a->sent == a->tokens && a->fault != NO_FINISH ? "\"length\"" : "null");
    if (!a->chat) puts_to(event, ",\"stop_reason\":null");
    put_ids(event, a, from, count);
    puts_to(event, "}]");
    if (a->usage_each) {
        puts_to(event, ",");
        put(event, usage, (size_t)usage_text(usage, sizeof usage, a));
    }
    puts_to(event, "}");
    end_line(event, a);
}

static void say_usage(Buffer *out, const Answer *a) {
    Buffer event = {0};
    char usage[160];
    puts_to(&event, "data: {\"id\":\"last\",\"object\":\"chat.completion.chunk\",\"created\":1767225600,\"model\":\"");
    puts_to(&event, opt.model);
    puts_to(&event, "\",\"choices\":[],");
    put(&event, usage, (size_t)usage_text(usage, sizeof usage, a));
    puts_to(&event, "}");
    end_line(&event, a);
    frame(out, event.data, event.len);
    release(&event);
}

static void say_error(Buffer *out) {
    static const char event[] = "data: {\"error\":{\"message\":\"EngineCore encountered an issue\",\"type\":"
                                "\"InternalServerError\",\"param\":null,\"code\":500}}\n\n";
    frame(out, event, sizeof event - 1);
}

static void say_done(Buffer *out, const Answer *a) {
    if (a->fault == CRLF) frame(out, "data: [DONE]\r\n\r\n", 16);
    else frame(out, "data: [DONE]\n\n", 14);
}

static void say_plainly(Buffer *out, const char *status, const char *extra, const char *type, const void *body,
                        size_t len) {
    char head[400];
    put(out, head, (size_t)snprintf(head, sizeof head, "HTTP/1.1 %s\r\n%scontent-type: %s\r\ncontent-length: %zu\r\n\r\n",
                                    status, extra, type, len));
    put(out, body, len);
}

static void say_refusal(Buffer *out, Fault fault) {
    static const char body[] = "{\"error\":{\"message\":\"no room\",\"type\":\"overloaded\",\"param\":null,\"code\":0}}";
    const char *status = fault == TOO_MANY ? "429 Too Many Requests" : "503 Service Unavailable";
    say_plainly(out, status, fault == TOO_MANY ? "retry-after: 7\r\n" : "", "application/json", body, sizeof body - 1);
}

#endif
