"""The pool of KV blocks under a command line: groups of layers, bytes of a block, how many fit, how long a request."""

from bisect import bisect_right

from msgspec import Struct

from windtunnel.simulator.emulator.facts import GIB
from windtunnel.simulator.emulator.kv_layout import Group, Layers, Layout, layout
from windtunnel.simulator.emulator.mode import Mode
from windtunnel.simulator.emulator.model import Model
from windtunnel.simulator.emulator.speculation import Speculation
from windtunnel.traces.errors import EngineError, UsageError

_KERNEL_BLOCK = 16
_LATENT_HYBRID_BLOCK = 128
"""Smallest block of the attention kernel, tokens: of most, and of latent attention beside recurrent layers."""


class Pool(Struct, frozen=True):
    layout: Layout
    blocks: int
    max_model_len: int
    in_flight: int
    """Most tokens that can be scheduled and not yet returned."""

    @property
    def groups(self) -> tuple[Group, ...]:
        """Empty where all layers see the whole context and share one table."""
        groups = self.layout.groups
        return () if len(groups) == 1 and groups[0].kind == "full" and groups[0].count == 1 else groups

    @property
    def bytes(self) -> int:
        """On each GPU."""
        return self.blocks * self.layout.block_bytes

    @property
    def tokens(self) -> int:
        """The size in tokens that vLLM prints: of requests of the full length."""
        return self.layout.capacity(self.blocks, self.max_model_len, self.in_flight)[0]

    @property
    def requests(self) -> float:
        """How many requests of the full length fit."""
        return self.layout.capacity(self.blocks, self.max_model_len, self.in_flight)[1]


def layout_of(model: Model, mode: Mode, *, longest: int, block_size: int, caching: bool, hybrid: bool = True) -> Layout:
    """The layout of a model's cache; `hybrid` off keeps whole contexts in windowed layers too."""
    speculation = mode.speculation
    if not hybrid and model.recurrent is not None:
        raise UsageError(
            f"--disable-hybrid-kv-cache-manager cannot be used with {model.name}: its recurrent layers and its "
            "attention have no KV cache in common."
        )
    beside = model.latent > 0 and model.recurrent is not None
    return layout(
        _layers(model, mode, hybrid),
        max_model_len=longest,
        block_size=block_size,
        caching=caching,
        speculative_tokens=speculation.k if speculation else 0,
        kernel_block=_LATENT_HYBRID_BLOCK if beside else _KERNEL_BLOCK,
    )


def _layers(model: Model, mode: Mode, hybrid: bool) -> list[Layers]:
    """In the order of each kind's first layer: recurrent before windowed before full attention, drafts last."""
    speculation, shards = mode.speculation, mode.tensor_parallel
    drafts = speculation.k if speculation else 0
    token = int(model.token_bytes * model.kv_share(mode.kv_dtype) / model.kv_shards(shards))
    found = []
    if (state := model.recurrent) is not None:
        size = state.layer_bytes(mode.ssm_dtype, drafts, mode.conv_dtype) // shards
        found.append(Layers("mamba", state.layers, state_bytes=size, checkpoints=state.kind == "mamba"))
    windowed, whole = model.window_layers, model.full_layers
    if not hybrid and whole:
        windowed, whole = 0, whole + windowed
    if windowed:
        found.append(Layers("window", windowed, token_bytes=token, window=model.window))
    if whole:
        found.append(Layers("full", whole, token_bytes=token))
    if speculation is not None and speculation.draft.layers:
        found.append(_drafted(speculation, model, mode))
    return found


def _drafted(speculation: Speculation, model: Model, mode: Mode) -> Layers:
    draft = speculation.draft
    each = draft.kv_bytes / draft.layers * model.kv_share(mode.kv_dtype) / model.kv_shards(mode.tensor_parallel)
    # vLLM tells the layers of multi-token prediction by their place; an EAGLE model's it does not tell from the others.
    marked = speculation.method == "mtp" and speculation.drops_last_block
    return Layers("full", draft.layers, token_bytes=int(each), drafts=marked)


def pool_of(plan: Layout, blocks: int, *, wanted: int | None, longest: int, in_flight: int, auto: bool) -> Pool:
    """The pool and the length that is served; one request of that length must fit in beside the null block.

    `wanted` is the length that the line names, `longest` the model's own, `auto` asks for the longest that fits.
    EngineError in vLLM's words where it does not fit.
    """
    room = blocks - 1

    def needed(tokens: int) -> int:
        return plan.request_blocks(tokens, in_flight)

    fits = bisect_right(range(1, longest + 1), room, key=needed)
    if auto:
        if fits < 1:
            raise EngineError(_TOO_SMALL)
        return Pool(plan, blocks, fits, in_flight)
    served = wanted or longest
    if needed(served) > room:
        advice = f"Based on the available memory, the estimated maximum model length is {fits}. " if fits else ""
        raise EngineError(
            f"To serve at least one request with the model's max seq len ({served}), "
            f"({needed(served) * plan.block_bytes / GIB:.2f} GiB KV cache is needed, which is larger than the "
            f"available KV cache memory ({room * plan.block_bytes / GIB:.2f} GiB). {advice}Try increasing "
            f"`gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
        )
    return Pool(plan, blocks, served, in_flight)


_TOO_SMALL = (
    "Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token. Try increasing "
    "`gpu_memory_utilization`."
)
