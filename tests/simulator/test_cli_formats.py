"""Other programs' workload formats on the command line: read as named, written, and read again."""

import json

import pytest

from .test_cli import one_sentence, windtunnel

ROWS = [
    {"session_id": "a", "timestamp": 0, "input_length": 600, "output_length": 50, "hash_ids": [0, 1]},
    {"session_id": "a", "delay": 1500, "input_length": 700, "output_length": 20, "hash_ids": [0, 2]},
]


@pytest.fixture
def turns(tmp_path):
    path = tmp_path / "turns.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in ROWS))
    return path


def test_a_file_that_does_not_say_its_dialect_is_not_guessed_at(turns):
    said = one_sentence(windtunnel("import", str(turns)))
    assert "turns.jsonl:2" in said
    assert "--format mooncake-aiperf" in said
    assert "--format mooncake-dynamo" in said


@pytest.mark.parametrize(("name", "prompts"), [("mooncake-aiperf", 600 + 1_350), ("mooncake-dynamo", 1_300)])
def test_the_dialect_decides_what_the_rows_mean(name, prompts, turns):
    result = windtunnel("import", str(turns), "--format", name, "--json")
    total = json.loads(result.stdout)["total"]
    assert (result.returncode, total["calls"], total["prompt_tokens"]) == (0, 2, prompts)


def test_a_format_that_is_none(turns, tmp_path):
    assert "no importer named 'moon'" in one_sentence(windtunnel("import", str(turns), "--format", "moon"))
    said = one_sentence(windtunnel("traces", "export", "library:fix-importer", "--format", "moon"))
    assert "no export format 'moon': use one of weka, mooncake" in said
    said = one_sentence(windtunnel("import", str(tmp_path), "--format", "har"))
    assert "gives no session when read as har" in said


def test_export_and_import_again(tmp_path):
    out = tmp_path / "w"
    result = windtunnel("traces", "export", "library:small", "--format", "weka", "--out", str(out))
    assert (result.returncode, result.stdout) == (0, "")
    assert "sessions to" in result.stderr
    before = json.loads(windtunnel("traces", "stats", "library:small", "--json").stdout)
    after = json.loads(windtunnel("import", str(out), "--json").stdout)
    for key in ("calls", "threads", "prompt_tokens", "completion_tokens", "max_prompt_tokens"):
        assert after["total"][key] == before["total"][key], key


def test_one_file_goes_to_stdout_and_several_do_not():
    result = windtunnel("traces", "export", "library:fix-importer", "--format", "mooncake")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.returncode == 0
    assert {tuple(row) for row in rows} == {("timestamp", "input_length", "output_length", "hash_ids")}
    said = one_sentence(windtunnel("traces", "export", "library:small", "--format", "weka"))
    assert "name a folder with --out" in said


def test_a_place_that_cannot_be_written(tmp_path):
    said = one_sentence(
        windtunnel("traces", "export", "library:fix-importer", "--format", "mooncake", "--out", str(tmp_path))
    )
    assert "cannot be written" in said
