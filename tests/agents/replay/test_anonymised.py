"""An anonymised trace replays as the original does: the same sizes, the same prefixes, the same waits."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from windtunnel.agents.expected import Match, PrefixIndex, Trail
from windtunnel.agents.plan import PlannedWait, make_plan
from windtunnel.agents.policy import Policy
from windtunnel.agents.prompt import Conversation, Options, Output, Prepared, Route, prepare
from windtunnel.agents.rendering import Rendering
from windtunnel.traces.anonymise import anonymise
from windtunnel.traces.model import Trace
from windtunnel.traces.sources import load

from .conftest import Served, agent_session

SHARED = Path(__file__).resolve().parents[4] / "shared" / "traces"
KEY = bytes(range(32))
FOLDERS = (
    "atif", "claude-code", "cline", "codex", "gemini", "har", "litellm", "mini-swe-agent", "opencode", "openhands",
    "otel", "pi", "qwen-code", "swe-agent", "tracelab",
)  # fmt: skip
UNIT = 16


class Sent:
    """Everything that a run of some traces, one after the other, sends and expects."""

    def __init__(self, traces: Sequence[Trace], rendering: Rendering, route: Route) -> None:
        self.prompts: list[int] = []
        self.pinned: list[int] = []
        self.matches: list[Match] = []
        self.bodies: list[bytes] = []
        index = PrefixIndex(UNIT)
        for trace in traces:
            prepared = prepare(trace, route, rendering)
            self.pinned += prepared.pinned
            for body, match in self._conversation(prepared, index):
                self.prompts.append(body[1])
                self.matches.append(match)
                self.bodies.append(body[0])

    def _conversation(self, prepared: Prepared, index: PrefixIndex) -> Iterator[tuple[tuple[bytes, int], Match]]:
        conversation = Conversation(prepared, Options("m"))
        trails: dict[int, Trail] = {}
        for call in prepared.trace.calls:
            body = conversation.body(call.id)
            trail = trails.setdefault(call.thread, Trail())
            match = index.sent(trail, body.kept_pieces, body.added_pieces, body.expected_prompt_tokens)
            index.generated(trail, conversation.ended(call.id, Output(tokens=prepared.pinned[call.id])))
            yield (b"".join(body.parts), body.expected_prompt_tokens), match


def waits(trace: Trace) -> dict[int, tuple[tuple[str, float | None, float | None, bool], ...]]:
    """What a replay waits for before each call, but for the names of the tools."""

    def told(wait: PlannedWait) -> tuple[str, float | None, float | None, bool]:
        return wait.cause, wait.seconds, wait.recorded_s, wait.filled

    plan = make_plan(trace, Policy(), np.random.default_rng(1))
    return {call: tuple(map(told, planned)) for call, planned in plan.waits.items()}


@pytest.fixture(params=FOLDERS)
def recorded(request: pytest.FixtureRequest) -> tuple[Trace, ...]:
    if not SHARED.is_dir():
        pytest.skip("no recorded sessions: ../shared/traces is absent")
    traces = load([str(SHARED / str(request.param))]).traces
    return tuple(sorted(traces, key=lambda trace: len(trace.calls))[:6])


@pytest.fixture(scope="session")
def rendering(served: Served) -> Rendering:
    return Rendering(calibration=served.calibration())


def test_recorded_sessions_replay_the_same(recorded: tuple[Trace, ...], rendering: Rendering) -> None:
    shared = [anonymise(trace, KEY) for trace in recorded]
    before, after = Sent(recorded, rendering, "tokens"), Sent(shared, rendering, "tokens")
    assert after.prompts == before.prompts
    assert after.pinned == before.pinned
    assert after.matches == before.matches
    assert [waits(trace) for trace in shared] == [waits(trace) for trace in recorded]


def test_token_ids_share_exactly_the_same_beginnings(rendering: Rendering) -> None:
    """The ids themselves, pair by pair, inside a session and between two that share their system prompt."""
    one = agent_session(5, 1, name="a")
    two = agent_session(4, 2, name="a")
    sent = Sent([one, two], rendering, "tokens")
    shared = Sent([anonymise(one, KEY), anonymise(two, KEY)], rendering, "tokens")
    ids, shared_ids = ([_ids(body) for body in run.bodies] for run in (sent, shared))
    assert ids != shared_ids
    for i in range(len(ids)):
        for j in range(i):
            assert _common(ids[i], ids[j]) == _common(shared_ids[i], shared_ids[j]) > 0


def test_chat_prompts_are_planned_with_the_same_sizes(recorded: tuple[Trace, ...], rendering: Rendering) -> None:
    small = [trace for trace in recorded if len(trace.calls) <= 40]
    before = Sent(small, rendering, "chat")
    after = Sent([anonymise(trace, KEY) for trace in small], rendering, "chat")
    assert len(after.prompts) == len(before.prompts)
    for mine, recorded_size in zip(after.prompts, before.prompts, strict=True):
        assert mine == pytest.approx(recorded_size, rel=0.01, abs=8)
    assert after.pinned == before.pinned


def _ids(body: bytes) -> list[bytes]:
    return body.split(b'"prompt":[')[1].split(b"]")[0].split(b",")


def _common(one: list[bytes], two: list[bytes]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
