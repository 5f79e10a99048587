"""Nothing of the recording is found in what is shared, and everything that a replay needs is."""

import random
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from msgspec.structs import fields, replace

from windtunnel.traces import known_names, library
from windtunnel.traces.anonymise import anonymise, hidden_names, key_id, key_id_of
from windtunnel.traces.check import faults
from windtunnel.traces.format import encode_trace, read_trace, write_trace
from windtunnel.traces.importers import IMPORTERS
from windtunnel.traces.known_names import LONG, is_public_model
from windtunnel.traces.model import Block, Header, Message, ToolCall, ToolSet, Trace, digest_of
from windtunnel.traces.sources import load

from .leaks import ALLOWED, Planter, as_bytes, leaked, strings_of, structs

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))
SHARED = Path(__file__).resolve().parents[3] / "shared" / "traces"

SAME = {
    "Header": "started_at synthetic schema",
    "Block": "id kind tokens filler mark",
    "ToolCall": "arguments",
    "Message": "id role blocks reasoning",
    "ToolSet": "id block more",
    "Thread": "id parent spawn_call spawn_delay_s background",
    "Usage": "prompt cached completion reasoning",
    "Params": "temperature top_p top_k max_tokens",
    "Call": "id thread append base keep tools output usage start_s first_s end_s kind aborted joins",
    "ToolRun": "call start_s end_s thread error mark",
    "Wait": "before cause seconds mark",
}
"""Fields that are copied: positions, counts, times, and words of the format."""
DIGESTS = {
    "Header": "id",
    "Block": "digest",
    "ToolCall": "id",
    "Message": "tool_call_id",
    "Thread": "tool_call_id name",
    "ToolRun": "tool_call_id",
}
PUBLIC_OR_DIGESTS = {
    "Header": "agent models",
    "ToolCall": "name",
    "Message": "name",
    "ToolSet": "names",
    "Call": "model",
    "ToolRun": "name",
    "Wait": "tools",
}
PUBLIC_OR_LEFT_OUT = {
    "Header": "agent_version source",
    "Block": "media",
    "Params": "reasoning_effort",
    "Call": "stop marks",
}
LEFT_OUT = {"Header": "title", "Block": "text chars"}
MADE = {"Header": "shape_only notes"}
INSIDE = {"Message": "tool_calls", "Call": "params"}
"""Fields of further objects, which are decided upon themselves."""


def decided() -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for table in (SAME, DIGESTS, PUBLIC_OR_DIGESTS, PUBLIC_OR_LEFT_OUT, LEFT_OUT, MADE, INSIDE):
        for name, words in table.items():
            out.setdefault(name, []).extend(words.split())
    return out


def test_every_field_of_the_model_is_decided_upon():
    assert {n: sorted(f.name for f in fields(s)) for n, s in structs().items()} == {
        n: sorted(words) for n, words in decided().items()
    }


def decompressed(path: Path) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())


@pytest.mark.parametrize("seed", range(12))
def test_no_secret_survives_wherever_it_is_planted(small, tmp_path, seed):
    draw = random.Random(seed)
    shapes = [small, *(read_trace(library.path(n)).traces[0] for n in ("typo-in-docs", "explain-regex"))]
    planter = Planter(draw)
    planted = planter.struct(draw.choice(shapes))
    assert len(planter.secrets) > 30
    assert leaked(encode_trace(planted), as_bytes(planter.secrets)) != []  # the search finds what is there
    shared = anonymise(planted, draw.randbytes(32))
    write_trace(shared, tmp_path / "a.jsonl.zst")
    for output in (encode_trace(shared), decompressed(tmp_path / "a.jsonl.zst")):
        assert leaked(output, as_bytes(planter.secrets)) == []
        assert leaked(output, as_bytes(strings_of(planted))) == []
    assert leaked((tmp_path / "a.jsonl.zst").read_bytes(), as_bytes(planter.secrets)) == []


LOOKALIKES = (
    replace(Header("s"), agent="claude-code-of-acme-corp"),
    replace(Header("s"), agent_version="2.1.332-built-for-acme"),
    replace(Header("s"), models=("claude-sonnet-acme-merger-4", "ft:gpt-4o:acme-corp::8xY2")),
    replace(Header("s"), source="claude-code /home/someone/projects/merger"),
    replace(Header("s"), source="/home/someone/projects"),
    replace(Header("s"), notes=("anonymised, key 01234567 of someone",)),
    replace(Header("s"), title="Bash"),
    Message(0, "tool", name="mcp__acme-internal__merge"),
    Message(0, "assistant", tool_calls=(ToolCall("toolu_01AbCdEfGh", "Bash of acme", 0),)),
    ToolSet(0, ("Read", "Bash\u200b-acme-corp", "mcp__Read__acme-corp"), 0),
    Block(0, digest_of("x"), "prose", 3, media='image/png; name="merger-plan.png"'),
    Block(0, digest_of("x"), "prose", 3, chars=9, text="yes it is, and more"),
)


@pytest.mark.parametrize("line", LOOKALIKES)
def test_what_only_begins_like_a_public_name_is_none(line):
    parts: dict[str, Any] = {"header": Header("s"), "blocks": (Block(0, digest_of("x"), "prose", 3),)}
    where = {Header: "header", Message: "messages", ToolSet: "toolsets", Block: "blocks"}[type(line)]
    parts[where] = line if where == "header" else (line,)
    output = encode_trace(anonymise(Trace(**parts), KEY))
    for word in (b"acme", b"someone", b"merger", b"toolu", b"home", b"projects", b"built", b"yes", b"title"):
        assert word not in output


def test_public_names_stay(small):
    named = replace(
        small,
        header=replace(small.header, agent="codex", agent_version="0.104.0-alpha.1", source="codex /a/b"),
        calls=tuple(replace(c, model="gpt-5.3-codex", stop="tool_use") for c in small.calls),
    )
    shared = anonymise(named, KEY)
    assert (shared.header.agent, shared.header.agent_version, shared.header.source) == ("codex", "0.104.0", "codex")
    assert shared.toolsets[0].names == ("Read", "Task")
    assert [c.name for c in shared.messages[2].tool_calls] == ["Read", "Task"]
    assert (shared.messages[3].name, shared.tool_runs[0].name, shared.waits[0].tools) == ("Read", "Read", ("Read",))
    assert {(c.model, c.stop) for c in shared.calls} == {("gpt-5.3-codex", "tool_use")}
    assert shared.calls[0].params == small.calls[0].params
    assert shared.calls[2].marks == small.calls[2].marks
    assert shared.blocks[9].media == "image/png"


def test_names_can_be_kept_and_are_told(small):
    assert hidden_names([small]) == ["hand", "m"]
    shared = anonymise(small, KEY, keep=["m"])
    assert shared.header.models == ("m",)
    assert shared.header.agent.startswith("agent-")
    alike = replace(small, header=replace(small.header, agent="m"))
    names = [anonymise(alike, KEY).header.agent, *anonymise(alike, KEY).header.models]
    assert len({name.partition("-")[2] for name in names}) == 2  # a name in two uses is two digests
    assert hidden_names([small], ["m", "hand"]) == []


PUBLISHED = """
claude-sonnet-4-5 claude-3-5-sonnet-20241022 claude-sonnet-4@20250514 litellm_proxy/claude-sonnet-4-20250514
converse/eu.anthropic.claude-sonnet-4-6-v1:0 us.anthropic.claude-3-5-haiku-20241022-v1:0 anthropic/claude-opus-4.1
gpt-4.1 gpt-4.1-2025-04-14 gpt-4.1-20250414 gpt-4o-2024-08-06 gpt-4o-mini gpt-3.5-turbo-0125 gpt-4-32k gpt-4-1106-preview
chatgpt-4o-latest o3 o4-mini openai/o1-preview gpt-5.1-codex gpt-5-codex openai/gpt-oss-120b azure/gpt-4.1
gemini-2.5-pro gemini/gemini-2.5-pro-preview-06-05 gemini-2.5-flash-preview-09-2025 gemini-1.5-pro-002 gemini-3-pro
google/gemma-3n-e4b-it gemma3:27b-it-qat vertex_ai/gemini-2.0-flash-001
qwen3-coder qwen3-235b-a22b qwen3-30b-a3b-instruct-2507-fp8 Qwen/Qwen3-Next-80B-A3B-Thinking qwen2.5-coder:32b-instruct-q4_K_M
qwen-max-2025-01-25 qwen3:0.6b qwq-32b meta-llama/Llama-3.3-70B-Instruct Meta-Llama-3.1-8B-Instruct-AWQ-INT4
meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8 RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic
mistralai/mixtral-8x22b-instruct mistralai/Mixtral-8x7B-Instruct-v0.1 mistral-large-2411 Mistral-Small-3.2-24B-Instruct-2506
deepseek-ai/DeepSeek-V3.1 deepseek-r1-0528 deepseek-ai/DeepSeek-R1-Distill-Qwen-32B deepseek-v3.2-exp deepseek/deepseek-chat:free
moonshotai/Kimi-K2-Instruct-0905 kimi-k2-thinking zai-org/GLM-4.5-Air z-ai/glm-4.5v MiniMax-M2 x-ai/grok-code-fast-1 grok-4-0709
command-a-03-2025 command-r7b-12-2024 nova-pro seed-1-6-250615 phi-4 phi-3-mini-4k-instruct
"""
PRIVATE = """
openai/10.0.0.5:8000/qwen3-coder qwen3-coder@10.0.0.5 azure/gpt-4.1-20250414-555123 qwen3-coder-30b-5551234567
llama-70b-192.168.17.4 gpt-4.1/2025/10.20.30.40 qwen3-10-0-0-5 llama-10.0.0.5 qwen3-192-168-17-4 qwen3:8000 qwen3:11434
qwen3:1102 qwen3:0 qwen3:80 qwen3@openai anthropic@claude-3 qwen3-coder@5551234567 gpt-4-20250414-20250415 gpt-4-9999 gpt-4.1.2.3
555123/gpt-4o azure/555123/gpt-4o gpt-4o/555123 openai:8000/gpt-4o claude-20259999 llama-70b-8b-1b-3b 4.1-gpt-555 gpt-o
qwen3-coder:latest:8000 accounts/fireworks/models/qwen3 gpt-4o. gpt-4o- -gpt-4o gpt--4o coder123-qwen sonnet 10.gpt-4o
a/b/c/d/gpt-4o x.y.gpt-4o gpt-4o\N{KELVIN SIGN} gpt-\N{ARABIC-INDIC DIGIT FOUR} llama-70b-fp8:6443
"""


@pytest.mark.parametrize(
    ("name", "public"),
    [
        ("claude-opus-4-5-20251101", True),
        ("converse/jp.anthropic.claude-haiku-4-5-20251001-v1:0", True),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", True),
        ("nvidia/Llama-3_3-Nemotron-Super-49B-v1_5", True),
        ("gpt-4o", True),
        ("qwen3-acme", False),
        ("ft:gpt-4o:acme::abc", False),
        ("/models/llama-3", False),
        ("arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude", False),
        ("claude-123456789012", False),
        *((name, True) for name in PUBLISHED.split()),
        *((name, False) for name in PRIVATE.split()),
        ("instruct-7b", False),
        ("", False),
    ],
)
def test_which_model_ids_are_public(name, public):
    assert is_public_model(name) is public


@pytest.mark.parametrize(
    ("version", "kept"),
    [
        ("2.1.332", "2.1.332"),
        ("0.104.0-alpha.1", "0.104.0"),
        ("1.0.dev5", "1.0"),
        ("2.1.42-acme.7", "2.1.42"),
        ("10.0.0.5", None),
        ("192.168.17.4", None),
        ("555.123.456", None),
        ("5551234567", None),
        ("2.1@host", None),
    ],
)
def test_a_version_that_may_be_an_address_is_none(version, kept):
    named = Trace(replace(Header("s"), agent="codex", agent_version=version))
    assert anonymise(named, KEY).header.agent_version == kept


def test_models_that_may_name_a_host_become_digests_and_are_told(small):
    names = ("qwen3-coder@10.0.0.5", "gpt-4.1-20250414", "llama-70b-192.168.17.4")
    named = replace(small, header=replace(small.header, models=names))
    shared = anonymise(named, KEY).header.models
    assert [name.startswith("model-") for name in shared] == [True, False, True]
    assert {names[0], names[2]} <= set(hidden_names([named]))


def test_that_an_emulator_was_recorded_is_kept_and_nothing_else_of_the_note(small):
    note = "EMULATED, nothing of this is measured: vLLM 0.32.0's rules, H200, /home/ann/secret-model"
    shared = anonymise(replace(small, header=replace(small.header, notes=("tag x", note))), KEY).header
    assert shared.emulated
    assert shared.notes[1:] == ("EMULATED, nothing of this is measured",)
    assert not anonymise(small, KEY).header.emulated


def test_every_name_that_becomes_a_digest_is_told(small):
    message = replace(small.messages[3], name="own-tool-1")
    wait = replace(small.waits[0], tools=("own-tool-2",))
    named = replace(
        small,
        messages=(*small.messages[:3], message, *small.messages[4:]),
        waits=(wait, *small.waits[1:]),
    )
    assert {"own-tool-1", "own-tool-2"} <= set(hidden_names([named]))


def test_every_importer_is_a_known_source():
    assert set(IMPORTERS) <= known_names.SOURCES
    assert all(name.isprintable() and " " not in name and not name.startswith("mcp__") for name in known_names.TOOLS)


def test_shape_and_references_are_kept(small):
    shared = anonymise(small, KEY)
    assert faults(shared) == []
    assert shared.header.shape_only
    assert shared.prompt_tokens() == small.prompt_tokens()
    for name in ("blocks", "messages", "toolsets", "threads", "calls", "tool_runs", "waits"):
        for before, after in zip(getattr(small, name), getattr(shared, name), strict=True):
            for field in SAME[type(before).__name__].split():
                assert getattr(after, field) == getattr(before, field), field
    ids = [c.id for c in shared.messages[2].tool_calls]
    assert [shared.messages[3].tool_call_id, shared.messages[6].tool_call_id] == ids
    assert [run.tool_call_id for run in shared.tool_runs] == ids
    assert shared.threads[1].tool_call_id == ids[1]
    assert len({*ids, "t1", "t2"}) == 4


def test_digests_are_equal_where_they_were_and_only_there(small):
    cut = replace(small.blocks[4], id=10, tokens=11)
    first = replace(small, blocks=(*small.blocks, cut))
    second = replace(small, header=replace(small.header, id="s2"))
    one, two = anonymise(first, KEY), anonymise(second, KEY)
    assert [b.digest for b in two.blocks] == [b.digest for b in one.blocks[:10]]
    assert len({b.digest for b in one.blocks}) == 10
    assert (one.blocks[10].digest, one.blocks[10].tokens) == (one.blocks[4].digest, 11)
    assert one.header.id != two.header.id
    assert all(re.fullmatch(r"[0-9a-f]{32}", b.digest) for b in one.blocks)


def test_sessions_of_one_name_stay_apart_and_a_longer_one_takes_its_place(small):
    header = replace(small.header, started_at=None)
    whole, begun = replace(small, header=header), replace(small, header=header, waits=())
    assert anonymise(whole, KEY).header.id != anonymise(begun, KEY).header.id
    assert anonymise(small, KEY).header.id == anonymise(replace(small, waits=()), KEY).header.id


def test_another_key_gives_nothing_to_link(small):
    one, two = anonymise(small, KEY), anonymise(small, OTHER)
    same = set(strings_of(one)) & set(strings_of(two))
    assert {s for s in same if s not in ALLOWED and len(s) > 1} == set()
    assert key_id_of(one) == key_id(KEY) != key_id(OTHER)
    assert key_id_of(small) is None
    with pytest.raises(ValueError, match="32 bytes"):
        anonymise(small, b"short")


def test_a_guessed_text_cannot_be_checked_without_the_key():
    """Short blocks are the easiest to guess: neither the text's digest nor a plain hash of it is in the output."""
    from hashlib import blake2b

    guesses = ["", "y", "ok", "yes", "1", "continue", "{}"]
    blocks = tuple(Block(i, digest_of(t), "prose", 1, len(t), t) for i, t in enumerate(guesses))
    output = encode_trace(anonymise(Trace(Header("s"), blocks), KEY)).decode()
    for text in guesses:
        for said in (text, digest_of(text), f"{digest_of(text)}\0"):
            for person in (b"", b"block"):
                for size in (4, 8, 16, 32, 64):
                    plain = blake2b(said.encode(), digest_size=size, person=person).hexdigest()
                    assert plain[:LONG] not in output
        assert digest_of(text)[:LONG] not in output
        assert not any(f'"chars":{len(text)}' in line for line in output.splitlines())


def prefixes(traces: Iterable[Trace]) -> list[list[int]]:
    """Each call's prompt as numbers of its beginnings, block by block: two prompts share as many as they have equal."""
    numbers: dict[tuple[int, str, int], int] = {}
    out = []
    for trace in traces:
        for call, messages in trace.prompts():
            blocks = [trace.toolsets[call.tools].block] if call.tools is not None else []
            blocks += [b for m in messages for b in trace.message_blocks(trace.messages[m])]
            at, row = -1, []
            for block in (trace.blocks[b] for b in blocks):
                at = numbers.setdefault((at, block.digest, block.tokens), len(numbers))
                row.append(at)
            out.append(row)
    return out


def digest_classes(traces: Iterable[Trace]) -> list[int]:
    numbers: dict[str, int] = {}
    return [numbers.setdefault(b.digest, len(numbers)) for t in traces for b in t.blocks]


FOLDERS = (
    "atif", "claude-code", "cline", "codex", "gemini", "har", "litellm", "mini-swe-agent", "opencode", "openhands",
    "otel", "pi", "qwen-code", "swe-agent", "tracelab", "weka-kv-cache-tester",
)  # fmt: skip


@pytest.fixture(params=FOLDERS)
def folder(request: pytest.FixtureRequest) -> Path:
    if not SHARED.is_dir():
        pytest.skip("no recorded sessions: ../shared/traces is absent")
    return SHARED / str(request.param)


def test_recorded_sessions_leave_nothing_and_keep_their_prefixes(folder: Path) -> None:
    traces = sorted(load([str(folder)]).traces, key=lambda trace: len(trace.blocks))[:9]
    while len(traces) > 1 and sum(len(trace.blocks) for trace in traces) > 10_000:
        traces.pop()
    shared = [anonymise(trace, KEY) for trace in traces]
    assert prefixes(shared) == prefixes(traces)
    assert digest_classes(shared) == digest_classes(traces)
    for before, after in zip(traces, shared, strict=True):
        assert faults(after) == faults(replace(before, header=replace(before.header, shape_only=False)))
        assert after.prompt_tokens() == before.prompt_tokens()
        assert [c.usage for c in after.calls] == [c.usage for c in before.calls]
    output = b"".join(map(encode_trace, shared))
    assert leaked(output, as_bytes(text for trace in traces for text in strings_of(trace))) == []
    files = [path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()]
    assert leaked(output, files) == []
