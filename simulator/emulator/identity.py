"""Which GPU and which model a measured run is of: what it says itself, and what a command line adds where it does not.

A GPU may be a key of the table or a file, a model a key or a folder with a config.json, as on the emulator's own
command line. What contradicts the run is refused: its times would be taken for another GPU's.
"""

from pathlib import Path

from windtunnel.simulator.emulator import facts
from windtunnel.simulator.emulator.model import Model
from windtunnel.simulator.emulator.names import gpu_key, model_key
from windtunnel.traces.errors import UsageError


def gpu_of(where: str, said: str, given: str | None, *, emulated: bool = False) -> str:
    """What `--gpu` takes for a run that says `said` ("" for nothing); `given` is the command line's.

    An emulator says the name in its table or in its GPU's file, so that no other spelling means the same.
    """
    if given is None:
        if not said:
            raise UsageError(f"{where} does not say of which GPU it is: name it with --gpu.")
        rows = facts.gpus()
        found = next((key for key in rows if rows[key].name == said), None) if emulated else gpu_key(said)
        if found is None:
            raise UsageError(
                f"{where}: GPU {said} is not in the table of GPUs: give a file that describes it with --gpu."
            )
        return found
    if given.endswith((".toml", ".json")):
        name = facts.gpu(given).name
        meant, known = gpu_key(name), gpu_key(said)
        unknown = known is None and not emulated
        if said and not unknown and name != said and (meant is None or meant != known):
            raise UsageError(
                f"{where} is of {said}, and {given} describes {name}: give a file of the run's GPU, with its name."
            )
        return given
    key = gpu_key(given)
    if key is None:
        key = facts.gpu(given).name
    if said and gpu_key(said) != key:
        other = "leave --gpu out" if gpu_key(said) else f"describe {said} in a file and give that with --gpu"
        raise UsageError(f"{where} is of {said}, which is not the GPU of --gpu {given}: {other}.")
    return key


def gpu_named(gpu: str) -> str:
    """What a profile calls it: the table's key, or the name in its file."""
    return gpu if gpu in facts.gpus() else facts.gpu(gpu).name


def model_of(where: str, said: tuple[str, ...], given: str | None, *, emulated: bool = False) -> tuple[str, str | None]:
    """What `--model` takes, and the quantization that its name speaks of. `said`: the run's names for it, best first.

    A name that is not in the table may be any (`--served-model-name`), unless an emulator says it.
    """
    names = [name for name in said if name]
    rows = facts.models()
    own = next((name for name in names if model_key(name)[0] is not None), names[0] if names else "")
    known, quantization = model_key(own)
    if given is None:
        if not own:
            raise UsageError(f"{where} does not say of which model it is: name it with --model.")
        if known is None or (emulated and own not in [row.name for row in rows.values()]):
            raise UsageError(f"{where}: model {own} is not in the table of models: give its folder with --model.")
        return known, quantization
    if Path(given).is_dir():
        model = facts.model(given)
        name = model.name
        same = name == own or (known is not None and _same_shape(model, rows[known]))
        if own and not same and (emulated or known is not None):
            raise UsageError(f"{where} is of {own}, and {given} holds {name}: give the folder of the run's model.")
        return given, None
    key, asked = model_key(given)
    if key is None:
        key = facts.model(given).name
    if own and key != known and (emulated or known is not None):
        other = "leave --model out" if known else f"give the folder of {own} with --model"
        raise UsageError(f"{where} is of {own}, which is not the model of --model {given}: {other}.")
    if None not in (asked, quantization) and asked != quantization:
        raise UsageError(f"{where} is of {own}, quantised otherwise than --model {given}: leave --model out.")
    return key, asked or quantization


def _same_shape(one: Model, other: Model) -> bool:
    return (one.layers, one.hidden, one.experts) == (other.layers, other.hidden, other.experts)
