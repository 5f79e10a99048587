"""Where the labels of points go: beside them, and never on a point or on each other."""

from collections.abc import Sequence
from math import cos, hypot, pi, sin

from msgspec import Struct

DISTANCES = (12.0, 18.0, 25.0, 33.0, 42.0, 52.0, 64.0)
ANGLES = tuple(pi / 180 * degrees for degrees in (-90, -60, -120, 0, 180, 90, 60, 120, -30, -150, 30, 150))
"""Of the labels about their points, above first: in an SVG y grows downwards."""

NEAR = 5.0
"""Between a point and a label that needs no line, and by how much the next point has to be farther off."""


class Box(Struct, frozen=True):
    """By its middle."""

    x: float
    y: float
    width: float
    height: float

    def meets(self, other: "Box") -> bool:
        near = abs(self.x - other.x) * 2 < self.width + other.width
        return near and abs(self.y - other.y) * 2 < self.height + other.height

    def within(self, x: tuple[float, float], y: tuple[float, float]) -> bool:
        return (
            x[0] <= self.x - self.width / 2
            and self.x + self.width / 2 <= x[1]
            and y[0] <= self.y - self.height / 2
            and self.y + self.height / 2 <= y[1]
        )


def grouped(points: Sequence[Box]) -> list[list[int]]:
    """Indexes of points that lie on each other, together: on the first of them."""
    groups: list[list[int]] = []
    for index, point in enumerate(points):
        mine = next((group for group in groups if points[group[0]].meets(point)), None)
        if mine is None:
            groups.append([index])
        else:
            mine.append(index)
    return groups


def placed(
    points: Sequence[Box], labels: Sequence[Box], x: tuple[float, float], y: tuple[float, float], taken: Sequence[Box]
) -> list[Box]:
    """The label of each point, as near to it as there is room between the limits and beside what is `taken`; where
    there is none, the farthest.

    `labels` have the sizes alone.
    """
    done: list[Box] = []
    for point, label in zip(points, labels, strict=True):
        around = (
            Box(point.x + far * cos(angle), point.y + far * sin(angle), label.width, label.height)
            for far in DISTANCES
            for angle in ANGLES
        )
        inside = [box for box in around if box.within(x, y)]
        free = (box for box in inside if not any(map(box.meets, (*taken, *done))))
        done.append(next(free, inside[-1] if inside else Box(point.x, point.y, label.width, label.height)))
    return done


def leader(point: Box, label: Box, others: Sequence[Box]) -> tuple[float, float, float, float] | None:
    """From the point's rim to the label's (x1, y1, x2, y2); None where the label is beside its point and no other."""
    x, y = label.x - point.x, label.y - point.y
    far = hypot(x, y)
    if not far:
        return None
    across, down = x / far, y / far
    out = point.width / 2
    edges = ((label.width, across), (label.height, down))
    back = min(size / 2 / abs(part) for size, part in edges if part)
    nearest = min((_apart(other, label) for other in others), default=far)
    if far - out - back < NEAR and nearest > _apart(point, label) + NEAR:
        return None
    return point.x + out * across, point.y + out * down, label.x - back * across, label.y - back * down


def _apart(point: Box, label: Box) -> float:
    """From the point's middle to the label's rim."""
    return hypot(
        max(0.0, abs(point.x - label.x) - label.width / 2), max(0.0, abs(point.y - label.y) - label.height / 2)
    )
