"""What a result rests on beside measurements: every figure in use that is assumed, with its value and source."""

from windtunnel.simulator.emulator.constants import figures
from windtunnel.simulator.emulator.facts import UNVERIFIED
from windtunnel.simulator.emulator.flags import Settings
from windtunnel.simulator.emulator.speculation import Speculation


def assumptions(settings: Settings) -> list[tuple[str, float, str]]:
    """(name, value, source) of each assumed figure that the step times under these settings depend on.

    Values are those in use, a profile's where there is one; draft acceptance stands as mean tokens a step.
    """
    used = _in_use(settings)
    values, scaled = settings.figures, settings.profile.figures if settings.profile else {}
    rows = [
        (name, getattr(values, name), figure.source + ("; scaled by the profile" if name in scaled else ""))
        for name, figure in figures().items()
        if figure.assumed and figure.when in used
    ]
    speculation = settings.speculation
    if speculation is not None and UNVERIFIED in speculation.source:
        rows.append(("acceptance_length", speculation.length, speculation.source))
    return rows


def _in_use(settings: Settings) -> set[str]:
    """The values of `when` in constants.toml that hold."""
    mode, model, speculation = settings.mode, settings.model, settings.speculation
    draft = speculation.draft if speculation else None
    recurrent = model.recurrent is not None
    graphs = mode.graphs
    by_bus = mode.tensor_parallel > 1 and not settings.gpu.nvlink
    offloads = settings.limits.offload_blocks > 0
    uses_host = (offloads and not settings.gpu.shared) or by_bus
    held = {
        "always": True,
        "memory": True,
        "experts": model.experts > 0,
        "unpacked": "unpacked" in settings.unpacked,
        "unpacked_dense": "unpacked_dense" in settings.unpacked,
        "eager": mode.eager or graphs is None or graphs.mode in ("NONE", "FULL_DECODE_ONLY"),
        "piecewise": graphs is not None and graphs.mode in ("PIECEWISE", "FULL_AND_PIECEWISE"),
        "threads": mode.threads > 1,
        "nvlink": mode.tensor_parallel > 1 and settings.gpu.nvlink,
        "no_nvlink": by_bus,
        "drafting": draft is not None and draft.passes > 0,
        "eagle": speculation is not None and _guessed(speculation),
        "eagle3": speculation is not None and speculation.method == "eagle3",
        "lookup": draft is not None and draft.lookup,
        "triton": recurrent and mode.mamba_backend == "triton",
        "flashinfer": recurrent and mode.mamba_backend == "flashinfer",
        "rounding": recurrent and mode.stochastic_rounding,
        "shared": offloads and settings.gpu.shared,
        "pcie_4": uses_host and settings.gpu.pcie <= 4,
        "pcie_5": uses_host and settings.gpu.pcie > 4,
    }
    return {name for name, holds in held.items() if holds}


def _guessed(speculation: Speculation) -> bool:
    """Whether the size of an EAGLE layer is."""
    return speculation.method in ("eagle", "eagle3") and speculation.draft.sized.startswith("assumed")
