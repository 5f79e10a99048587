"""KV capacity swept with a fixed set of sessions: the hit rate's knee lies where capacity equals the working set.

Four sessions take turns and grow. While the pool is smaller than what they hold together, each finds its blocks
evicted by the others; once it holds all of them, only what is new is computed.
"""

import pytest

from ..run.conftest import Sketch  # noqa: TID252 -- tests are no package
from .conftest import SMALL

BLOCK = 16
SYSTEM, USER, CALLS, ADDED, OUT, SESSIONS = 160, 2600, 8, 24, 16, 4


def sessions():
    made = []
    for number in range(SESSIONS):
        sketch = Sketch(f"k{number}", system=SYSTEM, user=USER, front="shared")
        for call in range(CALLS):
            sketch.call(*([("tool", 4.0)] if call else []), add=ADDED, out=OUT)
        made.append(sketch.trace())
    return made


def working_set():
    """KV blocks of all sessions at their largest; the shared front counts once."""
    largest = USER + (CALLS - 1) * (ADDED + OUT) + OUT
    return SYSTEM // BLOCK + SESSIONS * (largest // BLOCK)


@pytest.fixture
def hit_rate(virtually):
    def measure(share):
        blocks = round(working_set() * share) + 2  # the null block, and one for a token to come
        engine = f"{SMALL} --max-model-len 4000 --num-gpu-blocks-override {blocks}"
        done = virtually(
            *sessions(), agents=SESSIONS, ramp_s=2.0, sessions=SESSIONS, engine=engine, text=False, pace="recorded"
        )
        assert done.summary.sessions_completed == SESSIONS
        later = [call for call in done.calls if call.call]
        return sum(call.cached_tokens for call in later) / sum(call.prompt_tokens for call in later)

    return measure


def test_the_knee_lies_at_the_working_set(hit_rate):
    """Steep just below it, where the tails of sessions are evicted first, and flat above it."""
    rates = {share: hit_rate(share) for share in (0.5, 0.75, 0.9, 1.0, 1.5)}
    assert rates[0.5] < 0.1
    assert rates[1.0] > 0.9
    assert rates[1.5] - rates[1.0] < 0.01
    assert rates[1.0] - rates[0.9] > 0.1
    assert rates[0.9] - rates[0.75] > 0.1
