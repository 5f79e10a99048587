"""Token counts of recorded text where only the text is known."""

from windtunnel.traces.model import TextKind

_RATIO: dict[TextKind, float] = {"code": 3.3, "prose": 4.3, "json": 3.1, "log": 2.6}


def kind_of(text: str) -> TextKind:
    head = text[:2_000]
    if head.lstrip()[:1] in ("{", "["):
        return "json"
    symbols = sum(head.count(c) for c in "{}();=<>[]")
    if symbols * 25 > len(head):
        return "code"
    digits = sum(head.count(c) for c in "0123456789/:")
    return "log" if digits * 8 > len(head) else "prose"


def estimate_tokens(text: str, kind: TextKind | None = None) -> int:
    return max(1, round(len(text) / _RATIO[kind or kind_of(text)])) if text else 0
