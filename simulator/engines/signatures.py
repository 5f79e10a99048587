"""Why an engine did not start, read from its log: known failures with advice, else its last error line."""

import re

SIGNATURES: tuple[tuple[str, str], ...] = (
    (r"unrecognized arguments?: (.+?)(?=; see |\n|$)", "the engine does not know the flag {0}; correct the command"),
    (
        r"(?:error|engine): argument ([^:]+): (.+?)(?=; see |\n|$)",
        "the engine refuses the flag {0} ({1}); correct the command",
    ),
    (
        r"(?:error: invalid argument: |No such option:? '?)(--?[\w-]+)",  # llama-server, trtllm-serve
        "the engine does not know the flag {0}; correct the command",
    ),
    (r"error: the following arguments are required: (.+)", "the engine's command lacks {0}"),
    (
        r"(?:Errno 98\b|address already in use|couldn't bind HTTP server socket)",
        "the engine's port is taken by another process; start again, or stop that process",
    ),
    (
        r"Free memory on device (\S+).*?(?:is less than|Desired GPU memory utilization)",
        "another process holds memory of the GPU ({0}); stop it, or lower --gpu-memory-utilization",
    ),
    (
        r"serve at least one request with the model's max seq len \((\d+)\).*?estimated maximum model length is (\d+)",
        "the KV cache is too small for a context of {0} tokens; start with --max-model-len {1} or give it more memory",
    ),
    (
        r"To serve at least one request with the model's max seq len \((\d+)\)",
        "the KV cache is too small for a context of {0} tokens; lower --max-model-len or give it more memory",
    ),
    (
        r"No available memory for the cache blocks: (.+?)\.?(?=\n|$)",  # the emulator knows what would help
        "no memory is left for the KV cache: {0}",
    ),
    (
        r"No available memory for the cache blocks",
        "no memory is left for the KV cache; raise --gpu-memory-utilization or take a smaller model",
    ),
    (
        r"try to increase --mem-fraction-static\.? Current value: mem_fraction_static=([\d.]+)",
        "no memory is left for the KV cache; raise --mem-fraction-static (it is {0}) or take a smaller model",
    ),
    (
        r"try to increase --mem-fraction-static",
        "no memory is left for the KV cache; raise --mem-fraction-static or take a smaller model",
    ),
    (
        r"failed to load model, '([^']+)'",
        "the model {0} could not be loaded; check its path and that it is a GGUF file",
    ),
    (
        r"(?:CUDA out of memory|OutOfMemoryError)",
        "the GPU ran out of memory; lower --gpu-memory-utilization or the batch",
    ),
    (
        r"User-specified max_model_len \((\d+)\) is greater than the derived max_model_len \((.+?)\)",
        "--max-model-len {0} is more than the model can ({1})",
    ),
    (
        r"(\S+) is not a local folder and is not a valid model identifier",
        "the model {0} was found neither here nor on the hub",
    ),
    (
        r"(?:Repository Not Found|RepositoryNotFoundError).*?(https?://\S+)?",
        "the model was not found on the hub; check its name",
    ),
    (
        r"Can't load the configuration of '([^']+)'",
        "the model {0} has no readable config.json; check its name or folder",
    ),
    (
        r"Invalid repository ID or local directory specified: '([^']+)'",
        "there is no model {0}, neither here nor on the hub",
    ),
    (r"Repo id must be in the form .*?: '([^']+)'", "there is no model {0}, neither here nor on the hub"),
    (
        r"Available memory on (node \d+) \(([^)]+)\).*?less than requested memory for kv \(([^)]+)\)",
        "the KV cache of {2} does not fit into the memory of {0} ({1} free); ask for less",
    ),
    (r"No common block size for (\S+) \(([^)]*)\)", "the block size {0} does not suit the attention backend ({1})"),
    (
        r"No module named '?([\w.]+)'?",
        "the engine's Python lacks the module {0}; start it from the environment it is installed in",
    ),
    (r"Failed to infer device type", "the engine found no device that it can run on"),
)
WRAPPERS = ("Engine core initialization failed", "Engine core proc", "WorkerProc initialization failed")
"""Lines that only say that something failed above."""
PREFIX = re.compile(r"^(?:\([^()]*pid=\d+\) )?(?:(?:ERROR|WARNING|INFO|CRITICAL) [\d: -]+\[[^\]]*\] )?")
EXCEPTION = re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt|Exit)\b: ?(.+)")
LOUD = re.compile(r"\b(?:error|fatal|cannot|can't|failed)\b", re.IGNORECASE)
COMPILING = re.compile(
    r" during inference: |Starting torch\.compile|torch\.compile took|Compiling a graph|Capturing CUDA graph|"
    r"Graph capturing finished|[Aa]utotuning (?:kernel|for|of)"
)
"""Work that stops the engine and must not fall into a measured window."""
LENGTH = 240
LINE_CHARS = 2000
"""A line is looked at this far: some patterns take time with the square of a line's length."""


def reason(log: str, exit_code: int | None) -> str:
    """Why the engine failed, one clause. `log` is the end of its log."""
    text = "\n".join(PREFIX.sub("", line[:LINE_CHARS].rstrip()) for line in log.splitlines())
    for pattern, sentence in SIGNATURES:
        match = re.search(pattern, text, re.DOTALL if ".*?" in pattern else 0)
        if match:
            return sentence.format(*(_short(g or "") for g in match.groups()))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if EXCEPTION.match(line) and not any(w in line for w in WRAPPERS)]
    if not causes and any(w in text for w in WRAPPERS):
        return "its core process died without a word: killed from outside, or by the system for want of memory"
    said = causes[-1] if causes else next((line for line in reversed(lines) if LOUD.search(line)), None)
    said = said or (lines[-1] if lines else None)
    code = f"exit code {exit_code}" if exit_code is not None else "no exit code"
    return f"{code}, its last words: {_short(said)}" if said else f"{code}, nothing in its log"


def compiling(lines: list[str]) -> list[str]:
    """The lines that tell of compilation, graph capture or autotuning."""
    return [line for line in lines if COMPILING.search(line)]


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LENGTH else text[: LENGTH - 1] + "…"
