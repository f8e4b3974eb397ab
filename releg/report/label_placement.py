"""Where the names of points in a figure go: next to their points, over nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure

FONT_SIZE = 6.5
MARKER = 4.5  # pixels from the centre of a marker to its edge, with a small margin
AIR = 1.5  # pixels between a name and what is next to it
DISTANCES = (8.0, 14.0, 22.0, 32.0, 44.0, 58.0, 74.0, 92.0)  # pixels from a point to its name
DIRECTIONS = 16
CLEAR = 2.0  # times the distance from a name to its point: how far all others should be


Point = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """A rectangle, in pixels."""

    left: float
    bottom: float
    right: float
    top: float

    def meets(self, other: Box) -> bool:
        """Whether the two overlap."""
        return (
            self.left < other.right and other.left < self.right and self.bottom < other.top and other.bottom < self.top
        )

    def distance(self, point: Point) -> float:
        """From the point to its nearest edge; 0 inside."""
        x, y = point
        return math.dist(point, (min(max(x, self.left), self.right), min(max(y, self.bottom), self.top)))

    def within(self, other: Box) -> bool:
        """Whether all of it lies inside the other."""
        return (
            self.left >= other.left
            and self.right <= other.right
            and self.bottom >= other.bottom
            and self.top <= other.top
        )


def around(point: Point, reach: float = MARKER) -> Box:
    """The square that a marker needs."""
    return Box(point[0] - reach, point[1] - reach, point[0] + reach, point[1] + reach)


def candidates(point: Point, width: float, height: float) -> Iterator[Box]:
    """Boxes of a name near its point: to the right first, then all around it, the nearest first."""
    x, y = point
    for distance in DISTANCES:
        for step in range(DIRECTIONS):
            turn = (step + 1) // 2 * (1 if step % 2 else -1)  # 0, up, down, further up, ...
            angle = 2 * math.pi * turn / DIRECTIONS
            across, up = math.cos(angle), math.sin(angle)
            centre_x = x + across * (distance + width / 2)
            centre_y = y + up * (distance + height / 2)
            yield Box(centre_x - width / 2, centre_y - height / 2, centre_x + width / 2, centre_y + height / 2)


def place(points: Sequence[Point], sizes: Sequence[Point], obstacles: Sequence[Box], frame: Box) -> list[Box | None]:
    """A box for the name of every point that meets no point, no obstacle and no other name; None where none is free.

    One that is clearly nearest to its own point is preferred. Points in crowded places choose first.

    Args:
        points: in pixels.
        sizes: width and height of each name, in pixels.
        obstacles: what else must stay free.
        frame: all names must lie inside it.
    """
    taken = [*obstacles, *map(around, points)]
    answer: list[Box | None] = [None] * len(points)
    for index in sorted(range(len(points)), key=lambda index: _room(points, index)):
        width, height = (side + 2 * AIR for side in sizes[index])
        boxes = candidates(points[index], width, height)
        free = [box for box in boxes if box.within(frame) and not any(map(box.meets, taken))]
        answer[index] = next((box for box in free if _is_clear(box, points, index)), free[0] if free else None)
        taken += [box for box in (answer[index],) if box is not None]
    return answer


def _is_clear(box: Box, points: Sequence[Point], index: int) -> bool:
    """Whether all other points are far enough from the box for nobody to read the name as one of theirs."""
    others = [box.distance(point) for number, point in enumerate(points) if number != index]
    return CLEAR * box.distance(points[index]) <= min(others, default=math.inf)


def _room(points: Sequence[Point], index: int) -> float:
    """How far its three nearest neighbours are."""
    return sum(sorted(math.dist(points[index], other) for other in points)[1:4])


def segments(corners: Sequence[Point]) -> list[Box]:
    """The vertical and horizontal lines between the corners, as thin boxes."""
    pairs = pairwise(corners)
    return [Box(min(a, c) - 1, min(b, d) - 1, max(a, c) + 1, max(b, d) + 1) for (a, b), (c, d) in pairs]


def annotate(panel: Axes, names: Sequence[str], points: Sequence[Point], obstacles: Sequence[Box]) -> list[Box | None]:
    """Write each name near its point (in data coordinates), with a thin line between them if they are not adjacent."""
    figure = panel.figure
    assert isinstance(figure, Figure)
    figure.draw_without_rendering()  # computes all positions
    pixels = [tuple(panel.transData.transform(point)) for point in points]
    outline = panel.get_window_extent()
    frame = Box(outline.x0, outline.y0, outline.x1, outline.y1)
    boxes = place(pixels, [_size(figure, name) for name in names], obstacles, frame)
    for name, point, (x, y), box in zip(names, points, pixels, boxes, strict=True):
        box = box or Box(x + MARKER, y, x + MARKER, y)
        centre = ((box.left + box.right) / 2, (box.bottom + box.top) / 2)
        beside = box.distance((x, y)) < DISTANCES[1]
        panel.annotate(
            name,
            point,
            xytext=((centre[0] - x) * 72 / figure.dpi, (centre[1] - y) * 72 / figure.dpi),
            textcoords="offset points",
            fontsize=FONT_SIZE,
            ha="center",
            va="center",
            arrowprops=None if beside else {"arrowstyle": "-", "linewidth": 0.3, "color": "0.5", "shrinkB": 3},
        )
    return boxes


def _size(figure: Figure, name: str) -> Point:
    """Width and height of a name, in pixels."""
    text = figure.text(0, 0, name, fontsize=FONT_SIZE)
    extent = text.get_window_extent()
    text.remove()
    return extent.width, extent.height
