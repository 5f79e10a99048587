"""What other programs call a GPU, a model and a precision, in the words of the emulator's own command line."""

import re

from windtunnel.simulator.emulator import facts
from windtunnel.traces.errors import UsageError

_PRECISIONS = {
    **dict.fromkeys(("bf16", "bfloat16", "fp16", "float16", "half", "w16a16", "auto", "none", ""), None),
    **dict.fromkeys(
        ("fp8", "fp8_block", "fp8_static", "fp8_e4m3", "w8a8", "w8a8_fp8", "modelopt", "fbgemm_fp8"), "fp8"
    ),
    **dict.fromkeys(("fp4", "nvfp4", "modelopt_fp4", "w4a4", "w4a4_nvfp4"), "nvfp4"),
    **dict.fromkeys(("mxfp4", "w4a16_mxfp4", "w4a8_mxfp4_mxfp8"), "mxfp4"),
    **dict.fromkeys(("int4", "int4_wo", "w4a16", "awq", "gptq", "w4afp8"), "awq"),
}
"""As published tables and checkpoints write it: what `--quantization` takes, None for 16-bit weights."""
_SUFFIXES = {"fp8": "fp8", "nvfp4": "nvfp4", "fp4": "nvfp4", "awq": "awq", "gptq": "awq", "int4": "awq", "w4a16": "awq"}
_PLAIN = ("instruct", "chat", "hf", "bf16", "it", "base", "dynamic", "thinking", "2507")
_SAME_SHAPE = (
    (r"^(meta|nvidia)-", ""),
    (r"^llama-3\.3-70b", "llama-3.1-70b"),
    (r"^deepseek-(r1|v3)(-\d+)?(?=-|$)", "deepseek-v3.1"),
    (r"^minimax-m2(\.\d)?(?=-|$)", "minimax-m2.5"),
)
"""Models that differ from one of the table in their weights only, and prefixes of publishers."""


def gpu_key(name: str) -> str | None:
    """The key of the GPU in the table that a driver, a vendor or a benchmark calls `name`."""
    words = _words(name)
    found = [key for key in facts.gpus() if _contains(words, _words(key))]
    return max(found, key=len, default=None)


def model_key(name: str) -> tuple[str | None, str | None]:
    """The key of a model in the table, and the quantization that its name speaks of."""
    tail = name.strip().rstrip("/").split("/")[-1].lower().replace("_", "-")
    for pattern, key in _SAME_SHAPE:
        tail = re.sub(pattern, key, tail)
    quantization = None
    while True:
        for key in (name, tail):
            if (found := _known(key)) is not None:
                return found, quantization
        stem, _, suffix = tail.rpartition("-")
        if suffix in _SUFFIXES:
            quantization = quantization or _SUFFIXES[suffix]
        elif suffix not in _PLAIN:
            # An instruct model's table entry may lack what the base model's name lacks, or have it.
            longer = [key for key in facts.models() if re.fullmatch(re.escape(tail) + r"-(instruct|\d{4})", key)]
            return (longer[0] if longer else None), quantization
        tail = stem


def quantization_of(precision: str) -> str | None:
    """What `--quantization` takes for a precision; UsageError for one that is not modelled."""
    key = precision.strip().lower().replace("-", "_")
    if key not in _PRECISIONS:
        raise UsageError(f"precision {precision} is not modelled: known are {', '.join(filter(None, _PRECISIONS))}.")
    return _PRECISIONS[key]


def _known(name: str) -> str | None:
    for key, model in facts.models().items():
        names = {key, model.name.lower(), model.name.split("/")[-1].lower().removeprefix("nvidia-")}
        names |= {re.sub(r"-(instruct|bf16|\d{4})$", "", one) for one in names}
        if name.lower().replace("_", "-") in names:
            return key
    return None


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z]+\d*[a-z]*|\d+", name.lower())


def _contains(words: list[str], part: list[str]) -> bool:
    return any(words[at : at + len(part)] == part for at in range(len(words) - len(part) + 1))
