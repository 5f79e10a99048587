"""What a virtual run need not learn of the built-in tokenizer is what it would learn."""

import os
from types import SimpleNamespace

import numpy as np

from windtunnel.simulator.emulator import shipped_costs
from windtunnel.simulator.emulator.flags import parse
from windtunnel.simulator.emulator.shipped_costs import builtin_calibration
from windtunnel.simulator.run.calibrate import Tokenizer, calibrate
from windtunnel.simulator.run.door import ROOT, Door
from windtunnel.simulator.run.virtual import words_of

REWRITE = os.environ.get("WINDTUNNEL_GOLDEN") == "write"


async def test_the_shipped_costs_are_those_that_the_tokenizer_would_tell():
    settings = parse([], {})
    tokenizer, template = words_of(settings)
    door = Door(settings, SimpleNamespace(), template, tokenizer)
    learnt = await calibrate(Tokenizer(door, ROOT, settings.served[0]), "a model")
    if REWRITE:
        shipped_costs.SHIPPED.write_bytes(shipped_costs.pack(learnt))
        shipped_costs._shipped.cache_clear()
    shipped = builtin_calibration("a model")
    assert learnt.exact
    assert shipped == learnt
    assert np.array_equal(shipped.pool, learnt.pool)
    assert builtin_calibration("another").name == "another"
