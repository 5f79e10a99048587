"""A recording made against the emulator is labelled as a run is: its calls were real, their times were not."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from windtunnel.simulator.diagnose import diagnose, lines
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.results.text import render_summary
from windtunnel.simulator.results.why_text import Paper
from windtunnel.traces.format import read_trace

from .conftest import Upstream, serving

PAGE = b'# vLLM\nvllm:num_requests_running{engine="0"} 1.0\n'
TOLD = {
    "emulated": True,
    "emulates": "vLLM 0.32.0",
    "gpu": "H200 141GB",
    "model": "openai/gpt-oss-20b",
    "calibrated": False,
    "error_bar": 0.2,
}
LABEL = "vLLM 0.32.0's rules, H200 141GB, openai/gpt-oss-20b; uncalibrated, times +-20%"
AGENT = """
import json, os, urllib.request
body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "a question"}]}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
head = {"Content-Type": "application/json"}
urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), head)).read()
"""


class Emulating(Upstream):
    """An emulator as far as a recording needs one."""

    unready = 0
    """How many questions it hangs up on."""
    pages: dict[str, Any]
    posts: list[str]

    def do_GET(self) -> None:
        if self.unready > 0:
            type(self).unready -= 1
            self.close_connection = True
            return
        page = self.pages.get(self.path.partition("?")[0])
        self.send(page if isinstance(page, bytes) else json.dumps(page or {}).encode(), 404 if page is None else 200)

    def do_POST(self) -> None:
        self.posts.append(self.path)
        self.rfile.read(int(self.headers["Content-Length"]))
        events = [
            {"choices": [{"index": 0, "delta": {"content": "An"}, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {"content": " answer."}, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 3}},
        ]
        data = b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events) + b"data: [DONE]\n\n"
        self.send(data, 200, "text/event-stream")


@pytest.fixture
def server() -> Iterator[str]:
    Emulating.unready, Emulating.posts = 0, []
    version = {"version": "0.32.0+windtunnel"}
    Emulating.pages = {"/version": version, "/metrics": PAGE, "/server_info": {"emulator": TOLD}}
    with serving(Emulating) as url:
        yield url


def recorded(server: str, out: Path) -> RunFolder:
    command = [sys.executable, "-m", "windtunnel.simulator.cli", "record", "--upstream", server, "--out", str(out)]
    subprocess.run([*command, "--", sys.executable, "-c", AGENT], timeout=30, check=True, capture_output=True)
    return RunFolder.open(out)


def notes(folder: RunFolder) -> tuple[str, ...]:
    (path,) = (folder.path / "traces").glob("*.jsonl")
    return read_trace(path).traces[0].header.notes


def test_a_recording_says_what_a_run_says_of_an_emulated_engine(server: str, tmp_path: Path) -> None:
    folder = recorded(server, tmp_path / "rec")
    assert folder.run["engine"] == {
        "name": "windtunnel-emulator",
        "emulated": True,
        "emulation": TOLD,
        "model": "m",
    }
    summary = folder.summary()
    assert summary is not None
    assert (summary.emulated, summary.engine.emulated_gpu, summary.engine.emulated_error_bar) == (
        True,
        "H200 141GB",
        0.2,
    )
    assert notes(folder) == (f"EMULATED, nothing of this is measured: {LABEL}",)


def test_every_view_of_it_says_so(server: str, tmp_path: Path) -> None:
    folder = recorded(server, tmp_path / "rec")
    found, summary, _ = diagnose(folder.path)
    label = f"EMULATED, not measured: {LABEL}"
    paper = Paper(400, colour=False)
    assert label in lines(found, summary, paper, 0)
    assert label in " ".join(render_summary(summary).split())


@pytest.mark.parametrize("silent", ["/server_info", "/metrics"])
def test_that_it_is_emulated_is_known_without_the_rest(server: str, tmp_path: Path, silent: str) -> None:
    del Emulating.pages[silent]
    folder = recorded(server, tmp_path / "rec")
    summary = folder.summary()
    assert summary is not None
    assert summary.emulated is True
    assert (folder.run["engine"]["emulation"] is None) == (silent == "/server_info")


def test_a_server_that_said_what_it_is_only_at_the_end_is_labelled_all_the_same(server: str, tmp_path: Path) -> None:
    Emulating.unready = 2  # what fails on a kept connection is asked twice
    folder = recorded(server, tmp_path / "rec")
    assert Emulating.unready == 0
    assert folder.run["engine"]["emulation"] == TOLD
    assert notes(folder) == (f"EMULATED, nothing of this is measured: {LABEL}",)


def test_what_the_engine_says_of_its_cache_is_written_and_nothing_is_generated_for_it(
    server: str, tmp_path: Path
) -> None:
    Emulating.pages |= {
        "/v1/models": {"data": [{"id": "big", "max_model_len": 4096}]},
        "/server_info": {
            "emulator": TOLD,
            "vllm_config": {"cache_config": {"block_size": 32, "num_gpu_blocks": 100, "enable_prefix_caching": True}},
        },
    }
    engine = recorded(server, tmp_path / "rec").run["engine"]
    assert {key: engine[key] for key in ("name", "model", "emulation", "block_size", "kv_tokens", "models")} == {
        "name": "windtunnel-emulator",
        "model": "m",
        "emulation": TOLD,
        "block_size": 32,
        "kv_tokens": 3200,
        "models": ["big"],
    }
    assert engine["resolved"]["cache_config.block_size"] == 32
    assert "capabilities" not in engine, "nothing was tried"
    assert Emulating.posts == ["/v1/chat/completions"], "the agent's own"
