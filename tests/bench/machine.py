"""Starts the truth server and a client beside it, and samples from /proc what they and everything else cost."""

import contextlib
import json
import os
import shutil
import subprocess
import time
import urllib.request
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from records import Truth, from_log

SOURCES = Path(__file__).parent / "c"
SAMPLE_S = 0.02
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class BenchError(Exception):
    """The bench itself could not go on."""


def compiler() -> str | None:
    """A C compiler's path; None where there is none."""
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


def build(folder: Path) -> None:
    """Compiles the server and the raw client into `folder`, unless they are newer than their sources."""
    folder.mkdir(parents=True, exist_ok=True)
    newest = max(path.stat().st_mtime for path in SOURCES.iterdir())
    cc = compiler()
    assert cc is not None
    for name in ("truth_server", "raw_client"):
        made = folder / name
        if not made.exists() or made.stat().st_mtime < newest:
            subprocess.run(
                [cc, "-O2", "-std=gnu11", "-D_GNU_SOURCE", "-o", str(made), str(SOURCES / f"{name}.c")], check=True
            )


class Sample(Struct, frozen=True):
    t: int
    """ns."""
    client: int
    """CPU time of the client so far, ns; and so the others."""
    own: int
    """Of the client, the server and the bench."""
    machine: int
    rss: int
    """Bytes of the client."""


class Watched(Struct, frozen=True):
    """A client that has ended."""

    status: int
    samples: list[Sample]

    def at(self, t: int) -> Sample:
        """The counters at a moment, between two samples by proportion."""
        i = bisect_left(self.samples, t, key=lambda s: s.t)
        if i == 0:
            return self.samples[0]
        if i == len(self.samples):
            return self.samples[-1]
        a, b = self.samples[i - 1], self.samples[i]
        share = (t - a.t) / max(1, b.t - a.t)

        def between(x: int, y: int) -> int:
            return round(x + (y - x) * share)

        return Sample(
            t, between(a.client, b.client), between(a.own, b.own), between(a.machine, b.machine), max(a.rss, b.rss)
        )

    def client_cpu_s(self, begin: int, end: int) -> float:
        return (self.at(end).client - self.at(begin).client) / 1e9

    def foreign_cores(self, begin: int, end: int) -> float:
        """Cores that were busy with something else than this bench, on average."""
        a, b = self.at(begin), self.at(end)
        return max(0.0, ((b.machine - a.machine) - (b.own - a.own)) / max(1, end - begin))

    def grown_bytes(self, begin: int, end: int) -> int:
        """Most resident memory in a span, over that at its begin."""
        inside = [s.rss for s in self.samples if begin <= s.t <= end]
        before = [s.rss for s in self.samples if s.t <= begin]
        return max(inside, default=0) - (before[-1] if before else 0)


def cpu_ns(pid: int) -> int:
    """CPU time of all live threads of a process, ns; 0 when it is gone."""
    total = 0
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += int((task / "schedstat").read_bytes().split()[0])
    return total


def machine_ns() -> int:
    """Time that all cores together were not idle, ns (in steps of 10 ms)."""
    fields = Path("/proc/stat").read_bytes().split(b"\n", 1)[0].split()[1:9]
    user, nice, system, _, _, irq, softirq, _ = map(int, fields)
    return (user + nice + system + irq + softirq) * 1_000_000_000 // TICK


def rss(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * PAGE
    return 0


def watch(argv: Sequence[str], server: int, log: Path, limit_s: float) -> Watched:
    """Runs a client to its end and samples it meanwhile; one that goes on beyond the limit is ended."""
    samples: list[Sample] = []
    with log.open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + limit_s
        try:
            while process.poll() is None:
                client = cpu_ns(process.pid)
                if samples and client < samples[-1].client:  # it is ending
                    client = samples[-1].client
                own = client + cpu_ns(server) + time.process_time_ns()
                samples.append(Sample(time.perf_counter_ns(), client, own, machine_ns(), rss(process.pid)))
                time.sleep(SAMPLE_S)
                if time.monotonic() > deadline:
                    raise BenchError(f"{argv[0]} was not done after {limit_s:.0f} s; see {log}")
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    return Watched(process.returncode, samples)


class Server:
    """A running truth server."""

    def __init__(self, process: "subprocess.Popen[str]", port: int) -> None:
        self.pid = process.pid
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            data: bytes = answer.read()
        return data

    def truth(self) -> list[Truth]:
        return from_log(self.get("/truth/log"), self.get("/truth/times"))


@contextlib.contextmanager
def serving(binaries: Path, flags: dict[str, object]) -> Iterator[Server]:
    """A server with these flags on a port of its own."""
    argv = [str(binaries / "truth_server")]
    for name, value in flags.items():
        argv += [f"--{name.replace('_', '-')}", str(value)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise BenchError(f"the truth server did not start: {json.dumps(argv)}")
        yield Server(process, int(line))
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
