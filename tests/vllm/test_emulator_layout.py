"""The groups, blocks and capacity that the emulator gives a model against those that vLLM makes of the same layers."""

import json
import os
import subprocess
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import asdict

from windtunnel.simulator.emulator.kv_layout import Layers, Layout, layout

pytestmark = pytest.mark.vllm

MODELS = {
    "gpt-oss-20b": [("window", 12, 2048, 128), ("full", 12, 2048, 0)],
    "gpt-oss-120b": [("window", 18, 2048, 128), ("full", 18, 2048, 0)],
    "five windows to one": [("window", 52, 4096, 1024), ("full", 10, 4096, 0)],
    "narrow windows": [("window", 10, 1024, 512), ("full", 10, 2048, 0)],
    "only full": [("full", 32, 4096, 0)],
    "only windows": [("window", 32, 4096, 4096)],
    "qwen3.5-27b": [("mamba", 48, 3_207_168, 0), ("full", 16, 4096, 0)],
    "qwen3.5-35b-a3b": [("mamba", 30, 2_146_304, 0), ("full", 10, 2048, 0)],
    "nemotron-3-super": [("mamba", 40, 4_255_744, 1), ("full", 8, 512, 0)],
    "nemotron-3-nano": [("mamba", 23, 2_134_016, 1), ("full", 6, 1024, 0)],
}


def layers_of(name: str, *, drafts: int) -> list[Layers]:
    found = []
    for kind, count, size, more in MODELS[name]:
        if kind == "mamba":
            found.append(Layers("mamba", count, state_bytes=size, checkpoints=bool(more)))
        else:
            found.append(Layers("full" if kind == "full" else "window", count, token_bytes=size, window=more))
    if drafts:
        token = next(kind.token_bytes for kind in reversed(found) if kind.kind != "mamba")
        found.append(Layers("full", 1, token_bytes=token, drafts=True))
    return found


def case_of(name: str, rng: np.random.Generator) -> tuple[dict[str, Any], Layout]:
    drafts, caching = int(rng.choice([0, 0, 1, 3])), bool(rng.random() < 0.8)
    layers = layers_of(name, drafts=drafts)
    longest, batched = int(rng.choice([4096, 131_072])), int(rng.choice([2048, 8192]))
    made = layout(layers, max_model_len=longest, caching=caching, speculative_tokens=drafts)
    # Kinds take turns, each beginning where the one before has begun; drafts are last.
    order = list(islice(cycle([kind for kind in layers if not kind.drafts]), 1000))
    left = {id(kind): kind.count for kind in layers}
    named: list[dict[str, Any]] = []
    for kind in order:
        if left[id(kind)]:
            left[id(kind)] -= 1
            named.append(asdict(kind))
    named += [asdict(kind) for kind in layers if kind.drafts]
    attention = next(kind.token_bytes for kind in layers if kind.kind != "mamba")
    case = {
        "layers": named,
        "block_size": made.block_size,
        "page": made.block_size * attention,
        "caching": caching,
        "drafts": drafts,
        "max_model_len": longest,
        "batched": batched,
        "memory": int(rng.integers(20 << 30, 80 << 30)),
    }
    return case, made


def test_groups_are_those_that_vllm_makes(model_folder: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(int(os.environ.get("WINDTUNNEL_SEED", "0")))
    names = [name for name in MODELS for _ in range(4)]
    cases = [case_of(name, rng) for name in names]
    source, target = tmp_path / "cases.json", tmp_path / "real.json"
    source.write_text(json.dumps([case for case, _ in cases]))
    oracle = Path(__file__).with_name("layout_oracle.py")
    command = [os.environ["WINDTUNNEL_VLLM_PYTHON"], "-W", "ignore", oracle, model_folder, source, target]
    done = subprocess.run(
        command, env=os.environ | {"HF_HUB_OFFLINE": "1"}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for name, (case, made), real in zip(names, cases, json.loads(target.read_text()), strict=True):
        groups = [[group.kind, group.block_size, group.drafts] for group in made.groups for _ in range(group.count)]
        # vLLM marks one group of the drafts' kind; all of that kind are looked up as one.
        marked = {tuple(group[:2]) for group in real["groups"] if group[2]}
        assert groups == [[kind, size, (kind, size) in marked] for kind, size, _ in real["groups"]], (name, case)
        blocks = made.blocks(case["memory"])
        assert blocks == real["blocks"], name
        tokens, requests = made.capacity(blocks, case["max_model_len"], 2 * case["batched"])
        assert tokens == real["tokens"], name
        assert requests == pytest.approx(real["requests"])
