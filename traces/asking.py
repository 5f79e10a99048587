"""Tools that ask a person: the time until their result is the person's, not the machine's."""

_ASKING = frozenset(
    {
        "askuserquestion",
        "askuser",
        "askfollowupquestion",
        "requestuserinput",
        "question",
        "enterplanmode",
        "exitplanmode",
        "planenter",
        "planexit",
        "planmoderespond",
    }
)
"""Claude Code, Codex, opencode, Qwen Code, Gemini CLI, Cline; without case and underscores."""
QUICKEST_ANSWER_S = 0.5
"""Nobody answers sooner: the client refused the question by itself, as it does where nobody is there to be asked."""


def asks_person(name: str, seconds: float | None) -> bool:
    """Whether a tool waited for a person; `seconds` is how long it took, None where unknown."""
    return name.replace("_", "").lower() in _ASKING and (seconds is None or seconds >= QUICKEST_ANSWER_S)
