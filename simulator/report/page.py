"""Self-contained HTML pages: everything is in the one file, and nothing is fetched."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

import msgspec

from windtunnel.simulator.experiments.outcome import Outcome, StepOutcome
from windtunnel.simulator.experiments.table import (
    BARS,
    DRIFTED,
    MORE_BLOCKS,
    WORDS,
    before,
    by_itself,
    change,
    drifted,
    figure,
    floors,
    made_of,
    not_counted,
    spread,
)
from windtunnel.simulator.report import charts
from windtunnel.simulator.report.gather import Gathered
from windtunnel.simulator.results import emulation
from windtunnel.simulator.results.metrics import METRICS
from windtunnel.simulator.results.summary_model import Distribution, Summary
from windtunnel.simulator.results.text import count
from windtunnel.simulator.results.validity import in_words
from windtunnel.traces.outlet import shown

LONGEST_WORD = 48
"""Characters; what is longer (a path) is broken anywhere."""
MISSING = "not reported"
EMULATED = "emulated"
_PARTS = ("p50", "p90", "p95", "p99", "max")
_FACTS = (
    ("output_tokens_per_s", "output tokens/s"),
    ("session_equivalents_per_hour", "sessions' work an hour"),
    ("ttft_s.p90", "first token, p90"),
    ("tpot_s.p50", "time per token, p50"),
    ("cache_hit_ratio", "prompt tokens cached"),
    ("expected_cache_hit_ratio", "could have been cached"),
    ("stall_s_per_agent", "stall per agent"),
    ("in_flight_mean", "requests in flight"),
)


def of_run(run: Gathered) -> str:
    """The page of one run."""
    summary = run.summary
    recording = summary.kind == "recording"
    engine = " ".join(
        shown(part) for part in (summary.engine.name, summary.engine.version, summary.engine.model) if part
    )
    what = f"recording of {count(summary.agents, 'session')}" if recording else count(summary.agents, "agent")
    title = f"{what} on {engine or 'an engine that was not named'}"
    body = [f"<h1>{escape(title)}</h1>", _badges(summary), *_whose([run.run])]
    if run.damage:
        body.append(f'<p><span class="badge invalid">damaged</span>{escape(run.damage)}</p>')
    body.append(f'<p class="sub">{escape(str(run.path))}</p>')
    body.append(_facts([(words, _value(summary, name)) for name, words in _FACTS]))
    body.append('<h2>Over time</h2><div class="grid2">')
    body.append(_card("Output tokens a second", charts.throughput(run)))
    body.append(_card("Of it, for each request in flight", charts.per_agent(run)))
    kv = charts.legend(("tool", "working set of live sessions"), ("decode", "KV cache in use"), ("limit", "it holds"))
    body.append(_card("KV cache", charts.kv(run) + kv))
    curves = charts.latencies(run)
    if curves:
        body.append(_card("Latencies", curves + charts.legend(*charts.LATENCY_LEGEND)))
    body.append("</div>")
    more = f"{count(run.lanes_left_out, 'more agent')} {'is' if run.lanes_left_out == 1 else 'are'} not drawn."
    left = f"<p class=sub>{more}</p>" if run.lanes_left_out else ""
    body.append("<h2>Agents</h2>" + _card("", charts.lanes(run) + charts.lane_legend(run) + left))
    body.append("<h2>Figures</h2>" + _card("", _figures(summary)))
    body.append("<h2>Where this comes from</h2>" + _card("", _provenance(run.run)))
    return _page(title, body)


def of_experiments(outcomes: Sequence[Outcome], runs: Mapping[str, Mapping[str, Any]]) -> str:
    """One experiment, or several side by side. `runs`: a run folder of each step to its `run.json`."""
    names = [outcome.name for outcome in outcomes]
    body = [f"<h1>{escape(' beside '.join(names))}</h1>"]
    if any(outcome.emulated for outcome in outcomes):
        body.append(f'<p><span class="badge emulated">{EMULATED}</span>{escape(BARS)}</p>')
        body += _whose(runs.values())
    metric = _first_metric(outcomes)
    turned = flips(outcomes, metric)
    body.append(f'<h2>{escape(metric)}</h2><div class="grid2">')
    for outcome in outcomes:
        marked = charts.legend(("flip", "another verdict than beside it")) if turned else ""
        body.append(_card(outcome.name, charts.ladder(outcome, metric, flips=turned) + marked))
    body.append("</div>")
    if turned:
        said = ", ".join(turned)
        have = "has" if len(turned) == 1 else "have"
        body.append(f"<p><b>{len(turned)} of the steps {have} another verdict beside:</b> {escape(said)}.</p>")
    body.append('<div class="grid2">')
    body += [
        _card(f"{outcome.name}: one stream against all", chart)
        for outcome in outcomes
        if (chart := charts.agents_against_total(outcome))
    ]
    body.append("</div>")
    for outcome in outcomes:
        body.append(f"<h2>{escape(outcome.name)}</h2>" + _card("", _steps(outcome)) + _notes(outcome))
    rests = _assumed(outcomes, runs)
    if rests:
        body.append("<h2>What the emulated figures rest on</h2>" + _card("", rests))
    body.append("<h2>Where this comes from</h2>")
    body += [_card(outcome.name, _sources(outcome, runs)) for outcome in outcomes]
    return _page(" beside ".join(names), body)


def _assumed(outcomes: Sequence[Outcome], runs: Mapping[str, Mapping[str, Any]]) -> str:
    """Every figure that is assumed and not measured, with the steps that depend on it."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    fits: dict[str, None] = {}
    for outcome in outcomes:
        for step in outcome.steps:
            engine = runs.get(step.runs[0], {}).get("engine") if step.runs else None
            told = engine.get("emulation") if isinstance(engine, dict) else None
            if not isinstance(told, dict):
                continue
            bar = told.get("error_bar")
            fits[f"{told.get('gpu')}: {told.get('fit')}" + (f" (±{bar:.0%})" if isinstance(bar, float) else "")] = None
            fits |= {f"{name}: unverified": None for name in told.get("unverified") or ()}
            fits |= {f"{shown(flag)}: not modelled": None for flag in emulation.missed_by(told)}
            for row in told.get("assumptions") or ():
                steps = rows.setdefault((str(row["name"]), f"{row['value']:.4g}", str(row["source"])), [])
                if step.name not in steps:
                    steps.append(step.name)
    if not fits:
        return ""
    said = "<ul>" + "".join(f"<li>{escape(fit)}</li>" for fit in fits) + "</ul>"
    cells = [[escape(cell) for cell in (*key, ", ".join(steps))] for key, steps in rows.items()]
    return said + (_table(("assumed", "value", "why", "steps"), cells) if cells else "")


def flips(outcomes: Sequence[Outcome], metric: str) -> list[str]:
    """Steps of the same name that are better in one experiment and not in another, or worse in one and not another."""
    verdicts: dict[str, set[str]] = {}
    for outcome in outcomes:
        for step in outcome.steps:
            if metric in step.versus_previous:
                verdicts.setdefault(step.name, set()).add(step.versus_previous[metric].verdict)
    return [name for name, found in verdicts.items() if len(found - {"too_noisy"}) > 1] if len(outcomes) > 1 else []


def _first_metric(outcomes: Sequence[Outcome]) -> str:
    return next((metric for outcome in outcomes for step in outcome.steps for metric in step.metrics), "")


def _badges(summary: Summary) -> str:
    parts = [f'<span class="badge emulated">{EMULATED}</span>'] if summary.emulated else []
    whole = "whole" if summary.kind == "recording" else "valid"
    if summary.status_reason == "running":
        parts.append("still going on: these are the figures so far")
    elif summary.valid:
        parts.append(f'<span class="badge valid">{whole}</span>')
    else:
        parts.append(f'<span class="badge invalid">not {whole}</span>')
        parts.append("; ".join(escape(in_words(reason)) for reason in summary.invalid_reasons))
    return f"<p>{''.join(parts)}</p>"


def _whose(runs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Whose figures are emulated and how far their times may be off, one line for each."""
    told = (emulation.of_run(dict(run)) for run in runs)
    lines = dict.fromkeys(emulation.in_words(found) for found in told if found is not None)
    return [f"<p>{escape(line)}</p>" for line in lines if line]


def _value(summary: Summary, name: str) -> str:
    metric, _, statistic = name.partition(".")
    value = getattr(summary, metric)
    if isinstance(value, Distribution):
        value = getattr(value, statistic)
    return figure(name, value) if value is not None else MISSING


def _facts(pairs: Iterable[tuple[str, str]]) -> str:
    cells = "".join(f'<div class="fact"><b>{escape(v)}</b><span>{escape(k)}</span></div>' for k, v in pairs)
    return f'<div class="facts">{cells}</div>'


def _card(title: str, inside: str) -> str:
    head = f"<h3>{escape(title)}</h3>" if title else ""
    return f'<section class="card">{head}{inside}</section>'


def _figures(summary: Summary) -> str:
    rows = []
    for name in METRICS:
        value = getattr(summary, name, None)
        if isinstance(value, Distribution):
            known = [(part, at) for part in _PARTS if (at := getattr(value, part)) is not None]
            parts = [f"{part} {figure(f'{name}.{part}', at)}" for part, at in known]
            rows.append((name, ", ".join(parts)))
        elif isinstance(value, int):
            rows.append((name, f"{value:,}"))
        elif isinstance(value, float):
            rows.append((name, figure(name, float(value))))
        else:
            rows.append((name, MISSING))
    rows += [(f"failures: {name}", str(count)) for name, count in summary.failures.items()]
    return _table(("figure", "value"), [[escape(name), escape(value)] for name, value in rows])


def _steps(outcome: Outcome) -> str:
    """A block for each step, its metrics in as many columns as there is room for: a row of eight is too wide."""
    metrics = list(outcome.steps[0].metrics) if outcome.steps else []
    rows = "".join(f"<tr>{_step_row(step, metrics, outcome)}</tr>" for step in outcome.steps)
    return f'<table class="steps"><tbody>{rows}</tbody></table>'


def _step_row(step: StepOutcome, metrics: Sequence[str], outcome: Outcome) -> str:
    name = f"<b>{escape(step.name)}</b>" + "".join(f"<small><code>{_flags(c)}</code></small>" for c in step.changes)
    if not step.runs:
        return f'<td>{name}</td><td colspan="{max(1, len(metrics))}">{escape(step.failure)}</td>'
    name += f"<small>{escape(step.failure)}</small>" if step.failure else ""
    cells = [f"<td>{name}</td>"]
    for metric in metrics:
        mine = step.metrics[metric]
        said = escape(spread(metric, mine))
        versus = step.versus_previous.get(metric)
        base = step.versus_base.get(metric)
        if versus is not None:
            said += _small(made_of(metric, versus, mine, before(step, outcome).metrics[metric]))
            said += f'<small class="{versus.verdict}">{escape(change(versus))}</small>'
        if base is not None and base != versus:
            said += _small(made_of(metric, base, mine, outcome.steps[0].metrics[metric]))
            said += _small(f"{change(base)}, against the base")
        cells.append(f'<td data-label="{escape(metric, quote=True)}">{said}</td>')
    return "".join(cells)


def _small(text: str) -> str:
    return f"<small>{escape(text)}</small>" if text else ""


def _flags(text: str) -> str:
    """A change of the command line that breaks between its words and inside JSON, never inside a flag."""
    words = ["<wbr>".join(_unbroken(part) for part in re.split(r"(?<=,)", word)) for word in text.split(" ")]
    return " ".join(words)


def _unbroken(word: str) -> str:
    return f'<span class="word">{escape(word)}</span>' if len(word) <= LONGEST_WORD else escape(word)


def _notes(outcome: Outcome) -> str:
    notes = []
    for step in outcome.steps:
        notes += [f"{step.name}: {note}" for note in step.notes]
        notes += [f"{step.name}, not counted: {not_counted(run)}" for run in step.invalid_runs]
    notes += floors(outcome)
    if by_itself(outcome):
        notes.append(MORE_BLOCKS)
    if drifted(outcome):
        notes.append(DRIFTED)
    words = ", ".join(WORDS.values())
    notes.append(f"intervals are 95% each; the verdicts ({words}) hold for the whole table together")
    return "<ul>" + "".join(f"<li>{escape(note)}</li>" for note in notes) + "</ul>"


def _sources(outcome: Outcome, runs: Mapping[str, Mapping[str, Any]]) -> str:
    parts = [f"<p class=sub>{escape(outcome.experiment_dir or '')}</p>"]
    for step in outcome.steps:
        inside = "".join(f"<li><code>{escape(path)}</code></li>" for path in step.runs)
        about = runs.get(step.runs[0]) if step.runs else None
        told = _provenance(about) if about is not None else ""
        head = f"{escape(step.name)}: {count(len(step.runs), 'run')}"
        parts.append(f"<details><summary>{head}</summary><ul>{inside}</ul>{told}</details>")
    return "".join(parts)


def _provenance(run: Mapping[str, Any]) -> str:
    """Seed, versions, traces and resolved settings, as run.json has them."""
    engine = run.get("engine") if isinstance(run.get("engine"), dict) else {}
    assert isinstance(engine, dict)
    traces = run.get("traces") if isinstance(run.get("traces"), list) else []
    assert isinstance(traces, list)
    rows = [
        ("windtunnel", run.get("windtunnel")),
        ("seed", run.get("seed")),
        ("engine", " ".join(shown(engine.get(key)) for key in ("name", "version", "model"))),
        ("emulation", engine.get("emulation")),
        ("isolation", run.get("isolation")),
        ("config", run.get("config")),
    ]
    table = _table(("what", "value"), [[escape(k), f"<code>{escape(_said(v))}</code>"] for k, v in rows])
    listed = "\n".join(f"{t.get('fingerprint')}  {t.get('id')}" for t in traces if isinstance(t, dict))
    settings = engine.get("resolved")
    flags = "\n".join(f"{k} = {_said(v)}" for k, v in settings.items()) if isinstance(settings, dict) else ""
    return (
        table
        + _folded(f"{count(len(traces), 'trace')} with fingerprints", listed)
        + _folded("resolved settings", flags)
    )


def _folded(head: str, text: str) -> str:
    return f"<details><summary>{escape(head)}</summary><pre>{escape(text)}</pre></details>"


def _said(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are HTML already."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


@cache
def _style() -> str:
    return (files("windtunnel.simulator.report") / "style.css").read_text(encoding="utf-8")


def _page(title: str, body: Iterable[str]) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)} · windtunnel</title><style>{_style()}</style></head>"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )
