"""Which fields of a request a server takes: the same conversation is put in other words for each kind of server."""

from typing import Any

from msgspec import Struct


class Dialect(Struct, frozen=True):
    """Which request fields a server takes."""

    name: str
    usage: bool = True
    """`stream_options.include_usage`."""
    continuous_usage: bool = False
    ignore_eos: bool = False
    min_tokens: bool = False
    token_ids: bool = False
    """`return_token_ids`."""
    cache_salt: bool = False
    sampling: bool = False
    """Sampling parameters beyond `temperature` and `top_p`."""
    extra: dict[str, Any] = {}
    """Further fields, as they are."""


VLLM = Dialect("vllm", ignore_eos=True, min_tokens=True, token_ids=True, cache_salt=True, sampling=True)
PLAIN = Dialect("plain")
