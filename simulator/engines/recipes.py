"""How each engine is started for a run, and what its command lacks for one: said before minutes go into a start.

Which kind of engine a command starts is seen by its words. Nothing is added to a command: what a person typed is what
is measured.
"""

import shlex
from collections.abc import Mapping, Sequence

from msgspec import Struct

from windtunnel.simulator.engines.command import flags_of
from windtunnel.simulator.engines.launch import ASSIGNMENT


class Wants(Struct, frozen=True):
    """A flag or a variable, and what is missing in a run without it."""

    word: str
    """`--flag`, or `NAME=value` for the environment."""
    lost: str


class Recipe(Struct, frozen=True, kw_only=True):
    name: str
    """`Resolved.name` of what it starts."""
    words: tuple[str, ...]
    """A command with one of these words starts it."""
    command: str
    """Template; {model} and {port} are filled in."""
    wants: tuple[Wants, ...] = ()
    never: tuple[Wants, ...] = ()
    """Words that spoil a measurement."""


RECIPES: tuple[Recipe, ...] = (
    Recipe(
        name="vllm",
        words=("vllm", "vllm.entrypoints.openai.api_server", "vllm.entrypoints.launchers"),
        command=(
            "VLLM_SERVER_DEV_MODE=1 vllm serve {model} --port {port} --enable-prompt-tokens-details "
            "--generation-config vllm"
        ),
        wants=(
            Wants("VLLM_SERVER_DEV_MODE=1", "its cache cannot be reset and its resolved settings are not told"),
            Wants("--enable-prompt-tokens-details", "cached tokens are not known call by call"),
        ),
        never=(Wants("--disable-log-stats", "it has no metrics"),),
    ),
    Recipe(
        name="sglang",
        words=("sglang", "sglang.launch_server"),
        command=(
            "python -m sglang.launch_server --model-path {model} --port {port} --enable-metrics --enable-cache-report"
        ),
        wants=(
            Wants("--enable-metrics", "it has no metrics"),
            Wants("--enable-cache-report", "cached tokens are not known call by call"),
        ),
    ),
    Recipe(
        name="tensorrt-llm",
        words=("trtllm-serve",),
        command="trtllm-serve {model} --port {port} --config wt.yaml",
    ),
    Recipe(
        name="llama.cpp",
        words=("llama-server",),
        command=(
            "llama-server -m {model} --port {port} --metrics --jinja --parallel 4 --slot-save-path /tmp --cache-ram 0"
        ),
        wants=(
            Wants("--metrics", "it has no metrics"),
            Wants("--slot-save-path", "its slots cannot be erased between runs"),
            Wants("--cache-ram", "its cache in memory cannot be emptied between runs; 0 turns it off"),
        ),
    ),
    Recipe(
        name="dynamo",
        words=("dynamo.frontend",),
        command="python -m dynamo.frontend --http-port {port} --discovery-backend file",
    ),
)


def recipe_of(words: Sequence[str]) -> Recipe | None:
    """What a command starts; None for one that is not known."""
    names = {word.rpartition("/")[2] for word in words if not word.startswith("-")}
    return next((recipe for recipe in RECIPES if names & set(recipe.words)), None)


def advice(command: str, environment: Mapping[str, str]) -> list[str]:
    """One sentence for each thing that a run will miss with this command, in an environment that it inherits."""
    words = shlex.split(command)
    at = next((i for i, word in enumerate(words) if not ASSIGNMENT.match(word)), len(words))
    own = dict(word.split("=", 1) for word in words[:at])
    recipe = recipe_of(words[at:])
    if recipe is None:
        return []
    flags = flags_of(words[at:])
    said = []
    for want in recipe.wants:
        if want.word.startswith("-"):
            there = want.word in flags
        else:
            name, _, value = want.word.partition("=")
            there = own.get(name, environment.get(name)) == value
        if not there:
            said.append(f"{recipe.name} is started without {want.word}: {want.lost}")
    said += [f"{recipe.name} is started with {want.word}: {want.lost}" for want in recipe.never if want.word in flags]
    return said
