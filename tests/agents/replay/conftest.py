"""A served model in small: a BPE tokenizer trained on the spot and a strict ChatML-like template. And traces by hand."""

import json
import random
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from windtunnel.traces.model import (
    Block,
    Call,
    Header,
    Message,
    Thread,
    ToolCall,
    ToolRun,
    ToolSet,
    Trace,
    Usage,
    Wait,
    digest_of,
)
from windtunnel.traces.text import Calibration, calibrate, sample


class Build:
    """A trace, message by message; ids are given out in order."""

    def __init__(self, name: str = "built") -> None:
        self.name = name
        self.blocks: list[Block] = []
        self.messages: list[Message] = []
        self.toolsets: list[ToolSet] = []
        self.threads: list[Thread] = [Thread(0)]
        self.calls: list[Call] = []
        self.tool_runs: list[ToolRun] = []
        self.waits: list[Wait] = []

    def block(self, tokens: int, kind: str = "prose", text: str | None = None, digest: str | None = None) -> int:
        number = len(self.blocks)
        digest = digest or digest_of(text if text is not None else f"{self.name}/{number}")
        self.blocks.append(Block(number, digest, kind, tokens, len(text or ""), text))
        return number

    def message(
        self,
        role: str,
        *parts: Any,
        calls: Sequence[tuple[str, str, Any]] = (),
        reasoning: int = 0,
        answers: str | None = None,
    ) -> int:
        """Parts are token counts, texts with counts `(tokens, text)`, or block ids given as `[id]`."""
        made = ToolCall
        message = Message(
            id=len(self.messages),
            role=role,
            blocks=tuple(self._part(p) for p in parts),
            reasoning=(self.block(reasoning),) if reasoning else (),
            tool_calls=tuple(made(i, name, self._part(p, "json")) for i, name, p in calls),
            tool_call_id=answers,
        )
        self.messages.append(message)
        return message.id

    def _part(self, part: Any, kind: str = "prose") -> int:
        if isinstance(part, list):
            return part[0]
        if isinstance(part, tuple):
            return self.block(part[0], kind, part[1])
        return self.block(part, kind)

    def tools(self, tokens: int, text: str | None = None, names: Sequence[str] = ("Bash",)) -> int:
        self.toolsets.append(ToolSet(len(self.toolsets), tuple(names), self.block(tokens, "json", text)))
        return len(self.toolsets) - 1

    def thread(self, **fields: Any) -> int:
        self.threads.append(Thread(len(self.threads), **{"parent": 0, **fields}))
        return len(self.threads) - 1

    def call(
        self,
        append: Sequence[int],
        *,
        base: int | None = None,
        keep: int | None = None,
        thread: int = 0,
        output: int | None = None,
        completion: int | None = None,
        **fields: Any,
    ) -> int:
        if base is not None and keep is None:
            keep = self._length(base)
        self.calls.append(
            Call(
                len(self.calls),
                thread,
                tuple(append),
                base,
                keep or 0,
                output=output,
                usage=Usage(completion=completion),
                **fields,
            )
        )
        return len(self.calls) - 1

    def _length(self, call: int) -> int:
        c = self.calls[call]
        return (c.keep if c.base is not None else 0) + len(c.append)

    def wait(self, before: int, cause: str, seconds: float | None, *tools: str) -> None:
        self.waits.append(Wait(before, cause, seconds, tuple(tools)))

    def trace(self) -> Trace:
        return Trace(
            Header(self.name),
            tuple(self.blocks),
            tuple(self.messages),
            tuple(self.toolsets),
            tuple(self.threads),
            tuple(self.calls),
            tuple(self.tool_runs),
            tuple(self.waits),
        )


def agent_session(
    turns: int = 12, seed: int = 1, *, system: int = 900, tools: int = 1500, result: int = 300, name: str = "agent"
) -> Trace:
    """A shape-only coding session: one request, then a tool call and its result per turn."""
    draw = random.Random(seed)
    b = Build(name)
    toolset = b.tools(tools)
    append = [b.message("system", system), b.message("user", 400)]
    base = None
    for turn in range(turns):
        last = turn == turns - 1
        ids = [f"{name}-{turn}-{i}" for i in range(1 if last else draw.choice((1, 1, 1, 2)))]
        reasoning = draw.choice((0, 0, 60))
        calls = () if last else tuple((i, draw.choice(("Bash", "Read", "Edit")), draw.randint(20, 160)) for i in ids)
        output = b.message("assistant", draw.randint(10, 120), calls=calls, reasoning=reasoning)
        made = sum(b.blocks[x].tokens for x in Trace(Header("")).message_blocks(b.messages[output]))
        base = b.call(append, base=base, output=output, completion=made + draw.randint(3, 9), tools=toolset)
        append = [
            output,
            *(b.message("tool", max(1, int(draw.expovariate(1 / result))), answers=i) for i in ids if not last),
        ]
    return b.trace()


@pytest.fixture
def build() -> Build:
    return Build()


CONTEXT = "<|im_start|>{role}\n{content}<|im_end|>\n"


class Served:
    """Tokenizer, template and strictness of the served model."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def count(self, text: str) -> int:
        return len(self.tokenizer.encode(text).ids)

    def ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text).ids

    def calibration(self) -> Calibration:
        tokenised = {}
        for kind in ("code", "prose", "json", "log"):
            encoded = self.tokenizer.encode(sample(kind))
            tokenised[kind] = (encoded.ids, encoded.tokens)
        return calibrate("small", tokenised)

    def prompt(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> list[int]:
        check_strict(messages)
        return self.ids(self.template(messages, tools))

    def template(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str:
        out = []
        if tools:
            lines = "".join("\n" + json.dumps(tool, ensure_ascii=False) for tool in tools)
            text = messages[0]["content"] + "\n\n" if messages[0]["role"] == "system" else ""
            out.append(f"<|im_start|>system\n{text}# Tools\n\n<tools>{lines}\n</tools>\nCall them as JSON.<|im_end|>\n")
        for at, m in enumerate(messages):
            if m["role"] == "system":
                if not tools:
                    out.append(f"<|im_start|>system\n{m['content']}<|im_end|>\n")
            elif m["role"] == "tool":
                if messages[at - 1]["role"] != "tool":
                    out.append("<|im_start|>user")
                out.append(f"\n<tool_response>\n{m['content']}\n</tool_response>")
                if at + 1 == len(messages) or messages[at + 1]["role"] != "tool":
                    out.append("<|im_end|>\n")
            else:
                out.append(f"<|im_start|>{m['role']}\n{m['content']}")
                for c in m.get("tool_calls", ()):
                    arguments = json.dumps(json.loads(c["function"]["arguments"]), ensure_ascii=False)
                    out.append(
                        f'\n<tool_call>\n{{"name": "{c["function"]["name"]}", "arguments": {arguments}}}\n</tool_call>'
                    )
                out.append("<|im_end|>\n")
        return "".join(out) + "<|im_start|>assistant\n"


def check_strict(messages: list[dict[str, Any]]) -> None:
    """What the strictest templates (Mistral's) raise exceptions about."""
    turns = 0
    open_calls: list[str] = []
    for at, m in enumerate(messages):
        assert isinstance(m["content"], str)
        if m["role"] == "system":
            assert at == 0, "a system message must be the first"
            assert m["content"]
            continue
        if m["role"] == "tool":
            assert m["tool_call_id"] in open_calls, "a result without a call"
            open_calls.remove(m["tool_call_id"])
            assert m["content"]
            continue
        assert not open_calls, "tool calls without results"
        if m["role"] == "user" or not m.get("tool_calls"):
            assert m["content"]
            assert (m["role"] == "user") == (turns % 2 == 0), "roles must alternate"
            turns += 1
        if m["role"] == "assistant" and m.get("tool_calls"):
            for c in m["tool_calls"]:
                assert isinstance(json.loads(c["function"]["arguments"]), dict)
                assert len(c["id"]) == 9
                assert c["id"].isalnum()
                open_calls.append(c["id"])
    assert not open_calls
    assert messages[-1]["role"] in ("user", "tool")


def train() -> Served:
    tokenizers = pytest.importorskip("tokenizers")
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=6000,
        special_tokens=special,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [sample(kind) for kind in ("code", "prose", "json", "log")]
    paths = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:60]
    texts += [path.read_text(encoding="utf-8", errors="replace") for path in paths]
    tokenizer.train_from_iterator(texts, trainer)
    return Served(tokenizer)


@pytest.fixture(scope="session")
def served() -> Served:
    return train()


@pytest.fixture(scope="session")
def calibration(served: Served) -> Calibration:
    return served.calibration()
