"""The bench: our client, a raw C client and a naive one against a server that knows the truth.

`make bench` runs all of it, `make bench-short` what CI runs; both say medians of three. Every measurement of ours is an
ordinary `windtunnel run --target` in a process of its own; its events are read after it has ended.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import faults
from adapter import said_in
from compare import Measured, Two, measure, measure_reported, median_of
from machine import BenchError, build, compiler, serving, watch
from records import from_files
from report import Report, ScenarioResult, busy_cores, render, save
from scenarios import ABENCH, EXACT, LOOSE, OURS, RAW, SCENARIOS, Scenario
from workload import command, write_workload

HERE = Path(__file__).parent
LIMIT_S = 180.0
TRIES = 3
"""Measurements beside which others were busy are made again, up to so many in all."""
PATH = "/v1/chat/completions"


def run_ours(binaries: Path, scratch: Path, scenario: Scenario, outputs: Sequence[int]) -> Measured:
    run_dir = scratch / f"{scenario.name}-run"
    shutil.rmtree(run_dir, ignore_errors=True)
    trace = write_workload(scratch / f"{scenario.name}.jsonl", scenario.body_bytes, outputs)
    with serving(binaries, scenario.server) as server:
        argv = command(trace, server.url, scenario.streams, scenario.streams, run_dir)
        watched = watch(argv, server.pid, scratch / f"{scenario.name}.log", LIMIT_S)
        _body(scratch, scenario).write_bytes(server.get("/truth/body"))
        true = server.truth()
    if watched.status:
        raise BenchError(f"the run of {scenario.name} ended with {watched.status}; see {scratch / scenario.name}.log")
    return measure(OURS, said_in(run_dir), true, watched)


def run_other(client: str, binaries: Path, scratch: Path, scenario: Scenario, outputs: Sequence[int]) -> Measured:
    """A client that sends the same body as ours did."""
    out = scratch / f"{scenario.name}-{client}.jsonl"
    program = [str(binaries / "raw_client")] if client == RAW else [sys.executable, str(HERE / "naive.py")]
    requests = scenario.streams * len(outputs)
    with serving(binaries, scenario.server) as server:
        numbers = [str(server.port), str(scenario.streams), str(requests)]
        argv = [*program, *numbers, PATH, str(_body(scratch, scenario)), str(out)]
        watched = watch(argv, server.pid, scratch / f"{scenario.name}-{client}.log", LIMIT_S)
        true = server.truth()
    if watched.status:
        raise BenchError(f"{client} ended with {watched.status} in {scenario.name}")
    return measure(client, from_files(out), true, watched)


def run_abench(python: str, binaries: Path, scratch: Path, scenario: Scenario, outputs: Sequence[int]) -> Measured:
    """agentic-bench, an open load generator for the same kind of traffic; it makes bodies of the same size itself."""
    out = scratch / f"{scenario.name}-abench.jsonl"
    out.unlink(missing_ok=True)
    with serving(binaries, {**scenario.server, "record_all": 1}) as server:
        argv = abench_command(python, server.url, scenario, outputs, out)
        watched = watch(argv, server.pid, scratch / f"{scenario.name}-abench.log", LIMIT_S)
        true = [t for t in server.truth() if t.tokens == outputs[0] and t.how == "done"]
    if watched.status or not true:
        raise BenchError(f"abench ended with {watched.status} in {scenario.name}")
    told = json.loads(out.read_text().splitlines()[-1])["metrics"]
    ttft = Two(told["t1_ttft"]["p50_ms"], told["t1_ttft"]["p99_ms"])
    return measure_reported(ABENCH, true, watched, ttft, Two(told["itl_p50_ms"], told["itl_p99_ms"]))


def abench_command(python: str, url: str, scenario: Scenario, outputs: Sequence[int], out: Path) -> list[str]:
    requests, prompt = scenario.streams * len(outputs), scenario.body_bytes // 4
    usage = '{"stream_options":{"include_usage":true,"continuous_usage_stats":true}}'
    flags = f"""
        --base-url {url} --model truth --backend vllm --dataset-name random --turns 1 --input-increment {prompt}
        --output-len {outputs[0]} --max-concurrency {scenario.streams} --num-sessions {requests} --no-gaps
        --steady-frac 0 --warmup-requests 0 --system-prompt-len 0 --disable-tqdm --output-file {out}
    """
    return [python, "-m", "abench", "run", *flags.split(), "--extra-request-body", usage]


def quiet(once: Callable[[], Measured], limit: float) -> Measured:
    """A measurement beside which others used at most `limit` cores; the least disturbed one where there is none."""
    tries: list[Measured] = []
    while len(tries) < TRIES and not any(tried.foreign_cores <= limit for tried in tries):
        tries.append(once())
    return min(tries, key=lambda tried: tried.foreign_cores)


def _body(scratch: Path, scenario: Scenario) -> Path:
    return scratch / f"{scenario.name}-body.json"


def run_scenario(scratch: Path, scenario: Scenario, reps: int, asked: argparse.Namespace) -> ScenarioResult:
    binaries, short = scratch, asked.short
    outputs = scenario.outputs if not short or scenario.short_outputs is None else scenario.short_outputs
    runs: dict[str, list[Measured]] = {client: [] for client in scenario.clients}
    abench = asked.abench if scenario.with_abench else None
    if abench:
        runs[ABENCH] = []

    def once(client: str) -> Measured:
        if client == OURS:
            return run_ours(binaries, scratch, scenario, outputs)
        if client == ABENCH:
            return run_abench(abench, binaries, scratch, scenario, outputs)
        return run_other(client, binaries, scratch, scenario, outputs)

    for _ in range(reps):  # in turns, so that what drifts meets all of them
        for client, measured in runs.items():
            measured.append(quiet(lambda client=client: once(client), busy_cores(short=short)))
    results = {client: median_of(each) for client, each in runs.items()}
    gates = scenario.gates(results, LOOSE if short else EXACT)
    return ScenarioResult(scenario.name, scenario.what, list(results.values()), gates)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    names = [scenario.name for scenario in SCENARIOS] + ["faults"]
    parser = argparse.ArgumentParser(description="Our client against a server that knows the truth.")
    parser.add_argument("--short", action="store_true", help="fewer tokens, wide limits")
    parser.add_argument("--reps", type=int, default=3, help="turns, of which medians are taken (3)")
    parser.add_argument("--only", action="append", choices=names, help="this scenario; may be given again")
    parser.add_argument("--abench", metavar="PYTHON", help="an interpreter that has agentic-bench: measured, too")
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="where programs and results go")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    asked = parse(argv)
    if sys.platform != "linux" or compiler() is None:
        missing = "Linux" if sys.platform != "linux" else "a C compiler (cc, gcc or clang)"
        print(f"bench skipped: it needs {missing}; nothing was measured", file=sys.stderr)
        return 0
    scratch: Path = asked.out
    build(scratch)
    report = Report.begin(short=asked.short, reps=asked.reps)
    for scenario in SCENARIOS:
        if asked.only and scenario.name not in asked.only:
            continue
        if asked.short and scenario.short_outputs is None and not asked.only:
            continue
        print(f"bench: {scenario.name} ({scenario.what})", file=sys.stderr, flush=True)
        report.scenarios.append(run_scenario(scratch, scenario, asked.reps, asked))
    if not asked.only or "faults" in asked.only:
        print("bench: faults", file=sys.stderr, flush=True)
        report.faults = faults.run_faults(scratch, scratch, short=asked.short)
        report.fault_gates = report.faults.gates(LOOSE if asked.short else EXACT)
    save(report, scratch / "bench.json")
    print(render(report))
    return 1 if report.failed else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    try:
        sys.exit(main(sys.argv[1:]))
    except (BenchError, subprocess.CalledProcessError) as error:
        print(f"bench: {error}", file=sys.stderr)
        sys.exit(2)
