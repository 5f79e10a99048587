from msgspec.structs import replace

from windtunnel.traces.check import faults


def test_sound_trace_has_no_faults(small):
    assert faults(small) == []


def test_each_broken_promise_is_named(small):
    calls = small.calls
    broken = {
        "prompt of 171": replace(
            small, calls=(replace(calls[0], usage=replace(calls[0].usage, prompt=171)), *calls[1:])
        ),
        "does not come before": replace(small, calls=(replace(calls[0], base=2), *calls[1:])),
        "keeps 9 of": replace(small, calls=(*calls[:2], replace(calls[2], keep=9), calls[3])),
        "has id 0": replace(small, blocks=(small.blocks[0], *small.blocks)),
        "has text": replace(small, header=replace(small.header, shape_only=True)),
        "started by no call": replace(small, threads=(small.threads[0], replace(small.threads[1], spawn_call=None))),
        "second time": replace(small, calls=(*calls[:3], replace(calls[3], joins=(1,)))),
    }
    for part, trace in broken.items():
        assert any(part in f for f in faults(trace)), (part, faults(trace))
