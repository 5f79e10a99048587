"""Prefix breakers: calls whose prompt is no extension of an earlier one of their thread, and what that cost.

A server finds the beginning of a prompt in its cache up to the first token that differs. Prompts are compared in the
order in which templates write them: tool schemas, then messages. A prompt that begins with any earlier prompt of its
thread has not broken: its beginning is cached, whether that was the last prompt or one before a person went back.
"""

from msgspec import Struct
from msgspec.structs import replace

from windtunnel.traces.culprits import Scene, name
from windtunnel.traces.model import Call, Trace, digest_of
from windtunnel.traces.prompt_parts import TOOLS, Part, Prompt, Reader, only_reasoning, part_at

_ALTERED = frozenset({"dropped_reasoning", "changed_reasoning", "reordered_arguments", "changed_arguments"})
"""How an answer can come back otherwise than it was given; other differences are differences of the recording."""


class Side(Struct, frozen=True):
    """The first differing block, before or after."""

    what: str
    """Its place in words: `system prompt`, `tool schemas`, `result of Bash`."""
    text: str | None
    """None where it was never recorded."""
    at: int
    """Characters into the text where the difference begins."""
    digest: str
    tokens: int
    filler: bool = False


class Break(Struct, frozen=True):
    """A prompt that parted from the one it could have extended."""

    call: int
    thread: int
    turn: int
    """Number of the call in its thread, from 1."""
    against: int
    """The call whose prompt has the longest beginning in common with it; the latest of those."""
    culprit: str
    """A key of `culprits.CULPRITS`."""
    detail: str
    place: str
    """Where in the prompt the difference stands."""
    old: Side | None
    new: Side | None
    prompt_tokens: int
    before_tokens: int
    """Of the prompt it could have extended, with the answer to it where the difference stands in that."""
    common_tokens: int
    """Up to the difference."""
    cached_tokens: int | None
    """What the recording's server found in its cache. More than `common_tokens`: it did not see this difference."""
    common_filler: int = 0
    """Of `common_tokens`, those that stand for text that the log does not hold: they are taken to be equal."""
    lost_filler: int = 0
    """The same of `lost_tokens`."""

    @property
    def lost_tokens(self) -> int:
        """Prompt tokens that would have been cached: what the longer of the common beginnings would have covered."""
        return max(0, min(self.before_tokens, self.prompt_tokens) - self.common_tokens)


class Start(Struct, frozen=True):
    """A sub-agent's first prompt: nothing in its thread to extend, but maybe another thread's prompt begins alike."""

    call: int
    thread: int
    prompt_tokens: int
    common_tokens: int
    """That an earlier prompt of the session begins with."""
    culprit: str | None = None
    """What alone made it part from that prompt within the system prompt, of the kinds that change by themselves."""


class LetGo(Struct, frozen=True):
    """A call for which the recording's server found less in its cache than an earlier prompt had put there."""

    call: int
    thread: int
    common_tokens: int
    """That an earlier prompt of its thread begins with."""
    cached_tokens: int
    """Found."""
    idle_s: float | None
    """Since the last call with this beginning ended; None where the log does not tell."""

    @property
    def missed_tokens(self) -> int:
        return self.common_tokens - self.cached_tokens


class Report(Struct, frozen=True):
    """One session looked through."""

    calls: int
    prompt_tokens: int
    """Of all of them."""
    breaks: tuple[Break, ...]
    starts: tuple[Start, ...]
    let_go: tuple[LetGo, ...] = ()
    filler_tokens: int = 0
    """Of `prompt_tokens`, those that stand for text that the log does not hold."""

    @property
    def lost_tokens(self) -> int:
        return sum(b.lost_tokens for b in self.breaks)


LEAST, SHARE = 1024, 0.5
"""Of what an earlier prompt had put into the cache: that servers find a part of it less has reasons of their own, such
as the size of their blocks and where a client marked what is to be kept."""
_BY_ITSELF = frozenset({"billing_line", "date", "time", "git_status", "environment", "random_id"})


class _Node:
    """A message in its place, after all those before it."""

    __slots__ = ("next", "through", "turn")

    def __init__(self) -> None:
        self.next: dict[int, _Node] = {}
        self.through: Prompt | None = None
        """The last prompt that has this beginning."""
        self.turn: Prompt | None = None
        """The last one of these that asks for no summary."""


class _Thread:
    """What one thread has sent so far."""

    def __init__(self) -> None:
        self.root = _Node()
        self.compacted_at = -1
        """The last call that asked for a summary."""

    def deepest(self, prompt: Prompt) -> tuple[int, _Node]:
        node, depth = self.root, 0
        for number in prompt.prints:
            found = node.next.get(number)
            if found is None:
                break
            node, depth = found, depth + 1
        return depth, node

    def add(self, prompt: Prompt) -> None:
        turn = prompt.call.kind != "compaction"
        node = self.root
        for number in (None, *prompt.prints):
            node = node if number is None else node.next.setdefault(number, _Node())
            node.through = prompt
            node.turn = prompt if turn else node.turn
        if not turn:
            self.compacted_at = prompt.call.id


def find(trace: Trace) -> Report:
    """Every break of a session, in the order of its calls. Auxiliary requests (titles) are no part of a thread."""
    reader = Reader(trace)
    threads: dict[int, _Thread] = {}
    turns: dict[int, int] = {}
    breaks: list[Break] = []
    starts: list[Start] = []
    let_go: list[LetGo] = []
    session = _Thread()
    total = filler = 0
    found_any = any(call.usage.cached for call in trace.calls)
    for prompt in reader.prompts():
        call = prompt.call
        total += prompt.tokens[-1]
        filler += reader.filler(prompt)
        turns[call.thread] = turns.get(call.thread, 0) + 1
        if call.kind == "auxiliary":
            continue
        thread = threads.setdefault(call.thread, _Thread())
        if thread.root.through is None:
            if call.thread:
                starts.append(_start(reader, session, prompt))
        else:
            depth, node = thread.deepest(prompt)
            found = _break(reader, thread, prompt, turns[call.thread], depth, node)
            breaks += [found] if found is not None and found.lost_tokens else []
            if found_any:
                common = prompt.tokens[depth] if found is None else found.common_tokens
                gone = _let_go(prompt, common, node.through)
                let_go += [] if gone is None else [gone]
        thread.add(prompt)
        session.add(prompt)
    return Report(len(trace.calls), total, tuple(breaks), tuple(starts), tuple(let_go), filler)


def _let_go(prompt: Prompt, common: int, last: Prompt | None) -> LetGo | None:
    """None where the server found about as much as it had been sent, or does not say."""
    call = prompt.call
    cached = call.usage.cached
    if cached is None or call.marks.get("cached") or common - cached < max(LEAST, SHARE * common):
        return None
    idle = None
    if last is not None and last.call.end_s is not None and call.start_s is not None and not _guessed(last.call, call):
        idle = max(0.0, call.start_s - last.call.end_s)
    return LetGo(call.id, call.thread, common, cached, idle)


def _guessed(last: Call, call: Call) -> bool:
    return last.marks.get("end") == "estimated" or call.marks.get("start") == "estimated"


def _start(reader: Reader, session: _Thread, prompt: Prompt) -> Start:
    depth, node = session.deepest(prompt)
    call = prompt.call
    common, culprit = prompt.tokens[depth], None
    parts = [old for old in _nearest(node, depth) if depth < min(len(old.prints), len(prompt.prints))]
    if parts:
        compared = (_compared(reader, session, old, prompt, 1, depth) for old in parts)
        parted = max(compared, key=lambda b: b.common_tokens)
        common = parted.common_tokens
        culprit = parted.culprit if parted.culprit in _BY_ITSELF else None
    return Start(call.id, call.thread, prompt.tokens[-1], common, culprit)


def _break(reader: Reader, thread: _Thread, prompt: Prompt, turn: int, depth: int, node: _Node) -> Break | None:
    if depth == len(prompt.prints):
        return None
    last = node.through
    if last is not None and len(last.prints) == depth:
        return _altered_answer(reader, last, prompt, turn)
    # Of the prompts that begin alike, a turn rather than a request for a summary where it has as much in common.
    others = {old.call.id: old for old in (node.turn, *_nearest(node, depth)) if old is not None}
    made = [_compared(reader, thread, old, prompt, turn, depth) for old in others.values() if len(old.prints) > depth]
    return max(made, key=lambda b: b.common_tokens, default=None)


def _nearest(node: _Node, depth: int) -> list[Prompt]:
    """The last prompt that begins alike; where no tool set is the same, the last one of each: some tools may be."""
    last = [node.through] if depth else [child.through for child in reversed(node.next.values())]
    return [prompt for prompt in last if prompt is not None]


def _compared(reader: Reader, thread: _Thread, old: Prompt, prompt: Prompt, turn: int, depth: int) -> Break:
    place = depth - 1
    if place == TOOLS:
        before, after = reader.tools_parts(old.call.tools), reader.tools_parts(prompt.call.tools)
    else:
        before, after = reader.parts(old.messages[place]), reader.parts(prompt.messages[place])
    compacted = prompt.call.kind == "compaction" or thread.compacted_at >= old.call.id
    scene = Scene(reader.trace, old, prompt, place, part_at(before, after), compacted, only_reasoning(before, after))
    made = _made(scene, turn, old.tokens[-1], prompt.tokens[depth])
    common = reader.filler(prompt) - reader.filler(prompt, place)
    lost = min(made.lost_tokens, reader.filler(old, place))
    return replace(made, common_filler=min(made.common_tokens, common), lost_filler=lost)


def _altered_answer(reader: Reader, old: Prompt, prompt: Prompt, turn: int) -> Break | None:
    """The prompt extends an earlier one; the answer to that one came back with something dropped or rewritten."""
    place = len(old.messages)
    output = old.call.output
    sent = reader.trace.messages[prompt.messages[place]]
    if output is None or sent.role != "assistant" or reader.print(output) == reader.print(sent.id):
        return None
    before, after = reader.parts(output), reader.parts(sent.id)
    answered = old._replace(messages=(*old.messages, output), prints=(*old.prints, reader.print(output)))
    parting = part_at(before, after)
    scene = Scene(reader.trace, answered, prompt, place, parting, False, only_reasoning(before, after))
    made = _made(scene, turn, old.tokens[-1] + reader.tokens(output), prompt.tokens[place + 1])
    if made.culprit not in _ALTERED:
        return None
    # Behind the difference only what was generated would have been cached.
    sent_back = prompt.tokens[place + 2]
    return replace(made, before_tokens=min(made.before_tokens, sent_back))


def _made(scene: Scene, turn: int, before: int, start: int) -> Break:
    culprit, detail = name(scene)
    parting, call = scene.parting, scene.new.call
    old, new = (_side(part, parting.at) for part in (parting.old, parting.new))
    if scene.place == TOOLS:
        start = 0
        old, new = _tool_names(scene, old, new)
    return Break(
        call=call.id,
        thread=call.thread,
        turn=turn,
        against=scene.old.call.id,
        culprit=culprit,
        detail=detail,
        place=_place(scene, parting.new or parting.old),
        old=old,
        new=new,
        prompt_tokens=scene.new.tokens[-1],
        before_tokens=before,
        common_tokens=int(start + parting.common),
        cached_tokens=call.usage.cached,
    )


def _side(part: Part | None, at: int) -> Side | None:
    if part is None:
        return None
    block = part.block
    return Side(_what(part), block.text, at, block.digest, block.tokens, block.filler)


def _what(part: Part) -> str:
    if part.kind == "tools" and part.name:
        return f"schema of {part.name}"
    return {"tools": "tool schemas", "reasoning": "reasoning", "text": "text", "call": f"call of {part.name}"}[
        part.kind
    ]


def _tool_names(scene: Scene, old: Side | None, new: Side | None) -> tuple[Side | None, Side | None]:
    """Lists of names say more than schemas, where the lists differ."""
    sets = [p.call.tools for p in (scene.old, scene.new)]
    names = ["" if s is None else ", ".join(scene.trace.toolsets[s].names) for s in sets]
    if names[0] == names[1]:
        return old, new
    at = next((i for i, (a, b) in enumerate(zip(*names, strict=False)) if a != b), min(map(len, names)))
    made = [
        None if s is None else Side("tools", text, at, _digest(scene.trace, s), scene.trace.toolset_tokens(s))
        for s, text in zip(sets, names, strict=True)
    ]
    return made[0], made[1]


def _digest(trace: Trace, toolset: int) -> str:
    digests = [trace.blocks[b].digest for b in trace.toolsets[toolset].blocks]
    return digests[0] if len(digests) == 1 else digest_of(*digests)


def _place(scene: Scene, part: Part | None) -> str:
    if scene.place == TOOLS:
        return "tool schemas"
    message = scene.trace.messages[scene.new.messages[scene.place]]
    inside = "" if part is None or part.kind == "text" else f", {_what(part)}"
    if message.role == "system" and scene.place == 0:
        return f"system prompt{inside}"
    return f"message {scene.place + 1} of {len(scene.new.messages)} ({message.role}){inside}"
