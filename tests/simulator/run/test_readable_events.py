"""Every event that a run writes is one that a reader takes, whatever the server says."""

import signal

import msgspec
import pytest

from windtunnel.agents.events import AnyEvent, CallEnd

from .whole_run import Rig

DECODER = msgspec.json.Decoder(AnyEvent)
ROLES = ("system", "user", "assistant", "tool")


@pytest.fixture
def rig(tmp_path, monkeypatch, capsys):
    kept = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield Rig(tmp_path, monkeypatch, capsys, look_s=5.0)
    for signum, handler in kept.items():
        signal.signal(signum, handler)


@pytest.mark.parametrize(
    ("alone", "frame", "gauge"),
    [(9, 4, float("nan")), (60, 1, -1.0), (3, 0, float("-inf")), (0, 90, 1e30), (40, 0, float("inf"))],
)
def test_whatever_the_tokenizer_and_the_metrics_page_say(rig, alone, frame, gauge):
    """A text may cost more alone than inside of a message, whose framing makes up for it; a gauge may be no figure."""
    rig.server.alone = alone
    rig.server.template = dict.fromkeys(ROLES, frame)
    rig.server.kv = gauge
    rig.server.served = -(10**6)
    seen = rig.go(duration_s=20.0, api="chat", fit="scale")
    lines = (seen.folder / "events.jsonl").read_bytes().splitlines()
    events = [DECODER.decode(line) for line in lines]
    kinds = {type(event).__name__ for event in events}
    assert any(isinstance(event, CallEnd) and event.failure is None for event in events)
    assert {"CallStart", "CallEnd", "EngineSample", "GpuSample", "ClientSample", "SessionEnd"} <= kinds
