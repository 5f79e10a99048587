"""What servers said about calls that failed: many messages to the few that are told."""

import re
from collections import Counter
from collections.abc import Iterable

from windtunnel.agents.events import CallEnd
from windtunnel.agents.http import shorten

MOST = 3
"""Messages told of one failure."""
LONGEST = 200
"""Characters of one."""
_NUMBER = re.compile(r"\d+")


def messages(calls: Iterable[CallEnd]) -> dict[str, dict[str, int]]:
    """By failure, what was said and how often, most frequent first. Those that differ in numbers only count as one."""
    times: dict[str, Counter[str]] = {}
    words: dict[str, str] = {}
    for call in calls:
        if call.failure is None or call.cut or not call.detail:
            continue
        said = shorten(call.detail, LONGEST)
        alike = _NUMBER.sub("0", said)
        words.setdefault(alike, said)
        times.setdefault(call.failure, Counter())[alike] += 1
    return {name: {words[key]: n for key, n in found.most_common(MOST)} for name, found in times.items()}
