/* One answer, step by step: when which part is written. Functions return 0 when the connection is gone. */
#ifndef ANSWER_H
#define ANSWER_H

#include "conn.h"

static int finished(Conn *c) {
    record(c, "done");
    c->phase = READING;
    return 1;
}

static int send_out(Conn *c) {
    int state = flush(c);
    if (state < 0) return drop(c, "client_closed"), 0;
    return 1;
}

static int ending(Conn *c) {
    Answer *a = &c->answer;
    if (a->usage && a->fault != USAGE_ABSENT) {
        say_usage(&c->out, a);
        if (!send_out(c)) return 0;
    }
    if (a->fault != NO_END) {
        say_done(&c->out, a);
        if (!send_out(c)) return 0;
    }
    puts_to(&c->out, "0\r\n\r\n");
    c->phase = FLUSHING;
    if (!send_out(c)) return 0;
    return c->out.len ? 1 : finished(c);
}

/* Faults in the middle: whether the answer is over with it, and `*gone` when the connection is. */
static int misbehaves(Conn *c, int *gone) {
    Answer *a = &c->answer;
    *gone = 0;
    if (a->sent < a->tokens / 2) return 0;
    if (a->fault == RESET || a->fault == CLOSE) {
        hang_up(c, a->fault == RESET);
        *gone = 1;
        return 1;
    }
    if (a->fault == ERROR_EVENT) {
        say_error(&c->out);
        a->usage = 0;
        *gone = !ending(c);
        return 1;
    }
    if (a->fault == STALL && !c->stalled) {
        c->stalled = 1, c->schedule += opt.stall_ns;
        wake_at(c, c->schedule);
        return 1;
    }
    return 0;
}

static int write_chunk(Conn *c, int64_t now) {
    static Buffer event;
    Answer *a = &c->answer;
    event.len = 0;
    say_tokens(&event, a);
    if (!c->first) c->first = now;
    c->last = now;
    put(&c->times, &now, sizeof now);
    if (a->fault == SPLIT) { /* ten bytes at a time, each its own send: every character is torn somewhere */
        for (size_t at = 0; at < event.len; at += 10) {
            frame(&c->out, event.data + at, event.len - at < 10 ? event.len - at : 10);
            if (!send_out(c)) return 0;
        }
    } else
        frame(&c->out, event.data, event.len);
    return 1;
}

static int plan_next(Conn *c) {
    if (opt.gap_ns <= 0 && c->answer.fault != STALL) return make_ready(c), 1;
    c->schedule += opt.gap_ns;
    wake_at(c, c->schedule + (int64_t)((2 * uniform() - 1) * (double)opt.jitter_ns));
    return 1;
}

static int step(Conn *c) {
    Answer *a = &c->answer;
    int gone;
    if (c->phase == LATE_USAGE) return ending(c);
    if (c->phase == WAITING) {
        c->phase = STREAMING;
        say_headers(&c->out);
        c->role = now_ns();
        if (a->chat) say_role(&c->out, a);
        if (!send_out(c)) return 0;
    }
    if (misbehaves(c, &gone)) return !gone;
    int64_t now = now_ns();
    for (int i = 0; i < (opt.gap_ns > 0 ? 1 : opt.burst) && a->sent < a->tokens; i++)
        if (!write_chunk(c, now)) return 0;
    if (!send_out(c)) return 0;
    if (a->sent < a->tokens) return c->out.len ? 1 : plan_next(c);
    if (a->fault == USAGE_LATE) return c->phase = LATE_USAGE, wake_at(c, now + 30000000), 1;
    return ending(c);
}

/* The socket has room again. */
static int resume(Conn *c) {
    int state = flush(c);
    if (state < 0) return drop(c, "client_closed"), 0;
    if (state > 0) return 1;
    if (c->phase == FLUSHING) return finished(c);
    if (c->phase == STREAMING && c->heap_at < 0 && !c->in_ready) {
        if (opt.gap_ns <= 0) make_ready(c);
        else {
            int64_t now = now_ns();
            c->schedule += opt.gap_ns;
            wake_at(c, c->schedule < now ? now : c->schedule);
        }
    }
    return 1;
}

#endif
