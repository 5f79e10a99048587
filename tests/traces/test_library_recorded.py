"""The bundled sessions of real agents: labelled, sound, of the shapes they are named after, and without a readable word."""

import json
import re

import pytest

from windtunnel.traces import library
from windtunnel.traces.anonymise import key_id_of
from windtunnel.traces.check import faults
from windtunnel.traces.errors import TraceError
from windtunnel.traces.format import encode_trace, read_trace
from windtunnel.traces.known_names import VERSION
from windtunnel.traces.model import Trace
from windtunnel.traces.sources import DEFAULT, load

from .leaks import ALLOWED, strings_of

NAMES = library.recorded()
TRACES: dict[str, Trace] = {n: read_trace(library.path(n)).traces[0] for n in NAMES}
DIGEST = re.compile(r"(?:[a-z]+-)?[0-9a-f]{8,32}")
OURS = {"scripted-coder", *(n.replace(f"-{TRACES[n].header.agent}", "") for n in NAMES)}
"""The model's name, and titles that say which scenario it was."""


def test_the_default_library_has_none_of_them() -> None:
    assert len(NAMES) >= 4
    assert DEFAULT == "library:mixed"
    assert not set(NAMES) & {*library.names(), *library.groups()["mixed"], *library.groups()["small"]}
    assert all(t.header.synthetic for t in load([]).traces)
    assert [t.header.id for t in load(["library:recorded"]).traces] == [TRACES[n].header.id for n in NAMES]
    with pytest.raises(TraceError, match="recorded-pi-parallel"):
        load(["library:recorded-pi"])


def test_each_of_four_agents_is_named_with_its_version() -> None:
    labels = {(t.header.agent, t.header.agent_version) for t in TRACES.values()}
    assert {agent for agent, _ in labels} == {"claude-code", "codex", "opencode", "pi"}
    assert all(version and re.fullmatch(r"\d+\.\d+\.\d+", version) for _, version in labels)
    assert all(n.startswith(f"recorded-{t.header.agent}-") for n, t in TRACES.items())


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_session_is_sound_and_only_a_shape(name: str) -> None:
    trace = TRACES[name]
    assert faults(trace) == []
    assert (trace.header.shape_only, trace.header.synthetic, trace.header.source) == (True, False, "recorded")
    sums = trace.prompt_tokens()
    assert [sums[c.id] for c in trace.calls] == [c.usage.prompt for c in trace.calls]
    assert not any(b.text or b.chars for b in trace.blocks)
    assert library.path(name).stat().st_size < 20_000


def test_one_key_made_all_of_them_so_that_they_share_what_the_agents_share() -> None:
    assert len({key_id_of(t) for t in TRACES.values()}) == 1
    for agent in ("claude-code", "codex", "opencode", "pi"):
        fronts = [t.blocks[0].digest for t in TRACES.values() if t.header.agent == agent]
        assert len(fronts) == 2
        assert len(set(fronts)) == 1


def test_sub_agents_ran_at_once_and_so_did_tools() -> None:
    for agent in ("claude-code", "codex", "opencode"):
        trace = TRACES[f"recorded-{agent}-subagents"]
        assert [t.parent for t in trace.threads] == [None, 0, 0]
        one, two = (trace.calls_of(t) for t in (1, 2))
        assert (one[0].start_s or 0.0) < (two[-1].end_s or 0.0)
        assert (two[0].start_s or 0.0) < (one[-1].end_s or 0.0)
        assert {1, 2} <= {t for c in trace.calls for t in c.joins}
    for agent in ("claude-code", "codex", "opencode", "pi"):
        trace = TRACES[f"recorded-{agent}-parallel"]
        assert max(len(m.tool_calls) for m in trace.messages) >= 2


@pytest.mark.parametrize("name", NAMES)
def test_nothing_in_it_can_be_read(name: str) -> None:
    """Every string is a word of the format, a public name, or a digest."""
    trace = TRACES[name]
    lines = [json.loads(line) for line in encode_trace(trace).splitlines()]
    words = {w for w in strings_of(lines) if not DIGEST.fullmatch(w) and not VERSION.fullmatch(w)}
    assert words - ALLOWED - OURS == {f"anonymised, key {key_id_of(trace)}"}
