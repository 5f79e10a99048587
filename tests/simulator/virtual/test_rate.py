"""Calls that wait for the request-rate cap when the run ends: nobody ever sent them."""

from windtunnel.agents.events import CallEnd
from windtunnel.simulator.cli_options import config_of
from windtunnel.simulator.results.cautions import left_out
from windtunnel.simulator.results.fold import Fold
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.results.summary import recompute
from windtunnel.simulator.run.virtual import virtual_run
from windtunnel.traces.sources import load


def test_calls_that_were_never_sent_are_no_calls(tmp_path):
    config = config_of(["--agents", "8", "--rate", "0.2", "--duration", "5m"])
    summary = virtual_run(config, load(config.traces), tmp_path / "run")
    folder = RunFolder.open(tmp_path / "run")
    fold = Fold(folder.run)
    sent, waiting = [], []
    for event in folder.events():
        fold.apply(event)
        if isinstance(event, CallEnd):
            (waiting if event.t_sent is None else sent).append(event)
    cut = sum(call.cut for call in sent)
    assert len(waiting) >= 4  # of 8 agents: one call in five seconds is let through
    assert all(call.cut for call in waiting)
    assert cut <= 1
    assert (summary.calls, summary.calls_cut, summary.calls_unended) == (len(sent), cut, cut)
    assert summary.calls_begun == sum(fold.window[0] <= call.t_intended for call in sent)
    assert (fold.calls["started"], fold.calls["cut"]) == (len(sent), cut)
    assert left_out(summary) is None  # the engine was slow with none of them
    assert recompute(tmp_path / "run").calls == len(sent)
