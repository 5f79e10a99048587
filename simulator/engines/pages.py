"""What a metrics page says of an engine's settings: single gauges, and gauges whose labels are the settings."""

from collections.abc import Iterable

from prometheus_client.parser import text_string_to_metric_families

from windtunnel.simulator.engines.settings import count


def gauge(page: bytes, name: str) -> float | None:
    """The first value of a metric; None where the page has none."""
    for _, value in _samples(page, name):
        return value
    return None


def labels(page: bytes, name: str, without: Iterable[str] = ()) -> dict[str, str]:
    """The labels of a metric's first line; those that say `None` and those of `without` are left out."""
    left_out = frozenset(without)
    for found, _ in _samples(page, name):
        return {key: value for key, value in found.items() if value not in ("None", "") and key not in left_out}
    return {}


def whole(value: float | None) -> int | None:
    """A gauge that counts something; zero means that it is not known yet, and so does what is no count."""
    return count(value)


def _samples(page: bytes, name: str) -> Iterable[tuple[dict[str, str], float]]:
    begin = name.encode()
    lines = [line for line in page.split(b"\n") if line.startswith(begin) and line[len(begin) :][:1] in (b"{", b" ")]
    for line in lines:
        try:
            families = list(text_string_to_metric_families(line.decode("utf-8", "replace") + "\n"))
        except (ValueError, IndexError):  # a damaged line says nothing
            continue
        for family in families:
            for sample in family.samples:
                yield sample.labels, sample.value
