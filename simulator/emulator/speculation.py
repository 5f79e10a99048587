"""Speculative decoding: vLLM's `--speculative-config`, and how many drafts are accepted.

Acceptance is a property of the text, the draft and the model; here it comes from a table of measured lengths, or from
the line itself where it asks for synthetic acceptance.
"""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct

from windtunnel.simulator.emulator.drafting import Draft, draft_of
from windtunnel.simulator.emulator.model import Model
from windtunnel.simulator.emulator.nearest import nearest
from windtunnel.simulator.emulator.shipped_text import shipped_text
from windtunnel.traces.errors import UsageError

UNVERIFIED = "unverified"
_HIDDEN_STATES = ("mtp", "eagle", "eagle3")
"""Drafts made from the model's hidden states: the last matched prefix block is computed again for them."""
_ASYNCHRONOUS = (*_HIDDEN_STATES, "draft_model")
METHODS = (*_ASYNCHRONOUS, "ngram", "medusa", "suffix")
_OTHER_METHODS = (
    "mlp_speculator",
    "custom_class",
    "extract_hidden_states",
    "dflash",
    "dspark",
    "ngram_gpu",
)
_SUFFIX_DEPTH = 24
_NGRAM = 5
"""Default of prompt_lookup_min and prompt_lookup_max."""


class Speculation(Struct, frozen=True):
    """The resolved `--speculative-config`."""

    method: str
    k: int
    """Draft tokens verified in a step of a request, at most."""
    acceptance: tuple[float, ...]
    """For each draft position, the probability that it is accepted when all before it were."""
    source: str
    """Where the acceptance comes from."""
    synthetic: bool
    """The line itself named the acceptance, as vLLM's synthetic rejection sampling takes it."""
    draft: Draft
    lookahead: int
    """KV slots reserved beyond what is computed."""
    drops_last_block: bool
    asynchronous: bool
    """vLLM can schedule ahead with this method."""
    lookup: tuple[int, int] = (0, 0)
    """Shortest and longest n-gram that is looked up."""

    @property
    def length(self) -> float:
        """Mean tokens of a verification step, the bonus token included."""
        total, alive = 1.0, 1.0
        for probability in self.acceptance:
            alive *= probability
            total += alive
        return total


class _Config(Struct, forbid_unknown_fields=True):
    """Keys of vLLM 0.32's SpeculativeConfig that a command line may hold."""

    num_speculative_tokens: int | None = None
    model: str | None = None
    method: str | None = None
    prompt_lookup_max: int | None = None
    prompt_lookup_min: int | None = None
    disable_padded_drafter_batch: bool = False
    disable_eagle_block_drop: bool = False
    rejection_sample_method: str = "standard"
    synthetic_acceptance_rates: list[float] | None = None
    synthetic_acceptance_length: float | None = None
    suffix_decoding_max_tree_depth: int = _SUFFIX_DEPTH
    suffix_decoding_max_cached_requests: int = 10_000
    suffix_decoding_max_spec_factor: float = 1.0
    suffix_decoding_min_token_prob: float = 0.1
    parallel_drafting: bool = False
    draft_tensor_parallel_size: int | None = None
    max_model_len: int | None = None
    quantization: str | None = None
    tensor_parallel_size: int | None = None
    draft_sample_method: str = "greedy"
    # Accepted; they change nothing that is modelled.
    enforce_eager: bool | None = None
    moe_backend: str | None = None
    attention_backend: str | None = None
    kv_cache_dtype: str | None = None
    revision: str | None = None
    code_revision: str | None = None
    index_share_for_mtp_iteration: bool | None = None
    use_local_argmax_reduction: bool = False
    use_heterogeneous_vocab: bool = False
    num_speculative_tokens_per_batch_size: list[tuple[int, int, int]] | None = None
    draft_load_config: dict[str, Any] | None = None
    enable_adaptive_verification: bool = False
    dspark_draft_topk: int | None = None


def speculation(values: Mapping[str, Any], model: Model, tensor_parallel: int = 1) -> Speculation:
    """`--speculative-config` for a model; UsageError in vLLM's words where vLLM would refuse it."""
    config = _read(values)
    method = _method(config)
    k = _tokens(config, method, model)
    if config.num_speculative_tokens_per_batch_size is not None or config.enable_adaptive_verification:
        raise _wrong("a number of draft tokens that changes with the batch is not modelled: give a fixed one")
    lookup = _lookup(config) if method == "ngram" else (0, 0)
    if config.draft_tensor_parallel_size not in (None, 1, tensor_parallel):
        raise _wrong(
            f"draft_tensor_parallel_size={config.draft_tensor_parallel_size} cannot be other value than 1 or "
            f"target model tensor_parallel_size ({tensor_parallel})"
        )
    rates, source, synthetic = _acceptance(config, method, model, k)
    hidden = method in _HIDDEN_STATES
    draft = draft_of(method, k, model, config.model, config.quantization)
    return Speculation(
        method=method,
        k=k,
        acceptance=rates,
        source=source,
        synthetic=synthetic,
        draft=msgspec.structs.replace(draft, passes=min(draft.passes, 1)) if config.parallel_drafting else draft,
        lookahead=k if method in _ASYNCHRONOUS else 0,
        drops_last_block=hidden and not config.disable_eagle_block_drop,
        asynchronous=method in _ASYNCHRONOUS and not config.disable_padded_drafter_batch,
        lookup=lookup,
    )


def _read(values: Mapping[str, Any]) -> _Config:
    known = _Config.__struct_fields__
    for key in values:
        if key not in known:
            raise _wrong(f"Unexpected keyword argument '{key}'{nearest(key, known)}")
    try:
        config = msgspec.convert(values, _Config)
    except msgspec.ValidationError as error:
        raise _wrong(str(error)) from None
    if config.tensor_parallel_size is not None:
        raise _wrong(
            "'tensor_parallel_size' is not a valid argument in the speculative_config. Please pass "
            "'draft_tensor_parallel_size' instead"
        )
    for key, choices in (
        ("rejection_sample_method", ("standard", "synthetic", "block")),
        ("draft_sample_method", ("greedy", "probabilistic")),
    ):
        if getattr(config, key) not in choices:
            raise _wrong(f"{key} must be one of {', '.join(choices)}, not {getattr(config, key)!r}")
    return config


def _method(config: _Config) -> str:
    method = config.method or ("ngram" if config.model in ("ngram", "[ngram]") else "draft_model")
    if method.endswith("_mtp"):
        method = "mtp"
    method = method.strip("[]")
    if method in _OTHER_METHODS:
        raise _wrong(f"method {method!r} is not modelled: use one of {', '.join(METHODS)}")
    if method not in METHODS:
        raise _wrong(f"method must be one of {', '.join(METHODS)}, not {method!r}{nearest(method, METHODS)}")
    if config.model is None and method in ("eagle", "eagle3", "draft_model", "medusa"):
        if config.num_speculative_tokens is None:
            raise _wrong("num_speculative_tokens must be provided with speculative model")
        raise _wrong("num_speculative_tokens was provided but without speculative model")
    return method


def _tokens(config: _Config, method: str, model: Model) -> int:
    k = config.num_speculative_tokens
    if method == "mtp":
        if model.mtp is None:
            raise _wrong(f"Unsupported speculative method: 'mtp', as {model.name} has no MTP layers")
        # Without a number, each layer predicts one token.
        k = model.mtp.layers if k is None else k
        if k > model.mtp.layers and k % model.mtp.layers:
            raise _wrong(f"num_speculative_tokens:{k} must be divisible by n_predict={model.mtp.layers}")
    if method == "suffix" and k is None:
        k = config.suffix_decoding_max_tree_depth
    if k is None:
        raise _wrong(
            "num_speculative_tokens must be provided with speculative model unless the draft model config contains "
            "an n_predict parameter"
        )
    if k <= 0:
        raise _wrong(f"Expected num_speculative_tokens to be greater than zero ({k})")
    return k


def _lookup(config: _Config) -> tuple[int, int]:
    low, high = config.prompt_lookup_min, config.prompt_lookup_max
    low, high = low or high or _NGRAM, high or low or _NGRAM
    if low < 1 or high < 1:
        raise _wrong("prompt_lookup_min and prompt_lookup_max must be at least 1")
    if low > high:
        raise _wrong(f"prompt_lookup_min={low} must be <= prompt_lookup_max={high}")
    return low, high


def _acceptance(config: _Config, method: str, model: Model, k: int) -> tuple[tuple[float, ...], str, bool]:
    rates, length = config.synthetic_acceptance_rates, config.synthetic_acceptance_length
    if config.rejection_sample_method != "synthetic":
        if rates is not None or length is not None:
            raise _wrong(
                "synthetic_acceptance_rates / synthetic_acceptance_length are only valid with "
                "rejection_sample_method='synthetic'"
            )
        return (*table_acceptance(method, model.name, k), False)
    if (rates is None) == (length is None):
        raise _wrong(
            "rejection_sample_method='synthetic' requires exactly one of synthetic_acceptance_rates or "
            "synthetic_acceptance_length"
        )
    if rates is not None:
        if len(rates) != k:
            raise _wrong(f"synthetic_acceptance_rates must have length {k}, got {rates}")
        if not all(0 <= rate <= 1 for rate in rates):
            raise _wrong(f"synthetic_acceptance_rates entries must be in [0, 1], got {rates}")
        if any(after > before for before, after in pairwise(rates)):
            raise _wrong(f"synthetic_acceptance_rates must be non-increasing, got {rates}")
        return conditional(rates), "synthetic", True
    assert length is not None
    if not 1 <= length <= k + 1:
        raise _wrong(f"synthetic_acceptance_length must be in [1, {k + 1}], got {length}")
    # As vLLM spreads a length: certain, then one fraction, then none.
    return conditional([min(1.0, max(0.0, length - 1 - position)) for position in range(k)]), "synthetic", True


def conditional(rates: Sequence[float]) -> tuple[float, ...]:
    """From the probability that the first i are all accepted, that of each given those before it."""
    return tuple(rate / before if before > 0 else 0.0 for before, rate in zip([1.0, *rates], rates, strict=False))


# The table.


class Row(Struct, frozen=True, forbid_unknown_fields=True):
    method: str
    lengths: dict[int, float]
    source: str
    models: tuple[str, ...] = ()


@cache
def rows() -> tuple[Row, ...]:
    text = shipped_text("acceptance.toml")
    return msgspec.convert(tomllib.loads(text)["rows"], tuple[Row, ...], strict=False)


def table_acceptance(method: str, model: str, k: int) -> tuple[tuple[float, ...], str]:
    """Conditional acceptance at each of `k` positions for a model of that name, and where it comes from."""
    of_method = [row for row in rows() if row.method == method]
    row = next((row for row in of_method if any(part in model.lower() for part in row.models)), None)
    row = row or next(row for row in of_method if not row.models)
    return positions(row.lengths, k), row.source


def positions(lengths: Mapping[int, float], k: int) -> tuple[float, ...]:
    """Conditional acceptance at `k` positions that gives the mean lengths at the measured numbers of drafts.

    Positions between two measured numbers share one probability; those past the last continue with it.
    """
    result: list[float] = []
    alive, total = 1.0, 1.0
    for drafts, length in sorted(lengths.items()):
        span = drafts - len(result)
        probability = _share((length - total) / alive, span)
        result += [probability] * span
        alive *= probability**span
        total = length
    result += result[-1:] * max(0, k - len(result))
    return tuple(result[:k])


def _share(gain: float, span: int) -> float:
    """The p with p + p^2 + ... + p^span = gain, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if sum(middle**power for power in range(1, span + 1)) < gain:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _wrong(text: str) -> UsageError:
    return UsageError(f"--speculative-config: {text}.")
