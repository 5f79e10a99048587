"""Weka traces made up for the purpose."""

import json
from pathlib import Path
from typing import Any

from windtunnel.traces.importers import import_path
from windtunnel.traces.model import Trace


def load(path: Path, log: dict[str, Any]) -> Trace:
    path.write_text(json.dumps(log))
    result = import_path(path)
    assert result.problems == ()
    (trace,) = result.traces
    sums = trace.prompt_tokens()
    assert all(sums[c.id] == c.usage.prompt for c in trace.calls)
    return trace


def blocks(trace: Trace, message: int) -> list[tuple[str, int]]:
    return [(b.digest, b.tokens) for b in (trace.blocks[i] for i in trace.message_blocks(trace.messages[message]))]


def test_a_session(tmp_path: Path, weka_log: dict[str, Any]) -> None:
    trace = load(tmp_path / "w.json", weka_log)
    assert [(c.thread, c.usage.prompt, c.usage.completion) for c in trace.calls] == [
        (0, 200, 30),
        (1, 130, 9),
        (1, 200, 9),
        (0, 400, 50),
        (0, 390, 5),
    ]
    assert [(c.start_s, c.end_s) for c in trace.calls] == [(0, 2), (2.5, 4.5), (6.5, 8.5), (12, 14), (60, 62)]
    assert [(w.before, w.cause, w.seconds) for w in trace.waits] == [
        (2, "tool", 2.0),
        (3, "subagent", 6.5),
        (3, "tool", 3.5),
        (4, "human", 46.0),
    ]
    assert (trace.threads[1].name, trace.threads[1].spawn_call, trace.calls[3].joins) == ("Explore", 0, (1,))


def test_an_extended_prompt_separates_the_output_from_new_input(tmp_path: Path, weka_log: dict[str, Any]) -> None:
    trace = load(tmp_path / "w.json", weka_log)
    first, second = trace.calls_of(0)[:2]
    assert (second.keep, len(second.append)) == (len(first.append), 2)
    assert second.append[0] == first.output
    assert [trace.message_tokens(m) for m in second.append] == [30, 170]
    assert [trace.messages[m].role for m in (*first.append, *second.append)] == ["system", "user", "assistant", "user"]


def test_the_last_partial_block_takes_the_next_request_s_digest(tmp_path: Path, weka_log: dict[str, Any]) -> None:
    weka_log["requests"][3]["hash_ids"][3] = 9
    trace = load(tmp_path / "w.json", weka_log)
    first, second, third = trace.calls_of(0)
    tail = blocks(trace, first.append[-1])[-1]
    assert tail[1] == 200 - 3 * 64
    other = load(tmp_path / "o.json", weka_log | {"requests": weka_log["requests"][:1]})
    assert blocks(other, other.calls[0].append[-1])[-1] != tail
    # where the third request differs from the second it keeps three whole blocks and nothing of the fourth
    kept = next(tuple(ids) for c, ids in trace.prompts() if c.id == third.id)
    head = [b for m in kept for b in blocks(trace, m)][:3]
    assert sum(n for _, n in head) == 192
    assert second.id != third.id


def test_a_rewritten_prompt_is_cut_at_a_block_edge(tmp_path: Path, weka_log: dict[str, Any]) -> None:
    trace = load(tmp_path / "w.json", weka_log)
    second, third = trace.calls_of(0)[1:]
    prompts = {c.id: [b for m in ids for b in blocks(trace, m)] for c, ids in trace.prompts()}
    same = 0
    for (a, n), (b, _) in zip(prompts[second.id], prompts[third.id], strict=False):
        if a != b:
            break
        same += n
    assert same == 4 * 64


def test_scope_decides_whether_traces_share(tmp_path: Path, weka_log: dict[str, Any]) -> None:
    local = [load(tmp_path / "a.json", weka_log), load(tmp_path / "b.json", weka_log | {"id": "w-2"})]
    assert local[0].blocks[0].digest != local[1].blocks[0].digest
    weka_log["hash_id_scope"] = "global"
    everywhere = [load(tmp_path / "c.json", weka_log), load(tmp_path / "d.json", weka_log | {"id": "w-2"})]
    assert everywhere[0].blocks[0].digest == everywhere[1].blocks[0].digest


def test_nonsense_is_left_out_and_said(tmp_path: Path, weka_log: dict[str, Any]) -> None:
    weka_log["requests"][3]["in"] = 9_999
    weka_log["requests"].append({"type": "n", "in": None})
    path = tmp_path / "w.json"
    path.write_text(json.dumps(weka_log))
    result = import_path(path)
    assert len(result.traces[0].calls_of(0)) == 2
    assert [p.reason for p in result.problems] == [
        "request 3: its 6 blocks are not the 9999 tokens it names; left out",
        "request 4 has no prompt size or no list of hash ids and was left out",
    ]


def test_a_truncated_file_keeps_its_first_requests(tmp_path: Path, weka_log: dict[str, Any]) -> None:
    path = tmp_path / "w.json"
    text = json.dumps(weka_log)
    path.write_text(text[: text.rindex('"hash_ids"') + 24])
    result = import_path(path)
    (trace,) = result.traces
    assert [c.usage.prompt for c in trace.calls_of(0)] == [200, 400]
    assert len(trace.threads) == 2
    assert [p.reason for p in result.problems] == [
        "the JSON is damaged or cut off here: what comes after is lost",
        "request 3: its 4 blocks are not the 390 tokens it names; left out",
    ]


def test_requests_that_go_back_in_time_start_no_sub_agent_after_it_began(
    tmp_path: Path, weka_log: dict[str, Any]
) -> None:
    weka_log["requests"] *= 2
    trace = load(tmp_path / "w.json", weka_log)
    first = {t.id: trace.calls_of(t.id)[0].id for t in trace.threads[1:]}
    assert all(t.spawn_call is not None and t.spawn_call < first[t.id] for t in trace.threads[1:])
