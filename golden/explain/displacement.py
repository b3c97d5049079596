"""Finds correct blocks in wrong places: swapped, shifted, or written twice."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..data.bit_patterns import plain_bits
from ..data.deviation import values_of
from ..data.dtypes import Array
from .evidence import ENOUGH_BITS, Diagnosis, Evidence, bits_per_match, counted, listed
from .moves import Material, Move, Moves, Positions, exact, find_moves
from .unwritten import blanks

_SMALL_STEPS = 8


@dataclass(frozen=True)
class _Place:
    """A block of the searched space, and its name."""

    start: int
    stop: int
    name: str


@dataclass(frozen=True)
class _Space:
    """The searched space: one output, or all outputs one after the other."""

    material: Material
    wrong: Positions
    blank: npt.NDArray[np.bool_]
    places: Sequence[_Place]
    name: str


def displaced_blocks(evidence: Evidence) -> Diagnosis | None:
    """Explain wrong elements by expected ones that lie elsewhere, or return None.

    Each output is searched alone; if that does not explain all of them, all together.

    Example:
        >>> from ..operators.output_layout import gather_layout
        >>> b = np.arange(12, dtype=np.float32)
        >>> a = np.concatenate([b[6:], b[:6]])
        >>> parts = Evidence([a], [b], [a != b], "float32", [None], gather_layout([6, 6]), [""])
        >>> displaced_blocks(parts).text.partition(" and")[0]
        "swapped blocks: rank 0's block holds rank 1's block"
    """
    alone = [_diagnose(_alone(evidence, output)) for output in evidence.bad_outputs()]
    found = [one for one in alone if one is not None]
    # Evidence in several outputs adds up, so each may have less of it.
    pairs = zip(evidence.bad_outputs(), alone, strict=True)
    bits = sum(one.bits for i, one in pairs if one is not None and i in evidence.distinct)
    if bits >= ENOUGH_BITS and len(found) == len(alone) and len({one.kind for one in found}) == 1:
        return Diagnosis(found[0].kind, f"{found[0].kind}: {_by_text(evidence, found)}")
    if len({array.tobytes() for array in evidence.expected}) < len(evidence.expected):
        return None
    together = _diagnose(_together(evidence)) if len(evidence.got) > 1 else None
    if together is None or together.bits < ENOUGH_BITS:
        return None
    return Diagnosis(together.kind, f"{together.kind}: {together.text}")


@dataclass(frozen=True)
class _Finding:
    """The pattern found in one space, and its probability by chance: 2^-bits."""

    kind: str
    text: str
    bits: float


def _by_text(evidence: Evidence, found: Sequence[_Finding]) -> str:
    """Return the texts of the patterns, each once with its outputs."""
    outputs: dict[str, list[int]] = {}
    for output, one in zip(evidence.bad_outputs(), found, strict=True):
        outputs.setdefault(one.text, []).append(output)
    return listed([f"{text} (in {evidence.where(those)})" for text, those in outputs.items()])


def _diagnose(space: _Space) -> _Finding | None:
    solid = space.wrong[~space.blank[space.wrong]]
    found = find_moves(space.material, solid)
    if not found.moves:
        return None
    empty = space.wrong[space.blank[space.wrong]]
    for move in found.moves:
        sources = empty - move.offset
        inside = (sources >= 0) & (sources < space.material.expected.size)
        same = space.material.same(empty, np.where(inside, sources, empty))
        empty = empty[~(inside & same)]
    kind = _kind(found, int(empty.size), space.places)
    if kind is None:
        return None
    moves = sorted(found.moves, key=lambda m: m.places[0])
    order, turn = _other_order(moves, space.places), _rotation(moves, space)
    if kind == "swapped blocks" and order is not None:
        text = f"the blocks lie in another order: {listed(order, most=8)}"
    elif turn is not None and (kind == "shifted block" or len(space.places) > 1):
        kind, text = "shifted block", turn
    else:
        text = listed([_words(move, space, kind) for move in moves])
    return _Finding(kind, text, found.bits)


def _other_order(moves: Sequence[Move], places: Sequence[_Place]) -> list[str] | None:
    """Return the blocks' names in their new order, if whole blocks moved and not just swapped."""
    starts = []
    for place in places:
        offsets = {move.offset for move in moves if _sources_in(move, place)}
        if len(offsets) > 1:
            return None
        starts.append(place.start + next(iter(offsets), 0))
    now = sorted(zip(starts, places, strict=True), key=lambda pair: pair[0])
    ends = [start + place.stop - place.start for start, place in now]
    slots = {(place.start, place.stop) for place in places}
    in_slots = all((start, end) in slots for (start, _), end in zip(now, ends, strict=True))
    apart = all(end <= start for end, (start, _) in zip(ends, now[1:], strict=False))
    names = [place.name for _, place in now]
    together = any(sum(_sources_in(move, place) for place in places) > 1 for move in moves)
    if (in_slots and not together) or not apart or names == [place.name for place in places]:
        return None
    return names


def _rotation(moves: Sequence[Move], space: _Space) -> str | None:
    """Return a sentence on the rotation of a block or of the whole space, None if there is none."""
    if len(moves) != 2 or moves[0].offset * moves[1].offset > 0:
        return None
    late, early = sorted((move.offset for move in moves), reverse=True)
    if late == -early:
        return None
    first = min(int(move.places[0]) for move in moves)
    last = max(int(move.places[-1]) for move in moves)
    whole = _Place(0, space.material.expected.size, f"all of {space.name}")
    for place in (*space.places, whole):
        if place.start <= first and last < place.stop and late - early == place.stop - place.start:
            step = counted(min(late, -early), "element")
            way = "the end" if late < -early else "the beginning"
            return f"{place.name} is rotated by {step} towards {way}"
    return None


def _sources_in(move: Move, place: _Place) -> bool:
    sources = move.places - move.offset
    return bool(((sources >= place.start) & (sources < place.stop)).any())


def _kind(found: Moves, empty: int, places: Sequence[_Place]) -> str | None:
    """Return the pattern of the moves, or None if they leave too much unexplained."""
    explained = sum(move.places.size for move in found.moves)
    left = found.rest.size
    if left + empty > explained:
        return None
    if len({move.offset > 0 for move in found.moves}) == 2:
        if 8 * left > explained:
            return None
        inside = all(_one_place(move, places) for move in found.moves)
        return "shifted block" if inside and len(places) > 1 else "swapped blocks"
    if left + empty == 0 and all(abs(m.offset) >= np.ptp(m.places) + 1 for m in found.moves):
        return "repeated block"
    vacated = sum(abs(move.offset) * move.runs for move in found.moves)
    return "shifted block" if left + empty <= vacated else None


def _one_place(move: Move, places: Sequence[_Place]) -> bool:
    """Whether a move stays inside one block."""
    first, last = int(move.places[0]), int(move.places[-1])
    ends = (first, last, first - move.offset, last - move.offset)
    return any(all(p.start <= end < p.stop for end in ends) for p in places)


def _words(move: Move, space: _Space, kind: str) -> str:
    """Return a sentence on a move, with the names of the blocks if they are known."""
    middle = int(move.places[move.places.size // 2])
    there, here = _place_of(middle, space.places), _place_of(middle - move.offset, space.places)
    if kind == "shifted block":
        step = counted(abs(move.offset), "element")
        elements = f"{step} too {'late' if move.offset > 0 else 'early'}"
        moved = [place.name for place in space.places if _sources_in(move, place)]
        if len(moved) > 1:
            all_of_them = len(moved) == len(space.places)
            return f"{'all blocks' if all_of_them else listed(moved)} lie {elements}"
        what = here.name if here else f"what belongs at {_range(move, source=True)}"
        return f"{what} lies {elements}"
    if there and here and there is not here and _fits(there, here, move):
        return f"{there.name} holds {here.name}"
    return f"elements {_range(move)} hold what belongs at {_range(move, source=True)}"


def _fits(there: _Place, here: _Place, move: Move) -> bool:
    """Whether a move puts a block exactly into another one's place."""
    sizes = {place.stop - place.start for place in (there, here)}
    return len(sizes) == 1 and move.offset == there.start - here.start


def _range(move: Move, *, source: bool = False) -> str:
    back = move.offset if source else 0
    return f"{move.places[0] - back}..{move.places[-1] - back}"


def _place_of(position: int, places: Sequence[_Place]) -> _Place | None:
    return next((place for place in places if place.start <= position < place.stop), None)


def _alone(evidence: Evidence, output: int) -> _Space:
    blocks = evidence.layout.of(output)
    places = [_Place(b.start, b.stop, f"rank {b.rank}'s block") for b in blocks if b.count]
    return _space(evidence, [output], places, evidence.name(output))


def _together(evidence: Evidence) -> _Space:
    """Return the space of all outputs, whose blocks are called by the output they belong to."""
    places, base = [], 0
    for output, expected in enumerate(evidence.expected):
        places.append(_Place(base, base + expected.size, f"{evidence.name(output)}'s output"))
        base += expected.size
    return _space(evidence, range(len(evidence.expected)), places, "all outputs")


def _space(
    evidence: Evidence, outputs: Sequence[int], places: Sequence[_Place], name: str
) -> _Space:
    dtype = evidence.dtype
    got = np.concatenate([plain_bits(evidence.got[i], dtype) for i in outputs])
    expected = np.concatenate([plain_bits(evidence.expected[i], dtype) for i in outputs])
    arrays = [np.concatenate([a[i].reshape(-1) for i in outputs]) for a in _pair(evidence)]
    limits = [evidence.limits[i] for i in outputs]
    limit = None if limits[0] is None else np.concatenate([_flat(part) for part in limits])
    material = exact(got, expected, bits_per_match(arrays[1], dtype, limit))
    small = () if limit is None else _small_steps(evidence.expected[outputs[0]])
    if limit is not None:
        material = replace(material, same=_close(arrays[0], arrays[1], dtype, limit))
    blocks = tuple((place.start, place.stop) for place in places)
    material = replace(material, blocks=blocks, steps=tuple(small))
    masks = np.concatenate([evidence.masks[i].reshape(-1) for i in outputs])
    # Half of all bools are 0, so a 0 is no evidence of its origin.
    kinds = 1 if dtype == "bool" else 2
    blank = np.concatenate([np.any(blanks(evidence, i)[:kinds], axis=0) for i in outputs])
    return _Space(material, np.flatnonzero(masks), blank, places, name)


def _pair(evidence: Evidence) -> tuple[Sequence[Array], Sequence[Array]]:
    return evidence.got, evidence.expected


def _flat(limit: Array | None) -> Array:
    assert limit is not None
    return limit.reshape(-1)


def _close(
    got: Array, expected: Array, dtype: str, limit: Array
) -> Callable[[Positions, Positions], npt.NDArray[np.bool_]]:
    """Return what counts as the same element where a tolerance is in force."""
    mine, theirs = values_of(got, dtype), values_of(expected, dtype)

    def same(places: Positions, sources: Positions) -> npt.NDArray[np.bool_]:
        with np.errstate(invalid="ignore"):
            return np.asarray(np.abs(mine[places] - theirs[sources]) <= limit[sources])

    return same


def _small_steps(expected: Array) -> list[int]:
    """Return offsets that errors of displacement often have: some elements, or some rows."""
    width = max(1, math.prod(expected.shape[1:]))
    steps = {*range(1, _SMALL_STEPS + 1), width, 2 * width}
    return [*steps, *(-step for step in steps)]
