"""Sampling values that vLLM refuses (vllm/sampling_params.py and the validators of its routes), in its words.

Those that change which words come change nothing here, but are still checked.
"""

import math

from windtunnel.simulator.emulator.ask import Ask, ChatAsk, CompletionAsk, Refusal, StreamOptions, invalid

_MOST_STOPS = 4
"""vLLM's VLLM_MAX_STOP_STRINGS."""
_SEED = 1 << 63


def check_sampling(ask: Ask, bound: int) -> None:
    """Refusal of a value out of its range, and of what is not modelled. `bound`: token ids are below."""
    if ask.seed is not None and not -_SEED <= ask.seed < _SEED:
        sense, limit = ("less", _SEED - 1) if ask.seed > 0 else ("greater", -_SEED)
        raise invalid("body.seed", f"Input should be {sense} than or equal to {limit}")
    if ask.stream_options not in (None, StreamOptions()) and not ask.stream:
        name = "stream_options"
        raise Refusal(f"Stream options can only be defined when `stream=True`. (parameter={name})", param=name)
    _logprobs(ask)
    if ask.n is not None and ask.n < 1:
        raise Refusal(f"n must be at least 1, got {ask.n}.")
    _missing(ask)
    for name, penalty in (("presence_penalty", ask.presence_penalty), ("frequency_penalty", ask.frequency_penalty)):
        if penalty is not None and not -2.0 <= penalty <= 2.0:
            raise Refusal(f"{name} must be in [-2, 2], got {penalty}.")
    if ask.repetition_penalty is not None:
        if not math.isfinite(ask.repetition_penalty):
            raise Refusal(f"repetition_penalty must be a finite number, got {ask.repetition_penalty}.")
        if ask.repetition_penalty <= 0:
            raise Refusal(f"repetition_penalty must be greater than zero, got {ask.repetition_penalty}.")
    _temperature(ask.temperature)
    if ask.top_p is not None and not 0 < ask.top_p <= 1:
        raise Refusal(f"top_p must be in (0, 1], got {ask.top_p}.")
    if ask.top_k is not None and ask.top_k != int(ask.top_k):
        raise invalid("body.top_k", "Input should be a valid integer, got a number with a fractional part")
    if ask.top_k is not None and ask.top_k < -1:
        raise Refusal(f"top_k must be 0 (disable), or at least 1, got {int(ask.top_k)}.")
    if ask.min_p is not None and not 0 <= ask.min_p <= 1:
        raise Refusal(f"min_p must be in [0, 1], got {ask.min_p}.")
    _stops(ask, bound)


def _temperature(temperature: float | None) -> None:
    if temperature is None:
        return
    wrong = None
    if not math.isfinite(temperature):
        wrong = "a finite number"
    elif temperature < 0:
        wrong = "non-negative"
    elif temperature > 2:
        wrong = "in [0, 2]"
    if wrong:
        raise Refusal(f"temperature must be {wrong}, got {temperature}.", param="temperature", value=temperature)


def _logprobs(ask: Ask) -> None:
    numbers = {"prompt_logprobs": ask.prompt_logprobs}
    if isinstance(ask, ChatAsk):
        numbers["top_logprobs"] = ask.top_logprobs
    elif ask.logprobs is not None:
        numbers["logprobs"] = ask.logprobs
    for name, number in numbers.items():
        if number is not None and number < -1:
            raise Refusal(f"`{name}` must be a positive value or -1.", param=name, value=number)
    if isinstance(ask, ChatAsk) and ask.top_logprobs and not ask.logprobs:
        raise Refusal(
            "when using `top_logprobs`, `logprobs` must be set to true. (parameter=top_logprobs)",
            param="top_logprobs",
        )


def _missing(ask: Ask) -> None:
    """What would make another answer, or another load, than the emulator's."""
    told = ask.logprobs is not None if isinstance(ask, CompletionAsk) else bool(ask.logprobs)
    given = {
        "n": ask.n not in (None, 1),
        "logprobs": told,
        "prompt_logprobs": ask.prompt_logprobs is not None,
        "echo": bool(ask.echo),
        "use_beam_search": ask.use_beam_search,
    }
    for name, wanted in given.items():
        if wanted:
            above = " above 1" if name == "n" else ""
            raise Refusal(f"The emulator does not model `{name}`{above}.", param=name)


def _stops(ask: Ask, bound: int) -> None:
    if isinstance(ask.stop, list) and len(ask.stop) > _MOST_STOPS:
        what = f"List should have at most {_MOST_STOPS} items after validation, not {len(ask.stop)}"
        raise invalid("body.stop", what)
    if ask.stop == "" or (isinstance(ask.stop, list) and "" in ask.stop):
        raise Refusal("stop cannot contain an empty string.")
    outside = [token for token in ask.stop_token_ids or () if not 0 <= token < bound]
    if outside:
        raise Refusal(
            f"token_id(s) {outside} in stop_token_ids contain out-of-vocab token ids. Vocabulary size: {bound}",
            param="stop_token_ids",
            value=outside,
        )
