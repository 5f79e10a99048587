"""Tool schemas of a log: cut into tools, each with the tokens it has wherever it is."""

import json

import pytest

from windtunnel.traces.importers.context import Context, Turn
from windtunnel.traces.importers.ledger import Ledger
from windtunnel.traces.importers.pieces import Draft, ToolSchemas, text_piece
from windtunnel.traces.importers.records import dumps


def tool(name, words=60, **more):
    return {"name": name, "description": f"What {name} is good for. " * words, "input_schema": {}, **more}


READ, EDIT, BASH, TASK = (tool(n, 20 * (i + 2)) for i, n in enumerate(("read", "edit", "bash", "task")))


def schemas(*tools, names=None):
    return ToolSchemas(names or tuple(t["name"] for t in tools), text_piece(dumps(list(tools)), "json"))


def say(text):
    return Draft("user", (text_piece(text),))


def first(ledger, tools, want, key="main", text="Go on. " * 40):
    """The tool set of a thread's first call; the prompt has `want` tokens."""
    step = Context(ledger, ("client",), key).step(Turn([say(text)], want, schemas=tools))
    total = sum(ledger.tokens(m) for m in step.append) + ledger.toolset_tokens(step.tools)
    assert want is None or total == want
    return None if step.tools is None else ledger.toolsets[step.tools]


def test_a_list_is_cut_into_tools_without_cache_marks():
    marked = tool("bash", cache_control={"type": "ephemeral"})
    pieces = schemas(READ, marked).each()
    assert [json.loads(p.text) for p in pieces] == [READ, tool("bash")]
    assert pieces[1].digest == schemas(READ, tool("bash")).each()[1].digest


def test_a_namespace_is_one_piece_with_several_names():
    space = {"type": "namespace", "name": "agents", "tools": [TASK, BASH]}
    made = schemas(READ, space, names=("read", "task", "bash"))
    assert [json.loads(p.text) for p in made.each()] == [READ, space]
    ledger = Ledger("s")
    assert len(first(ledger, made, 3000).blocks) == 2


@pytest.mark.parametrize(
    "text", ["", "[", "{}", "[[]]", '[{"name": "a"}]', '[{"name": "a"}, 3]', '[{"name": "a"}, {}, {}]', "7", "\ud800"]
)
def test_what_is_no_list_of_tools_stays_one_text(text):
    made = ToolSchemas(("a", "b"), text_piece(text, "json"))
    assert made.each() == (made.piece,)


def test_equal_leading_tools_are_the_same_blocks_in_every_thread():
    ledger = Ledger("s")
    main = first(ledger, schemas(READ, EDIT, BASH, TASK), 4000)
    sub = first(ledger, schemas(READ, EDIT, TASK), 2500, "sub")
    assert sub.blocks == (main.blocks[0], main.blocks[1], main.blocks[3])
    assert [json.loads(ledger.blocks[b].text)["name"] for b in main.blocks] == list(main.names)


def test_only_new_tools_give_way_where_the_prompt_is_small():
    ledger = Ledger("s")
    main = first(ledger, schemas(READ, EDIT), 4000)
    known = ledger.toolset_tokens(main.id)
    sub = first(ledger, schemas(READ, EDIT, BASH), known + 200, "sub")
    assert sub.blocks[:2] == main.blocks
    assert 0 < ledger.blocks[sub.blocks[2]].tokens < 200


def test_tools_that_do_not_fit_as_they_are_known_are_settled_anew():
    ledger = Ledger("s")
    main = first(ledger, schemas(READ, EDIT), 4000)
    sub = first(ledger, schemas(READ, EDIT, BASH), 300, "sub")
    assert not set(sub.blocks) & set(main.blocks)
    assert ledger.toolset_tokens(sub.id) < 300
    third = first(ledger, schemas(READ, EDIT), 4000, "third")
    assert third == main


@pytest.mark.parametrize("want", [None, 0, 1, 2, 5, 50])
def test_prompts_of_any_size_add_up(want):
    ledger = Ledger("s")
    first(ledger, schemas(READ, EDIT, BASH), want)
    first(ledger, schemas(READ, EDIT), want, "sub")
