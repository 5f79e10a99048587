"""Filling holes that damage left in a trace, where the rest of the file says what was there.

The sums give it away: a call's recorded prompt minus what is known of it is what the lost block counted for, and the
prompt of the next call of a thread holds the messages of a lost one. What is put in is marked (`filler`, `derived`)
and told; what cannot be inferred stays lost.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from windtunnel.traces.model import Block, Call, Message, TextKind, ToolSet, digest_of


def lost_messages(
    messages: Mapping[int, Message], blocks: Mapping[int, Block], calls: Mapping[int, Call]
) -> list[Message]:
    """Stand-ins for messages that calls refer to and the file lacks, each of one block that is missing as well."""
    outputs = {c.output for c in calls.values()}
    missing = sorted({m for c in calls.values() for m in (*c.append, *_output(c))} - messages.keys())
    free = max((*blocks, *(b for m in messages.values() for b in used_blocks(m))), default=-1) + 1
    return [Message(m, "assistant" if m in outputs else "user", (free + i,)) for i, m in enumerate(missing)]


def lost_blocks(
    session: str,
    blocks: Mapping[int, Block],
    messages: Mapping[int, Message],
    toolsets: Mapping[int, ToolSet],
    calls: Mapping[int, Call],
) -> dict[int, Block]:
    """Stand-ins for blocks that messages and tool sets refer to and the file lacks, by a recorded prompt of theirs."""
    used = {m.id: used_blocks(m) for m in messages.values()}
    schemas = {b for t in toolsets.values() for b in t.blocks}
    missing = ({b for ids in used.values() for b in ids} | schemas) - blocks.keys()
    found: dict[int, Block] = {}
    if not missing:
        return found
    for call_id, prompt in prompts_of(calls).items():
        call = calls[call_id]
        if call.usage.prompt is None or any(m not in used for m in prompt):
            continue
        parts = [b for m in prompt for b in used[m]]
        if call.tools is not None:
            if call.tools not in toolsets:
                continue
            parts += toolsets[call.tools].blocks
        holes = [b for b in parts if b not in blocks and b not in found]
        if not holes or len(set(holes)) < len(holes):
            continue
        left = call.usage.prompt - sum((blocks.get(b) or found[b]).tokens for b in parts if b not in holes)
        if left < len(holes):
            continue
        for i, b in enumerate(holes):
            tokens = left // len(holes) + (left % len(holes) if i == 0 else 0)
            kind: TextKind = "json" if b in schemas else "prose"
            found[b] = Block(b, digest_of("lost", session, str(b)), kind, tokens, filler=True, mark="derived")
    return found


def lost_calls(
    blocks: Mapping[int, Block],
    messages: Mapping[int, Message],
    toolsets: Mapping[int, ToolSet],
    calls: dict[int, Call],
) -> dict[int, Call]:
    """Calls whose base is lost, put on the call before it, with the lost one's messages in between.

    These are messages that no call left refers to; the number of messages the call keeps, and its recorded prompt,
    prove that they are the right ones.
    """
    whole = {m.id for m in messages.values() if all(b in blocks for b in used_blocks(m))}
    referred = {m for c in calls.values() for m in (*c.append, *_output(c))}
    loose = sorted(whole - referred)
    mended: dict[int, Call] = {}
    for i in sorted(calls):
        call = calls[i]
        if call.base is None or call.base in calls or call.usage.prompt is None:
            continue
        now = calls | mended
        before = max((c.id for c in now.values() if c.thread == call.thread and c.id < call.base), default=None)
        known = prompts_of(now).get(before, ()) if before is not None else ()
        for candidate in _between(now.get(before) if before is not None else None, loose, call.keep - len(known)):
            prompt = (*known, *candidate, *call.append)
            if _tokens(prompt, call, blocks, messages, toolsets) == call.usage.prompt:
                mended[i] = replace(call, base=before, keep=len(known), append=(*candidate, *call.append))
                loose = [m for m in loose if m not in candidate]
                break
    return mended


def prompts_of(calls: Mapping[int, Call]) -> dict[int, tuple[int, ...]]:
    """Message ids of the prompts of those calls that stand on calls that are there."""
    held: dict[int, tuple[int, ...]] = {}
    for i in sorted(calls):
        call = calls[i]
        if call.base is None:
            held[i] = call.append
        elif call.base in held and call.keep <= len(held[call.base]):
            held[i] = held[call.base][: call.keep] + call.append
    return held


def used_blocks(m: Message) -> tuple[int, ...]:
    return (*m.reasoning, *m.blocks, *(c.arguments for c in m.tool_calls))


def _output(call: Call) -> tuple[int, ...]:
    return () if call.output is None else (call.output,)


def _between(before: Call | None, loose: list[int], count: int) -> Iterable[tuple[int, ...]]:
    """Runs of `count` messages that a lost call may have added to the prompt of the call before it."""
    starts = [()] if before is None else [_output(before), ()]
    for start in starts:
        rest = count - len(start)
        if rest < 0:
            continue
        for at in range(len(loose) - rest + 1):
            yield (*start, *loose[at : at + rest])


def _tokens(
    prompt: Iterable[int],
    call: Call,
    blocks: Mapping[int, Block],
    messages: Mapping[int, Message],
    toolsets: Mapping[int, ToolSet],
) -> int | None:
    """Tokens of a prompt; None where a part of it is not there."""
    total = 0
    if call.tools is not None:
        if call.tools not in toolsets or any(b not in blocks for b in toolsets[call.tools].blocks):
            return None
        total += sum(blocks[b].tokens for b in toolsets[call.tools].blocks)
    for m in prompt:
        if m not in messages or any(b not in blocks for b in used_blocks(messages[m])):
            return None
        total += sum(blocks[b].tokens for b in used_blocks(messages[m]))
    return total
