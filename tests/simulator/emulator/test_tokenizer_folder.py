"""A model's own tokenizer and template, small ones made here: what a template sees, and which tokens a text becomes."""

import json
from pathlib import Path

import pytest

from windtunnel.simulator.emulator.flags import parse
from windtunnel.simulator.emulator.script import Inventory, Words
from windtunnel.simulator.emulator.serve import main
from windtunnel.traces.errors import UsageError

pytest.importorskip("jinja2")
tokenizers = pytest.importorskip("tokenizers")

from msgspec import Raw  # noqa: E402

from windtunnel.simulator.emulator.template import ChatError  # noqa: E402
from windtunnel.simulator.emulator.template_contents import lists_contents  # noqa: E402
from windtunnel.simulator.emulator.template_folder import FolderTemplate  # noqa: E402
from windtunnel.simulator.emulator.tokenizer_folder import FolderTokenizer  # noqa: E402
from windtunnel.simulator.emulator.words import known  # noqa: E402

SPECIAL = ["<s>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> str:
    """tokenizer.json of a byte-level BPE that knows the common words."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=SPECIAL,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([" ".join(known()), ".\n,\n"] * 3, trainer)
    return made.to_str()


@pytest.fixture
def folder(tmp_path: Path, files: str):
    def make(template: str | None = TEMPLATE, **config) -> Path:
        (tmp_path / "tokenizer.json").write_text(files)
        given = {"eos_token": "<|im_end|>", "bos_token": {"content": "<s>"}} | config
        if template is not None:
            given["chat_template"] = template
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(given))
        return tmp_path

    return make


def text(folder: Path, messages, tools=None, **more) -> str:
    raw = [Raw(json.dumps(m).encode()) for m in messages]
    shown = None if tools is None else [Raw(json.dumps(t).encode()) for t in tools]
    return FolderTemplate(folder, FolderTokenizer(folder)).text(raw, shown, **more)


USER = {"role": "user", "content": "hi"}


def test_tokens_of_parts_are_those_of_the_whole(folder, files) -> None:
    tokenizer = FolderTokenizer(folder())
    whole = tokenizers.Tokenizer.from_str(files)
    for said in ("<|im_start|>user\n a b<|im_end|>\n<|im_start|>", "no marks", "", "é🎉 <s>\n\n x"):
        for _ in range(2):
            assert tokenizer.encode(said).tolist() == whole.encode(said, add_special_tokens=False).ids
    assert tokenizer.decode(tokenizer.encode("é🎉 a\n<|im_end|>").tolist()) == "é🎉 a\n"
    assert tokenizer.stop == whole.token_to_id("<|im_end|>")
    assert tokenizer.piece(tokenizer.stop) == b""
    assert tokenizer.bound == whole.get_vocab_size()


def test_a_first_token_is_added_where_the_configuration_says_so(folder) -> None:
    plain = FolderTokenizer(folder())
    assert plain.encode("hi", special=True).tolist() == plain.encode("hi").tolist()
    first = FolderTokenizer(folder(add_bos_token=True))
    assert first.encode("hi", special=True).tolist() == [0, *plain.encode("hi").tolist()]
    assert first.encode("hi").tolist() == plain.encode("hi").tolist()


def test_what_the_model_says_is_read_back_as_the_same_tokens(folder) -> None:
    import numpy as np

    tokenizer = FolderTokenizer(folder())
    words = Words(np.arange(9, dtype=np.uint32), 0, Inventory.of(tokenizer))
    words.natural_length(700)
    ids = words.tokens(0, 600)
    said = tokenizer.decode(ids)
    assert tokenizer.encode(said).tolist() == ids
    assert b"".join(map(tokenizer.piece, ids)).decode() == said
    assert len(set(ids)) > 100


def test_arguments_are_objects_and_tools_have_vllms_fields(folder) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"b": "<é>", "a": 1}'}}
    tools = [{"function": {"parameters": {"x": 1}, "name": "f", "odd": 2}, "type": "function", "cache_control": {}}]
    shown = text(folder(), [{"role": "assistant", "content": None, "tool_calls": [call]}], tools, generate=False)
    assert shown == (
        '<|im_start|>assistant\n[f {"b": "<é>", "a": 1}]<|im_end|>\n'
        '[{"type": "function", "function": {"name": "f", "description": null, "parameters": {"x": 1}}}]'
    )


def test_parts_are_joined_by_line_ends_unless_the_template_reads_lists(folder) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]
    assert "user\na\nb<|im_end|>" in text(folder(), [{"role": "user", "content": parts}])
    lists = "{% for m in messages %}{% for p in m['content'] %}({{ p.text }}){% endfor %}{% endfor %}"
    assert text(folder(lists), [{"role": "user", "content": parts}, USER]) == "(a)(b)(hi)"


@pytest.mark.parametrize(
    ("source", "lists"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", False),
        ("{% for m in messages %}{% for p in m.content %}{{ p }}{% endfor %}{% endfor %}", True),
        (
            "{% set rest = messages[1:] %}{% for m in rest %}{% for p in m['content'] | list %}{% endfor %}{% endfor %}",
            True,
        ),
        ("{% for m in messages %}{% set content = m.content %}{% for p in content %}{% endfor %}{% endfor %}", True),
        (
            "{% macro show(c) %}{% for p in c %}{% endfor %}{% endmacro %}{% for m in messages %}{{ show(m.content) }}{% endfor %}",
            True,
        ),
        ("{% macro show(content) %}{% for p in content %}{% endfor %}{% endmacro %}{{ show(tools) }}", False),
        ("{% for m in messages %}{% for c in m.tool_calls %}{% endfor %}{% endfor %}", False),
        ("{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}", False),
        ("{% broken", False),
    ],
)
def test_templates_that_read_lists_are_told_by_their_loops(source: str, lists: bool) -> None:
    assert lists_contents(source) is lists


def test_developers_speak_as_the_system_to_a_template_that_knows_none(folder) -> None:
    talk = [{"role": "system", "content": "one"}, USER, {"role": "developer", "content": "two"}]
    assert text(folder(), talk, generate=False).startswith("<|im_start|>system\none\n\ntwo<|im_end|>\n<|im_start|>user")
    knows = TEMPLATE + "{# 'developer' #}"
    assert "<|im_start|>developer\ntwo" in text(folder(knows), talk)


def test_a_last_message_that_is_gone_on_with_stays_open(folder) -> None:
    talk = [USER, {"role": "assistant", "content": "I "}]
    assert text(folder(), talk, generate=False, goes_on=True).endswith("<|im_start|>assistant\nI ")
    trims = TEMPLATE.replace("m.content", "m.content | trim")
    assert text(folder(trims), talk, generate=False, goes_on=True).endswith("<|im_start|>assistant\nI")
    with pytest.raises(ChatError, match="does not appear"):
        text(folder("nothing"), talk, generate=False, goes_on=True)


def test_a_template_has_its_variables_functions_and_special_tokens(folder) -> None:
    source = "{{ bos_token }}{{ eos_token }}{% if enable_thinking is defined %}{{ enable_thinking }}{% endif %}"
    assert text(folder(source), [USER], options={"enable_thinking": False}) == "<s><|im_end|>False"
    assert text(folder(source), [USER]) == "<s><|im_end|>"
    assert len(text(folder("{{ strftime_now('%Y-%m-%d') }}"), [USER])) == 10
    assert (
        text(folder('{{ {"b": "é<", "a": [1]} | tojson(indent=1) }}'), [USER]) == '{\n "b": "é<",\n "a": [\n  1\n ]\n}'
    )
    assert (
        text(folder("{% for i in range(9) %}{% if i > 2 %}{% break %}{% endif %}{{ i }}{% endfor %}"), [USER]) == "012"
    )
    with pytest.raises(ChatError, match=r"^not so$"):
        text(folder("{{ raise_exception('not so') }}"), [USER])
    with pytest.raises(ChatError, match="unexpected chat template kwargs"):
        text(folder(), [USER], options={"tokenize": True})


def test_tools_have_a_template_of_their_own_where_there_is_one(folder) -> None:
    both = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    assert text(folder(both), [USER]) == "plain"
    assert text(folder(both), [USER], [{"function": {"name": "f"}}]) == "tools"
    where = folder()
    (where / "chat_template.jinja").write_text("beside")
    assert text(where, [USER]) == "beside"


def test_whether_a_system_message_may_stand_later_is_tried(folder) -> None:
    strict = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('x') }}{% endif %}{% endfor %}"
    assert FolderTemplate(folder(strict), FolderTokenizer(folder(strict))).merges_system
    assert not FolderTemplate(folder(), FolderTokenizer(folder())).merges_system


async def test_served_it_counts_on_every_route(serve, folder) -> None:
    where = folder()
    engine = await serve("--tokenizer", str(where))
    ids = FolderTokenizer(where).encode("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n").tolist()
    _, tokens = await engine.post("/tokenize", {"messages": [USER], "return_token_strs": True})
    assert tokens["tokens"] == ids
    assert tokens["token_strs"][0] == "<|im_start|>"
    call = await engine.call(True, [USER], 40)
    assert call["usage"]["prompt_tokens"] == len(ids)
    _, said = await engine.post("/detokenize", {"tokens": call["ids"]})
    assert said["prompt"] == call["text"]
    _, count = await engine.post("/v1/messages/count_tokens", {"model": "gpt-oss-20b", "messages": [USER]})
    assert count["input_tokens"] == len(ids)
    _, answer = await engine.post("/v1/responses", {"input": "hi", "max_output_tokens": 1})
    assert answer["usage"]["input_tokens"] == len(ids)
    # What was said comes back in a history and finds the cache that it left.
    told = [USER, {"role": "assistant", "content": call["text"]}, USER]
    again = await engine.call(True, told, 2)
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == (len(ids) + 39) // 16 * 16
    status, refused = await engine.post("/v1/completions", {"prompt": [99_999]})
    assert (status, refused["error"]["message"]) == (400, "Token id 99999 is out of vocabulary")


def test_folders_that_are_none_are_said_in_one_sentence(folder, tmp_path, capsys) -> None:
    with pytest.raises(UsageError, match=r"there is no tokenizer.json with a tokenizer in it\.$"):
        FolderTokenizer(tmp_path)
    where = folder(template=None)
    with pytest.raises(UsageError, match=r"there is no chat template in it"):
        FolderTemplate(where, FolderTokenizer(where))
    with pytest.raises(UsageError, match="is no template"):
        FolderTemplate(folder("{% if %}"), FolderTokenizer(where))
    with pytest.raises(UsageError, match="names an end"):
        FolderTokenizer(folder(eos_token=None))
    assert parse(["--tokenizer", "x"]).tokenizer == "x"
    assert main(["--tokenizer", str(tmp_path / "none"), "--port", "0"]) == 2
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith("--tokenizer ")


def test_without_its_packages_one_sentence_says_what_to_install(folder, monkeypatch) -> None:
    import sys

    where = folder()
    tokenizer = FolderTokenizer(where)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(UsageError, match=r"pip install 'windtunnel\[tokenizer\]'\.$"):
        FolderTemplate(where, tokenizer)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UsageError, match=r"pip install 'windtunnel\[tokenizer\]'\.$"):
        FolderTokenizer(where)
