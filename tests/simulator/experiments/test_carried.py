"""What is said of two configurations by what they carry: an interval that overlaps is no winner."""

import pytest

from windtunnel.simulator.experiments import capacity as cap
from windtunnel.simulator.experiments import step_runs as sr
from windtunnel.simulator.experiments.capacity_text import printed, versus
from windtunnel.simulator.experiments.carried import BEYOND, FEW_SEEDS, MIXED, Configuration, silent
from windtunnel.simulator.experiments.carried import versus as judged
from windtunnel.simulator.experiments.step_runs import StepRuns


def carries(agents: int, low: int, high: int, name: str = "a", **more) -> Configuration:
    return Configuration(name=name, command="x", target=None, agents=agents, low=low, high=high, **more)


@pytest.mark.parametrize(
    ("first", "other", "verdict", "reach"),
    [
        ((12, 11, 13), (17, 16, 18), "more", (16 / 13, 18 / 11)),
        ((12, 11, 16), (17, 16, 18), "no_difference_shown", (1.0, 18 / 11)),
        ((12, 11, 13), (12, 11, 13), "no_difference_shown", (11 / 13, 13 / 11)),
        ((12, 11, 13), (9, 8, 10), "fewer", (8 / 13, 10 / 11)),
        ((12, 10, 13), (9, 8, 10), "no_difference_shown", (8 / 13, 1.0)),
    ],
)
def test_only_ranges_with_nothing_in_common_are_a_difference(first, other, verdict, reach):
    found = judged(carries(*first), carries(*other), None)
    assert found is not None
    assert (found.verdict, found.low, found.high) == (verdict, *reach)
    assert found.ratio == other[0] / first[0]


def test_a_machine_that_drifted_takes_the_verdict_away():
    base, other = carries(12, 11, 13), carries(17, 16, 18)
    again = carries(12, 11, 13, again=(15, 14, 17))
    assert [judged(one, other, None).verdict for one in (base, again)] == ["more", "no_difference_shown"]


def test_without_an_upper_end_more_may_be_said_and_nothing_of_the_first_that_has_none():
    capped = {"capped": True, "open": True}
    more = judged(carries(12, 11, 13), carries(64, 64, 64, **capped), None)
    assert (more.verdict, more.high) == ("more", None)
    assert versus(more) == "5.33x the agents (4.92 or more), carries more"
    unknown = judged(carries(64, 64, 64, **capped), carries(64, 64, 64, **capped), None)
    assert (unknown.verdict, unknown.why) == ("no_verdict", BEYOND)
    assert versus(unknown) == BEYOND
    assert judged(carries(64, 64, 64, **capped), carries(12, 11, 13), None).verdict == "fewer"


def test_of_one_that_carries_none_there_is_no_ratio():
    found = judged(carries(0, 0, 0), carries(3, 2, 4), None)
    assert (found.ratio, found.low, found.high, found.verdict) == (None, None, None, "more")
    assert versus(found) == "carries more"
    assert judged(carries(3, 2, 4), carries(0, 0, 0), None).verdict == "fewer"


def test_one_that_was_not_measured_is_held_against_nothing():
    assert judged(carries(3, 2, 4), Configuration(name="b", command="x", target=None, failed="no GPU"), None) is None


def test_what_takes_the_verdict_away(made):
    def steps(**other) -> list[StepRuns]:
        return [
            StepRuns(name="a", runs={0: made("a", 0, 0, 1.0)}),
            StepRuns(name="b", runs={0: made("b", 0, 1, 1.0, **other)}, previous=0),
        ]

    assert silent(steps(), 1, seeds=3) is None
    assert silent(steps(), 1, seeds=2) == FEW_SEEDS
    assert silent(steps(emulated=True), 1, seeds=3) == MIXED
    assert silent(steps(config={"max_context": 4096}), 1, seeds=3) is None  # of the engine's settings, see `played`
    assert silent(steps(settings={"speculative_config.method": "ngram"}), 1, seeds=3) == sr.FORCED
    said = "no verdict: the emulator does not model --cpu-offload-gb"
    whose = {"emulated": True, "ignored": ("--cpu-offload-gb 40", "--trust-remote-code")}
    assert silent(steps(**whose), 1, seeds=3) == said
    assert sr.assumed(steps(**whose)[1]) == "not modelled: --cpu-offload-gb 40"
    assert sr.assumed(steps(emulated=True)[1]) is None
    found = judged(carries(12, 11, 13), carries(17, 16, 18), FEW_SEEDS)
    assert (found.verdict, found.why) == ("no_verdict", "no verdict with fewer than 3 seeds (--repeats)")


def shown(*rows: Configuration) -> str:
    return printed(
        cap.Capacity(
            agents=12, low=11, high=13, limit="KV capacity", lever="--kv-cache-dtype fp8", points=[],
            slo="ttft_s.p90<3", capped=False, pace="busy", emulated=False, evidence=None, notes=("n",), runs="r",
            configurations=rows,
        )
    )  # fmt: skip


def test_the_table_says_what_each_carries_what_stops_it_and_what_that_is_worth():
    base = carries(
        12, 11, 13, name="16 bit", folder="search-16", limit="KV capacity", output_tokens_per_s=331.2, kv_usage=0.735
    )
    other = carries(17, 16, 18, name="8 bit", limit="decode bandwidth", lossy=True, unsteady=True, folder="search-8")
    other = cap.replace(other, versus_first=judged(base, other, None), lever="--quantization fp8")
    same = Configuration(name="auto", command="x", target=None, same_as="16 bit")
    dead = Configuration(name="more", command="x", target=None, failed="no such flag")
    lines = shown(base, other, same, dead).splitlines()
    assert lines[0].startswith(
        "16 bit: 12 busy agents (11 with every seed, 13 with at least one; for people at the recorded pace: "
        "--pace recorded) at ttft_s.p90<3; next limit KV capacity"
    )
    at = lines.index(next(line for line in lines if line.startswith("configuration")))
    assert [" ".join(line.split()) for line in lines[at + 1 : at + 8]] == [
        "16 bit 12 11 to 13 331 73.5% KV capacity",
        "8 bit 17 16 to 18 - - decode bandwidth; not steady: may be too high",
        "against the first: 1.42x the agents (1.23 to 1.64), carries more",
        "may change what the model answers: quality not checked",
        "try --quantization fp8",
        "auto the same settings as 16 bit: one configuration",
        "more not searched: no such flag",
    ]
    assert "EMULATED" not in shown(base, other)


def test_what_was_tried_stands_under_the_answer():
    base = carries(12, 11, 13, name="as asked")
    fp8 = carries(
        17, 16, 18, name="with --kv-cache-dtype fp8", lossy=True, unsteady=True, not_steady=3, deciding=4, tried=True
    )
    fp8 = cap.replace(fp8, folder="try-1")
    fp8 = cap.replace(fp8, versus_first=judged(base, fp8, None))
    gone = Configuration(name="with --quantization fp8", command="x", target=None, failed="no memory", tried=True)
    same = Configuration(name="with --x 1", command="x", target=None, same_as="as asked", tried=True)
    assert shown(base, same).splitlines()[1] == (
        "with --x 1: no difference, the engine's settings resolve to the same with it"
    )
    one = cap.replace(fp8, agents=1, low=1, high=1)
    assert shown(base, one).splitlines()[1].startswith("12 (11 to 13) -> 1 agent with --kv-cache-dtype fp8: ")
    lines = shown(base, gone, fp8).splitlines()
    assert lines[1] == "with --quantization fp8: not searched: no memory"
    assert lines[2] == (
        "12 (11 to 13) -> 17 (16 to 18) agents with --kv-cache-dtype fp8: 1.42x the agents (1.23 to 1.64), carries "
        "more; may change what the model answers: quality not checked; not steady: may be too "
        "high, by 3 of 4 deciding runs"
    )
    assert lines[3] == "note: n"
