"""What an engine is to a run: its resolved settings, what it can do, how its cache is reset, its metric names.

Everything here talks plain HTTP to the root of a server. Trouble that a user can cause or meet (nothing listens, no
such model, a key is wanted) is an EngineError of one sentence with the URL in it.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

from windtunnel.agents.client import parse_target
from windtunnel.simulator.engines.patience import leave_out, leaves_out, say_once, waiting
from windtunnel.simulator.engines.unanswered import unreachable
from windtunnel.traces.errors import EngineError
from windtunnel.traces.outlet import shown

if TYPE_CHECKING:
    import aiohttp

CONNECT_S = 10.0
ANSWER_S = 120.0
"""A probe waits at most this long: a busy engine queues even a one-token request."""
METRICS_S = 10.0
"""A metrics page is made at once by an engine that has one, however busy it is."""
LOOK_S = 1.0
"""Between looks at whether an answer is whole or its connection gone, while nothing comes."""
MOST_BYTES = 1 << 28
"""Of one answer: what is longer has no end."""


BOM = b"\xef\xbb\xbf"


class Capabilities(Struct, frozen=True, kw_only=True):
    """What was seen to work on this server."""

    tokenize: bool = False
    """`/tokenize` counts text and message lists."""
    token_strings: bool = False
    """`/tokenize` also returns the token strings."""
    token_prompts: bool = False
    """`/v1/completions` takes a prompt of token ids."""
    return_token_ids: bool = False
    """Generated ids come back, so tokens are counted and not guessed from chunks."""
    prompt_token_details: bool = False
    """Usage reports cached prompt tokens."""
    reset: bool = False
    """The prefix cache can be reset over HTTP."""
    cache_salt: bool = False
    """Requests with different salts share no cache."""
    ignore_eos: bool = False
    """`ignore_eos` and `min_tokens` pin the output length."""
    metrics: bool = False
    server_info: bool = False
    """The server tells its resolved settings."""
    continuous_usage: bool = False
    """Every chunk can carry usage."""


class Resolved(Struct, frozen=True, kw_only=True):
    """An engine as it stands, written to run.json. None where it does not say."""

    name: str
    """`vllm`, `sglang`, `tensorrt-llm`, `llama.cpp`, `dynamo`, `windtunnel-emulator` or `openai`."""
    version: str | None = None
    model: str
    """Name to send in requests."""
    models: tuple[str, ...] = ()
    """Every name served."""
    max_model_len: int | None = None
    """Tokens, prompt and output together."""
    block_size: int | None = None
    """Match unit of the prefix cache, tokens."""
    kv_tokens: int | None = None
    """Tokens the KV cache holds."""
    num_blocks: int | None = None
    prefix_caching: bool | None = None
    speculation: str | None = None
    """Method of speculative decoding; None without it, and where the engine does not say."""
    speculative_tokens: int | None = None
    """Tokens drafted in a step."""
    flags: dict[str, Any] = {}
    """Resolved settings by dotted name, without what changes with every start: equal configs compare equal."""
    emulated: bool = False
    emulation: dict[str, Any] | None = None
    """GPU, model and calibration of the emulator."""
    capabilities: Capabilities = Capabilities()


def engine_of(resolved: Resolved) -> dict[str, Any]:
    """An engine as run.json has it."""
    fields: dict[str, Any] = msgspec.to_builtins(resolved)
    flags = fields.pop("flags")
    return fields | {
        "resolved": {
            **flags,
            "max_model_len": resolved.max_model_len,
            "block_size": resolved.block_size,
            "prefix_caching": resolved.prefix_caching,
        }
    }


class Seen(Struct, frozen=True, kw_only=True):
    """What a server answered to the first questions, which tell the kinds of engines apart."""

    version: str | None = None
    """Of `/version`."""
    owners: frozenset[str] = frozenset()
    """`owned_by` of what `/v1/models` lists."""
    page: bytes = b""
    """`/metrics`, after a line end."""

    def has(self, *prefixes: str) -> bool:
        """A metric of the page begins with one of these."""
        return any(b"\n" + prefix.encode() in self.page for prefix in prefixes)


class Adapter(Protocol):
    """One kind of engine. `base_url` is the server's root, without `/v1`."""

    name: str
    metric_names: Mapping[str, str]
    """The engine's metric name (without `_total`) -> field of an EngineSample, or several with a space between them.

    What goes into one field is added up. What an engine lacks is not in it, so that it stays null and is not zero.
    """
    metrics_path: str
    """Where its metrics page is."""
    prefixes: tuple[str, ...]
    """How the names of its metrics begin."""

    def recognises(self, seen: Seen) -> bool:
        """Whether a server that answers so is of this kind."""
        ...

    async def probe(
        self, session: "aiohttp.ClientSession", base_url: str, model: str | None = None, *, quiet: bool = False
    ) -> Resolved:
        """Ask the server what it is. `model` must be among those served; without one the first is taken.

        `quiet`: nothing is generated, so what can be seen only by trying counts as not there.
        """
        ...

    async def reset(self, session: "aiohttp.ClientSession", base_url: str) -> tuple[bool, str]:
        """Empty the prefix cache, external tiers included. True only when the server's answer says it happened."""
        ...


class Answer(Struct, frozen=True):
    status: int
    body: bytes

    def json(self) -> Any:
        """The decoded body; None where it is no JSON."""
        try:
            return msgspec.json.decode(self.body.removeprefix(BOM))
        except (msgspec.DecodeError, RecursionError):
            return None

    def damage(self) -> str | None:
        """What is wrong with a body that begins as JSON does; None for a good one, and for what is something else."""
        body = self.body.removeprefix(BOM).lstrip()
        try:
            if body.startswith((b"{", b"[")):
                msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            return str(error).removeprefix("JSON is malformed: ")
        except RecursionError:
            return "nested too deep"
        return None

    def record(self) -> dict[str, Any]:
        """The decoded body when it is an object with status 200, else an empty one."""
        data = self.json()
        return data if self.status == 200 and isinstance(data, dict) else {}

    def complaint(self) -> str:
        """What an error answer says, in a few words."""
        data = self.json()
        error = data.get("error", data) if isinstance(data, dict) else None
        text = error.get("message") or error.get("detail") if isinstance(error, dict) else error
        said = text if isinstance(text, str) else self.body.decode("utf-8", "replace")
        said = " ".join(said.split())
        return f"HTTP {self.status}" + (f": {said[:200]}" if said else "")


def root_of(url: str) -> str:
    """The server's root of what a user typed: no trailing slash, no `/v1`, no route."""
    return parse_target(url).url()


def open_session(headers: Mapping[str, str] | None = None) -> "aiohttp.ClientSession":
    """A session for probes and scrapes, not for measured requests."""
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=ANSWER_S, sock_connect=CONNECT_S)
    return aiohttp.ClientSession(headers=headers, timeout=timeout, connector=aiohttp.TCPConnector(limit=16))


async def fetch(session: "aiohttp.ClientSession", url: str, body: Any = None, *, method: str | None = None) -> Answer:
    """GET, or POST of `body` as JSON. Any HTTP status is an answer; no answer at all is an EngineError."""
    verb = method or ("GET" if body is None else "POST")
    data = None if body is None else msgspec.json.encode(body)
    headers = {"Content-Type": "application/json"} if data is not None else None

    async def ask() -> Answer:
        async with session.request(verb, url, data=data, headers=headers) as response:
            return Answer(response.status, await _body(response, url))

    try:
        with waiting(url):
            try:
                return await ask()
            except _closed() as error:
                if isinstance(error, _unopened()):
                    raise
                return await ask()  # llama-server closes a kept connection without a word once a stream is over
    except _unanswered() as error:
        raise EngineError(unreachable(url, error)) from error


async def _body(response: "aiohttp.ClientResponse", url: str) -> bytes:
    """All of it; without its end where that does not come though the answer is whole, which is said."""
    parts: list[bytes] = []
    size = looked_at = 0
    while True:
        try:
            async with asyncio.timeout(LOOK_S) as limit:
                part = await response.content.readany()
        except TimeoutError:
            if not limit.expired():
                raise
            _check_kept(response)
            if size > looked_at and (last := _last_word(body := b"".join(parts))):
                say_once(f"{url}: still open after {last}; the answer is taken without its end")
                return body
            looked_at = size
            continue
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
        if size > MOST_BYTES:
            raise EngineError(f"{url}: the answer has no end ({MOST_BYTES >> 20} MiB were read)")


def _check_kept(response: "aiohttp.ClientResponse") -> None:
    """Where a damaged part ends the connection, nobody wakes who waits for more."""
    kept = response.connection
    if kept is not None and (kept.transport is None or kept.transport.is_closing()):
        import aiohttp

        raise aiohttp.ClientPayloadError("the connection is gone, and not the answer's end the reason")


def _last_word(body: bytes) -> str:
    """What shows that a stream or a record is whole; empty where more may come."""
    body = body.removeprefix(BOM).strip()
    if body[-16:].rpartition(b"\n")[2].replace(b" ", b"") == b"data:[DONE]":
        return "[DONE]"
    if not body.startswith((b"{", b"[")):
        return ""
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return ""
    return "the last bracket"


async def metrics_page(session: "aiohttp.ClientSession", url: str) -> Answer:
    """The answer of a metrics page, with status 0 where none came: a run can do without. That is said once."""
    nothing = Answer(0, b"")
    if leaves_out(url):
        return nothing
    try:
        async with asyncio.timeout(METRICS_S) as limit:
            return await fetch(session, url)
    except EngineError as error:
        why = str(error).rstrip(".")
    except TimeoutError:
        if not limit.expired():
            raise
        why = f"{url}: no whole answer in {METRICS_S:.0f} s"
    leave_out(url, f"{why}; the engine's metrics count as not reported")
    return nothing


def _closed() -> tuple[type[Exception], ...]:
    """Of a connection that was kept. Looked up when something fails: a run without sockets does without aiohttp."""
    import aiohttp

    return aiohttp.ServerDisconnectedError, aiohttp.ClientOSError


def _unopened() -> type[Exception]:
    import aiohttp

    return aiohttp.ClientConnectorError


def _unanswered() -> tuple[type[Exception], ...]:
    import aiohttp

    return aiohttp.ClientError, TimeoutError, OSError, ValueError


async def list_models(session: "aiohttp.ClientSession", root: str) -> list[dict[str, Any]]:
    """The entries of `/v1/models`; an EngineError when the server has no such list."""
    url = f"{root}/v1/models"
    answer = await fetch(session, url)
    if answer.status in (401, 403):
        if "Authorization" in session.headers:
            raise EngineError(
                f"{url}: the server refused the API key (HTTP {answer.status}): pass the right one as --api-key"
            )
        raise EngineError(f"{url}: the server wants an API key: pass it as --api-key")
    data = answer.record().get("data")
    models = [m for m in data if isinstance(m, dict) and isinstance(m.get("id"), str)] if isinstance(data, list) else []
    if answer.status == 200 and data == []:
        raise EngineError(f"{url}: the server's list of models is empty; load one, or wait until it has loaded")
    if answer.status == 200 and (damage := answer.damage()):
        raise EngineError(f"{url}: the server's list of models is no valid JSON ({damage}); mend the server's answer")
    if not models:
        raise EngineError(f"{url}: no OpenAI-compatible server answers there (HTTP {answer.status}, no list of models)")
    return models


def choose_model(models: list[dict[str, Any]], wanted: str | None, root: str) -> dict[str, Any]:
    """The entry of the wanted model, or the first."""
    if wanted is None:
        return models[0]
    for entry in models:
        if entry["id"] == wanted:
            return entry
    names = ", ".join(shown(m["id"]) for m in models[:8])
    raise EngineError(
        f"{root} does not serve the model {shown(wanted)!r}; it serves {names}: pass one of these as --model"
    )


async def detect(base_url: str, session: "aiohttp.ClientSession") -> Adapter:
    """Which engine answers there, by `/version`, `/metrics` and the owner of its models; else a plain OpenAI server."""
    from windtunnel.simulator.engines.known import ADAPTERS

    root = root_of(base_url)
    version = (await fetch(session, f"{root}/version")).record().get("version")
    page = await metrics_page(session, f"{root}/metrics")
    data = (await fetch(session, f"{root}/v1/models")).record().get("data")
    owners = [m.get("owned_by") for m in data if isinstance(m, dict)] if isinstance(data, list) else []
    seen = Seen(
        version=version if isinstance(version, str) else None,
        owners=frozenset(owner for owner in owners if isinstance(owner, str)),
        page=b"\n" + page.body if page.status == 200 else b"",
    )
    return next(adapter for adapter in ADAPTERS if adapter.recognises(seen))
