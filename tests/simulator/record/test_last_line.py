"""What `record` says when the agent that it started is done."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from windtunnel.simulator.results.store import RunFolder

from .conftest import serving
from .test_command import AGENT, Server, record


@pytest.fixture
def server() -> Iterator[str]:
    Server.asked = []
    with serving(Server) as url:
        yield url


def test_an_agent_of_which_nothing_was_recorded_is_told_so(server: str, tmp_path: Path) -> None:
    out = tmp_path / "rec"
    result = record("--upstream", server, "--out", str(out), "--", sys.executable, "-c", "pass")
    assert result.returncode == 0
    assert result.stderr.splitlines()[-1].startswith(f"recorded nothing in {out}: no call to a model came through")


def test_the_last_line_says_what_the_server_said(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Server) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send(b'{"error": {"message": "too  long"}}', 413)

    monkeypatch.setattr(Server, "do_POST", refuse)
    agent = AGENT + "try: ask(1)\nexcept OSError as error: error.read()"
    out = tmp_path / "rec"
    result = record("--upstream", server, "--out", str(out), "--", sys.executable, "-c", agent)
    assert result.stderr.splitlines()[-1] == f"recorded no session in {out}: its only call failed (http_413: too long)"
    summary = RunFolder.open(out).summary()
    assert summary is not None
    assert summary.failure_messages == {"http_413": {"too long": 1}}
