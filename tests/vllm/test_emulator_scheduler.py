"""The emulator's scheduler against the real one, step by step, on random scenarios.

Compared after every step: who computes how many tokens, who runs, who waits, prefix queries and hits, and the whole
free queue in order; at the end each request's cached and created tokens and when it finished, and why.
"""

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.scheduler import Counters, Limits, Scheduler

pytestmark = pytest.mark.vllm

SCENARIOS = 80
STOP = 90_000
SYNCHRONOUS = ["", "", "eagle", "mtp", "draft_model", "ngram"]
ASYNCHRONOUS = ["", "", "eagle", "mtp", "draft_model", "ngram_gpu"]
"""Ways of speculating that vLLM 0.32 allows with either kind of scheduling; "" is none."""


def scenario(rng: np.random.Generator) -> dict[str, Any]:
    """Requests of which many continue an earlier one, on a pool of between one and four times the longest of them."""
    size, longest = int(rng.choice([4, 16])), int(rng.choice([200, 600]))
    least = -(-longest // size) + 1
    policy = "priority" if rng.random() < 0.25 else "fcfs"
    asynchronous = bool(rng.random() < 0.5)
    method = str(rng.choice(ASYNCHRONOUS if asynchronous else SYNCHRONOUS))
    config = {
        "block_size": size,
        "max_model_len": longest,
        "blocks": least + int(rng.integers(0, 3 * least)),
        "max_num_seqs": int(rng.choice([3, 8, 32])),
        "max_num_batched_tokens": int(rng.choice([64, 128, 512])),
        "threshold": int(rng.choice([0, 0, 0, 40])),
        "caching": bool(rng.random() < 0.9),
        "policy": policy,
        "asynchronous": asynchronous,
        "method": method,
        "drafts": int(rng.choice([1, 2, 3, 5])) if method else 0,
        "watermark": float(rng.choice([0.0, 0.0, 0.1])),
        "gate": bool(rng.random() < 0.8),
    }
    requests, histories, at = [], [], 0
    for i in range(int(rng.integers(5, 40))):
        at += int(rng.integers(0, 6))
        base: list[int] = []
        if histories and rng.random() < 0.6:
            base = histories[int(rng.integers(len(histories)))]
            base = base[: int(rng.integers(1, len(base) + 1))] if rng.random() < 0.5 else base
        fresh = rng.integers(0, STOP, size=int(rng.integers(1, longest // 3))).tolist()
        prompt = (base + fresh)[: longest - 2]
        length = int(rng.integers(1, min(longest - len(prompt), longest // 3) + 1))
        script = [(j * 13 + len(prompt)) % 5000 for j in range(length)]
        if rng.random() < 0.3:
            script[int(rng.integers(length))] = STOP
        histories.append(prompt + script)
        requests.append(
            {
                "key": f"r{i}",
                "prompt": prompt,
                "script": script,
                "max_tokens": length,
                "at": at,
                "salt": "x" if rng.random() < 0.25 else None,
                "priority": int(rng.integers(3)) if policy == "priority" else 0,
                "abort": at + int(rng.integers(1, 40)) if rng.random() < 0.1 else -1,
                "accepts": rng.integers(0, 6, size=length + 20).tolist(),
                "proposes": rng.integers(0, 6, size=length + 20).tolist(),
            }
        )
    return {"config": config, "requests": requests, "stop": STOP}


class Scripted:
    def __init__(self, ask: dict[str, Any]) -> None:
        self.ask = ask

    def tokens(self, start: int, stop: int) -> list[int]:
        ids: list[int] = self.ask["script"][start:stop]
        return ids

    def accepted(self, position: int, drafted: int) -> int:
        return min(drafted, int(self.ask["accepts"][position]))


class Matched(Scripted):
    """An n-gram drafter finds as many drafts as the scenario says."""

    def drafted(self, position: int, most: int) -> int:
        return min(most, int(self.ask["proposes"][position]))


def play(given: dict[str, Any]) -> tuple[dict[str, Any], Counter[str]]:
    """The same scenario through the emulator's scheduler, in the order in which vLLM's engine calls its own."""
    config, asks = given["config"], given["requests"]
    scheduler = Scheduler(
        Limits(
            num_gpu_blocks=config["blocks"],
            block_size=config["block_size"],
            max_model_len=config["max_model_len"],
            max_num_seqs=config["max_num_seqs"],
            max_num_batched_tokens=config["max_num_batched_tokens"],
            long_prefill_token_threshold=config["threshold"],
            enable_prefix_caching=config["caching"],
            priority=config["policy"] == "priority",
            watermark=config["watermark"],
            scheduler_reserve_full_isl=config["gate"],
            speculative_tokens=config["drafts"],
            lookahead=config["drafts"] if config["method"] in ("eagle", "mtp", "draft_model") else 0,
            drops_last_block=config["method"] in ("eagle", "mtp"),
            draft_slots=int(config["method"] == "draft_model"),
        ),
        asynchronous=config["asynchronous"],
    )
    requests: dict[str, Request] = {}
    log: list[Any] = []
    finished: list[Any] = []
    waiting = list(enumerate(asks))
    pending, step = None, 0
    while True:
        while waiting and waiting[0][1]["at"] <= step:
            place, ask = waiting.pop(0)
            script = ask["script"]
            requests[ask["key"]] = Request(
                ask["key"],
                np.array(ask["prompt"], dtype=np.uint32),
                (Matched if config["method"] == "ngram" else Scripted)(ask),
                ask["max_tokens"],
                block_size=config["block_size"],
                ends=script.index(STOP) + 1 if STOP in script else None,
                salt=ask["salt"],
                priority=ask["priority"],
                arrival=ask["at"] * 1000 + place,
            )
            scheduler.add(requests[ask["key"]])
        for ask in asks:
            if ask["abort"] == step and ask["key"] in requests:
                scheduler.abort(requests[ask["key"]])
        step += 1
        out = scheduler.schedule()
        log.append(
            [
                [[r.key, n, d] for r, n, d in zip(out.requests, out.counts, out.drafted, strict=True)] if out else [],
                [r.key for r in scheduler.running],
                [r.key for r in scheduler.waiting],
                scheduler.counters.queries,
                scheduler.counters.hits,
                scheduler.pool.free_order(),
                verified(scheduler.counters, config["drafts"]),
            ]
        )
        if not config["asynchronous"]:
            pending, out = out, None
        if pending is not None:
            finished += [[step, o.request.key, o.finished] for o in scheduler.complete(pending) if o.finished]
        pending = out
        if not waiting and not scheduler.running and not scheduler.waiting and pending is None:
            break
    cached = {key: [r.hit, r.created] for key, r in requests.items() if r.created is not None}
    totals = scheduler.counters
    counts = Counter(steps=step, preemptions=totals.preemptions, hits=totals.hits, drafts=totals.draft_tokens)
    counts["accepted"] = totals.accepted_tokens
    return {"log": log, "finished": finished, "cached": cached}, counts


def verified(counters: Counters, most: int) -> list[int]:
    places = counters.accepted_per_position or [0] * most
    return [counters.drafts, counters.draft_tokens, counters.accepted_tokens, *places]


def test_every_step_equals_the_real_schedulers(model_folder: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(int(os.environ.get("WINDTUNNEL_SEED", "0")))
    scenarios = [scenario(rng) for _ in range(SCENARIOS)]
    source, target = tmp_path / "scenarios.json", tmp_path / "real.json"
    source.write_text(json.dumps(scenarios))
    oracle = Path(__file__).with_name("scheduler_oracle.py")
    command = [os.environ["WINDTUNNEL_VLLM_PYTHON"], "-W", "ignore", oracle, model_folder, source, target]
    done = subprocess.run(
        command, env=os.environ | {"HF_HUB_OFFLINE": "1"}, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    totals: Counter[str] = Counter()
    for given, real in zip(scenarios, json.loads(target.read_text()), strict=True):
        ours, counts = play(given)
        totals += counts
        for step, (mine, theirs) in enumerate(zip(ours["log"], real["log"], strict=False)):
            assert mine == theirs, f"step {step} of {given['config']}"
        assert len(ours["log"]) == len(real["log"]), given["config"]
        assert ours["finished"] == real["finished"], given["config"]
        assert ours["cached"] == real["cached"], given["config"]
    assert totals["preemptions"] > 0
    assert totals["accepted"] > 0
    print(f"\nscheduler equal to vLLM's over {SCENARIOS} scenarios: {dict(totals)}")
