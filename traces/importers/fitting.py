"""Settling estimated token counts against the counts that a server recorded."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from windtunnel.traces.importers.pieces import Asked, Draft, Piece

SLACK_TOKENS = 32
"""A growth that exceeds the estimate by so little is message framing and estimation error, not missing text."""
SLACK_SHARE = 6
"""... or by so small a part (one sixth) of the estimate."""
WORTH_KEEPING = 4
"""Reasoning of which less than a quarter would be left was not sent back."""


def share(total: int, weights: Sequence[int]) -> list[int]:
    """`total` split in proportion to `weights`; the parts add up exactly. All zero weights count as equal."""
    whole = sum(weights)
    if not whole:
        weights, whole = [1] * len(weights), len(weights)
    parts: list[int] = []
    reached = given = 0
    for weight in weights:
        reached += weight
        upto = reached * total // whole
        parts.append(upto - given)
        given = upto
    return parts


def fit(drafts: Sequence[Draft], growth: int, filler: Callable[[int], Piece]) -> list[Draft]:
    """The drafts with token counts that add up to `growth`.

    Too little growth for the estimates: reasoning was not sent back, then visible text is scaled down. Too much: a
    little is spread over the visible text, more becomes a filler piece in the last message the model did not write.
    """
    visible = sum(d.visible() for d in drafts)
    hidden = sum(d.hidden() for d in drafts)
    if visible + hidden > growth:
        room = growth - visible
        hidden = room if room * WORTH_KEEPING >= hidden and room > 0 else 0
    rest = growth - visible - hidden
    extra = 0
    if rest > max(SLACK_TOKENS, visible // SLACK_SHARE) or (not visible and rest > 0):
        extra = rest
    else:
        visible = growth - hidden
    settled = _settle(drafts, visible, hidden)
    return _with_filler(settled, filler(extra)) if extra else settled


def calibrate_output(output: Draft, completion: int | None, reasoning: int | None, filler: Piece) -> Draft:
    """A model's message with counts that agree with the recorded completion.

    The visible part is the completion less its reasoning where that is reported; where it is not, tokens well above
    the visible estimate are reasoning that the log does not show (`filler`'s digest, its tokens set here).
    """
    if not completion:
        return output
    visible, hidden = output.visible(), output.hidden()
    if reasoning is not None:
        hidden_now = min(reasoning, completion)
    elif hidden:
        hidden_now = completion * hidden // (visible + hidden)
    else:
        hidden_now = max(0, completion - visible) if completion > 2 * visible + SLACK_TOKENS else 0
    if hidden_now and not hidden:
        output = replace(output, reasoning=(replace(filler, tokens=hidden_now),))
    if not visible:
        return _settle([output], 0, hidden_now)[0]
    return _settle([output], max(completion - hidden_now, 0), hidden_now)[0]


def _settle(drafts: Sequence[Draft], visible: int, hidden: int) -> list[Draft]:
    """Scale visible pieces to sum to `visible`, reasoning to `hidden`; pieces left with no token are dropped."""
    seen = share(visible, [w for d in drafts for w in _visible_weights(d)])
    thought = share(hidden, [p.tokens for d in drafts for p in d.reasoning])
    out: list[Draft] = []
    at_seen = at_thought = 0
    for draft in drafts:
        content, at_seen = seen[at_seen : at_seen + len(draft.pieces)], at_seen + len(draft.pieces)
        wanted, at_seen = seen[at_seen : at_seen + len(draft.calls)], at_seen + len(draft.calls)
        think, at_thought = thought[at_thought : at_thought + len(draft.reasoning)], at_thought + len(draft.reasoning)
        out.append(
            replace(
                draft,
                pieces=_counted(draft.pieces, content),
                reasoning=_counted(draft.reasoning, think),
                calls=tuple(
                    Asked(c.id, c.name, replace(c.arguments, tokens=n))
                    for c, n in zip(draft.calls, wanted, strict=True)
                ),
            )
        )
    return out


def _visible_weights(draft: Draft) -> list[int]:
    return [p.tokens for p in draft.pieces] + [c.arguments.tokens for c in draft.calls]


def _counted(pieces: Sequence[Piece], tokens: Sequence[int]) -> tuple[Piece, ...]:
    return tuple(replace(p, tokens=n) for p, n in zip(pieces, tokens, strict=True) if n > 0)


def _with_filler(drafts: list[Draft], filler: Piece) -> list[Draft]:
    for i in range(len(drafts) - 1, -1, -1):
        draft = drafts[i]
        if draft.role != "assistant":
            # a client puts its reminders after a tool's result and before what a person typed
            pieces = (*draft.pieces, filler) if draft.role == "tool" else (filler, *draft.pieces)
            drafts[i] = replace(draft, pieces=pieces)
            return drafts
    return [*drafts, Draft(role="user", pieces=(filler,))]
