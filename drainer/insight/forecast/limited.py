"""A limit per sub-key on a sample: which of it would pass, if all of the backlog were asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from drainer.insight.forecast.workload import RECURS, Lanes, Neighbours, Shape

SEED = 1


def limited(
    stretches: Sequence[Neighbours], most: int, *, whole: bool
) -> tuple[list[Neighbours], float]:
    """What is left when the first ``most`` sub-messages of each sub-key pass, and how many don't.

    One of a sample stands for many: those of a sub-key pass until they stand for ``most``, and the
    one in which that is reached passes by chance. A sub-key that is rare in a sample is taken to be
    rare in the backlog (insight/forecast/workload.py), so it passes.
    """
    counts = Counter(
        number
        for stretch in stretches
        for shape in stretch.shapes
        for lanes in shape.lanes
        for number in _numbers(lanes)
    )
    chance = Random(SEED)
    passed: dict[int, float] = {}
    dropped = 0.0

    def passes(lanes: Lanes, times: float) -> bool:
        numbers = _numbers(lanes)
        if not numbers or (not whole and any(counts[number] < RECURS for number in numbers)):
            return True
        # One of several sub-keys is held back only when all of them have reached the limit.
        room = most - min(passed.get(number, 0.0) for number in numbers)
        if room < times and chance.random() >= room / times:
            return False
        for number in numbers:
            passed[number] = passed.get(number, 0.0) + min(times, max(room, 0.0))
        return True

    found = []
    for stretch in stretches:
        times = stretch.messages / max(1, len(stretch.shapes))
        shapes = []
        for shape in stretch.shapes:
            left = [index for index, lanes in enumerate(shape.lanes) if passes(lanes, times)]
            dropped += (len(shape.lanes) - len(left)) * times
            shapes.append(shape if len(left) == len(shape.lanes) else _only(shape, left))
        found.append(replace(stretch, shapes=shapes))
    return found, dropped


def _numbers(lanes: Lanes) -> tuple[int, ...]:
    if lanes is None:
        return ()
    return (lanes,) if isinstance(lanes, int) else lanes


def _only(shape: Shape, left: Sequence[int]) -> Shape:
    folds = sum((shape.folds >> index & 1) << place for place, index in enumerate(left))
    return replace(shape, lanes=tuple(shape.lanes[index] for index in left), folds=folds)
