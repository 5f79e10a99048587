"""JSON values that others wrote, also what only lenient readers take, and the text that stands for a value."""

import json

import msgspec

_decode = msgspec.json.Decoder().decode


def parse_json(raw: bytes) -> object:
    """The JSON value in `raw`; raises ValueError for anything that is none.

    msgspec first for its speed; the standard library takes what msgspec refuses and others write (lone surrogates,
    NaN, integers of any size).
    """
    try:
        return _decode(raw)
    except (msgspec.DecodeError, ValueError, RecursionError):
        pass
    try:
        return _without_surrogates(json.loads(raw))
    except RecursionError as e:
        raise ValueError("nested too deeply") from e


def _without_surrogates(value: object) -> object:
    """Half of a surrogate pair is no text and could not be written to a file again."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_without_surrogates(v) for v in value]
    if isinstance(value, dict):
        return {str(_without_surrogates(k)): _without_surrogates(v) for k, v in value.items()}
    return value


def dumps(value: object) -> str:
    """Compact JSON of a parsed value, keys in the order they came."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
