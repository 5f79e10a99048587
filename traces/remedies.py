"""Settings of clients that keep a prompt's beginning the same, each with the place that says so."""

from msgspec import Struct


class Remedy(Struct, frozen=True):
    what: str
    """One sentence: what to set, and what it does."""
    source: str


_CLAUDE_SEEN = "seen to work in Claude Code 2.1.332"
_CLAUDE_HELP = "claude --help, 2.1.332"

_BY_CLIENT: dict[tuple[str, str], Remedy] = {
    ("claude-code", "billing_line"): Remedy(
        "CLAUDE_CODE_ATTRIBUTION_HEADER=0 leaves the line out; vLLM's Messages route takes it out by itself",
        f"{_CLAUDE_SEEN}; vLLM 0.32 entrypoints/anthropic/serving.py",
    ),
    ("claude-code", "git_status"): Remedy(
        "CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS=1 (or includeGitInstructions: false in settings.json) leaves git status "
        "and the commit instructions out; --exclude-dynamic-system-prompt-sections moves it behind the system prompt",
        f"{_CLAUDE_SEEN}; {_CLAUDE_HELP}",
    ),
    ("claude-code", "environment"): Remedy(
        "--exclude-dynamic-system-prompt-sections moves directory, environment, memory paths and git status out of the "
        "system prompt into the first user message",
        _CLAUDE_HELP,
    ),
    ("claude-code", "date"): Remedy(
        "--system-prompt-snapshot on (the default, but not under --bare or in versions without it) sends the first "
        "request's system prompt again word for word until a compaction",
        _CLAUDE_HELP,
    ),
    ("claude-code", "system_prompt"): Remedy(
        "--system-prompt-snapshot on (the default, but not under --bare or in versions without it) sends the first "
        "request's system prompt again word for word until a compaction",
        _CLAUDE_HELP,
    ),
    ("claude-code", "tool_inserted"): Remedy(
        "ENABLE_TOOL_SEARCH=false sends all tool schemas from the first call on instead of adding them when found "
        "(a longer prompt)",
        _CLAUDE_SEEN,
    ),
    ("claude-code", "compaction"): Remedy(
        "--autocompact TOKENS sets how full the context gets before it; DISABLE_AUTO_COMPACT=1 leaves it to /compact",
        f"{_CLAUDE_HELP}; the variable is named in its settings' descriptions",
    ),
    ("codex", "compaction"): Remedy(
        "model_auto_compact_token_limit in config.toml sets how full the context gets before it",
        "a key of config.toml in codex 0.171",
    ),
    ("opencode", "compaction"): Remedy(
        "compaction.auto: false in opencode.json (or OPENCODE_DISABLE_AUTOCOMPACT=1) turns it off",
        "opencode 1.18.33, its configuration schema",
    ),
    ("opencode", "tool_result_cut"): Remedy(
        "compaction.prune: false in opencode.json (or OPENCODE_DISABLE_PRUNE=1) keeps old tool results",
        "opencode 1.18.33, its configuration schema",
    ),
    ("pi", "compaction"): Remedy(
        "compaction.enabled: false turns it off; compaction.reserveTokens sets how late it comes",
        "pi-coding-agent, docs/settings.md",
    ),
}


def remedy(culprit: str, agent: str) -> Remedy | None:
    """The setting of a client (`Header.agent`) that avoids a culprit; None where no documented one is known."""
    return _BY_CLIENT.get((agent, culprit))
