"""The emulator's KV offload against vLLM's own connector, step by step, on random scenarios with small GPU pools.

Compared after every step: who computes how many tokens, who runs, waits, and waits for a load, prefix queries and hits
of the GPU and of the host tier, and the GPU's free queue in order; at the end each request's cached tokens.
"""

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from windtunnel.simulator.emulator.offload import OffloadKv
from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.scheduler import Limits, Scheduler

pytestmark = pytest.mark.vllm

SCENARIOS = 30


def scenario(rng: np.random.Generator) -> dict[str, Any]:
    size, longest = int(rng.choice([4, 16])), int(rng.choice([200, 600]))
    least = -(-longest // size) + 1
    config = {
        "block_size": size,
        "max_model_len": longest,
        "blocks": least + int(rng.integers(0, 2 * least)),
        "host": int(rng.choice([least // 2, 2 * least, 10 * least])),
        "load": int(rng.choice([0, 100, 700])),
        "max_num_seqs": int(rng.choice([3, 8])),
        "max_num_batched_tokens": int(rng.choice([64, 128, 512])),
        "threshold": int(rng.choice([0, 0, 40])),
        "watermark": float(rng.choice([0.0, 0.0, 0.1])),
        "gate": bool(rng.random() < 0.8),
        "method": "",
        "drafts": 0,
        "asynchronous": bool(rng.random() < 0.5),
    }
    requests: list[dict[str, Any]] = []
    histories: list[list[int]] = []
    at = 0
    for i in range(int(rng.integers(5, 40))):
        at += int(rng.integers(0, 20))
        base: list[int] = []
        if histories and rng.random() < 0.8:
            base = histories[int(rng.integers(len(histories)))]
            base = base[: int(rng.integers(1, len(base) + 1))] if rng.random() < 0.3 else base
        fresh = rng.integers(0, 90_000, size=int(rng.integers(0 if base else 1, longest // 3))).tolist()
        prompt = (base + fresh)[: longest - 2]
        length = int(rng.integers(1, min(longest - len(prompt), longest // 4) + 1))
        script = [(j * 13 + len(prompt)) % 5000 for j in range(length)]
        histories.append(prompt + script)
        extra = {"salt": None, "priority": 0, "abort": -1, "accepts": [0] * (length + 20), "proposes": []}
        requests.append({"key": f"r{i}", "prompt": prompt, "script": script, "max_tokens": length, "at": at} | extra)
    return {"config": config, "requests": requests, "stop": 90_000}


class Scripted:
    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    def tokens(self, start: int, stop: int) -> list[int]:
        return self.ids[start:stop]


def play(given: dict[str, Any]) -> tuple[dict[str, Any], Counter[str]]:
    config = given["config"]
    scheduler = Scheduler(
        Limits(
            num_gpu_blocks=config["blocks"],
            block_size=config["block_size"],
            max_model_len=config["max_model_len"],
            max_num_seqs=config["max_num_seqs"],
            max_num_batched_tokens=config["max_num_batched_tokens"],
            long_prefill_token_threshold=config["threshold"],
            watermark=config["watermark"],
            scheduler_reserve_full_isl=config["gate"],
            offload_blocks=config["host"],
            offload_block_s=config["load"] / 1e9,
        ),
        asynchronous=config["asynchronous"],
    )
    kv = scheduler.kv
    assert isinstance(kv, OffloadKv)
    # The played worker copies to the host within a step.
    kv.store_ns = 0
    requests: dict[str, Request] = {}
    log: list[Any] = []
    finished: list[Any] = []
    waiting = list(given["requests"])
    pending, step = None, 0
    while waiting or scheduler.running or scheduler.waiting or scheduler.loading:
        while waiting and waiting[0]["at"] <= step:
            ask = waiting.pop(0)
            requests[ask["key"]] = Request(
                ask["key"],
                np.array(ask["prompt"], dtype=np.uint32),
                Scripted(ask["script"]),
                ask["max_tokens"],
                block_size=config["block_size"],
            )
            scheduler.add(requests[ask["key"]])
        step += 1
        kv.advance(step * 1000)
        out = scheduler.schedule()
        kv.launch(step * 1000)
        counters = scheduler.counters
        log.append(
            [
                [[r.key, n] for r, n in zip(out.requests, out.counts, strict=True)] if out else [],
                [r.key for r in scheduler.running],
                [r.key for r in scheduler.waiting],
                [r.key for r in scheduler.loading],
                [counters.queries, counters.hits, counters.external_queries, counters.external_hits],
                scheduler.pool.free_order(),
            ]
        )
        if not config["asynchronous"]:
            pending, out = out, None
        if pending is not None:
            finished += [[step, o.request.key, o.finished] for o in scheduler.complete(pending) if o.finished]
        pending = out
    counts = Counter(steps=step, preemptions=counters.preemptions, hits=counters.hits, loaded=counters.external_hits)
    return {"log": log, "finished": finished, "cached": {key: r.hit for key, r in requests.items()}}, counts


def test_every_step_equals_that_of_vllms_connector(model_folder: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(int(os.environ.get("WINDTUNNEL_SEED", "0")))
    scenarios = [scenario(rng) for _ in range(SCENARIOS)]
    source, target = tmp_path / "scenarios.json", tmp_path / "real.json"
    source.write_text(json.dumps(scenarios))
    oracle = Path(__file__).with_name("offload_oracle.py")
    command = [os.environ["WINDTUNNEL_VLLM_PYTHON"], "-W", "ignore", oracle, model_folder, source, target]
    done = subprocess.run(
        command, env=os.environ | {"HF_HUB_OFFLINE": "1"}, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    totals: Counter[str] = Counter()
    parts = ("scheduled", "running", "waiting", "loading", "counters", "free queue")
    for given, real in zip(scenarios, json.loads(target.read_text()), strict=True):
        ours, counts = play(given)
        totals += counts
        for step, (mine, theirs) in enumerate(zip(ours["log"], real["log"], strict=False)):
            for part, own, other in zip(parts, mine, theirs, strict=True):
                assert own == other, f"{part} in step {step} of {given['config']}"
        assert len(ours["log"]) == len(real["log"]), given["config"]
        assert ours["finished"] == real["finished"], given["config"]
        assert ours["cached"] == real["cached"], given["config"]
    assert all(totals[name] for name in ("hits", "loaded", "preemptions"))
    print(f"\noffload equal to vLLM's over {SCENARIOS} scenarios: {dict(totals)}")
