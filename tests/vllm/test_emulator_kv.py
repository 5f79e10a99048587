"""The emulator's KV cache against vLLM's own classes, step by step: several groups of every kind, on random scenarios.

Compared after every step, beside what the test of the scheduler compares: the blocks of each running request in each
group, null blocks included, and the KV cache usage.
"""

import json
import os
import subprocess
from collections import Counter
from math import lcm
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from windtunnel.simulator.emulator.kv_grouped import GroupedKv
from windtunnel.simulator.emulator.kv_layout import Group
from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.scheduler import Limits, Scheduler

pytestmark = pytest.mark.vllm

SCENARIOS = 8
"""For each kind of layout."""
STOP = 90_000


def groups_of(kind: str, rng: np.random.Generator, *, length: int, drafts: int, caching: bool) -> list[Group]:
    size = int(rng.choice([4, 16]))
    window = int(rng.integers(2, 5 * size))
    full, windowed = Group("full", size), Group("window", size, window=window)
    mode = "align" if caching else "none"
    state = Group(
        "mamba",
        size if caching else length,
        mamba_mode=mode,
        checkpoints=bool(rng.random() < 0.5),
        speculative_blocks=drafts,
    )
    more = int(rng.integers(1, 4))
    layouts = {
        "windows": [full] + [windowed] * more,
        "windows first": [windowed] * more + [full],
        "two windows": [full, windowed, Group("window", size, window=window + 3 * size)],
        "wide windows": [Group("full", size), Group("window", 2 * size, window=window)],
        "only windows": [windowed],
        "states": [state] * more + [full],
        "states last": [full] + [state] * more,
        "states and windows": [state, full, windowed],
    }
    return layouts[kind]


KINDS = (
    "windows",
    "windows first",
    "two windows",
    "wide windows",
    "only windows",
    "states",
    "states last",
    "states and windows",
)


def scenario(rng: np.random.Generator, kind: str) -> dict[str, Any]:
    """Requests of which many continue an earlier one, on a pool of between one and three times the longest of them."""
    length = int(rng.choice([200, 600]))
    asynchronous, caching = bool(rng.random() < 0.5), bool(rng.random() < 0.85)
    method = str(rng.choice(["", "", "mtp", "eagle", "ngram_gpu" if asynchronous else "ngram"]))
    drafts = int(rng.choice([1, 2, 3])) if method else 0
    shapes = groups_of(kind, rng, length=length, drafts=drafts, caching=caching)
    marked = method == "mtp" and bool(rng.random() < 0.7)
    groups = [
        {
            "kind": shape.kind,
            "block_size": shape.block_size,
            "window": shape.window,
            "mamba_mode": shape.mamba_mode,
            "checkpoints": shape.checkpoints,
            "speculative_blocks": shape.speculative_blocks,
            "drafts": marked and shape.kind == "full",
        }
        for shape in shapes
    ]
    whole = lcm(*(shape.block_size for shape in shapes))
    least = 2 + sum(
        4 + drafts if shape.kind == "mamba" else 2 - (-(length + drafts) // shape.block_size) for shape in shapes
    )
    config = {
        "groups": groups,
        "block_size": next((s.block_size for s in shapes if s.kind == "full"), shapes[0].block_size),
        "max_model_len": length,
        "blocks": least + int(rng.integers(0, 2 * least)),
        "max_num_seqs": int(rng.choice([3, 8, 32])),
        "max_num_batched_tokens": int(rng.choice([32, 64, 128, 512])),
        "threshold": int(rng.choice([0, 0, 0, 40])),
        "caching": caching,
        "policy": "priority" if rng.random() < 0.2 else "fcfs",
        "asynchronous": asynchronous,
        "method": method,
        "drafts": drafts,
        "watermark": float(rng.choice([0.0, 0.0, 0.1])),
        "gate": bool(rng.random() < 0.8),
        "retention": [0, 0, None, whole, 3 * whole][int(rng.integers(5))],
    }
    return {"config": config, "requests": _requests(rng, config), "stop": STOP}


def _requests(rng: np.random.Generator, config: dict[str, Any]) -> list[dict[str, Any]]:
    longest = config["max_model_len"]
    requests: list[dict[str, Any]] = []
    histories: list[list[int]] = []
    at = 0
    for i in range(int(rng.integers(5, 30))):
        at += int(rng.integers(0, 8))
        base: list[int] = []
        if histories and rng.random() < 0.7:
            base = histories[int(rng.integers(len(histories)))]
            base = base[: int(rng.integers(1, len(base) + 1))] if rng.random() < 0.4 else base
        fresh = rng.integers(0, STOP, size=int(rng.integers(0 if base else 1, longest // 3))).tolist()
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
                "salt": "x" if rng.random() < 0.1 else None,
                "priority": int(rng.integers(3)) if config["policy"] == "priority" else 0,
                "abort": at + int(rng.integers(1, 40)) if rng.random() < 0.1 else -1,
                "accepts": rng.integers(0, 4, size=length + 20).tolist(),
                "proposes": rng.integers(0, 4, size=length + 20).tolist(),
            }
        )
    return requests


class Scripted:
    def __init__(self, ask: dict[str, Any]) -> None:
        self.ask = ask

    def tokens(self, start: int, stop: int) -> list[int]:
        ids: list[int] = self.ask["script"][start:stop]
        return ids

    def accepted(self, position: int, drafted: int) -> int:
        return min(drafted, int(self.ask["accepts"][position]))


class Matched(Scripted):
    def drafted(self, position: int, most: int) -> int:
        return min(most, int(self.ask["proposes"][position]))


def limits_of(config: dict[str, Any]) -> Limits:
    return Limits(
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
        lookahead=config["drafts"] if config["method"] in ("eagle", "mtp") else 0,
        drops_last_block=config["method"] in ("eagle", "mtp"),
        groups=tuple(Group(**group) for group in config["groups"]),
        prefix_cache_retention_interval=config["retention"],
    )


def play(given: dict[str, Any]) -> tuple[dict[str, Any], Counter[str]]:
    config, asks = given["config"], given["requests"]
    scheduler = Scheduler(limits_of(config), asynchronous=config["asynchronous"])
    kv = scheduler.kv
    assert isinstance(kv, GroupedKv)
    requests: dict[str, Request] = {}
    log: list[Any] = []
    finished: list[Any] = []
    waiting = list(enumerate(asks))
    pending, step = None, 0
    while waiting or scheduler.running or scheduler.waiting or pending is not None:
        while waiting and waiting[0][1]["at"] <= step:
            place, ask = waiting.pop(0)
            script = ask["script"]
            requests[ask["key"]] = Request(
                ask["key"],
                np.array(ask["prompt"], dtype=np.uint32),
                (Matched if config["method"] == "ngram" else Scripted)(ask),
                ask["max_tokens"],
                block_size=scheduler.limits.hash_block_size,
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
        counters = scheduler.counters
        log.append(
            [
                [[r.key, n, d] for r, n, d in zip(out.requests, out.counts, out.drafted, strict=True)] if out else [],
                [r.key for r in scheduler.running],
                [r.key for r in scheduler.waiting],
                counters.queries,
                counters.hits,
                scheduler.pool.free_order(),
                [counters.drafts, counters.draft_tokens, counters.accepted_tokens]
                + (counters.accepted_per_position or [0] * config["drafts"]),
                [[r.key, kv.tables(r)] for r in scheduler.running],
                scheduler.pool.usage,
            ]
        )
        if not config["asynchronous"]:
            pending, out = out, None
        if pending is not None:
            finished += [[step, o.request.key, o.finished] for o in scheduler.complete(pending) if o.finished]
        pending = out
    cached = {key: [r.hit, r.created] for key, r in requests.items() if r.created is not None}
    totals = scheduler.counters
    counts = Counter(steps=step, preemptions=totals.preemptions, hits=totals.hits, accepted=totals.accepted_tokens)
    counts["null"] = sum(blocks.count(0) for entry in log for _, tables in entry[7] for blocks in tables)
    return {"log": log, "finished": finished, "cached": cached}, counts


def test_every_step_equals_that_of_vllms_classes(model_folder: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(int(os.environ.get("WINDTUNNEL_SEED", "0")))
    scenarios = [(kind, scenario(rng, kind)) for kind in KINDS for _ in range(SCENARIOS)]
    source, target = tmp_path / "scenarios.json", tmp_path / "real.json"
    source.write_text(json.dumps([given for _, given in scenarios]))
    oracle = Path(__file__).with_name("kv_oracle.py")
    command = [os.environ["WINDTUNNEL_VLLM_PYTHON"], "-W", "ignore", oracle, model_folder, source, target]
    done = subprocess.run(
        command, env=os.environ | {"HF_HUB_OFFLINE": "1"}, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    totals: Counter[str] = Counter()
    parts = ("scheduled", "running", "waiting", "queries", "hits", "free queue", "drafts", "blocks", "usage")
    for (kind, given), real in zip(scenarios, json.loads(target.read_text()), strict=True):
        ours, counts = play(given)
        totals += counts
        for step, (mine, theirs) in enumerate(zip(ours["log"], real["log"], strict=False)):
            for part, own, other in zip(parts, mine, theirs, strict=True):
                assert own == other, f"{part} in step {step} of {kind}: {given['config']}"
        assert len(ours["log"]) == len(real["log"]), given["config"]
        assert ours["finished"] == real["finished"], given["config"]
        assert ours["cached"] == real["cached"], given["config"]
    assert all(totals[name] for name in ("preemptions", "hits", "accepted", "null"))
    print(f"\nKV groups equal to vLLM's over {len(scenarios)} scenarios: {dict(totals)}")
