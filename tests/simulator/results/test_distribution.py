"""Percentiles against numpy's."""

import numpy as np
import pytest

from windtunnel.simulator.results.distribution import distribution, percentiles

WANTED = (0, 12.5, 50, 90, 95, 99, 100)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 11, 99, 100, 101, 1000, 12345])
def test_percentiles_are_numpys_to_the_last_bit(n):
    for data in np.random.default_rng(n).lognormal(0.0, 2.0, size=(20, n)):
        assert percentiles(data, WANTED) == np.percentile(data, WANTED, method="linear").tolist()


def test_values_that_are_missing_are_left_out():
    told = distribution([None, 2.0, None, 4.0])
    assert (told.n, told.mean, told.p50, told.max) == (2, 3.0, 3.0, 4.0)
    assert distribution([None]) is None
