"""Lines that a client writes for its maker's servers and that servers of others take out of the prompt."""

_BILLING = "x-anthropic-billing-header"
"""What Claude Code's attribution line starts with: client version, a mark of the first message, entry point."""
_LONGEST = 2000


def is_billing_line(text: str | None) -> bool:
    """A text that is Claude Code's attribution line and nothing else.

    vLLM leaves such a block out of system prompts on its Messages route (0.32, `entrypoints/anthropic/serving.py`).
    """
    return text is not None and len(text) <= _LONGEST and text.startswith(_BILLING) and "\n" not in text.strip()


def has_billing_line(text: str) -> bool:
    """A text with the line at its start, whatever follows it."""
    return text.startswith(_BILLING)
