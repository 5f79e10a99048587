"""Traces that can be shared: what a replay needs, and nothing that a person wrote, read or is called.

Text goes, and with it whatever a digest of it could be compared to: every digest and name is hashed once more with a
secret key, so that nobody without the key can test a guess, however short the text. Under one key equal digests stay
equal and different ones different, inside a session and between all of a set: prompts share the same blocks as before.
Another key gives a set that cannot be linked to the first.

A trace is built anew from the fields named here. A field that is added to the model is left out until it stands here.
"""

from collections.abc import Collection, Iterable
from hashlib import blake2b

from windtunnel.traces.format import fingerprint
from windtunnel.traces.known_names import (
    AGENTS,
    EFFORTS,
    FIGURES,
    MEDIA,
    OTHER_MEDIA,
    SOURCES,
    STOPS,
    TOOLS,
    VERSION,
    is_public_model,
)
from windtunnel.traces.model import (
    EMULATED,
    Block,
    Call,
    Header,
    Message,
    Params,
    Thread,
    ToolCall,
    ToolRun,
    ToolSet,
    Trace,
    Wait,
)
from windtunnel.traces.toolsets import cut

KEY_BYTES = 32
_NOTE = "anonymised, key "


def key_id(key: bytes) -> str:
    """8 hex digits that tell the sets of two keys apart and nothing else."""
    return _Secret(key).hex("key", "id", 4)


def key_id_of(trace: Trace) -> str | None:
    """The id of the key a trace was anonymised with; None for other traces."""
    notes = [note for note in trace.header.notes if note.startswith(_NOTE)]
    return notes[0].removeprefix(_NOTE) if notes else None


def anonymise(trace: Trace, key: bytes, keep: Collection[str] = ()) -> Trace:
    """The shape of `trace`: digests under `key` (32 bytes), token counts, times, and public names.

    Names in `keep` (tools, models, agents) are left as they are too.
    """
    return _Anonymiser(_Secret(key), frozenset(keep)).trace(cut(trace))


def hidden_names(traces: Iterable[Trace], keep: Collection[str] = ()) -> list[str]:
    """Names of tools, models and agents that `anonymise` replaces, sorted: what `keep` could name."""
    found: set[str] = set()
    for trace in traces:
        tools = {name for tools in trace.toolsets for name in tools.names} | {run.name for run in trace.tool_runs}
        tools |= {call.name for message in trace.messages for call in message.tool_calls}
        tools |= {message.name for message in trace.messages if message.name is not None}
        tools |= {name for wait in trace.waits for name in wait.tools}
        models = {*trace.header.models, *(call.model for call in trace.calls if call.model)}
        found |= (tools - TOOLS) | {m for m in models if not is_public_model(m)} | ({trace.header.agent} - AGENTS)
    return sorted(found - set(keep))


class _Secret:
    """Keyed hashes of strings, apart for each use: a name and a text of the same letters have nothing in common."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes")
        self._key = key

    def hex(self, use: str, text: str, size: int) -> str:
        data = text.encode("utf-8", "surrogatepass")
        return blake2b(data, digest_size=size, key=self._key, person=use.encode()).hexdigest()


class _Anonymiser:
    def __init__(self, secret: _Secret, keep: frozenset[str]) -> None:
        self._secret = secret
        self._keep = keep

    def trace(self, trace: Trace) -> Trace:
        return Trace(
            header=self._header(trace),
            blocks=tuple(self._block(block) for block in trace.blocks),
            messages=tuple(self._message(message) for message in trace.messages),
            toolsets=tuple(ToolSet(t.id, tuple(map(self._tool, t.names)), t.block, t.more) for t in trace.toolsets),
            threads=tuple(self._thread(thread) for thread in trace.threads),
            calls=tuple(self._call(call) for call in trace.calls),
            tool_runs=tuple(self._tool_run(run) for run in trace.tool_runs),
            waits=tuple(self._wait(wait) for wait in trace.waits),
        )

    def _header(self, trace: Trace) -> Header:
        header = trace.header
        version = VERSION.fullmatch(header.agent_version or "")
        source = (header.source or "").partition(" ")[0]
        # ids such as a file's name come twice: the start tells sessions apart, or else all that is in them
        apart = fingerprint(trace) if header.started_at is None else str(header.started_at)
        return Header(
            id=self._secret.hex("session", f"{header.id}\0{apart}", 8),
            agent=self._public(header.agent, AGENTS, "agent"),
            agent_version=version[1] if version else None,
            models=tuple(map(self._model, header.models)),
            source=source if source in SOURCES else None,
            started_at=header.started_at,
            shape_only=True,
            synthetic=header.synthetic,
            notes=(_NOTE + self._secret.hex("key", "id", 4), *((EMULATED,) if header.emulated else ())),
        )

    def _block(self, block: Block) -> Block:
        return Block(
            id=block.id,
            digest=self._secret.hex("block", block.digest, 16),
            kind=block.kind,
            tokens=block.tokens,
            filler=block.filler,
            media=None if block.media is None else block.media if block.media in MEDIA else OTHER_MEDIA,
            mark=block.mark,
        )

    def _message(self, message: Message) -> Message:
        return Message(
            id=message.id,
            role=message.role,
            blocks=message.blocks,
            reasoning=message.reasoning,
            tool_calls=tuple(ToolCall(self._id(c.id), self._tool(c.name), c.arguments) for c in message.tool_calls),
            tool_call_id=self._optional_id(message.tool_call_id),
            name=None if message.name is None else self._tool(message.name),
        )

    def _thread(self, thread: Thread) -> Thread:
        return Thread(
            id=thread.id,
            parent=thread.parent,
            spawn_call=thread.spawn_call,
            spawn_delay_s=thread.spawn_delay_s,
            tool_call_id=self._optional_id(thread.tool_call_id),
            name=None if thread.name is None else self._public(thread.name, frozenset(), "thread"),
            background=thread.background,
        )

    def _call(self, call: Call) -> Call:
        params = call.params
        return Call(
            id=call.id,
            thread=call.thread,
            append=call.append,
            base=call.base,
            keep=call.keep,
            tools=call.tools,
            output=call.output,
            usage=call.usage,
            start_s=call.start_s,
            first_s=call.first_s,
            end_s=call.end_s,
            stop=None if call.stop is None else call.stop if call.stop in STOPS else "other",
            model=None if call.model is None else self._model(call.model),
            params=Params(
                temperature=params.temperature,
                top_p=params.top_p,
                top_k=params.top_k,
                max_tokens=params.max_tokens,
                reasoning_effort=params.reasoning_effort if params.reasoning_effort in EFFORTS else None,
            ),
            kind=call.kind,
            aborted=call.aborted,
            joins=call.joins,
            marks={figure: mark for figure, mark in call.marks.items() if figure in FIGURES},
        )

    def _tool_run(self, run: ToolRun) -> ToolRun:
        return ToolRun(
            call=run.call,
            tool_call_id=self._id(run.tool_call_id),
            name=self._tool(run.name),
            start_s=run.start_s,
            end_s=run.end_s,
            thread=run.thread,
            error=run.error,
            mark=run.mark,
        )

    def _wait(self, wait: Wait) -> Wait:
        return Wait(wait.before, wait.cause, wait.seconds, tuple(map(self._tool, wait.tools)), wait.mark)

    def _tool(self, name: str) -> str:
        return self._public(name, TOOLS, "tool")

    def _model(self, model: str) -> str:
        return model if is_public_model(model) else self._public(model, frozenset(), "model")

    def _public(self, name: str, known: frozenset[str], use: str) -> str:
        return name if name in known or name in self._keep else f"{use}-{self._secret.hex(use, name, 4)}"

    def _id(self, tool_call_id: str) -> str:
        return self._secret.hex("call", tool_call_id, 8)

    def _optional_id(self, tool_call_id: str | None) -> str | None:
        return None if tool_call_id is None else self._id(tool_call_id)
