"""What a filter lets through: a regular expression, inverted by a `!` in front."""

import re


def matcher(pattern: str) -> tuple[re.Pattern[str], bool]:
    """The filter's expression and whether it is inverted. What is no regular expression is taken literally."""
    inverted = pattern.startswith("!")
    text = pattern[1:] if inverted else pattern
    try:
        return re.compile(text, re.IGNORECASE), inverted
    except re.error:
        return re.compile(re.escape(text), re.IGNORECASE), inverted
