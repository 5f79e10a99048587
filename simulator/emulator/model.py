"""What the emulator knows of a model: its layers by kind, what they hold for a sequence, and what a step must read.

A row of `models.toml` and a folder's config.json both become this one struct.
"""

from typing import Literal

import msgspec
from msgspec import Struct

from windtunnel.simulator.emulator import quantization
from windtunnel.simulator.emulator.quantization import EXPERTS_ONLY, ONLINE, QUANTISED, UNMODELLED
from windtunnel.traces.errors import UsageError

STATE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
"""Formats that a recurrent state is kept in."""


class Recurrent(Struct, frozen=True, forbid_unknown_fields=True):
    """Layers that keep a state of fixed size instead of a KV cache: Mamba 2, gated delta net."""

    layers: int
    channels: int
    """Of the convolution in front."""
    kernel: int
    values: int
    """In one layer's recurrent state: heads x head size x state size."""
    dtype: str = "float32"
    """Of that state, where no flag says otherwise."""
    kind: Literal["mamba", "delta"] = "mamba"
    """Mamba 2, or the gated delta rule."""

    def layer_bytes(self, ssm_dtype: str = "auto", drafts: int = 0, conv_dtype: str = "auto") -> int:
        """One layer's state for one sequence, bytes; the convolution's part grows with draft tokens."""
        width = STATE_BYTES[self.dtype if ssm_dtype == "auto" else ssm_dtype]
        column = self.channels * STATE_BYTES["bfloat16" if conv_dtype == "auto" else conv_dtype]
        return column * (self.kernel - 1 + drafts) + self.values * width

    def sequence_bytes(self, ssm_dtype: str = "auto", drafts: int = 0, conv_dtype: str = "auto") -> int:
        return self.layers * self.layer_bytes(ssm_dtype, drafts, conv_dtype)


class Mtp(Struct, frozen=True, forbid_unknown_fields=True):
    """Multi-token-prediction layers that come with the model; input embedding and output head are the model's own."""

    layers: int
    parameters: float
    """1e9, of all its layers."""
    active: float
    """1e9, used for one token."""
    attention_layers: int = 1
    bits: float = 16


class Product(Struct, frozen=True):
    """Weights that are multiplied for each token, of one format."""

    active: float
    """1e9."""
    weight_bits: float = 16
    compute_bits: float = 16
    """Format that activations come in."""
    mixture: bool = False
    """Of routed experts, which have kernels of their own."""


def products(
    dense: float, routed: float, *, weight_bits: float, expert_bits: float, compute_bits: float
) -> tuple[Product, ...]:
    """Of 1e9 weights outside of the experts and in them.

    Activations are no narrower than the weights that they meet: FP8 layers around NVFP4 experts are computed in FP8.
    """
    parts = (
        Product(dense, weight_bits, max(compute_bits, _computed(weight_bits))),
        Product(routed, expert_bits, max(compute_bits, _computed(expert_bits)), mixture=True),
    )
    return tuple(part for part in parts if part.active > 0)


def _computed(bits: float) -> float:
    """The format that weights of so many bits, with their scales, are at best computed in."""
    return 4 if bits < 5 else 8 if bits <= 9 else 16


class Model(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    layers: int
    hidden: int
    heads: int
    head_dim: int
    """Width of a head; with latent attention the mean of query and value width."""
    kv_heads: int
    full_layers: int
    """Attention layers that see the whole context."""
    parameters: float
    """1e9, all of them but the MTP layers'."""
    active: float
    """1e9, multiplied for one token: all but the input embedding and the experts it does not use."""
    vocabulary: int
    max_model_len: int
    source: str
    latent: int = 0
    """Values that latent attention (MLA) keeps for a token in each layer; 0 without."""
    tied: bool = False
    """Input embedding and output head are one matrix."""
    expert_parameters: float = 0.0
    """1e9, in routed experts; shared ones count as dense."""
    experts: int = 0
    experts_active: int = 0
    weight_bits: float = 16
    """Of dense layers; embedding and output head are 16 bit."""
    expert_bits: float = 16
    compute_bits: float = 16
    """Format of the products where weights are as narrow; beside 16-bit activations they are computed in 16 bit."""
    kv_dtype: str = "auto"
    """What `--kv-cache-dtype auto` means for this checkpoint."""
    checkpoint: str = ""
    """vLLM's name for the format that the published weights are in; empty for 16 bit."""
    window: int = 0
    """Sliding window, tokens; 0 without windowed layers."""
    window_layers: int = 0
    recurrent: Recurrent | None = None
    mtp: Mtp | None = None

    @property
    def token_bytes(self) -> int:
        """KV cache of one attention layer for one token at 16 bit, bytes."""
        return 2 * (self.latent or 2 * self.kv_heads * self.head_dim)

    @property
    def kv_bytes(self) -> int:
        """KV cache bytes per token at 16 bit, full-attention layers."""
        return self.full_layers * self.token_bytes

    @property
    def window_kv_bytes(self) -> int:
        """KV cache bytes per token at 16 bit of the sliding-window layers."""
        return self.window_layers * self.token_bytes

    @property
    def embedding_bytes(self) -> float:
        """The input embedding, of which a step reads a row per token only."""
        return self.vocabulary * self.hidden * 2.0

    @property
    def head_bytes(self) -> float:
        """The output head, read once a step."""
        return self.embedding_bytes

    @property
    def dense_bytes(self) -> float:
        """Everything outside the routed experts, embedding and output head included."""
        tables = self.embedding_bytes * (1 if self.tied else 2)
        inner = (self.parameters - self.expert_parameters) * 1e9 - tables / 2
        return inner * self.weight_bits / 8 + tables

    @property
    def expert_bytes(self) -> float:
        return self.expert_parameters * 1e9 * self.expert_bits / 8

    @property
    def read_bytes(self) -> float:
        """What every step reads: dense layers and output head, not the input embedding."""
        return self.dense_bytes - (0 if self.tied else self.embedding_bytes)

    @property
    def products(self) -> tuple[Product, ...]:
        """What is multiplied for each token, by format."""
        routed = self.expert_parameters * self.experts_active / self.experts if self.experts else 0.0
        return products(
            self.active - routed,
            routed,
            weight_bits=self.weight_bits,
            expert_bits=self.expert_bits,
            compute_bits=self.compute_bits,
        )

    @property
    def reductions(self) -> int:
        """Parts of layers whose results are summed over the GPUs that share them: each mixer, each feed-forward part.

        Layers that are not all mixers have one part each (Nemotron-H: attention, Mamba or experts), others have both.
        """
        mixers = self.full_layers + self.window_layers + (self.recurrent.layers if self.recurrent else 0)
        return self.layers if mixers < self.layers else 2 * self.layers

    def kv_share(self, kv_dtype: str) -> float:
        """Bytes of a cached value over those at 16 bit."""
        dtype = self.kv_dtype if kv_dtype == "auto" else kv_dtype
        return 0.5 if dtype.startswith("fp8") else 1.0

    def kv_shards(self, tensor_parallel: int) -> int:
        """GPUs that one token's KV is divided over: a latent is kept whole by each, a KV head is not cut."""
        return 1 if self.latent else min(tensor_parallel, self.kv_heads)

    def quantised(self, method: str | None) -> "Model":
        """The same model with its weights in what `--quantization` names; UsageError where vLLM refuses that."""
        if method is None:
            return self
        if method not in QUANTISED and not (self.checkpoint and method in UNMODELLED):
            raise UsageError(f"--quantization {method} is not modelled: use one of {', '.join(QUANTISED)}.")
        if not quantization.converts(self.checkpoint, method, experts=self.experts > 0):
            return self
        bits, compute = QUANTISED[method]
        partly = method in EXPERTS_ONLY
        if partly and not self.experts:
            return self
        mtp = self.mtp and msgspec.structs.replace(self.mtp, bits=self.mtp.bits if partly else min(bits, self.mtp.bits))
        return msgspec.structs.replace(
            self,
            mtp=mtp,
            weight_bits=self.weight_bits if partly else min(bits, self.weight_bits),
            expert_bits=min(bits, self.expert_bits),
            compute_bits=min(compute, self.compute_bits),
        )

    def keeps_from(self, method: str | None) -> bool:
        """Whether `--quantization` names another format than this checkpoint's and changes nothing, as in vLLM."""
        return quantization.idle(self.checkpoint, method, experts=self.experts > 0)

    def held_in(self, method: str | None) -> str | None:
        """What vLLM calls the format of the weights under `--quantization`; None for 16 bit."""
        own = quantization.told(self.checkpoint)
        if method is None or not quantization.converts(self.checkpoint, method, experts=self.experts > 0):
            return own
        return method

    def other_checkpoint(self, method: str | None) -> bool:
        """Whether `--quantization` names a format that this checkpoint is not in and that vLLM does not make of it."""
        return method is not None and method not in ONLINE and self.quantised(method) != self
