"""Compaction as clients do it: at the limit the context is summed up, and the session goes on from the summary.

The replayed prompts are rebuilt message by message. What a call would add to a context that is full moves behind the
summary; a single tool result that is larger than the room left is cut, as clients cut theirs.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from windtunnel.traces.model import (
    Block,
    Call,
    Mark,
    Message,
    Params,
    Trace,
    Usage,
    Wait,
    digest_of,
)

SUMMARY_MOST = 2000
FRONT_SHARE = 0.75
"""Sessions whose tools and system prompt take more of the limit than this cannot work under it."""
INSTRUCTION = 60
"""Tokens of the request to sum up."""


class _Thread(Struct):
    """How a thread's recorded prompts map to the replayed ones."""

    replaced: tuple[int, ...] = ()
    """Recorded messages that the last summary stands for."""
    front: tuple[int, ...] = ()
    """What stands in their place: the system messages and the summary."""
    last: tuple[int, ...] = ()
    """The last recorded prompt."""
    sent: tuple[int, ...] = ()
    """The last replayed prompt."""
    call: int | None = None
    """Its call, new id."""
    tools: int | None = None


class _Compaction:
    """One session being rebuilt under a limit."""

    def __init__(self, trace: Trace, limit: int) -> None:
        self.trace = trace
        self.limit = limit
        self.summary = max(1, min(SUMMARY_MOST, limit // 16))
        self.instruction = max(1, min(INSTRUCTION, limit // 64))
        self.room = limit - self.summary - self.instruction
        """Most tokens of an ordinary call, so that a compaction call can follow it."""
        self.blocks = list(trace.blocks)
        self.messages = list(trace.messages)
        self.calls: list[Call] = []
        self.new_id: dict[int, int] = {}
        self.waits_at: dict[int, int] = {}
        """Old call: new call that its waits come before."""
        self.threads: dict[int, _Thread] = {}
        self.cut: dict[int, int] = {}
        self._tokens = [trace.message_tokens(m.id) for m in trace.messages]

    def run(self) -> Trace | None:
        for call, prompt in self.trace.prompts():
            if self._size(self._head(prompt), call.tools) > self.limit * FRONT_SHARE:
                return None
            if not self._call(call, tuple(prompt)):
                return None
        trace = self.trace
        note = f"compacted to fit {self.limit} tokens of context"
        return replace(
            trace,
            header=replace(trace.header, notes=(*trace.header.notes, note)),
            blocks=tuple(self.blocks),
            messages=tuple(self.messages),
            threads=tuple(
                t if t.spawn_call is None else replace(t, spawn_call=self.new_id[t.spawn_call]) for t in trace.threads
            ),
            calls=tuple(self.calls),
            tool_runs=tuple(replace(r, call=self.new_id[r.call]) for r in trace.tool_runs),
            waits=tuple(self._wait(w) for w in trace.waits),
        )

    def _wait(self, wait: Wait) -> Wait:
        return replace(wait, before=self.waits_at[wait.before])

    def _call(self, call: Call, recorded: tuple[int, ...]) -> bool:
        """Add a call, with a compaction before it where it would not fit; False when nothing helps."""
        thread = self.threads.setdefault(call.thread, _Thread())
        output = max(1, call.usage.completion or 0)
        capped = min(output, max(1, self.limit // 4)) if output > self.limit // 2 else output
        prompt = self._mapped(thread, recorded)
        joins = call.joins
        before = len(self.calls)
        if self._size(prompt, call.tools) + capped > self.room:
            known = self._summed_up(thread, recorded, self.room - capped, call.tools)
            if known:
                self._compact(thread, call, recorded[:known])
                joins = ()
                prompt = self._mapped(thread, recorded)
        over = self._size(prompt, call.tools) + capped - self.room
        if over > 0:
            shorter = self._shrunk(prompt, over)
            if shorter is None:
                return False
            prompt = shorter
        self.new_id[call.id] = len(self.calls)
        self.waits_at[call.id] = before
        self._add(thread, replace(call, joins=joins), prompt, capped)
        thread.last = recorded
        return True

    def _mapped(self, thread: _Thread, recorded: tuple[int, ...]) -> tuple[int, ...]:
        """The recorded prompt with what was summed up replaced, and cut messages in place of whole ones."""
        count = len(thread.replaced)
        if count and recorded[:count] == thread.replaced:
            recorded = thread.front + recorded[count:]
        return tuple(self._shortened(m) for m in recorded)

    def _shortened(self, message: int) -> int:
        while message in self.cut:
            message = self.cut[message]
        return message

    def _summed_up(self, thread: _Thread, recorded: tuple[int, ...], room: int, tools: int | None) -> int:
        """How many messages of a prompt a summary now replaces; 0 when that would save nothing.

        The last prompt, where this one goes on from it; else as much as must go for the rest to fit.
        """
        if not thread.sent:
            return 0
        head = self._head(recorded)
        base = self._size(head, tools) + self.summary
        known = len(thread.last)
        if recorded[:known] != thread.last:
            known = len(recorded) - 1
            rest = self._tokens[recorded[known]]
            for i in range(len(recorded) - 1, len(head), -1):
                rest += self._tokens[recorded[i - 1]] if i - 1 < known else 0
                if base + rest > room:
                    break
                known = i - 1 if self.messages[recorded[i - 1]].role != "tool" else known
        saved = self._size(self._mapped(thread, recorded[:known]), tools) - base
        return known if saved > 0 and known > len(head) else 0

    def _head(self, messages: Sequence[int]) -> tuple[int, ...]:
        """The system messages a context starts with."""
        count = 0
        while count < len(messages) and self.messages[messages[count]].role == "system":
            count += 1
        return tuple(messages[:count])

    def _compact(self, thread: _Thread, call: Call, known: tuple[int, ...]) -> None:
        """A call that sums up the thread's last prompt; `call` goes on from the summary, which replaces `known`."""
        number = f"{self.trace.header.id}/{call.thread}/{len(self.calls)}"
        ask = self._message("user", self._block("instruction", self.trace.header.agent, self.instruction))
        text = self._block("summary", number, self.summary)
        prompt = (*thread.sent, ask)
        marks: dict[str, Mark] = dict.fromkeys(("prompt", "cached", "completion", "start"), "derived")
        compaction = Call(
            id=0,
            thread=call.thread,
            tools=thread.tools,
            output=self._message("assistant", text),
            usage=Usage(completion=self.summary),
            start_s=call.start_s,
            stop="end_turn",
            model=call.model,
            params=Params(temperature=call.params.temperature, top_p=call.params.top_p, top_k=call.params.top_k),
            kind="compaction",
            joins=call.joins,
            marks=marks,
        )
        self._add(thread, compaction, prompt, self.summary)
        thread.front = (*self._head(known), self._message("user", text))
        thread.replaced = known

    def _add(self, thread: _Thread, call: Call, prompt: tuple[int, ...], output: int) -> None:
        """Append a call with a given prompt, written as the difference to the thread's last one."""
        keep = 0
        for a, b in zip(thread.sent, prompt, strict=False):
            if a != b:
                break
            keep += 1
        base = thread.call if keep else None
        usage = call.usage
        size = self._size(prompt, call.tools)
        marks = dict(call.marks)
        if usage.prompt != size:
            shared = self._size(prompt[:keep], call.tools) if keep and call.tools == thread.tools else 0
            usage = replace(usage, prompt=size, cached=None if usage.cached is None else min(usage.cached, shared))
            marks |= {"prompt": "derived", "cached": "derived"}
        if usage.completion is not None and usage.completion != output:
            usage = replace(usage, completion=output, reasoning=None)
            marks["completion"] = "derived"
        new = len(self.calls)
        append = prompt[keep:] if keep else prompt
        self.calls.append(
            replace(
                call, id=new, base=base, keep=keep if base is not None else 0, append=append, usage=usage, marks=marks
            )
        )
        thread.sent, thread.call, thread.tools = prompt, new, call.tools

    def _size(self, prompt: Sequence[int], tools: int | None) -> int:
        return sum(self._tokens[m] for m in prompt) + self.trace.toolset_tokens(tools)

    def _shrunk(self, prompt: tuple[int, ...], over: int) -> tuple[int, ...] | None:
        """The prompt with its largest messages, the system's apart, cut by `over` tokens in all."""
        out = list(prompt)
        fixed = len(self._head(prompt))
        order = sorted(range(fixed, len(out)), key=lambda i: -self._tokens[out[i]])
        for i in order:
            if over <= 0:
                break
            short = self._cut(out[i], over)
            over -= self._tokens[out[i]] - self._tokens[short]
            self.cut[prompt[i]] = out[i] = short
        return tuple(out) if over <= 0 else None

    def _cut(self, message_id: int, over: int) -> int:
        """A copy of a message with its largest block shortened by up to `over` tokens."""
        m = self.messages[message_id]
        used = list(self.trace.message_blocks(m))
        if not used:
            return message_id
        largest = max(used, key=lambda b: self.blocks[b].tokens)
        tokens = max(1, self.blocks[largest].tokens - over)
        new = len(self.blocks)
        self.blocks.append(replace(self.blocks[largest], id=new, tokens=tokens, mark="derived"))

        def swap(ids: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(new if b == largest else b for b in ids)

        self.messages.append(
            replace(
                m,
                id=len(self.messages),
                blocks=swap(m.blocks),
                reasoning=swap(m.reasoning),
                tool_calls=tuple(replace(c, arguments=new) if c.arguments == largest else c for c in m.tool_calls),
            )
        )
        return self._count(len(self.messages) - 1)

    def _block(self, what: str, name: str, tokens: int) -> int:
        i = len(self.blocks)
        self.blocks.append(Block(i, digest_of("compaction", what, name), "prose", tokens, mark="derived"))
        return i

    def _message(self, role: str, block: int) -> int:
        i = len(self.messages)
        self.messages.append(Message(i, "assistant" if role == "assistant" else "user", (block,)))
        return self._count(i)

    def _count(self, message_id: int) -> int:
        m = self.messages[message_id]
        self._tokens.append(sum(self.blocks[b].tokens for b in self.trace.message_blocks(m)))
        return message_id


def compact(trace: Trace, limit: int) -> Trace | None:
    """The session under a limit on prompt + output, with compactions where it is met; None when it cannot fit."""
    return _Compaction(trace, limit).run()
