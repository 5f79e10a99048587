"""Tool sets of a recording: a block for each tool, the same block wherever the tool is the same."""

import json
from typing import Any

import pytest
from msgspec.structs import replace
from test_recorder import CHAT, assistant, chat, stream, user

from windtunnel.traces.check import faults
from windtunnel.traces.format import read_trace, write_trace
from windtunnel.traces.model import Trace, digest_of


def tool(name: str, words: int = 40) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"path": {"type": "string"}}}
    said = f"What {name} is good for. " * words
    return {"type": "function", "function": {"name": name, "description": said, "parameters": parameters}}


READ, EDIT, BASH, TASK = (tool(n, 10 * (i + 3)) for i, n in enumerate(("read", "edit", "bash", "task")))


def asked(recorder: Any, text: str, tools: list[dict[str, Any]], prompt: int | None, at: int, *before: str) -> None:
    """A turn of the conversation that began with `before`'s first text."""
    said = [user(t) if i % 2 == 0 else assistant(t) for i, t in enumerate(before)]
    n = recorder.ask(CHAT, {**chat(*said, user(text)), "tools": tools}, at=at)
    recorder.answer(n, at + 10, *stream(assistant("Yes."), prompt=prompt))


def sizes(trace: Trace, toolset: int) -> list[int]:
    return [trace.blocks[b].tokens for b in trace.toolsets[toolset].blocks]


def test_each_tool_is_a_block_and_sets_that_begin_alike_share_blocks(told: Any) -> None:
    asked(told, "go", [READ, EDIT, BASH], 1500, 0)
    asked(told, "more", [READ, EDIT, TASK, BASH], 2100, 1000, "go", "Yes.")
    asked(told, "again", [READ, EDIT, BASH], 1530, 2000, "go", "Yes.", "more", "Yes.")
    (trace,) = told.finish()
    assert faults(trace) == []
    assert [c.tools for c in trace.calls] == [0, 1, 0]
    assert trace.toolsets[0].names == ("read", "edit", "bash")
    first, second = (t.blocks for t in trace.toolsets)
    assert second == (*first[:2], second[2], first[2])
    assert [json.loads(trace.blocks[b].text or "") for b in first] == [READ, EDIT, BASH]
    assert min(sizes(trace, 0)) > 100
    assert list(trace.prompt_tokens().values()) == [1500, 2100, 1530]


def test_one_tool_and_tools_nobody_counted(told: Any) -> None:
    asked(told, "go", [READ], None, 0)
    asked(told, "more", [READ, EDIT], None, 1000, "go", "Yes.")
    (trace,) = told.finish()
    assert faults(trace) == []
    assert json.loads(trace.blocks[trace.toolsets[0].block].text or "") == [READ]
    assert [len(t.blocks) for t in trace.toolsets] == [1, 2]


@pytest.mark.parametrize("prompt", [3, 40, 700])
def test_a_prompt_smaller_than_the_tools_it_has_settles_them_anew(told: Any, prompt: int) -> None:
    """Another model's tokens: what was settled before does not fit, and the sums hold nevertheless."""
    asked(told, "go", [READ, EDIT, BASH], 3000, 0)
    asked(told, "quite something else", [READ, EDIT, BASH, TASK], prompt, 1000)
    assert all(faults(trace) == [] for trace in told.finish())


def test_two_parts_of_a_recording_are_one(tmp_path: Any, told: Any) -> None:
    asked(told, "go", [READ, EDIT, BASH], 1500, 0)
    again = told.again()
    folder = tmp_path / "whole"
    folder.mkdir()
    whole = type(told)(folder)
    asked(whole, "go", [READ, EDIT, BASH], 1500, 0)
    for recorder in (again, whole):
        asked(recorder, "more", [READ, EDIT, TASK], 1900, 1000, "go", "Yes.")
        asked(recorder, "again", [READ, EDIT, BASH], 1560, 2000, "go", "Yes.", "more", "Yes.")
    assert again.finish() == whole.finish()
    assert [c.tools for c in again.traces()[0].calls] == [0, 1, 0]


def test_an_older_recording_with_one_block_for_all_tools_goes_on(told: Any) -> None:
    asked(told, "go", [READ, EDIT, BASH], 1500, 0)
    path = told.folder / "rec-1.jsonl"
    (new,) = read_trace(path).traces
    text = f"[{','.join(new.blocks[b].text or '' for b in new.toolsets[0].blocks)}]"
    kept, *gone = new.toolsets[0].blocks
    whole = replace(new.blocks[kept], digest=digest_of(text), text=text, chars=len(text), tokens=new.toolset_tokens(0))
    blocks = [whole if b.id == kept else replace(b, tokens=0) if b.id in gone else b for b in new.blocks]
    write_trace(replace(new, blocks=tuple(blocks), toolsets=(replace(new.toolsets[0], more=()),)), path)
    again = told.again()
    asked(again, "more", [READ, EDIT, BASH], 1530, 1000, "go", "Yes.")
    asked(again, "again", [READ, EDIT, TASK], 1900, 2000, "go", "Yes.", "more", "Yes.")
    (trace,) = again.finish()
    assert faults(trace) == []
    assert [c.tools for c in trace.calls] == [0, 0, 1]
    assert [len(t.blocks) for t in trace.toolsets] == [1, 3]
    assert list(trace.prompt_tokens().values()) == [1500, 1530, 1900]
