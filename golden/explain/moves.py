"""Finds correct elements in wrong places: got[t] == expected[t - offset].

A wrong element is explained by an offset only together with its neighbours, and an explanation
counts only if it says more than it costs to state: see `Moves.bits`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..data.dtypes import Array

Positions = npt.NDArray[np.int64]

_MOST_MOVES = 12
_SHORTEST = 3
_WINDOWS = (64, 16, 4, 1)
_NEARBY = 64
# The largest offset that is searched, which bounds the time for huge tensors.
_REACH = 2**23


@dataclass(frozen=True)
class Material:
    """The searched tensors as flat bit patterns, and a function that compares elements.

    `same(places, sources)` says where got at `places` is expected's at `sources`; `bits_each` is
    how many bits of evidence one such match of a wrong element is; `blocks` are the starts and
    stops of the blocks that are known, `steps` offsets to try besides those between blocks.

    Example:
        >>> bits = np.arange(4, dtype=np.uint16)
        >>> exact(bits, bits, 2.0).same(np.array([1]), np.array([1])).tolist()
        [True]
    """

    got: Array
    expected: Array
    same: Callable[[Positions, Positions], npt.NDArray[np.bool_]]
    bits_each: float
    blocks: tuple[tuple[int, int], ...] = ()
    steps: tuple[int, ...] = ()

    @cached_property
    def text(self) -> bytes:
        """The bytes of expected, to search in."""
        return self.expected.tobytes()


@dataclass(frozen=True)
class Move:
    """Wrong elements, at `places`, that hold what belongs `offset` elements earlier.

    Example:
        >>> Move(2, np.array([4, 5]), 1).places.size
        2
    """

    offset: int
    places: Positions
    runs: int


@dataclass(frozen=True)
class Moves:
    """The moves that were found, the unexplained wrong positions, and the evidence in bits.

    Example:
        >>> Moves((), np.array([3]), 0.0).rest.size
        1
    """

    moves: tuple[Move, ...]
    rest: Positions
    bits: float


def exact(got: Array, expected: Array, bits_each: float) -> Material:
    """Return material whose elements are compared bit for bit.

    Example:
        >>> a, b = np.array([1, 2], np.uint8), np.array([2, 1], np.uint8)
        >>> exact(a, b, 8.0).same(np.array([0, 1]), np.array([1, 1])).tolist()
        [True, False]
    """
    return Material(got, expected, lambda t, s: np.asarray(got[t] == expected[s]), bits_each)


def find_moves(material: Material, wrong: Positions) -> Moves:
    """Explain wrong elements by as few offsets as possible, the one that explains most first.

    `bits = matches * bits_each - log2(offsets) - log2(runs)`, summed over the moves, is how
    unlikely the same would be by chance: 2^-bits. Right elements between wrong ones count as far
    as expected does not repeat itself at that offset.

    Args:
        material: what is searched.
        wrong: positions of the wrong elements, ascending.

    Example:
        >>> expected = np.arange(100, 120, dtype=np.uint16)
        >>> got = expected.copy()
        >>> got[2:6], got[10:14] = expected[10:14], expected[2:6]
        >>> found = find_moves(exact(got, expected, 10.0), np.flatnonzero(got != expected))
        >>> sorted((move.offset, move.places.tolist()) for move in found.moves)
        [(-8, [2, 3, 4, 5]), (8, [10, 11, 12, 13])]
        >>> found.rest.size, found.bits > 16
        (0, True)
    """
    moves: list[Move] = []
    rest, bits = wrong, 0.0
    while rest.size and len(moves) < _MOST_MOVES:
        tried = [_explained(material, rest, offset) for offset in _candidates(material, rest)]
        best, gain = max(tried, key=lambda pair: pair[1], default=(None, 0.0))
        if best is None or gain <= 0:
            break
        moves.append(best)
        bits += gain
        rest = np.setdiff1d(rest, best.places, assume_unique=True)
    return Moves(tuple(moves), rest, bits)


def _explained(material: Material, rest: Positions, offset: int) -> tuple[Move, float]:
    """Return the move by an offset, of all runs whose evidence exceeds their cost, and its gain.

    A run is an interval in which all elements match, from its first wrong element to its last.
    """
    places = np.arange(rest[0], rest[-1] + 1)
    matches = _matches(material, places, offset)
    edges = np.flatnonzero(np.diff(np.concatenate(([0], matches.view(np.int8), [0]))))
    starts, stops = (np.searchsorted(rest, edges[i::2] + rest[0]) for i in (0, 1))
    # Counts per run; a run without wrong elements is none.
    wrong = stops - starts
    starts, stops, wrong = starts[wrong > 0], stops[wrong > 0], wrong[wrong > 0]
    right = rest[stops - 1] - rest[starts] + 1 - wrong
    gains = wrong * material.bits_each + right * _bits_of_right(material, offset)
    gains -= _cost_of_runs(material, rest, starts, wrong, right)
    worth = gains > 0
    keep = np.zeros(rest.size + 1, np.int64)
    keep[starts[worth]] += 1
    keep[stops[worth]] -= 1
    move = Move(offset, rest[np.cumsum(keep)[:-1] > 0], int(worth.sum()))
    known = bool(worth.any()) and offset in _between_blocks(material, int(move.places[0]))
    choices = 4 * len(material.blocks) if known else 2 * material.expected.size
    return move, float(gains[worth].sum()) - math.log2(choices)


def _cost_of_runs(
    material: Material, rest: Positions, starts: Positions, wrong: Positions, right: Positions
) -> npt.NDArray[np.float64]:
    """Return the bits that describe each run: its ends, or the block that it fills.

    One or two elements are a run only if they fill a block.
    """
    anywhere = 2 * math.log2(rest.size + 1)
    cost = np.where(wrong + right < _SHORTEST, np.inf, anywhere)
    for start, stop in material.blocks:
        first, last = np.searchsorted(rest, [start, stop])
        fills = (starts == first) & (wrong == last - first) & (4 * wrong >= stop - start)
        cost[fills] = min(anywhere, 1 + math.log2(len(material.blocks)))
    return cost


def _between_blocks(material: Material, place: int) -> set[int]:
    """Return the offsets that would bring another block to where a place's block is."""
    for start, stop in material.blocks:
        if start <= place < stop:
            ends = {start - other for other, _ in material.blocks}
            return ends | {stop - other for _, other in material.blocks}
    return set()


def _bits_of_right(material: Material, offset: int) -> float:
    """Return the evidence of a right element that matches: none if expected repeats itself."""
    size, step = material.expected.size, abs(offset)
    if step >= size:
        return 0.0
    alike = np.mean(material.expected[step:] == material.expected[: size - step])
    return float(min(-math.log2(alike), material.bits_each)) if alike > 0 else material.bits_each


def _matches(material: Material, places: Positions, offset: int) -> npt.NDArray[np.bool_]:
    sources = places - offset
    inside = (sources >= 0) & (sources < material.expected.size)
    return inside & material.same(places, np.where(inside, sources, places))


def _candidates(material: Material, rest: Positions) -> list[int]:
    """Return the few offsets that explain most wrong elements around some probes."""
    chosen: dict[int, None] = {}
    probes = sorted({int(i) for i in np.linspace(0, rest.size - 1, 7)})
    for probe in probes:
        place = int(rest[probe])
        offsets = {
            *_by_windows(material, place),
            *_between_blocks(material, place),
            *material.steps,
        } - {0}
        first = max(0, probe - _NEARBY)
        near = rest[first : probe + _NEARBY + 1]
        scores = {o: _run_at(_matches(material, near, o), probe - first) for o in offsets}
        best = sorted(scores, key=lambda offset: (-scores[offset], abs(offset)))
        chosen |= dict.fromkeys(offset for offset in best[:3] if scores[offset])
    return list(chosen)


def _run_at(matches: npt.NDArray[np.bool_], index: int) -> int:
    """Return the length of the run of matches that has an index, 0 if it is no match."""
    if not matches[index]:
        return 0
    misses = np.flatnonzero(~matches)
    after = np.searchsorted(misses, index)
    stop = int(misses[after]) if after < misses.size else matches.size
    return stop - (int(misses[after - 1]) + 1 if after else 0)


def _by_windows(material: Material, place: int) -> set[int]:
    """Return the offsets at which windows of got around a place are found in expected."""
    offsets = set()
    for width in _WINDOWS:
        for start in {max(0, place - width + 1), place}:
            window = material.got[start : start + width].tobytes()
            offsets |= {start - source for source in _find(material, window, start)}
    return offsets


def _find(material: Material, window: bytes, near: int) -> set[int]:
    """Return a few positions of a window in expected, the nearest ones before and after a place."""
    size, text = material.expected.dtype.itemsize, material.text
    first, last = max(0, near - _REACH) * size, (near + _REACH) * size
    found: set[int] = set()
    at, tries = text.find(window, near * size, last), 0
    while at >= 0 and tries < 3 * size:
        found |= {at // size} if at % size == 0 else set()
        at, tries = text.find(window, at + 1, last), tries + 1
    at, tries = text.rfind(window, first, near * size + len(window) - 1), 0
    while at >= 0 and tries < 3 * size:
        found |= {at // size} if at % size == 0 else set()
        at, tries = text.rfind(window, first, at + len(window) - 1), tries + 1
    return found
