"""What a truthful run needs of a server and of this machine: one sentence a check, and which figures will be missing.

Costs the server one or two requests of a few tokens. Nothing here changes it.
"""

import asyncio
import os
import resource
import shlex
import sys
from typing import Any, Literal

import aiohttp
import msgspec
from msgspec import Struct

from windtunnel.agents.clock import Clock, RealClock
from windtunnel.agents.reads import COMPILED
from windtunnel.simulator.engines.base import Adapter, Resolved, detect, fetch, open_session, root_of
from windtunnel.simulator.engines.patience import patiently
from windtunnel.simulator.run.scrape import read_page
from windtunnel.simulator.run.viewer import say
from windtunnel.traces.outlet import shown

Status = Literal["ok", "warn", "fail"]
MARKS: dict[Status, str] = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}
WATCH_S = 1.0
"""How long the server's counters are watched for somebody else's load."""
LAG_PROBES, LAG_STEP_S, LAG_LIMIT_MS = 100, 0.005, 5.0
OPEN_FILES = 4096
"""Enough for 1,000 agents with their sub-agents."""
SHORT_CONTEXT = 16_384
"""Below this most recorded sessions do not fit."""


class Check(Struct, frozen=True):
    name: str
    status: Status
    text: str
    """One sentence."""
    nulls: tuple[str, ...] = ()
    """Figures of the summary that will be null because of it."""
    fix: tuple[str, ...] = ()
    """Flags or NAME=VALUE settings of `vllm serve` that would mend it."""


class Report(Struct, frozen=True):
    target: str
    resolved: Resolved
    checks: tuple[Check, ...]

    @property
    def nulls(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for check in self.checks for name in check.nulls))

    @property
    def fix(self) -> str | None:
        """A `vllm serve` line with which nothing would be missing; None when nothing is, or the server is not vLLM."""
        flags = dict.fromkeys(word for check in self.checks for word in check.fix)
        if not flags or self.resolved.name != "vllm":
            return None
        env = [word for word in flags if "=" in word and not word.startswith("-")]
        served = self.resolved.model
        model = str(self.resolved.flags.get("model_config.model") or served)
        line = [*env, "vllm", "serve", shlex.quote(model)]
        line += ["--served-model-name", shlex.quote(served)] if model != served else []
        line += ["--max-model-len", str(self.resolved.max_model_len)] if self.resolved.max_model_len else []
        line += [word for word in flags if word not in env]
        return " ".join([*line, "--port", self.target.rpartition(":")[2] if self.target.count(":") == 2 else "8000"])

    @property
    def exit_code(self) -> int:
        return 1 if any(check.status == "fail" for check in self.checks) else 0

    def as_json(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "engine": msgspec.to_builtins(self.resolved),
            "checks": msgspec.to_builtins(self.checks),
            "nulls": list(self.nulls),
            "fix": self.fix,
            "ok": self.exit_code == 0,
        }


async def examine(
    target: str, model: str | None, *, session: aiohttp.ClientSession, clock: Clock, watch_s: float = WATCH_S
) -> Report:
    """Ask the server and this machine. Raises EngineError when there is no server to ask."""
    root = root_of(target)
    adapter = await detect(root, session)
    resolved = await adapter.probe(session, root, model)
    load = await foreign_load(session, root, adapter, resolved, clock=clock, watch_s=watch_s)
    here = (await client_clock(clock), open_files(), client_code())
    return Report(target=root, resolved=resolved, checks=(*server_checks(resolved), load, *here))


def server_checks(r: Resolved) -> list[Check]:
    """What the server's settings mean for the figures of a run."""
    can = r.capabilities
    dev = ("VLLM_SERVER_DEV_MODE=1",)
    kind = f"{r.name} {shown(r.version or '')}".strip()
    checks = [Check("server", "ok", f"{kind} serves {shown(r.model)}" + (" (emulated figures)" if r.emulated else ""))]
    checks.append(_context(r))
    if can.prompt_token_details:
        checks.append(Check("cached tokens", "ok", "usage reports cached prompt tokens for each call"))
    else:
        checks.append(
            Check(
                "cached tokens",
                "warn",
                "usage does not report cached prompt tokens, so isolation from earlier load cannot be verified",
                ("cached_tokens", "cache_hit_ratio"),
                ("--enable-prompt-tokens-details",),
            )
        )
    checks += _cache(r, dev)
    if can.ignore_eos:
        checks.append(Check("output length", "ok", "the output length can be pinned to the recorded one"))
    else:
        text = (
            "the server does not pin output lengths: calls of another length than the recorded one will count as failed"
        )
        checks.append(Check("output length", "fail", text))
    if any(name.startswith("speculative_config.") for name in r.flags):
        text = (
            "speculation is on: with forced lengths and regenerated text its acceptance, and so its speed, is not real"
        )
        checks.append(Check("speculation", "warn", text))
    if can.return_token_ids or can.continuous_usage:
        checks.append(Check("token counts", "ok", "every chunk says how many tokens it carries"))
    else:
        text = "chunks do not say how many tokens they carry, so the tokens of a call are spread evenly over its chunks"
        checks.append(Check("token counts", "warn", text, ("reprefilled_tokens",)))
    if can.tokenize:
        checks.append(Check("tokenizer", "ok", "texts are brought to their recorded length by /tokenize"))
    else:
        text = "there is no /tokenize, so prompt lengths follow stored characters-per-token ratios and may be 10% off"
        checks.append(Check("tokenizer", "warn", text))
    if can.token_prompts:
        checks.append(Check("token route", "ok", "/v1/completions takes token ids, so --api tokens works"))
    else:
        text = "/v1/completions takes no token ids, so only --api chat works"
        checks.append(Check("token route", "warn", text))
    if can.metrics:
        checks.append(Check("metrics", "ok", "/metrics gives the engine's own counters to compare with"))
    else:
        nulls = tuple(f"engine.{n}" for n in ("running", "waiting", "kv_usage", "hit_ratio", "preemptions"))
        text = "there are no engine metrics, so nothing can be compared with the engine's own counters"
        checks.append(Check("metrics", "warn", text, (*nulls, "engine.acceptance_length")))
    return checks


def _context(r: Resolved) -> Check:
    if r.max_model_len is None:
        return Check("context", "warn", "the server does not tell its context length: give --max-context")
    if r.max_model_len < SHORT_CONTEXT:
        text = f"contexts up to {r.max_model_len:,} tokens: most recorded sessions need --fit scale or compact"
        return Check("context", "warn", text)
    return Check("context", "ok", f"contexts up to {r.max_model_len:,} tokens")


def _cache(r: Resolved, dev: tuple[str, ...]) -> list[Check]:
    """Prefix caching, its match unit and size, and how runs are kept apart."""
    checks = []
    unit, length, can = r.block_size, r.max_model_len, r.capabilities
    if r.prefix_caching is None:
        checks.append(Check("prefix caching", "warn", "the server does not say whether prefixes are cached"))
    elif not r.prefix_caching:
        text = "prefix caching is off: every turn prefills its whole history"
        checks.append(Check("prefix caching", "warn", text, (), ("--enable-prefix-caching",)))
    elif unit and length and unit > length:
        text = (
            f"prefix caching is on but can never hit: it matches {unit:,} tokens at a time, the context is {length:,}"
        )
        checks.append(Check("prefix caching", "fail", text))
    else:
        checks.append(Check("prefix caching", "ok", "prefix caching is on"))
    if unit is None:
        text = "the match unit is not told, so expected cached tokens are counted without rounding"
        checks.append(Check("match unit", "warn", text))
    else:
        checks.append(Check("match unit", "ok", f"cache hits are multiples of {unit:,} tokens"))
    if r.kv_tokens is None:
        checks.append(Check("KV cache", "warn", "the size of the KV cache is not told", ("engine.kv_tokens",), dev))
    else:
        full = f", {r.kv_tokens / length:.1f} full contexts" if length else ""
        checks.append(Check("KV cache", "ok", f"the KV cache holds {r.kv_tokens:,} tokens{full}"))
    if can.reset:
        checks.append(Check("isolation", "ok", "the prefix cache can be reset before a run"))
    elif can.cache_salt:
        text = (
            "the cache cannot be reset; a cache_salt keeps runs apart, and old entries are evicted as the run goes on"
        )
        checks.append(Check("isolation", "warn", text, (), dev if r.name == "vllm" else ()))
    else:
        text = "the cache can neither be reset nor salted; a salt in the prompts keeps runs apart"
        checks.append(Check("isolation", "warn", text))
    return checks


async def foreign_load(
    session: aiohttp.ClientSession, root: str, adapter: Adapter, r: Resolved, *, clock: Clock, watch_s: float
) -> Check:
    """Somebody else's requests, seen as running ones or as counters that grow while we send nothing."""
    if not r.capabilities.metrics:
        return Check("other load", "warn", "whether somebody else uses the server cannot be seen")
    before = read_page((await fetch(session, root + adapter.metrics_path)).body, adapter.metric_names)
    await clock.sleep(watch_s)
    after = read_page((await fetch(session, root + adapter.metrics_path)).body, adapter.metric_names)
    counters = [(before.get(k, 0), after.get(k, 0)) for k in ("generation_tokens", "prompt_tokens")]
    grown = sum(b - a if b >= a else b for a, b in counters)  # one that fell began anew
    busy = after.get("running", 0) + after.get("waiting", 0)
    if grown or busy:
        text = f"somebody else uses the server: {busy:.0f} requests, {grown:.0f} tokens in {watch_s:g} s"
        return Check("other load", "fail", text)
    return Check("other load", "ok", "nobody else uses the server")


async def client_clock(clock: Clock) -> Check:
    """How late this machine's event loop wakes up."""
    late = []
    for _ in range(LAG_PROBES):
        due = clock.now_ns() + round(LAG_STEP_S * 1e9)
        await clock.sleep_until(due)
        late.append((clock.now_ns() - due) / 1e6)
    p99 = sorted(late)[int(0.99 * (LAG_PROBES - 1))]
    cores = os.cpu_count() or 1
    text = f"timers of this machine are {p99:.2f} ms late at p99 (load {os.getloadavg()[0]:.1f} on {cores} cores)"
    if p99 > LAG_LIMIT_MS:
        return Check("client clock", "warn", f"{text}: the client may be the bottleneck")
    return Check("client clock", "ok", text)


def open_files() -> Check:
    """Each request in flight is a connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < OPEN_FILES:
        text = f"this shell allows {soft} open files, enough for about {max(1, (soft - 100) // 4)} agents"
        allowed = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
        return Check("file limit", "warn", f"{text}: raise it with ulimit -n (up to {allowed})")
    return Check("file limit", "ok", "the limit of open files is high enough")


def client_code() -> Check:
    """Whether what each chunk passes through is compiled."""
    if COMPILED:
        return Check("client code", "ok", "what reads the streams is compiled")
    text = "what reads the streams runs in Python, with a fifth more of a core for each chunk"
    return Check("client code", "warn", f"{text}: install windtunnel again where there are a C compiler and Python.h")


def render(report: Report) -> str:
    """The report for people."""
    wide = max(len(check.name) for check in report.checks)
    lines = [f"{report.target}", ""]
    lines += [f"  {MARKS[check.status]}  {check.name:<{wide}}  {check.text}" for check in report.checks]
    if report.nulls:
        lines += ["", "Not reported in results: " + ", ".join(report.nulls)]
    if report.fix:
        lines += ["", "With everything reported:", f"  {report.fix}"]
    failed = sum(check.status == "fail" for check in report.checks)
    warned = sum(check.status == "warn" for check in report.checks)
    verdict = "Ready for a run." if not failed else f"Not ready: {failed} of {len(report.checks)} checks failed."
    return "\n".join(
        [*lines, "", verdict + (f" {warned} {'warning' if warned == 1 else 'warnings'}." if warned else "")]
    )


def main(target: str, model: str | None = None, api_key: str | None = None, *, as_json: bool = False) -> int:
    """Examine, print, and return the exit code: 1 when a check failed."""

    async def work() -> Report:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else None
        async with open_session(headers) as session, patiently(say, root_of(target)):
            return await examine(target, model, session=session, clock=RealClock())

    report = asyncio.run(work())
    sys.stdout.write((msgspec.json.encode(report.as_json()).decode() if as_json else render(report)) + "\n")
    return report.exit_code
