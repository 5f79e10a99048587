"""The time between two calls of a thread, by cause, as far as a proxy can tell.

A proxy sees gaps. A gap in which only tools were asked for is theirs, the client's own few milliseconds and a person's
approval included; while sub-agents ran whose result the next call brings, it is theirs until the last of them ended;
a gap after a last word that ends with a person's prompt is the person's, and so is one of tools that ask a person. The
rest is the client's. Attempts that failed (refused, or broken off half way), and the pauses between them, belong to
none: the gap ends with the first attempt. Where a person gave up on an attempt and typed something else, only the
attempt itself is left out. A tool that ran alone and whose result says how long it took (Codex: `Wall time: 0.3672
seconds`) gets that much, the client the rest.
"""

import re
from collections.abc import Iterator

from windtunnel.agents.recorder.asked import Request
from windtunnel.agents.recorder.model import Session, Thread, Turn
from windtunnel.agents.recorder.texts import since_answer, typed, visible
from windtunnel.traces.asking import asks_person
from windtunnel.traces.model import Mark, ToolRun, Wait

NS = 1e9
SHORTEST_WAIT_S = 0.001
STATED_WITHIN = 400
_WALL_TIME = re.compile(r"^Wall time: (\d{1,6}(?:\.\d{1,9})?) seconds$", re.MULTILINE)
QUOTED = 200
"""Characters of a sub-agent's last word that are looked for in its parent's next prompt."""


def look_back(turn: Turn, request: Request) -> None:
    """Note what a call that begins brings: results, ends of sub-agents, a person's words."""
    new = since_answer(request.said)
    turn.before = turn.thread.last
    answered = [d.tool_call_id for d in new if d.tool_call_id]
    asked = turn.before.tools if turn.before is not None else {}
    turn.answers = tuple(dict.fromkeys(i for i in answered if i in asked))
    for spawner in turn.session.pool.spawners:
        if spawner.tool_call_id in answered:
            spawner.answered = True
    texts = [visible(d) for d in new]
    turn.joins = tuple(c for c in _children(turn) if _ended_for(c, answered, texts))
    for child in turn.joins:
        child.joined = True
    if len(turn.answers) == 1:
        turn.stated_s = next((stated(visible(d)) for d in new if d.tool_call_id == turn.answers[0]), None)
    turn.human = not turn.answers and any(typed(d) for d in new)
    since = turn.before.end if turn.before is not None else None
    if turn.kind != "auxiliary" and since is not None:
        turn.failed = tuple(span for span in turn.thread.failed if span[0] >= since)


def stated(result: str) -> float | None:
    """Seconds that a tool's result says it took."""
    match = _WALL_TIME.search(result[:STATED_WITHIN])
    return None if match is None else float(match.group(1))


def _children(turn: Turn) -> Iterator[Thread]:
    for child in turn.session.threads.values():
        if child.parent is turn.thread and child is not turn.thread and not child.joined and child.over:
            yield child


def _ended_for(child: Thread, answered: list[str], texts: list[str]) -> bool:
    """Whether a call brings a sub-agent's end: the result of the tool that started it, or its last word in a notice."""
    if child.tool_call_id in answered:
        return True
    last = child.last
    word = "" if last is None else last.final.strip()[:QUOTED]
    return bool(word) and any(word in text for text in texts)


def waits(turn: Turn) -> Iterator[Wait]:
    before = turn.before
    if before is None or before.end is None or turn.kind == "auxiliary":
        return
    mark: Mark = "derived"
    begin = before.end
    end = max(begin, _asked(turn))
    spawned = {c.tool_call_id for c in turn.joins}
    own = tuple(dict.fromkeys(before.tools[i] for i in turn.answers if i not in spawned))
    waited_for = any(i in spawned for i in turn.answers) or not own
    until = begin
    if turn.joins and waited_for:
        until = min(end, max(c.last.end or begin for c in turn.joins if c.last is not None))
        until = max(begin, until)
    in_tools = end - until if own else 0
    if own and turn.stated_s is not None and not turn.joins:
        in_tools = min(in_tools, round(turn.stated_s * NS))
    working = tuple(name for name in own if not asks_person(name, in_tools / NS))
    if working:
        yield Wait(turn.id, "tool", _s(in_tools), working, mark)
    elif own:
        yield Wait(turn.id, "human", _s(in_tools), (), mark)
    if turn.joins:
        yield Wait(turn.id, "subagent", _s(until - begin), (), mark)
    rest = end - until - in_tools
    if turn.human and not turn.joins:
        yield Wait(turn.id, "human", _s(rest), (), mark)
        rest = 0
    if rest >= SHORTEST_WAIT_S * NS:
        yield Wait(turn.id, "client", _s(rest), (), mark)


def _asked(turn: Turn) -> int:
    """When the gap before a call is over (ns)."""
    if not turn.failed:
        return turn.asked_at
    if turn.human:
        return turn.asked_at - sum(end - start for start, end in turn.failed)
    return min(start for start, _ in turn.failed)


def tool_runs(turn: Turn, session: Session, since: int) -> Iterator[ToolRun]:
    """Runs of the tools whose results this call brings; `since` is the trace's time zero.

    Of several at once a proxy sees only when all of them were done: their single times are not known.
    """
    before = turn.before
    if before is None or before.end is None:
        return
    children = {c.tool_call_id: c for c in session.threads.values() if c.tool_call_id}
    alone = sum(i not in children for i in turn.answers) <= 1
    for tool in turn.answers:
        child = children.get(tool)
        end: int | None = _asked(turn)
        if child in turn.joins and child is not None and child.last is not None:
            end = child.last.end
        elif not alone and child is None:
            end = None
        elif child is None and turn.stated_s is not None:
            end = min(_asked(turn), before.end + round(turn.stated_s * NS))
        yield ToolRun(
            call=before.id,
            tool_call_id=tool,
            name=before.tools[tool],
            start_s=round((before.end - since) / NS, 6),
            end_s=None if end is None else round((end - since) / NS, 6),
            thread=None if child is None else child.id,
            mark="derived" if end is not None else "estimated",
        )


def _s(ns: int) -> float:
    return round(ns / NS, 6)
