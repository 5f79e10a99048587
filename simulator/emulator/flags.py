"""vLLM's own command line for all that is modelled, so that an experiment moves between the two by changing one word.

A flag of `vllm serve` that is not modelled is accepted and named in one warning; anything else is an error.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from windtunnel.simulator.emulator import facts, flag_rules, memory
from windtunnel.simulator.emulator.constants import Constants, constants, replaced
from windtunnel.simulator.emulator.facts import GIB, Gpu
from windtunnel.simulator.emulator.flag_parser import AUTO, parser
from windtunnel.simulator.emulator.flag_words import sort
from windtunnel.simulator.emulator.graphs import Graphs, capture
from windtunnel.simulator.emulator.mode import Mode
from windtunnel.simulator.emulator.model import Model
from windtunnel.simulator.emulator.pool import Pool, layout_of, pool_of
from windtunnel.simulator.emulator.profile import Profile, load
from windtunnel.simulator.emulator.reached import Reached
from windtunnel.simulator.emulator.speculation import Speculation, speculation
from windtunnel.simulator.emulator.step import Limits
from windtunnel.simulator.results.emulation import NARROW_CACHE
from windtunnel.traces.errors import UsageError
from windtunnel.traces.outlet import readable, shown

VLLM_VERSION = "0.32.0"
"""The vLLM whose rules are emulated."""
WIDE_EXPERTS = "reading of experts (assumed: the peak; fitted to narrower ones)"
_DEFAULT_BLOCK = 16
_MOST_BLOCKS = 20_000_000
"""Each is a number in the pool's lists: more than a real model has, and the host's memory ends some way above."""


class Settings(Struct, frozen=True):
    """The resolved command line."""

    gpu: Gpu
    model: Model
    served: tuple[str, ...]
    """Names that requests may use."""
    limits: Limits
    pool: Pool
    """Groups of layers in the KV cache, bytes of a block, how many requests of the full length fit."""
    mode: Mode
    """What the time of a step depends on beside GPU and model."""
    utilization: float
    quantization: str | None
    other_checkpoint: bool
    """`--quantization` takes another checkpoint than the model's own."""
    seed: int
    host: str
    port: int
    prompt_details: bool
    call_metrics: bool
    """Queue and first token of each request, beside its usage."""
    auto_tools: bool
    load_tracking: bool
    exit_with_parent: bool
    ignored: tuple[str, ...]
    """Real vLLM flags that were given and are not modelled, most with their values."""
    idle: tuple[str, ...] = ()
    """Flags that change nothing for this checkpoint, in vLLM neither."""
    tokenizer: str | None = None
    """Folder with a tokenizer and its chat template; None for the built-in ones."""
    tool_calls: float = 0.0
    """Share of the answers that call a tool where a client offers a harmless one."""
    profile: Profile | None = None
    """Constants fitted to measurements, in place of the GPU's row."""

    @property
    def kv_dtype(self) -> str:
        return self.mode.kv_dtype

    @property
    def tensor_parallel(self) -> int:
        return self.mode.tensor_parallel

    @property
    def eager(self) -> bool:
        return self.mode.eager

    @property
    def asynchronous(self) -> bool:
        return self.mode.asynchronous

    @property
    def speculation(self) -> Speculation | None:
        return self.mode.speculation

    @property
    def reached(self) -> Reached:
        return self.profile.reached if self.profile else self.gpu.reached

    def front_ns(self, prompt_tokens: int) -> int:
        """How many ns a request is on its way to the scheduler and its first token on its way back.

        Both before the first: whoever waits for a token cannot tell. Measured runs are held against the same time.
        """
        return round(self.reached.outside_s(prompt_tokens) * 1e9)

    @property
    def figures(self) -> Constants:
        return replaced(self.profile.figures) if self.profile else constants()

    @property
    def kv_tokens(self) -> int:
        """As vLLM prints it."""
        return self.pool.tokens

    @property
    def mamba_mode(self) -> str:
        """none, or align: recurrent states at ends of blocks are kept for prefixes."""
        return next((group.mamba_mode for group in self.pool.groups if group.kind == "mamba"), "none")

    @property
    def unverified(self) -> tuple[str, ...]:
        """Figures without a source that the step times rest on, or with one that is hard to believe."""
        rows = {"gpu": self.gpu.source, "model": self.model.source, "calibration": self.reached.fit}
        if self.speculation is not None:
            rows |= {"acceptance": self.speculation.source, "draft": self.speculation.draft.sized}
        narrow = self.model.kv_share(self.mode.kv_dtype) < 1
        said = {
            NARROW_CACHE: narrow and self.reached.narrow_is_slower,
            f"the exchange between GPUs (assumed: {'NVLink' if self.gpu.nvlink else 'PCIe'})": self.joined_by_guess,
            f"a checkpoint in {self.quantization}, which this model's own is not": self.other_checkpoint,
            "products of unpacked weights (assumed)": self._unpacks_by_guess,
            WIDE_EXPERTS: self.reached.held_to_peak(self.model.expert_bits) and self.model.experts > 0,
        }
        return (*(name for name, source in rows.items() if _doubtful(source)), *(text for text in said if said[text]))

    @property
    def unpacked(self) -> set[str]:
        """The figures in constants.toml for weights that are unpacked for each product."""
        parts = self.gpu.unpacked(self.model.products)
        return {"unpacked" if part.mixture else "unpacked_dense" for part in parts}

    @property
    def _unpacks_by_guess(self) -> bool:
        fitted = self.profile.figures if self.profile else {}
        return "unpacked_dense" in self.unpacked - set(fitted)

    @property
    def can_offload(self) -> bool:
        """Whether --kv-offloading-size is modelled for this model, and the host has memory of its own."""
        return not self.pool.groups and not self.gpu.shared

    @property
    def joined_by_guess(self) -> bool:
        """There are several GPUs, and no profile says how fast they exchange."""
        fitted = self.profile.figures if self.profile else {}
        names = ("exchange_us", "exchange_gb_s") if self.gpu.nvlink else ("pcie_exchange_us", "pcie_exchange_share")
        return self.mode.tensor_parallel > 1 and not all(name in fitted for name in names)


def parse(argv: Sequence[str], environ: Mapping[str, str] | None = None) -> Settings:
    """Settings from a command line; UsageError for a wrong one, EngineError for one that cannot be served.

    Of the environment only OMP_NUM_THREADS counts; None is an empty one.
    """
    for word in argv:
        if readable(word) != word:
            raise UsageError(f"{shown(readable(word))}: it holds bytes that are no UTF-8, mend them.")
    p = parser()
    words = sort(argv, p.flags)
    known = p.parse_args(words.modelled)
    flag_rules.ranges(known)
    profile = load(Path(known.profile)) if known.profile else None
    gpu = _gpu(known.gpu, profile)
    name = known.model or known.model_tag or "gpt-oss-120b"
    own, model = facts.model(name), _model(known, name)
    flag_rules.parallel(known, model)
    flag_rules.state(known, gpu)
    flag_rules.blocks(known, gpu, model)
    tokens, seqs = _batch(known, gpu, model)
    wanted = flag_rules.speculative(known)
    drafted = speculation(wanted, model, known.tensor_parallel_size) if wanted is not None else None
    mode = _mode(known, gpu, tokens, seqs, drafted, environ or {})
    pool = _pool(known, gpu, model, mode, tokens, seqs, words.ignored)
    flag_rules.batch(known, tokens, seqs, pool.max_model_len)
    return Settings(
        gpu=gpu,
        model=model,
        served=tuple(known.served_model_name or (name,)),
        limits=_limits(known, gpu, model, pool, tokens, seqs, drafted, profile),
        pool=pool,
        mode=mode,
        utilization=known.gpu_memory_utilization,
        quantization=own.held_in(known.quantization),
        other_checkpoint=own.other_checkpoint(known.quantization),
        seed=known.seed,
        host=known.host,
        port=known.port,
        prompt_details=known.enable_prompt_tokens_details,
        call_metrics=known.enable_per_request_metrics,
        auto_tools=known.enable_auto_tool_choice and known.tool_call_parser is not None,
        load_tracking=known.enable_server_load_tracking,
        exit_with_parent=known.exit_with_parent,
        ignored=(*words.ignored, *flag_rules.unmodelled(known, _offloads(known, pool))),
        idle=(f"--quantization {known.quantization}",) if own.keeps_from(known.quantization) else (),
        tokenizer=known.tokenizer,
        tool_calls=known.tool_calls,
        profile=profile,
    )


def _gpu(name: str | None, profile: Profile | None) -> Gpu:
    """The one that is named, else that of the profile; a profile is good for its own GPU only."""
    gpu = profile.own_gpu if profile and not name else facts.gpu(name or "B200")
    if profile is not None and profile.gpu_name != gpu.name:
        raise UsageError(f"--profile is of {profile.gpu} and cannot be used with --gpu {name}: leave one of them out.")
    if profile is not None:
        replaced(profile.figures)
        if not gpu.nvlink and {"exchange_us", "exchange_gb_s"} & set(profile.figures):
            return replace(gpu, nvlink=True)  # whatever joins them, the profile says how fast it is
    return gpu


def _model(known: argparse.Namespace, name: str) -> Model:
    model = facts.model(name).quantised(known.quantization)
    if not known.disable_sliding_window or not model.window:
        return model
    # Without windows, vLLM serves no further than one.
    return replace(
        model,
        full_layers=model.full_layers + model.window_layers,
        window=0,
        window_layers=0,
        max_model_len=min(model.max_model_len, model.window),
    )


def _batch(known: argparse.Namespace, gpu: Gpu, model: Model) -> tuple[int, int]:
    """max_num_batched_tokens and max_num_seqs, by vLLM's defaults for a GPU of that size."""
    tokens, seqs = memory.batch_defaults(gpu)
    seqs = known.max_num_seqs or seqs
    longest = known.max_model_len if known.max_model_len and known.max_model_len > 0 else model.max_model_len
    if known.max_num_batched_tokens:
        tokens = known.max_num_batched_tokens
    else:
        if not known.enable_chunked_prefill:
            tokens = max(tokens, longest)
        tokens = min(tokens, seqs * longest)
    return tokens, seqs if known.max_num_seqs else min(seqs, tokens)


def _mode(
    known: argparse.Namespace,
    gpu: Gpu,
    tokens: int,
    seqs: int,
    drafted: Speculation | None,
    environ: Mapping[str, str],
) -> Mode:
    return Mode(
        kv_dtype=known.kv_cache_dtype,
        tensor_parallel=known.tensor_parallel_size,
        eager=known.enforce_eager,
        asynchronous=flag_rules.asynchronous(known.async_scheduling, drafted),
        speculation=drafted,
        graphs=_graphs(known, gpu, tokens, seqs, drafted),
        threads=_threads(environ),
        mamba_backend=known.mamba_backend,
        ssm_dtype=known.mamba_ssm_cache_dtype,
        conv_dtype=known.mamba_cache_dtype,
        stochastic_rounding=known.enable_mamba_cache_stochastic_rounding,
    )


def _graphs(known: argparse.Namespace, gpu: Gpu, tokens: int, seqs: int, drafted: Speculation | None) -> Graphs:
    config = known.compilation_config
    sizes = known.cudagraph_capture_sizes or config.get("cudagraph_capture_sizes")
    return capture(
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        drafts=drafted.k if drafted else 0,
        blackwell=gpu.data_centre_blackwell,
        mode=flag_rules.graph_mode(known),
        largest=known.max_cudagraph_capture_size or config.get("max_cudagraph_capture_size"),
        sizes=map(int, sizes) if sizes else None,
    )


def _threads(environ: Mapping[str, str]) -> int:
    """One thread is left to torch by vLLM 0.32, unless OMP_NUM_THREADS was set from outside (utils/torch_utils.py)."""
    text = environ.get("OMP_NUM_THREADS", "1").split(",")[0].strip()
    return max(1, int(text)) if text.isdigit() else 1


def _pool(
    known: argparse.Namespace, gpu: Gpu, model: Model, mode: Mode, tokens: int, seqs: int, ignored: Sequence[str]
) -> Pool:
    """Blocks and the length that is served."""
    wanted = known.max_model_len
    auto = wanted == AUTO
    if wanted is not None and wanted > model.max_model_len:
        raise UsageError(
            f"User-specified max_model_len ({wanted}) is greater than the derived max_model_len "
            f"({model.max_model_len} of {model.name}): lower --max-model-len."
        )
    plan = layout_of(
        model,
        mode,
        longest=model.max_model_len if auto or wanted is None else wanted,
        block_size=known.block_size or _block_size(gpu, model),
        caching=known.enable_prefix_caching,
        hybrid=not known.disable_hybrid_kv_cache_manager,
    )
    drafted = mode.speculation

    def available(share: float) -> float:
        return memory.available_bytes(
            gpu,
            model,
            utilization=share,
            tensor_parallel=mode.tensor_parallel,
            max_num_seqs=seqs,
            max_num_batched_tokens=tokens,
            draft_bytes=drafted.draft.resident_bytes if drafted else 0.0,
        )

    wanted_bytes = known.kv_cache_memory_bytes
    blocks = known.num_gpu_blocks_override or plan.blocks(wanted_bytes or available(known.gpu_memory_utilization))
    if blocks < 2 and wanted_bytes:
        raise memory.too_few_bytes(wanted_bytes, plan.block_bytes)
    if blocks < 2:
        spread = [*ignored, *flag_rules.unspread(known)]
        raise memory.no_room(gpu, model, mode.tensor_parallel, more=plan.blocks(available(1.0)) >= 2, ignored=spread)
    if blocks > _MOST_BLOCKS:
        raise UsageError(
            f"{gpu.name} with {model.name} has room for {blocks:,} blocks of KV cache, and at most {_MOST_BLOCKS:,} "
            "are emulated: give --num-gpu-blocks-override with fewer."
        )
    if known.kv_offloading_size:
        share = None if known.num_gpu_blocks_override or wanted_bytes else known.gpu_memory_utilization
        taken = (
            share * gpu.memory_gib * GIB if share else gpu.memory_gib * GIB - available(1) + blocks * plan.block_bytes
        )
        memory.check_host(gpu, known.kv_offloading_size * GIB / mode.tensor_parallel, taken, share)
    return pool_of(
        plan,
        blocks,
        wanted=wanted,
        longest=model.max_model_len,
        in_flight=tokens * (2 if mode.asynchronous else 1),
        auto=auto,
    )


def _block_size(gpu: Gpu, model: Model) -> int:
    """The smallest that the attention kernels take; those for latent attention on data-centre Blackwell want 32."""
    return 32 if model.latent and gpu.data_centre_blackwell else _DEFAULT_BLOCK


def _limits(
    known: argparse.Namespace,
    gpu: Gpu,
    model: Model,
    pool: Pool,
    tokens: int,
    seqs: int,
    drafted: Speculation | None,
    profile: Profile | None,
) -> Limits:
    figures = replaced(profile.figures) if profile else constants()
    host = (known.kv_offloading_size or 0.0) * GIB if _offloads(known, pool) else 0.0
    return Limits(
        num_gpu_blocks=pool.blocks,
        block_size=pool.layout.block_size,
        max_model_len=pool.max_model_len,
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        long_prefill_token_threshold=known.long_prefill_token_threshold,
        enable_prefix_caching=known.enable_prefix_caching,
        scheduler_reserve_full_isl=known.scheduler_reserve_full_isl,
        watermark=known.watermark,
        priority=known.scheduling_policy == "priority",
        window=model.window,
        speculative_tokens=drafted.k if drafted else 0,
        lookahead=drafted.lookahead if drafted else 0,
        drops_last_block=drafted.drops_last_block if drafted else False,
        draft_slots=1 if drafted is not None and drafted.method == "draft_model" else 0,
        groups=pool.groups,
        prefix_cache_retention_interval=known.prefix_cache_retention_interval,
        offload_blocks=int(host // (pool.layout.block_bytes * known.tensor_parallel_size)),
        offload_block_s=pool.layout.block_bytes / (memory.host_gb_s(gpu, figures) * 1e9),
    )


def _offloads(known: argparse.Namespace, pool: Pool) -> bool:
    """Whether the offload that is asked for is modelled: vLLM's own, for layers that share one table of blocks."""
    return known.kv_offloading_backend == "native" and not pool.groups


def _doubtful(source: str) -> bool:
    return facts.UNVERIFIED in source or source.startswith("assumed")
