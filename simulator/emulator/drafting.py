"""What drafting costs: how often a draft runs in a step, what each pass reads, what it keeps in memory."""

from pathlib import Path

from msgspec import Struct

from windtunnel.simulator.emulator import facts
from windtunnel.simulator.emulator.constants import constants
from windtunnel.simulator.emulator.model import Model, Product, products
from windtunnel.traces.errors import UsageError


class Draft(Struct, frozen=True):
    """One kind of draft. Passes follow each other, each for all sequences of the step."""

    passes: int = 0
    """In a step, on the GPU; 0 where drafts are looked up by the CPU."""
    dense_bytes: float = 0.0
    """Read by a pass: layers and output head."""
    expert_bytes: float = 0.0
    """Of the draft's routed experts; a pass reads those its tokens touch."""
    experts: int = 0
    experts_active: int = 0
    expert_bits: float = 16
    products: tuple[Product, ...] = ()
    """What a pass multiplies for each token."""
    kv_bytes: int = 0
    """The draft's own KV cache per token at 16 bit."""
    layers: int = 0
    """Attention layers of the draft, which share the pool with the model's."""
    resident_bytes: float = 0.0
    """GPU memory that the draft's weights take beside the model's."""
    lookup: bool = False
    sized: str = ""
    """Where the size comes from."""


def draft_of(method: str, k: int, model: Model, draft: str | None, quantization: str | None = None) -> Draft:
    """The draft of a method with `k` tokens for a model; `draft` is the model that the line names, if any."""
    if method in ("ngram", "suffix"):
        return Draft(lookup=True, sized="no weights")
    if method == "mtp":
        return _mtp(k, model)
    if method == "medusa":
        return _medusa(k, model)
    if method in ("eagle", "eagle3"):
        return _eagle(method, k, model, draft)
    assert draft is not None
    return _model(k, model, draft, quantization)


def _mtp(k: int, model: Model) -> Draft:
    mtp = model.mtp
    assert mtp is not None
    each = mtp.parameters / mtp.layers
    # What routed experts leave unread is what all parameters have beyond the active ones.
    share = model.experts_active / model.experts if model.experts else 1.0
    routed = (mtp.parameters - mtp.active) / (1 - share) / mtp.layers if share < 1 else 0.0
    return Draft(
        passes=k,
        dense_bytes=(each - routed) * 1e9 * mtp.bits / 8 + model.head_bytes,
        expert_bytes=routed * 1e9 * mtp.bits / 8,
        experts=model.experts,
        experts_active=model.experts_active,
        expert_bits=mtp.bits,
        products=products(
            mtp.active / mtp.layers - routed * share + model.head_bytes / 2e9,
            routed * share,
            weight_bits=mtp.bits,
            expert_bits=mtp.bits,
            compute_bits=model.compute_bits,
        ),
        kv_bytes=model.token_bytes * mtp.attention_layers,
        layers=mtp.attention_layers,
        resident_bytes=mtp.parameters * 1e9 * mtp.bits / 8,
        sized="the model's MTP layers",
    )


def _eagle(method: str, k: int, model: Model, draft: str | None) -> Draft:
    """From the draft's own folder where there is one, else one layer as wide as the model's."""
    layer, kv_bytes, layers = constants().eagle_layer * model.hidden**2, model.token_bytes, 1
    sized = "assumed: one layer of the model's width"
    if draft is not None and (Path(draft) / "config.json").is_file():
        own = facts.model(draft)
        layer = own.parameters * 1e9 - own.vocabulary * own.hidden * (1 if own.tied else 2)
        kv_bytes, layers, sized = own.kv_bytes, own.full_layers, own.source
    rows = constants().eagle3_vocabulary if method == "eagle3" else model.vocabulary
    head = rows * model.hidden
    return Draft(
        passes=k,
        dense_bytes=2 * (layer + head),
        products=(Product((layer + head) / 1e9),),
        kv_bytes=kv_bytes,
        layers=layers,
        # EAGLE shares the model's output head, EAGLE-3 has its own.
        resident_bytes=2 * (layer + (head if method == "eagle3" else 0)),
        sized=sized,
    )


def _medusa(k: int, model: Model) -> Draft:
    heads = k * (model.hidden**2 + model.vocabulary * model.hidden)
    return Draft(
        passes=1,
        dense_bytes=2 * heads,
        products=(Product(heads / 1e9),),
        resident_bytes=2 * heads,
        sized="assumed: one residual layer and one output head a draft token",
    )


def _model(k: int, model: Model, name: str, quantization: str | None) -> Draft:
    try:
        draft = facts.model(name).quantised(quantization)
    except UsageError as error:
        raise UsageError(f"--speculative-config: the draft model's size is not known: {error}") from None
    if draft.vocabulary != model.vocabulary:
        raise UsageError(
            "--speculative-config: Target and draft model should have the same vocabulary size. Target model "
            f"vocab_size={model.vocabulary}. Draft model vocab_size={draft.vocabulary}."
        )
    return Draft(
        passes=k,
        dense_bytes=draft.read_bytes,
        expert_bytes=draft.expert_bytes,
        experts=draft.experts,
        experts_active=draft.experts_active,
        expert_bits=draft.expert_bits,
        products=draft.products,
        kv_bytes=draft.kv_bytes,
        layers=draft.full_layers,
        resident_bytes=draft.dense_bytes + draft.expert_bytes,
        sized=draft.source,
    )
