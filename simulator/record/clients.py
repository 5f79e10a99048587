"""How agents are told where to send their requests: environment variables, and lines for their files."""

import re
from collections.abc import Mapping, Sequence

_HOSTED = ("api.openai.com", "api.anthropic.com")


def environment(base: str, upstream_host: str, given: Mapping[str, str]) -> dict[str, str]:
    """The environment of an agent that shall use `base` (no `/v1`).

    A server of one's own needs no key, and agents do not start without one: a placeholder, where none is set.
    """
    env = dict(given)
    env |= {
        "OPENAI_BASE_URL": f"{base}/v1",
        "OPENAI_API_BASE": f"{base}/v1",
        "LLM_BASE_URL": f"{base}/v1",
        "ANTHROPIC_BASE_URL": base,
    }
    if upstream_host not in _HOSTED:
        env.setdefault("OPENAI_API_KEY", "local")
        if "ANTHROPIC_API_KEY" not in env:
            env.setdefault("ANTHROPIC_AUTH_TOKEN", "local")
    for name in ("NO_PROXY", "no_proxy"):
        env[name] = ",".join(dict.fromkeys([*filter(None, env.get(name, "").split(",")), "127.0.0.1", "localhost"]))
    return env


_LAUNCHERS = frozenset(
    {"python", "python3", "node", "npx", "bunx", "bun", "uvx", "uv", "run", "bash", "sh", "env", "exec"}
)
_WORD = re.compile(r"[\w./@-]{1,80}")


def agent_name(command: Sequence[str]) -> str:
    """What a started agent is called where it does not say: the first word that is no launcher, flag or setting."""
    for word in command:
        name = word.rstrip("/").rpartition("/")[2].removesuffix(".py").removesuffix(".js")
        if not word.startswith("-") and _WORD.fullmatch(word) and name not in _LAUNCHERS:
            return name.partition("@")[0] or name
    return ""


def filled(command: Sequence[str], base: str) -> tuple[str, ...]:
    """`{base_url}` in a command's words is the proxy's URL, for agents that take theirs from a flag."""
    return tuple(word.replace("{base_url}", base) for word in command)


FILES: dict[str, str] = {
    "codex": """\
# codex: ~/.codex/config.toml
model_provider = "windtunnel"
[model_providers.windtunnel]
name = "windtunnel"
base_url = "{base}/v1"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
""",
    "opencode": """\
# opencode: opencode.json
{"provider": {"windtunnel": {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "{base}/v1",
  "apiKey": "local"}, "models": {"MODEL": {"tool_call": true}}}}, "model": "windtunnel/MODEL"}
""",
    "pi": """\
# pi: ~/.pi/agent/models.json, then pi --provider windtunnel --model MODEL
{"providers": {"windtunnel": {"baseUrl": "{base}/v1", "api": "openai-completions", "apiKey": "local",
  "models": [{"id": "MODEL"}]}}}
""",
    "cline": """\
# cline: settings, API provider "OpenAI Compatible"
Base URL: {base}/v1
""",
}
"""Agents that read their server's URL from a file, by command."""
_OTHERS = """\
# claude, aider and most others: environment
export ANTHROPIC_BASE_URL={base} OPENAI_BASE_URL={base}/v1 OPENAI_API_BASE={base}/v1
"""
_ANY = """\
# any other: put {base} where its server's URL stands; {base}/tag/NAME names a run
"""


def needs_file(command: Sequence[str]) -> str | None:
    """The agent's name where the environment does not reach it: it reads a file, and its words name no URL."""
    name = command[0].rpartition("/")[2] if command else ""
    return name if name in FILES and not any("{base_url}" in word for word in command) else None


def config_lines(base: str, name: str | None = None) -> str:
    """Ready-made lines for one agent's file, or for all agents, with the variables for those that read them."""
    parts = [_OTHERS, *FILES.values(), _ANY] if name is None else [FILES[name]]
    return "\n".join(part.replace("{base}", base) for part in parts)
