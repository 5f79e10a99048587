"""A comparison for people: plain text of 100 columns at most, or Markdown. The verdict stands beside its interval."""

import textwrap
from collections.abc import Sequence

from windtunnel.simulator.experiments.metrics import parse
from windtunnel.simulator.experiments.outcome import Comparison, Figure, Outcome, StepOutcome
from windtunnel.simulator.experiments.statistics import LEAST_BLOCKS
from windtunnel.simulator.results.emulation import announced
from windtunnel.simulator.results.text import count
from windtunnel.simulator.results.validity import in_words

WIDTH = 100
WORDS = {"better": "better", "worse": "WORSE", "no_difference": "no difference", "too_noisy": "too noisy to say"}
NO_BLOCK = "no block run yet"
TOO_FEW = "too few blocks count"
BARS = "intervals and verdicts hold between emulated runs; how far the emulator itself may be off stands in each run"
DRIFTED = "ratios are without the steady drift from run to run, so they are not quite those of the figures"
PAIRED_ONLY = "the ratio is over the calls that both completed, the figures over all"
SEEN = 5e-4
"""Relative difference from which a ratio is shown with other digits."""
NO_VERDICT = "no verdict, see its note"
NOT_COMPARABLE = "not comparable"
ALONE = "clear alone"
TOO_SMALL = "too small to matter"
MORE_BLOCKS = (
    f"{ALONE}: by its own interval there is a difference, but among so many figures one like it is found by chance too "
    "often; more blocks tell"
)
NO_FLOOR = 1.0
"""Half-width, relative, from which a noise floor says nothing but that blocks are missing."""
_LABEL = 30


def figure(metric: str, value: float | None) -> str:
    """One value with its unit; times in ms below a second."""
    if value is None:
        return "not reported"
    if parse(metric).seconds:
        return f"{value * 1000:,.1f} ms" if abs(value) < 1 else f"{value:,.2f} s"
    if metric.endswith(("ratio", "share")):
        return f"{value:.1%}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}"


def spread(metric: str, found: Figure) -> str:
    value, low, high = (figure(metric, v) for v in (found.value, found.low, found.high))
    return value if found.low is None or low == value == high else f"{value} ({low} to {high})"


def alone(found: Comparison) -> bool:
    """Whether its interval by itself leaves no doubt that there is a difference."""
    return found.low is not None and found.high is not None and (found.low > 1 or found.high < 1)


def verdict(found: Comparison) -> str:
    """In words that fit its interval, which stands for itself while the verdict is the whole table's."""
    match found.verdict:
        case "too_noisy" if found.table == 0:
            return NO_VERDICT
        case "too_noisy" if alone(found):
            return f"{ALONE}, not among all {found.table or 'figures'}"
        case "no_difference" if alone(found):
            return TOO_SMALL
    return WORDS[found.verdict]


def change(found: Comparison, *, known: bool = False) -> str:
    """`+12.0% (+9.1% to +15.0%) better`. `known`: both have the figure, though it may be of no block of both."""
    if found.ratio is None:
        return "no ratio: it was zero" if found.blocks else NOT_COMPARABLE if known else "not reported"
    word, ratio = verdict(found), f"{found.ratio - 1:+.1%}"
    if found.verdict == "too_noisy" and found.table != 0 and found.blocks < LEAST_BLOCKS:
        word = f"{TOO_FEW}: {found.blocks} of {LEAST_BLOCKS}"
    if found.low is None or found.high is None:
        return f"{ratio} {word}"
    low, high = f"{found.low - 1:+.1%}", f"{found.high - 1:+.1%}"
    return f"{ratio} {word}" if low == ratio == high else f"{ratio} ({low} to {high}) {word}"


def both(mine: Figure, theirs: Figure) -> bool:
    """Whether both figures are known."""
    return mine.value is not None and theirs.value is not None


def made_of(metric: str, found: Comparison, mine: Figure, theirs: Figure) -> str:
    """`12.06 s against 53.60 s ...`: what the ratio is made of, where it is not the two figures that are shown."""
    if found.ratio is None:
        return ""
    paired = parse(metric).statistic == "paired"
    if found.base is None or found.other is None:
        # An older version did not tell.
        return PAIRED_ONLY if paired and mine != theirs else ""
    said = [figure(metric, value) for value in (found.other, found.base)]
    if said == [figure(metric, mine.value), figure(metric, theirs.value)]:
        return ""
    return f"{' against '.join(said)} over the {'calls that both completed' if paired else 'blocks where both count'}"


def drifted(outcome: Outcome) -> bool:
    """Whether a ratio is another one than that of the figures it is made of, for drift was taken out."""
    compared = [c for step in outcome.steps for c in (*step.versus_previous.values(), *step.versus_base.values())]
    return any(abs(c.ratio * c.base / c.other - 1) > SEEN for c in compared if c.ratio and c.base and c.other)


def render(outcome: Outcome) -> str:
    """The whole comparison, ending with a line end."""
    lines = _head(outcome)
    for step in outcome.steps:
        lines += ["", *_step(step, outcome)]
    lines += ["", *_foot(outcome)]
    return "\n".join(lines) + "\n"


def _head(outcome: Outcome) -> list[str]:
    lines = [f"{outcome.name}: {count(len(outcome.steps), 'configuration')}, {blocks(outcome)}"]
    if outcome.emulated:
        for line in emulated(outcome):
            lines += _wrapped(line, indent="")
        lines += _wrapped(BARS, indent="")
    return lines


def blocks(outcome: Outcome) -> str:
    """How many were run, and how many of them count: for every configuration that ran, or for some of them."""
    run, whole, part = outcome.blocks_run, outcome.blocks_whole, outcome.blocks - outcome.blocks_whole
    if run is None:
        return count(outcome.blocks, "block")
    if not run:
        return NO_BLOCK
    if whole == run:
        return f"{count(run, 'block')}, {'it counts' if run == 1 else 'all count'}"
    said = f"{count(run, 'block')} run, " + (f"{whole} count{'s' if whole == 1 else ''}" if whole else "none counts")
    return f"{said}{' whole' if part else ''}{f', {part} in part' if part else ''}"


def emulated(outcome: Outcome) -> list[str]:
    """Whose figures they are and how far their times may be off, once for each emulated GPU and model.

    What is not modelled is a step's own and stands with it.
    """
    told = [one for step in outcome.steps if isinstance(one := step.resolved.get("emulation"), dict) and one]
    return list(dict.fromkeys(announced(one | {"ignored_flags": []}) for one in told)) or [announced(None)]


def before(step: StepOutcome, outcome: Outcome) -> StepOutcome:
    """The step it is compared with first; the base for one that names none."""
    return next((other for other in outcome.steps if other.name == step.previous), outcome.steps[0])


def _step(step: StepOutcome, outcome: Outcome) -> list[str]:
    lines = [step.name if step.previous is None else f"{step.name}  (against {step.previous})"]
    lines += [f"    {text}" for text in step.changes]
    lines += _wrapped(step.failure)
    if not step.runs:
        return lines
    for metric, found in step.metrics.items():
        lines.append(f"  {metric:<{_LABEL}}{spread(metric, found)}")
        previous, base = step.versus_previous.get(metric), step.versus_base.get(metric)
        if previous is not None:
            theirs = before(step, outcome).metrics[metric]
            of, said_ = made_of(metric, previous, found, theirs), change(previous, known=both(found, theirs))
            lines += [f"  {'':<{_LABEL}}{said}" for said in (of, said_) if said]
        if base is not None and base != previous:
            theirs = outcome.steps[0].metrics[metric]
            of, said_ = made_of(metric, base, found, theirs), change(base, known=both(found, theirs))
            lines += [f"  {'':<{_LABEL}}{said}" for said in (of, f"{said_}, against the base") if said]
    for note in step.notes:
        lines += _wrapped(f"note: {note}")
    for run in step.invalid_runs:
        lines += _wrapped(f"not counted: {not_counted(run)}")
    return lines


def _foot(outcome: Outcome) -> list[str]:
    lines = [line for said in floors(outcome) for line in _wrapped(said, indent="")]
    drifts = [f"{metric} {value:+.2%}" for metric, value in outcome.drift.items() if value is not None]
    if drifts:
        lines += _wrapped("drift from run to run: " + ", ".join(drifts), indent="")
    if drifted(outcome):
        lines += _wrapped(DRIFTED, indent="")
    if by_itself(outcome):
        lines += _wrapped(MORE_BLOCKS, indent="")
    lines.append("intervals are 95% each; verdicts hold for the whole table together")
    if outcome.experiment_dir is not None:
        lines.append(f"experiment folder    {outcome.experiment_dir}")
    return lines


def floors(outcome: Outcome) -> list[str]:
    """The noise floors of which something follows; and of which metrics nothing does."""
    known = {metric: floor.half_width for metric, floor in outcome.noise_floor.items() if floor is not None}
    told = [f"{metric} {half:.1%}" for metric, half in known.items() if half < NO_FLOOR]
    wide = [metric for metric, half in known.items() if half >= NO_FLOOR]
    lines = (
        [f"noise floor (how far the same configuration may seem from itself, +-): {', '.join(told)}"] if told else []
    )
    return lines + (
        [f"no noise floor, for it is above {NO_FLOOR:.0%} with so few blocks: {', '.join(wide)}"] if wide else []
    )


def by_itself(outcome: Outcome) -> bool:
    """Whether anything is clear alone and not in the table."""
    compared = [c for step in outcome.steps for c in (*step.versus_previous.values(), *step.versus_base.values())]
    return any(verdict(found).startswith(ALONE) for found in compared if found.ratio is not None)


def not_counted(run: str) -> str:
    """A run that does not count, with its reasons in words."""
    place, between, reasons = run.partition(": ")
    return f"{place}{between}{'; '.join(map(in_words, reasons.split(', ')))}"


def _wrapped(text: str, indent: str = "  ") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ", break_on_hyphens=False)


def markdown(outcome: Outcome) -> str:
    """The same as Markdown tables, one row a step, for a page or a pull request."""
    metrics = list(outcome.steps[0].metrics)
    lines = [f"# {outcome.name}", ""]
    if outcome.emulated:
        lines += ["**Emulated**: these are the emulator's numbers, not a measured engine's.", ""]
        lines += [line for said in emulated(outcome) for line in (said, "")]
    lines += _row(["configuration", *metrics]) + _row(["---"] * (len(metrics) + 1))
    for step in outcome.steps:
        if step.failure:
            lines += _row([step.name, step.failure, *[""] * (len(metrics) - 1)])
        if not step.runs:
            continue
        cells = [spread(metric, step.metrics[metric]) for metric in metrics]
        lines += _row([step.name, *cells])
        if step.versus_previous:
            theirs = before(step, outcome).metrics
            of = [made_of(m, step.versus_previous[m], step.metrics[m], theirs[m]) for m in metrics]
            said = [change(step.versus_previous[m], known=both(step.metrics[m], theirs[m])) for m in metrics]
            lines += _row(
                [f"against {step.previous}", *(f"{a}: {b}" if a else b for a, b in zip(of, said, strict=True))]
            )
    lines.append("")
    for step in outcome.steps:
        lines += [f"- {step.name}: {note}" for note in step.notes]
        lines += [f"- {step.name}, not counted: {not_counted(run)}" for run in step.invalid_runs]
    lines += [f"- {MORE_BLOCKS}"] if by_itself(outcome) else []
    return "\n".join(lines).rstrip() + "\n"


def _row(cells: Sequence[str]) -> list[str]:
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"]
