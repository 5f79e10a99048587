"""An ordinary run, in a process of its own over real sockets, against the server that misbehaves on purpose."""

import sys
from collections import Counter

import faults
import numpy as np
import pytest
from compare import Two
from machine import build, compiler
from records import Said, Truth, pairs

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or compiler() is None, reason="needs Linux and a C compiler (cc, gcc or clang)"
)


@pytest.fixture(scope="module")
def binaries(tmp_path_factory):
    folder = tmp_path_factory.mktemp("binaries")
    build(folder)
    return folder


@pytest.fixture(scope="module")
def seen(binaries, tmp_path_factory):
    """Each fault once, a well request before each."""
    names = faults.order(1)
    flags = {**faults.FLAGS, "faults": ",".join(names), "stagger_ms": 20, "gap_ms": 10, "stall_ms": faults.STALL_MS}
    said, true, _ = faults._run(binaries, tmp_path_factory.mktemp("run"), len(names), flags, tokens=30)
    return names, said, true


@pytest.mark.parametrize("fault", faults.EXPECTED)
def test_each_fault_has_its_name_and_its_counts(seen, fault):
    names, said, true = seen
    met = [(s, t) for s, t in pairs(said, true) if t.fault == fault]
    assert len(met) == Counter(names)[fault]
    assert {s.failure for s, _ in met} == {faults.EXPECTED[fault]}
    for one, truth in met:
        assert faults.right(one, truth), (one, truth)


def test_no_request_is_lost_or_made_up(seen):
    names, said, true = seen
    assert sorted(s.id for s in said) == sorted(t.id for t in true)
    assert Counter(t.fault for t in true) == Counter(names)
    took = {t.fault: (t.full - s.intended) / 1e6 for s, t in pairs(said, true)}
    assert took["slow_read"] > 60  # four pauses of 20 ms


def test_calls_that_are_cut_count_what_the_server_had_written(binaries, tmp_path):
    cut, right = faults._cut(binaries, tmp_path)
    assert (cut, right) == (faults.STREAMS, True)


# -- how the bench judges


def test_a_cut_call_is_judged_by_what_was_written_before():
    times = np.arange(1, 101) * 10_000_000
    end = int(times[-1]) + 1

    def said(count, **more):
        return Said("r", 0, 0, times[:count] + 1000, **{"end": end, "cut": True, **more})

    true = Truth(
        "r", "none", "client_closed", 0, 0, 0, 0, 2 * end, 10, 100, 0, False, np.append(times, times[-1] + 10**7)
    )
    right = [faults.cut_right(said(count), true) for count in (0, 49, 50, 99, 100)]
    assert right == [False, False, True, True, True]
    early = Said("r", 0, 0, times - 1, end=end, cut=True)
    assert not faults.cut_right(early, true)  # it was read before it was written
    assert not faults.cut_right(Said("r", 0, 0, true.times + 1000, end=end, cut=True), true)  # and after the cut
    assert not faults.cut_right(said(100, failure="aborted"), true)
    assert not faults.cut_right(said(100, end=None), true)


def judged(**fields):
    rows = [faults.Row(name, 1, {}, right=True) for name in faults.EXPECTED]
    given = {"rows": rows, "clean_lag": Two(0.1, 1.0), "lag": Two(0.1, 1.5), "long_lag": Two(0.2, 2.0), "more_ms": 0.5}
    given |= {"more_beside_long_ms": 1.0, "cut": 64, "cut_right": True, "foreign_cores": 0.0}
    return {gate.what: gate for gate in faults.Faults(**(given | fields)).gates()}


def test_every_gate_fails_when_it_should():
    assert all(gate.holds for gate in judged().values())
    names, more, beside, cut = judged()
    assert not judged(rows=[faults.Row(n, 1, {}, right=n != "429") for n in faults.EXPECTED])[names].holds
    assert not judged(rows=[faults.Row(n, 1, {}, right=True) for n in faults.EXPECTED if n != "429"])[names].holds
    assert not judged(more_ms=2.1)[more].holds
    assert not judged(more_ms=faults._more([(None, Two(0, 1))]))[more].holds
    assert not judged(more_beside_long_ms=2.1)[beside].holds
    assert not judged(cut=0)[cut].holds
    assert not judged(cut_right=False)[cut].holds
    # What was counted is judged on a busy machine, too; times are not.
    assert [gate.always for gate in judged().values()] == [True, False, False, True]


def test_lags_are_compared_turn_by_turn():
    quiet, busy = (Two(0.1, 2.5), Two(0.1, 1.0)), (Two(0.1, 9.0), Two(0.1, 8.0))
    assert faults._more([quiet, busy, busy]) == pytest.approx(1.0)
    assert faults._more([quiet]) == pytest.approx(1.5)
