"""Damaged logs: whatever a byte or a field became, nothing escapes, nothing hangs, and what is kept still adds up.

`make fuzz` runs the same table with 10,000 inputs for each importer. Each input has a seed of its own, so that the one
that a failure names can be made again by itself.
"""

import os
import random
import traceback
from pathlib import Path

import pytest

from windtunnel.traces.importers import IMPORTERS, Imported, detect, import_path

from .damaged import CASES
from .mutations import MOST_BYTES, Hangs, check, time_limit

MUTATIONS = int(os.environ.get("WINDTUNNEL_MUTATIONS", "200"))
"""Inputs for each importer."""
MOST_FAILURES = 12
"""Failures that are listed before an importer's run stops."""


def test_every_importer_is_here() -> None:
    assert set(CASES) == set(IMPORTERS)


@pytest.mark.parametrize("importer", CASES)
def test_no_mutation_escapes(importer: str, tmp_path: Path) -> None:
    cases = CASES[importer]
    failures: list[str] = []
    traces = problems = 0
    for number in range(MUTATIONS):
        case = number % len(cases)
        folder = tmp_path / str(case)
        folder.mkdir(exist_ok=True)
        path = cases[case](folder, random.Random(f"{importer} {number}"))
        assert size(path) < MOST_BYTES
        try:
            with time_limit():
                result = imported(importer, path)
                check(result, "the import")
        except (Exception, Hangs) as error:  # noqa: BLE001 -- whatever escapes is what is looked for
            last = traceback.extract_tb(error.__traceback__)[-1]
            failures.append(
                f"input {number}: {type(error).__name__}: {str(error)[:200]} ({last.filename}:{last.lineno})"
            )
            if len(failures) == MOST_FAILURES:
                break
            continue
        traces += bool(result.traces)
        problems += bool(result.problems)
    assert not failures, "\n" + "\n".join(failures)
    # both happen: damage is survived and it is said
    assert traces > MUTATIONS // 5
    assert problems > MUTATIONS // 20


def size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else sum(p.stat().st_size for p in path.rglob("*") if p.is_file())


def imported(importer: str, path: Path) -> Imported:
    if path.is_dir():
        return import_path(path, importer)
    detect(path)
    return IMPORTERS[importer].read(path)
