"""ragged_all_to_all: what JAX's documentation says of it as named cases, against numpy.

Each case has, for every rank: operand, output, input_offsets, send_sizes, output_offsets,
recv_sizes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collops.testing import run_ranks
from tests.jax.test_calls import begin, rows_of

Case = list[tuple[Any, ...]]


def result_of(case: Case) -> list[Any]:
    """The results of all ranks: slice i of a rank goes to rank i // (slices per rank), and arrives
    at the row that the sender's output_offsets[i] says."""
    results = [np.array(of[1]) for of in case]
    for operand, _, begins, sizes, lands, _ in case:
        each = len(sizes) // len(case)
        for i, (begin_row, rows, land) in enumerate(zip(begins, sizes, lands, strict=True)):
            results[i // each][land : land + rows] = operand[begin_row : begin_row + rows]
    return results


def numbers(*values: float) -> Any:
    return np.array(values, np.float32)


# The names of the documentation's sentences. Rows are numbers unless the case is about rows.
CASES: dict[str, Case] = {
    "the example": [
        (numbers(1, 2, 2), numbers(0, 0, 0, 0), [0, 1], [1, 2], [0, 0], [1, 1]),
        (numbers(3, 4, 0), numbers(0, 0, 0, 0), [0, 1], [1, 1], [1, 2], [2, 1]),
    ],
    "the result has output's values where nothing arrives": [
        (numbers(1, 2, 3), numbers(91, 92, 93, 94), [0, 2], [1, 1], [3, 0], [1, 1]),
        (numbers(4, 5, 6), numbers(95, 96, 97, 98), [1, 0], [1, 1], [1, 2], [1, 1]),
    ],
    "output_offsets are of the receiver's output, not the caller's": [
        (numbers(1, 2), numbers(0, 0, 0, 0, 0), [0, 1], [0, 1], [0, 4], [0, 2]),
        (numbers(3, 4), numbers(0, 0, 0, 0, 0), [0, 0], [2, 0], [3, 0], [1, 0]),
    ],
    "slices may lie in any order, with padding between them": [
        (numbers(1, 2, 3, 4, 5, 6, 7), numbers(0, 0, 0, 0, 0), [5, 1], [2, 3], [0, 0], [2, 1]),
        (numbers(11, 12, 13, 14, 15), numbers(0, 0, 0, 0, 0), [3, 0], [1, 2], [3, 3], [3, 2]),
    ],
    "a slice may go to both ranks: slices of operand may overlap": [
        (numbers(1, 2, 3), numbers(0, 0, 0, 0), [0, 1], [2, 2], [0, 0], [2, 1]),
        (numbers(4, 5, 6), numbers(0, 0, 0, 0), [2, 2], [1, 1], [3, 3], [2, 1]),
    ],
    "several slices per rank": [
        (
            numbers(1, 2, 3, 4, 5), numbers(0, 0, 0, 0, 0, 0),
            [0, 1, 3, 4], [1, 2, 1, 1], [5, 0, 1, 0], [1, 2, 1, 0],
        ),
        (
            numbers(6, 7, 8, 9, 10), numbers(0, 0, 0, 0, 0, 0),
            [4, 0, 0, 2], [1, 0, 2, 2], [2, 0, 2, 4], [1, 1, 2, 2],
        ),
    ],
    "sizes of 0, whose offsets say nothing": [
        (numbers(1, 2), numbers(7, 8), [-5, 99], [0, 0], [99, -5], [0, 1]),
        (numbers(3, 4), numbers(9, 10), [1, 99], [1, 0], [1, 99], [0, 0]),
    ],
    "an operand and an output without rows": [
        (numbers(), numbers(0, 0), [0, 0], [0, 0], [0, 0], [0, 2]),
        (numbers(3, 4), numbers(), [0, 2], [2, 0], [0, 0], [0, 0]),
    ],
    "rows of several dimensions": [
        (rows_of(0, 5, row=(3, 2)), rows_of(7, 4, row=(3, 2)), [1, 0], [2, 1], [2, 0], [2, 1]),
        (rows_of(1, 3, row=(3, 2)), rows_of(8, 2, row=(3, 2)), [2, 0], [1, 1], [0, 1], [1, 1]),
    ],
    "whole numbers of 8 bits": [
        (rows_of(0, 5, "int8"), rows_of(7, 4, "int8"), [1, 0], [2, 1], [2, 0], [2, 1]),
        (rows_of(1, 3, "int8"), rows_of(8, 2, "int8"), [2, 0], [1, 1], [0, 1], [1, 1]),
    ],
    "one rank": [(numbers(1, 2, 3), numbers(7, 8, 9), [1], [2], [0], [2])],
    "three ranks": [
        (numbers(1, 2, 3, 4), numbers(0, 0, 0), [0, 1, 3], [1, 2, 1], [2, 0, 0], [1, 2, 0]),
        (numbers(5, 6, 7, 8), numbers(0, 0, 0), [2, 0, 0], [2, 0, 1], [0, 0, 1], [2, 0, 1]),
        (numbers(9, 10, 11, 12), numbers(0, 0, 0), [0, 3, 1], [0, 1, 1], [0, 2, 2], [1, 1, 1]),
    ],
}  # fmt: skip
# The sizes of the last case, whose receivers say what the senders send.
for case in CASES.values():
    for receiver, of in enumerate(case):
        each = len(of[3]) // len(case)
        mine = slice(receiver * each, (receiver + 1) * each)
        of[5][:] = [size for sender in case for size in sender[3][mine]]


def results_of_cases(rank: int, size: int) -> list[Any]:
    jax, cjax, _ = begin()
    ragged = jax.jit(cjax.ragged_all_to_all)
    results = []
    for case in CASES.values():
        if len(case) == size:
            of = case[rank]
            results.append(np.asarray(ragged(*of[:2], *(np.array(one) for one in of[2:]))))
            untouched = cjax.ragged_all_to_all(*of)  # lists of Python, without jit
            np.testing.assert_array_equal(untouched, results[-1])
    return results


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_documented_cases(size: int) -> None:
    cases = {name: case for name, case in CASES.items() if len(case) == size}
    of_ranks = run_ranks(results_of_cases, size, size)
    for i, (name, case) in enumerate(cases.items()):
        for rank, want in enumerate(result_of(case)):
            got = of_ranks[rank][i]
            assert got.dtype == want.dtype, name
            np.testing.assert_array_equal(got, want, err_msg=f"{name}, rank {rank}")


def test_the_example_is_the_documentations() -> None:
    first, second = result_of(CASES["the example"])
    assert (first.tolist(), second.tolist()) == ([1, 3, 0, 0], [2, 2, 4, 0])


def with_computed_sizes(rank: int) -> list[list[float]]:
    """Sizes that depend on the data: the same program with other numbers, in a loop; x64."""
    jax, cjax, _ = begin(x64=True)
    np_ = jax.numpy

    def step(output: Any, first: Any) -> Any:
        """Rows of `first` go to rank 0, the others of four to rank 1; both have the same."""
        sends = np_.stack([first, 4 - first])
        receives = np_.where(rank == 0, np_.full(2, first), np_.full(2, 4 - first))
        begins = np_.stack([0 * first, first])
        lands = np_.stack([rank * first, rank * (4 - first)])
        operand = np_.arange(4.0) + 10 * rank + 100 * first
        output = cjax.ragged_all_to_all(operand, output, begins, sends, lands, receives)
        return output, output

    out = jax.jit(lambda firsts: jax.lax.scan(step, np_.zeros(8), firsts)[1])
    return [one.tolist() for one in out(np.array([1, 3, 0]))]


def test_sizes_that_are_computed() -> None:
    low, high = run_ranks(with_computed_sizes, 2)
    assert low[0] == [100, 110, 0, 0, 0, 0, 0, 0]
    assert low[1] == [300, 301, 302, 310, 311, 312, 0, 0]
    assert high[0] == [101, 102, 103, 111, 112, 113, 0, 0]
    assert high[1] == [303, 313, 103, 111, 112, 113, 0, 0]
    assert high[2] == [0, 1, 2, 3, 10, 11, 12, 13] and low[2] == low[1]


def gradients(rank: int) -> None:
    jax, cjax, _ = begin()
    np_ = jax.numpy
    for name in ("the example", "slices may lie in any order, with padding between them",
                 "several slices per rank", "sizes of 0, whose offsets say nothing"):  # fmt: skip
        case = CASES[name]
        lists = [np.array(one) for one in case[rank][2:]]

        def total(arrays: Any, case: Case = case) -> Any:
            outputs = [output for _, output in arrays]
            for (operand, _), (_, _, begins, sizes, lands, _) in zip(arrays, case, strict=True):
                each = len(sizes) // len(case)
                for i, size in enumerate(sizes):
                    if size == 0:
                        continue
                    to, land = i // each, lands[i]
                    part = operand[begins[i] : begins[i] + size]
                    outputs[to] = outputs[to].at[land : land + size].set(part)
            return sum(weighed(np_, r, y) for r, y in enumerate(outputs))

        arrays = [(np_.asarray(of[0]), np_.asarray(of[1]) + 1) for of in case]
        want = jax.grad(total)(arrays)[rank]
        got = jax.jit(
            jax.grad(
                lambda operand, output, *lists: weighed(
                    np_, rank, cjax.ragged_all_to_all(operand, output, *lists)
                ),
                argnums=(0, 1),
            )
        )(*arrays[rank], *lists)
        for ours, theirs in zip(got, want, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, err_msg=name)


def weighed(np_: Any, rank: int, y: Any) -> Any:
    return (np_.arange(1.0, y.size + 1) * (rank + 2) * y**2).sum()


def test_gradients() -> None:
    run_ranks(gradients, 2)


WRONG: dict[str, tuple[Case, str]] = {
    "sizes that differ between sender and receiver": (
        [
            (numbers(1, 2, 3), numbers(0, 0), [0, 1], [1, 2], [0, 0], [1, 0]),
            (numbers(4, 5, 6), numbers(0, 0), [0, 0], [0, 0], [0, 0], [1, 0]),
        ],
        "rank 0 sends 2 rows to rank 1 (send_sizes[1]), which expects 1 (recv_sizes[0])",
    ),
    "a slice that ends after operand": (
        [
            (numbers(1, 2, 3), numbers(0, 0), [0, 0], [0, 0], [0, 0], [0, 2]),
            (numbers(4, 5, 6), numbers(0, 0), [2, 0], [2, 0], [0, 0], [0, 0]),
        ],
        "rank 1's input_offsets[0] 2 and send_sizes[0] 2 are not within operand's 3 rows",
    ),
    "a slice that begins before operand": (
        [
            (numbers(1, 2, 3), numbers(0, 0), [-1, 0], [1, 0], [0, 0], [1, 0]),
            (numbers(4, 5, 6), numbers(0, 0), [0, 0], [0, 0], [0, 0], [0, 0]),
        ],
        "rank 0's input_offsets[0] -1 and send_sizes[0] 1 are not within operand's 3 rows",
    ),
    "a slice that ends after the receiver's output": (
        [
            (numbers(1, 2, 3), numbers(0, 0), [0, 0], [0, 2], [0, 2147483647], [0, 0]),
            (numbers(4, 5, 6), numbers(0, 0), [0, 0], [0, 0], [0, 0], [2, 0]),
        ],
        "rank 0's output_offsets[1] 2147483647 and send_sizes[1] 2 are not within the 2 rows of "
        "rank 1's output",
    ),
    "slices that overlap in an output": (
        [
            (numbers(1, 2, 3), numbers(0, 0, 0), [0, 0], [2, 0], [1, 0], [2, 2]),
            (numbers(4, 5, 6), numbers(0, 0, 0), [0, 0], [2, 0], [0, 0], [0, 0]),
        ],
        "row 1 of rank 0's output is in two slices that arrive, rank 1's and rank 0's: they must "
        "not overlap",
    ),
    "a size below 0": (
        [
            (numbers(1, 2, 3), numbers(0, 0), [0, 0], [0, -1], [0, 0], [0, 0]),
            (numbers(4, 5, 6), numbers(0, 0), [0, 0], [0, 0], [0, 0], [-1, 0]),
        ],
        "rank 0's send_sizes[1] must be >= 0, got -1",
    ),
    "rows of other elements": (
        [
            (numbers(1), numbers(0), [0, 0], [0, 0], [0, 0], [0, 0]),
            (np.int32([1]), np.int32([0]), [0, 0], [0, 0], [0, 0], [0, 0]),
        ],
        "the ranks disagree in call 13: dtype is float32 on rank 0",
    ),
}


def messages(rank: int) -> list[str]:
    jax, cjax, _ = begin()
    texts = []
    for case, _ in WRONG.values():
        with pytest.raises(jax.errors.JaxRuntimeError) as caught:
            jax.jit(cjax.ragged_all_to_all)(*case[rank][:2], *map(np.array, case[rank][2:]))
        texts.append(str(caught.value))
        right = CASES["the example"]
        if case is not WRONG["rows of other elements"][0]:  # which ends the communicator
            cjax.ragged_all_to_all(*right[rank])
    return texts


def test_what_is_refused_on_every_rank_before_a_row_moves() -> None:
    for texts in run_ranks(messages, 2):
        for text, (_, want) in zip(texts, WRONG.values(), strict=True):
            assert "ragged_all_to_all: " in text and want in text


def uneven_lists(rank: int, numbers_of_lists: list[int]) -> str:
    jax, cjax, _ = begin()
    of = (numbers(1), numbers(0), *([0] * count for count in numbers_of_lists))
    if rank == 1:
        of = CASES["the example"][1]
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        cjax.ragged_all_to_all(*of)
    return str(caught.value)


@pytest.mark.parametrize(
    ("counts", "want"),
    [
        ([3, 3, 3, 3], "send_sizes has 3 numbers, which is no multiple of the 2 ranks"),
        ([2, 4, 2, 6], "have 2, 4, 2 and 6 numbers: they must be as many"),
    ],
)
def test_lists_of_a_wrong_length(counts: list[int], want: str) -> None:
    for text in run_ranks(uneven_lists, 2, counts):
        assert want in text


def shared_rows(rank: int) -> str:
    jax, cjax, _ = begin()
    case = CASES["a slice may go to both ranks: slices of operand may overlap"]
    loss = lambda x: cjax.ragged_all_to_all(x, *case[rank][1:]).sum()  # noqa: E731
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        jax.grad(loss)(jax.numpy.asarray(case[rank][0]))
    return str(caught.value)


def test_rows_that_went_to_two_ranks_have_no_gradient() -> None:
    for text in run_ranks(shared_rows, 2):
        assert "row 1 of rank 0's operand is in two slices whose gradients come back" in text
