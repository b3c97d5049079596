"""Faults of products with leaves, planted by hand, are named."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden.case_files import write_cases
from golden.cases import Case, all_outputs, case_bounds, case_layout, inputs
from golden.compare import compare
from golden.data.dtypes import rounded, widened
from golden.data.leaves import cut_evenly, leaf_product, tree_sum
from golden.explain import KINDS
from golden.operators.linear_parallel.cases import leaves_cases

from tests.golden.compare.test_compare_command import run

Array = np.ndarray[Any, Any]
LEAVES = "wrong leaves: "
ALONE = "there were no leaves: the product is one sum of all columns"
RANKS = "the products of whole ranks were added, in rank order"


def one(name: str, size: int) -> Case:
    [case] = [case for case in leaves_cases(size) if case.name == f"leaves-{name}"]
    return case


def explained(case: Case, got: list[Array]) -> str:
    right = [outputs[0] for outputs in all_outputs(case)]
    bounds = case_bounds(case)
    assert bounds is None
    diagnosis = compare(got, right, case.output_dtype, layout=case_layout(case)).diagnosis
    assert diagnosis.kind in KINDS
    return diagnosis.text


class Ranks:
    """The factors of every rank of an all-reduce, and its leaves."""

    def __init__(self, case: Case) -> None:
        assert case.linear is not None
        assert case.linear.type == 0
        tensors = inputs(case)
        turned = case.linear.trans_weight
        self.case = case
        self.left = [widened(own["x"], case.dtype) for own in tensors]
        self.right = [
            widened(own["weight"].T if turned else own["weight"], case.dtype) for own in tensors
        ]
        self.residuals = [widened(own["residual"], case.dtype).reshape(1, -1) for own in tensors]
        self.ends = np.cumsum([0, *(x.shape[1] for x in self.left)]).tolist()
        self.borders = cut_evenly(self.ends[-1], case.linear.sum_leaves)
        self.held = [
            [b - begin for b in self.borders if begin <= b <= end]
            for begin, end in pairwise(self.ends)
        ]

    def product(self, rank: int, a: int, b: int) -> Array:
        return leaf_product(self.left[rank][:, a:b], self.right[rank][a:b])

    def leaves(self, cuts: list[list[int]] | None = None) -> list[list[Array]]:
        own = enumerate(cuts or self.held)
        return [[self.product(rank, a, b) for a, b in pairwise(cut)] for rank, cut in own]

    def outputs(self, total: Array) -> list[Array]:
        return [rounded(total + residual, self.case.dtype) for residual in self.residuals]


def flat(leaves: list[list[Array]]) -> list[Array]:
    return [leaf for own in leaves for leaf in own]


def in_order(parts: list[Array]) -> Array:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def without(ranks: Ranks, leaf: int) -> Array:
    leaves = flat(ranks.leaves())
    leaves[leaf] = np.zeros_like(leaves[leaf])
    return tree_sum(leaves)


def twice(ranks: Ranks, leaf: int) -> Array:
    leaves = flat(ranks.leaves())
    leaves[leaf] = leaves[leaf] * np.float32(2)
    return tree_sum(leaves)


def cut_with(ranks: Ranks, cut: Callable[[int, int], list[int]]) -> Array:
    cuts = [cut(own[-1], len(own) - 1) for own in ranks.held]
    assert cuts != ranks.held
    return tree_sum(flat(ranks.leaves(cuts)))


def longest(columns: int, leaves: int) -> list[int]:
    length = -(-columns // leaves)
    return [min(at * length, columns) for at in range(leaves + 1)]


PLANTED: dict[str, Callable[[Ranks], Array]] = {
    RANKS: lambda r: in_order([r.product(q, 0, own[-1]) for q, own in enumerate(r.held)]),
    "each rank added its own leaves by a tree, then the ranks were added in rank order": lambda r: (
        in_order([tree_sum(own) for own in r.leaves()])
    ),
    "the leaves were added one after the other": lambda r: in_order(flat(r.leaves())),
    "leaf 4 is missing": lambda r: without(r, 4),
    "leaf 7 was added twice": lambda r: twice(r, 7),
    "all leaves of rank 1 are missing": lambda r: tree_sum(
        flat([[leaf * (q != 1) for leaf in own] for q, own in enumerate(r.leaves())])
    ),
    "leaves were cut at wrong columns: the longer ones came last": lambda r: cut_with(
        r, lambda k, leaves: [k - border for border in cut_evenly(k, leaves)[::-1]]
    ),
    "leaves were cut at wrong columns: all but the last were as long as the longest": lambda r: (
        cut_with(r, longest)
    ),
}


@pytest.mark.parametrize("text", PLANTED)
def test_leaves_that_are_wrong_and_wrong_orders(text: str) -> None:
    # 16 leaves of 150 columns, 4 on rank 0 and 12 of two lengths on rank 1.
    ranks = Ranks(one("uneven_k-all_reduce-float32", 2))
    right = ranks.outputs(tree_sum(flat(ranks.leaves())))
    for got, [wanted] in zip(right, all_outputs(ranks.case), strict=True):
        np.testing.assert_array_equal(got, wanted)
    got = ranks.outputs(PLANTED[text](ranks))
    assert explained(ranks.case, got) == f"{LEAVES}{text} in all outputs"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_that_were_rounded_before_they_were_added(dtype: str) -> None:
    # Even cuts of 8 leaves: each rank of four sends one root; of 13 also two.
    ranks = Ranks(one(f"all_reduce-{dtype}", 4))
    narrow = lambda part: widened(rounded(part, dtype), dtype)  # noqa: E731
    leaves = ranks.leaves()
    got = ranks.outputs(tree_sum([narrow(leaf) for leaf in flat(leaves)]))
    said = f"rounding: each leaf was rounded to {dtype}, then their sum in all outputs"
    assert explained(ranks.case, got) == said
    if dtype == "float16":
        got = ranks.outputs(tree_sum([narrow(tree_sum(own)) for own in leaves]))
        said = f"rounding: the sum of each rank was rounded to {dtype}, then the sum of all"
        assert explained(ranks.case, got) == f"{said} in all outputs"


def test_products_that_were_rounded_before_they_were_added() -> None:
    case = one("one_row", 2)
    ranks = Ranks(case)
    total = []
    for rank, own in enumerate(ranks.held):
        for a, b in pairwise(own):
            terms = [
                ranks.left[rank][:, i : i + 1] * ranks.right[rank][i : i + 1] for i in range(a, b)
            ]
            total.append(in_order(terms))
    said = "rounding: each product was rounded to float32, then added to those of its leaf (no fma)"
    assert explained(case, ranks.outputs(tree_sum(total))) == f"{said} in all outputs"


def test_one_rank_without_leaves() -> None:
    ranks = Ranks(one("uneven_k-all_reduce-float32", 1))
    got = ranks.outputs(ranks.product(0, 0, ranks.ends[-1]))
    assert explained(ranks.case, got) == f"{LEAVES}{ALONE} in rank 0"


def test_a_rank_s_output_of_another_order_and_groups_of_two() -> None:
    case = one("uneven_k-both-float32", 4)
    right = [output for [output] in all_outputs(case)]
    faults = {fault.text: fault for fault in case_layout(case).faults}
    assert {"all leaves of member 0 of each group are missing", RANKS, "leaf 15 is missing"} <= set(
        faults
    )
    other = [right[0], np.asarray(faults[RANKS].outputs()[1]), *right[2:]]
    assert explained(case, other) == f"{LEAVES}{RANKS} in rank 1"


def test_faults_of_scales_are_found_in_leaves_too() -> None:
    case = one("w8a16-uneven_k-all_reduce-channel", 3)
    faults = {fault.text: fault for fault in case_layout(case).faults}
    for text in ("the scale was applied twice by rank 1 alone", "the offset is missing"):
        got = [np.asarray(output) for output in faults[text].outputs()]
        assert explained(case, got).endswith(f"{text} in all outputs")
    case = one("w8a8-uneven_k-all_reduce-channel-full", 3)
    faults = {fault.text: fault for fault in case_layout(case).faults}
    got = [np.asarray(output) for output in faults["the bias is missing"].outputs()]
    assert explained(case, got) == "wrong bias: the bias is missing in all outputs"
    assert RANKS in faults


def test_every_random_case_shows_what_a_sum_in_rank_order_does() -> None:
    for case in (case for size in (1, 2, 3, 4) for case in leaves_cases(size)):
        assert case.linear is not None
        shows = case.dtype == "float32" and case.linear.sum_leaves > case.rank_size
        if shows and sum(case.rows):
            faults = {fault.text: fault for fault in case_layout(case).faults}
            fault = faults.get(RANKS) or faults[ALONE]
            pairs = zip(fault.outputs(), all_outputs(case), strict=True)
            assert any((got != wanted).any() for got, [wanted, *_] in pairs), case.id


def test_compare_reads_leaves_from_the_case_beside_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = Ranks(one("uneven_k-all_reduce-float32", 3))
    write_cases([ranks.case], tmp_path)
    got = ranks.outputs(PLANTED[RANKS](ranks))
    np.savez(tmp_path / "npu.npz", **{f"rank{r}/output": y for r, y in enumerate(got)})
    words = [str(tmp_path / "npu.npz"), str(tmp_path / f"{ranks.case.id}.npz")]
    lines, _ = run(capsys, *words, "--op", "linear_parallel", "--dtype", "float32", status=1)
    assert f"pattern: {LEAVES}{RANKS} in all outputs" in lines
