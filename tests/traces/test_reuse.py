from msgspec.structs import replace

from windtunnel.traces import library
from windtunnel.traces.format import read_trace
from windtunnel.traces.reuse import SeenPrefixes


def test_a_prompt_that_goes_on_has_seen_all_of_the_last_one(small):
    """Call 1 is another agent's, call 2 keeps both messages of call 0, call 3 all five of call 2."""
    assert SeenPrefixes().add(small) == [0, 0, 170, 307]


def test_another_session_of_equal_front_shares_it(small):
    seen = SeenPrefixes()
    seen.add(small)
    assert seen.add(small) == [170, 40, 307, 332]
    other = replace(small.blocks[2], digest="0" * 32)
    assert seen.add(replace(small, blocks=(*small.blocks[:2], other, *small.blocks[3:])))[0] == 150


def test_equal_digests_are_equal_up_to_the_shorter_block(small):
    """And nothing behind a block that differs in length is seen."""
    seen = SeenPrefixes()
    seen.add(small)
    longer = replace(small.blocks[1], tokens=80)
    shorter = replace(small.blocks[1], tokens=30)
    assert seen.add(replace(small, blocks=(small.blocks[0], longer, *small.blocks[2:])))[0] == 100 + 50
    assert seen.add(replace(small, blocks=(small.blocks[0], shorter, *small.blocks[2:])))[0] == 100 + 30


def test_other_tools_in_front_share_nothing(small):
    calls = tuple(replace(c, tools=None) if c.id == 2 else c for c in small.calls)
    assert SeenPrefixes().add(replace(small, calls=calls))[2] == 0


def test_against_prompts_written_out_in_full():
    """The same as comparing every prompt with every earlier one, block by block."""
    trace = read_trace(library.path("rename-flag")).traces[0]
    whole = []
    for call, prompt in trace.prompts():
        ids = [trace.toolsets[call.tools].block, *(b for m in prompt for b in trace.message_blocks(trace.messages[m]))]
        whole.append([(trace.blocks[b].digest, trace.blocks[b].tokens) for b in ids])
    expected = []
    for i, blocks in enumerate(whole):
        best = 0
        for earlier in whole[:i]:
            same = 0
            for a, b in zip(blocks, earlier, strict=False):
                if a != b:
                    break
                same += a[1]
            best = max(best, same)
        expected.append(best)
    assert SeenPrefixes().add(trace) == expected
    assert sum(expected) > 90_000
