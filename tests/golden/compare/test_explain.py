"""Every kind of fault, planted in sizes, dtypes and numbers of ranks drawn from a seed, is named.

And random noise is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from golden.compare import compare
from golden.data import fill, poison
from golden.data.dtypes import DTYPES, FLOAT_DTYPES, REDUCE_DTYPES, Array, storage
from golden.data.reduction import has_reduction, reduce_ranks
from golden.data.shares import gapped, packed, reversed_order
from golden.operators.all_gather_v import all_gather_v
from golden.operators.output_layout import OutputLayout, gather_layout, scatter_layout
from golden.operators.reduce_scatter_v import reduce_scatter_v

from tests.golden.each_of import each_seed

Rng = np.random.Generator
SEEDS = 40


@dataclass
class Call:
    """The expected results of one call: outputs, places of blocks, and reduced arrays."""

    dtype: str
    counts: list[int]
    displs: list[int]
    right: list[Array]
    layout: OutputLayout

    @property
    def ranks(self) -> int:
        return len(self.counts)


def draw_dtype(rng: Rng, dtypes: tuple[str, ...] = DTYPES) -> str:
    return str(rng.choice(dtypes))


def shortest(dtype: str) -> int:
    """The least elements of a block for enough evidence: a bool has one bit of it."""
    return {"bool": 90, "int8": 12, "uint8": 12}.get(dtype, 4)


def draw_gather(rng: Rng, *, even: bool = False, tail: int = 3) -> Call:
    """A gather of 2 to 7 ranks whose blocks may cut rows, leave gaps and lie in any order."""
    dtype, ranks, width = draw_dtype(rng), int(rng.integers(2, 8)), int(rng.integers(1, 6))
    low = shortest(dtype)
    counts = [int(n) for n in rng.integers(low, 3 * low, ranks)]
    counts = [counts[0]] * ranks if even else counts
    gap = int(rng.integers(1, 9))
    displs = [packed, lambda c: gapped(c, gap), reversed_order][int(rng.integers(3))](counts)
    rows = -(-max(map(sum, zip(counts, displs, strict=True))) // width) + int(rng.integers(tail))
    kind, seed = str(rng.choice(["index", "random"])), int(rng.integers(1000))
    xs = [fill((n, 1), dtype, rank, seed, kind) for rank, n in enumerate(counts)]
    xs = [np.resize(x, (-(-x.size // width), width)) for x in xs]
    right = [all_gather_v(xs, counts, displs, rows)] * ranks
    return Call(dtype, counts, displs, right, gather_layout(counts, displs, outputs=ranks))


def draw_scatter(
    rng: Rng, dtypes: tuple[str, ...], *, op: str = "sum", kind: str = "random", least: int = 3
) -> Call:
    dtype, ranks, width = draw_dtype(rng, dtypes), int(rng.integers(2, 8)), 4
    counts = [int(n) * width for n in rng.integers(least, 3 * least, ranks)]
    displs = packed(counts)
    seed = int(rng.integers(1000))
    xs = [fill((sum(counts) // width, width), dtype, r, seed, kind) for r in range(ranks)]
    right = reduce_scatter_v(xs, counts, displs, [n // width for n in counts], op, dtype)
    return Call(dtype, counts, displs, right, scatter_layout(xs, counts, displs, op))


def blank(rng: Rng, count: int, dtype: str) -> Array:
    return poison((count,), dtype) if rng.random() < 0.5 else np.zeros(count, storage(dtype))


def block(call: Call, flat: Array, rank: int) -> Array:
    """A view of a rank's block."""
    return flat[call.displs[rank] : call.displs[rank] + call.counts[rank]]


def swap(rng: Rng, call: Call, flat: Array) -> None:
    a, b = (int(rank) for rank in rng.choice(call.ranks, 2, replace=False))
    first = block(call, flat, a).copy()
    block(call, flat, a)[:] = block(call, flat, b)
    block(call, flat, b)[:] = first


def repeat(rng: Rng, call: Call, flat: Array) -> None:
    a, b = (int(rank) for rank in rng.choice(call.ranks, 2, replace=False))
    block(call, flat, a)[:] = block(call, flat, b)


def shift(rng: Rng, call: Call, flat: Array) -> None:
    """Write a block some elements beside its place, over the elements there."""
    rank = int(rng.integers(call.ranks))
    own = block(call, flat, rank).copy()
    start, step = call.displs[rank], int(rng.integers(1, max(2, own.size // 4)))
    block(call, flat, rank)[:] = blank(rng, own.size, call.dtype)
    if start >= step and rng.random() < 0.5:
        flat[start - step : start - step + own.size] = own
    else:
        room = flat[start + step : start + step + own.size]
        room[:] = own[: room.size]


def drop(rng: Rng, call: Call, flat: Array) -> None:
    part = block(call, flat, int(rng.integers(call.ranks)))
    part[:] = blank(rng, part.size, call.dtype)


def leave(rng: Rng, call: Call, flat: Array) -> None:
    """Leave poison in a part of a block, or outside all blocks."""
    rank = int(rng.integers(call.ranks))
    part = block(call, flat, rank)[1:-1]
    covered = np.zeros(flat.size, np.bool_)
    for r in range(call.ranks):
        block(call, covered, r)[:] = True
    if (~covered).sum() > 4 and rng.random() < 0.5:
        flat[~covered] = poison((int((~covered).sum()),), call.dtype)
    else:
        part[:] = poison((part.size,), call.dtype)


def planted(rng: Rng, call: Call, fault: Callable[[Rng, Call, Array], None]) -> list[Array]:
    """The outputs with a fault in all of them, or in one."""
    wrong = call.right[0].copy()
    fault(rng, call, wrong.reshape(-1))
    if rng.random() < 0.5:
        return [wrong] * call.ranks
    got = list(call.right)
    got[int(rng.integers(call.ranks))] = wrong
    return got


def named(call: Call, got: list[Array], rng: Rng | None = None) -> str:
    """The kind that is named, with or without knowledge of the layout."""
    layout = call.layout if rng is None or rng.random() < 0.5 else None
    result = compare(got, call.right, call.dtype, layout=layout)
    assert not result.accepted
    assert result.diagnosis.text.startswith(result.diagnosis.kind.partition(" ")[0]) or (
        result.diagnosis.kind == "no pattern"
    )
    return result.diagnosis.kind


@each_seed(SEEDS)
def test_swapped_blocks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    call = draw_gather(rng, even=True)
    assert named(call, planted(rng, call, swap), rng) == "swapped blocks"


@each_seed(SEEDS)
def test_a_repeated_block(seed: int) -> None:
    rng = np.random.default_rng(seed)
    call = draw_gather(rng, even=True)
    assert named(call, planted(rng, call, repeat), rng) == "repeated block"


@each_seed(SEEDS)
def test_blocks_packed_in_another_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    call = draw_gather(rng)
    call.displs = packed(call.counts)
    call.layout = gather_layout(call.counts, call.displs, outputs=call.ranks)
    flat = call.right[0].reshape(-1)
    used = sum(call.counts)
    flat[:used] = fill((used,), call.dtype, 0, seed, "random")
    order = list(range(call.ranks))
    while order == sorted(order):
        rng.shuffle(order)
    wrong = call.right[0].copy()
    wrong.reshape(-1)[:used] = np.concatenate([block(call, flat, rank) for rank in order])
    assert named(call, [wrong] * call.ranks, rng) == "swapped blocks"


@each_seed(SEEDS)
def test_a_shifted_block(seed: int) -> None:
    rng = np.random.default_rng(seed)
    call = draw_gather(rng)
    while call.dtype == "bool" or min(call.counts) < 8:
        call = draw_gather(rng)
    assert named(call, planted(rng, call, shift), rng) == "shifted block"


@each_seed(SEEDS)
def test_a_block_that_never_came(seed: int) -> None:
    rng = np.random.default_rng(seed)
    call = draw_gather(rng)
    got = planted(rng, call, drop)
    text = compare(got, call.right, call.dtype, layout=call.layout).diagnosis.text
    [absent] = {
        rank
        for rank in range(call.ranks)
        for wrong, right in zip(got, call.right, strict=True)
        if block(call, wrong.reshape(-1), rank).tobytes()
        != block(call, right.reshape(-1), rank).tobytes()
    }
    assert text.startswith(f"missing rank {absent}: its block ")
    # Without the blocks the rank of the unwritten memory is unknown.
    assert compare(got, call.right, call.dtype).diagnosis.kind in ("unwritten gap", "no pattern")


@each_seed(SEEDS)
def test_an_unwritten_gap(seed: int) -> None:
    rng = np.random.default_rng(seed)
    call = draw_gather(rng, tail=6)
    assert named(call, planted(rng, call, leave), rng) == "unwritten gap"


@each_seed(20, "sum", "max", "min", "prod", "avg", "bxor")
def test_a_contribution_that_was_left_out(seed: int, op: str) -> None:
    rng = np.random.default_rng(seed)
    dtypes = [dtype for dtype in REDUCE_DTYPES if has_reduction(op, dtype)]
    # A maximum shows only where the missing rank had the largest number.
    call = draw_scatter(rng, dtypes, op=op, least=12, kind="random")
    absent = int(rng.integers(call.ranks))
    got = []
    for right, parts in zip(call.right, call.layout.parts, strict=True):
        rest = [part for rank, part in enumerate(parts) if rank != absent]
        if op == "avg" and seed % 2:
            rest.insert(absent, np.zeros_like(parts[0]))
        got.append(reduce_ranks(rest, op, call.dtype).reshape(right.shape))
    result = compare(got, call.right, call.dtype, layout=call.layout)
    assert result.diagnosis.text.startswith(f"missing rank {absent}: its elements were left out of")


def backwards(call: Call) -> list[Array]:
    """The sums in the opposite order of ranks, rounded after every step."""
    got = []
    for right, parts in zip(call.right, call.layout.parts, strict=True):
        total = parts[-1]
        for part in parts[-2::-1]:
            total = reduce_ranks([total, part], "sum", call.dtype)
        got.append(total.reshape(right.shape))
    return got


@each_seed(SEEDS)
def test_rounding(seed: int) -> None:
    rng = np.random.default_rng(seed)
    call = draw_scatter(rng, FLOAT_DTYPES, least=20)
    while call.ranks == 2:  # a sum of two has one order
        call = draw_scatter(rng, FLOAT_DTYPES, least=20)
    assert named(call, backwards(call), rng) == "rounding"


@each_seed(SEEDS)
def test_outputs_of_a_scatter_exchanged_and_slices_shifted(seed: int) -> None:
    rng = np.random.default_rng(seed)
    call = draw_scatter(rng, REDUCE_DTYPES, least=4)
    whole = np.concatenate([array.reshape(-1) for array in call.right])
    step = int(rng.integers(1, 5))
    starts = [max(0, start - step) for start in call.displs]
    got = [
        whole[start : start + right.size].reshape(right.shape)
        for start, right in zip(starts, call.right, strict=True)
    ]
    assert named(call, got, rng) == "shifted block"
    counts = [call.counts[0]] * call.ranks
    same = [whole[: counts[0]].reshape(call.right[0].shape) for _ in counts]
    right = [np.asarray(fill(a.shape, call.dtype, r, seed, "random")) for r, a in enumerate(same)]
    a, b = (int(rank) for rank in rng.choice(call.ranks, 2, replace=False))
    got = list(right)
    got[a], got[b] = right[b], right[a]
    exchanged = compare(got, right, call.dtype).diagnosis
    assert exchanged.kind == "swapped blocks"
    assert f"rank {a}'s output holds rank {b}'s output" in exchanged.text


def noise(rng: Rng, array: Array, dtype: str) -> Array:
    """An array with random elements, bits, values of other places or disturbances in it."""
    got = array.copy()
    flat = got.reshape(-1)
    bits = flat.view(f"u{flat.itemsize}")
    hit = rng.random(flat.size) < rng.choice([0.02, 0.1, 0.5, 1.0])
    if rng.random() < 0.3:
        start, stop = sorted(rng.integers(0, flat.size + 1, 2))
        hit = np.zeros(flat.size, np.bool_)
        hit[start:stop] = True
    count = int(hit.sum())
    way = int(rng.integers(4))
    if dtype == "bool":
        flat[hit] = rng.random(count) < 0.5
    elif way == 0:
        bits[hit] = rng.integers(0, 2 ** (8 * flat.itemsize), count, dtype=bits.dtype)
    elif way == 1:
        high = rng.integers(4 * flat.itemsize, 8 * flat.itemsize, count).astype(bits.dtype)
        bits[hit] ^= bits.dtype.type(1) << high
    elif way == 2:
        flat[hit] = fill((flat.size,), dtype, 99, int(rng.integers(10**6)), "random")[hit]
    else:
        flat[hit] = rng.permutation(flat)[hit]
    return got


@each_seed(150)
def test_random_errors_have_no_pattern(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gathers = rng.random() < 0.5
    call = draw_gather(rng) if gathers else draw_scatter(rng, REDUCE_DTYPES)
    if gathers and rng.random() < 0.5:
        got = [noise(rng, call.right[0], call.dtype)] * call.ranks
    else:
        got = [noise(rng, array, call.dtype) for array in call.right]
    if not compare(got, call.right, call.dtype).accepted:
        assert named(call, got, rng) == "no pattern"


def test_a_single_wrong_element_has_no_name() -> None:
    right = fill((50, 4), "float32", 0)
    got = right.copy()
    got[7, 1] = right[40, 2]
    assert compare([got], [right], "float32").diagnosis.kind == "no pattern"


def test_too_few_elements_have_no_pattern() -> None:
    right = fill((50, 4), "float16", 0)
    near = right.copy()
    near[7, 1] = np.nextafter(near[7, 1], np.float16(np.inf))
    assert compare([near], [right], "float16").diagnosis.kind == "no pattern"
    # The same in every rank is not more than once.
    assert compare([near] * 9, [right] * 9, "float16").diagnosis.kind == "no pattern"
    exchanged = right.copy()
    exchanged[7, 1], exchanged[9, 3] = right[9, 3], right[7, 1]
    assert compare([exchanged], [right], "float16").diagnosis.kind == "no pattern"
    whole = fill((50, 4), "int8", 0)
    one = whole.copy()
    one[7, 1] = -91  # what poison is in int8
    assert compare([one], [whole], "int8").diagnosis.kind == "no pattern"
    one[7, 1] = 0
    assert compare([one], [whole], "int8").diagnosis.kind == "no pattern"


def test_a_missing_block_and_another_error_have_no_pattern() -> None:
    right = fill((40,), "float32", 0)
    got = right.copy()
    got[10:20] = 0
    layout = gather_layout([10] * 4, packed([10] * 4), outputs=1)
    assert compare([got], [right], "float32", layout=layout).diagnosis.kind == "missing rank"
    got[35] = 7.5
    assert compare([got], [right], "float32", layout=layout).diagnosis.kind == "no pattern"


def test_the_sign_of_zero_is_no_rounding() -> None:
    right = np.zeros((4, 4), np.float32)
    assert compare([-right], [right], "float32").diagnosis.kind == "sign of zero"
    got = -right
    got[0, 0] = 1
    assert compare([got], [right], "float32").diagnosis.kind == "no pattern"
