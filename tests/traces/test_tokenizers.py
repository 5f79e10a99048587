"""Counts of regenerated text in real tokenizers, trained here on the standard library's sources."""

import sysconfig
from functools import lru_cache
from pathlib import Path

import pytest

from windtunnel.traces.model import KINDS, Block
from windtunnel.traces.seeded import Stream
from windtunnel.traces.text import calibrate, fit_text, regenerate, regenerate_inline, sample

tokenizers = pytest.importorskip("tokenizers")

SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""As the Qwen family splits text before merging."""
NAMES = ("qwen-8k", "qwen-32k", "gpt2-8k", "metaspace-8k", "wordpiece-8k")


def corpus():
    root = Path(sysconfig.get_paths()["stdlib"])
    size = 0
    for path in sorted(root.glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="ignore")
        size += len(text)
        yield text
        if size > 500_000:
            return


@lru_cache(maxsize=8)
def trained(name):
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

    kind, _, size = name.partition("-")
    options = {"vocab_size": {"8k": 8192, "32k": 32_000}[size], "show_progress": False}
    if kind == "metaspace":
        tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        special = ["<unk>", *(f"<0x{i:02X}>" for i in range(256))]
        trainer = trainers.BpeTrainer(special_tokens=special, **options)
    elif kind == "wordpiece":
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(special_tokens=["[UNK]"], **options)
    else:
        tokenizer = Tokenizer(models.BPE())
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind == "gpt2")
        split = [pre_tokenizers.Split(Regex(SPLIT), "isolated")] if kind == "qwen" else []
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*split, byte_level])
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(initial_alphabet=alphabet, special_tokens=["<s>"], **options)
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


@lru_cache(maxsize=8)
def calibrated(name):
    """As a server would answer: one request per kind, with a special token in front."""
    answers = {k: trained(name).encode(sample(k)) for k in KINDS}
    return calibrate(name, {k: ([0, *e.ids], ["<s>", *e.tokens]) for k, e in answers.items()})


def count(name, text):
    return len(trained(name).encode(text, add_special_tokens=False).ids)


SIZES = [*range(1, 16), 20, 33, 60, 111, 240, 500, 1_100, 3_000, 20_000]


@pytest.mark.parametrize("name", NAMES)
def test_every_block_hits_its_count(name):
    cal = calibrated(name)
    assert cal.exact
    off = []
    for size in SIZES:
        for kind in KINDS:
            texts = [regenerate(f"{size}/{i}", kind, size, cal) for i in range(1 if size > 1000 else 3)]
            off.extend((kind, size, count(name, text) - size) for text in texts)
        off.append(("inline", size, count(name, regenerate_inline(f"{size}", size, cal)) - size))
    assert [o for o in off if abs(o[2]) > max(2, 0.02 * o[1])] == []


@pytest.mark.parametrize("name", NAMES)
def test_prompts_of_many_blocks_are_within_two_percent(name):
    cal = calibrated(name)
    draw = Stream("prompts", name)
    for low, high in ((4, 25), (10, 400), (100, 3000)):
        text, tokens = [], 0
        for i in range(120):
            size = draw.between(low, high)
            tokens += size
            text.append(regenerate(f"{low}/{i}", draw.pick(KINDS), size, cal))
        assert count(name, "".join(text)) == pytest.approx(tokens, rel=0.02)


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_ordinary_ones(name):
    cal = calibrated(name)
    assert 500 < len(cal.ids) <= 4096
    assert 0 not in cal.ids
    assert max(cal.ids) < trained(name).get_vocab_size()


def test_recorded_text_is_brought_near_its_count():
    name = "qwen-32k"
    cal = calibrated(name)
    text = Path(sysconfig.get_paths()["stdlib"], "argparse.py").read_text()[:40_000]
    whole = count(name, text)
    for wanted in (whole // 3, whole - 200, whole + 500, whole * 2):
        fitted, _ = fit_text(text, whole, Block(0, "d", "code", wanted), wanted, cal)
        assert count(name, fitted) == pytest.approx(wanted, rel=0.04)
