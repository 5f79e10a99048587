"""vLLM's scale-out endpoints (tokens in and out, rendering): closed without their flag there, and not modelled here."""

from aiohttp import web

from windtunnel.simulator.emulator.ask import Refusal
from windtunnel.simulator.emulator.flags import Settings

_PATHS = (
    "/inference/v1/generate",
    "/v1/chat/completions/render",
    "/v1/chat/completions/derender",
    "/v1/completions/render",
    "/v1/completions/derender",
    "/v1/messages/render",
    "/v1/responses/render",
)
_FLAGS = ("--enable-scale-out", "--tokens-only")


def add_scale_out(router: web.UrlDispatcher, settings: Settings) -> None:
    given = {word.partition("=")[0].split()[0] for word in settings.ignored}
    opened = any(flag in given for flag in _FLAGS)

    async def refuse(http: web.Request) -> web.StreamResponse:
        if opened:
            raise Refusal(
                f"The emulator does not model {http.path}: send prompts to /v1/completions or /v1/chat/completions.",
                status=501,
                kind="NotImplementedError",
            )
        raise Refusal(
            "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them.",
            status=403,
            kind="PermissionDeniedError",
        )

    for path in _PATHS:
        router.add_post(path, refuse)
