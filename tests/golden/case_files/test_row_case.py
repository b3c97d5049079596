"""From rows to tensors: counts of the even split, files, expected outputs, layouts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from golden.case_files.bin_file import write_bin
from golden.case_files.csv_row import CsvRow, Expectation, RowTensor
from golden.case_files.row_case import expected_outputs, rank_params, row_bounds, row_layout
from golden.case_files.row_inputs import rank_inputs

INT64 = "int64"


def gather(ranks: int = 3, shape: tuple[int, ...] = (4, 2), place: str = "a.csv:2") -> CsvRow:
    counts = [RowTensor(INT64, (n,)) for n in (1, ranks, ranks)]
    inputs = (RowTensor("float16", shape), *counts, RowTensor("float16", (shape[0] * ranks,)))
    outputs = (RowTensor("float16", (shape[0] * ranks, *shape[1:])),)
    params = {"rank": 0, "rankSize": ranks}
    return CsvRow(place, 1, "x", "AllGatherVOperation", params, inputs, outputs)


def scatter(ranks: int = 2, shape: tuple[int, int] = (4, 3)) -> CsvRow:
    counts = [RowTensor(INT64, (n,)) for n in (ranks, ranks, 1)]
    inputs = (RowTensor("bfloat16", shape), *counts, RowTensor("float16", (shape[0] // ranks,)))
    outputs = (RowTensor("bfloat16", (shape[0] // ranks, shape[1])),)
    params = {"rank": 0, "rankSize": ranks, "reduceType": "max"}
    return CsvRow("a.csv:2", 1, "x", "ReduceScatterVOperation", params, inputs, outputs)


def with_input(row: CsvRow, position: int, **changes: object) -> CsvRow:
    inputs = list(row.inputs)
    inputs[position] = replace(inputs[position], **changes)  # type: ignore[arg-type]
    return replace(row, inputs=tuple(inputs))


def test_customized_counts_of_a_gather_are_all_of_x() -> None:
    _, own, counts, displs, y = rank_inputs(gather(), 2)
    assert (own.tolist(), counts.tolist(), displs.tolist()) == ([8], [8, 8, 8], [0, 8, 16])
    assert (y.dtype, y.shape, y.any()) == (np.float16, (12,), False)


def test_customized_counts_of_a_scatter_are_equal_shares() -> None:
    _, counts, displs, own, y = rank_inputs(scatter(), 1)
    assert (counts.tolist(), displs.tolist(), own.tolist()) == ([6, 6], [0, 6], [6])
    assert y.shape == (2,)


def test_wrong_shapes_and_dtypes_of_counts_are_made_as_the_row_says() -> None:
    row = with_input(gather(2), 2, shape=(3,), dtype="int32")
    row = with_input(row, 3, shape=(1, 2))
    _, own, counts, displs, _ = rank_inputs(row, 0)
    assert (counts.dtype, counts.tolist(), displs.tolist()) == (np.int32, [8, 8, 8], [[0, 8]])
    assert own.tolist() == [8]


def test_a_scale_of_int64_is_the_bits_of_a_float() -> None:
    tensors = (
        RowTensor("int8", (2, 8)),
        RowTensor("int8", (6, 8)),
        RowTensor("int32", (0,)),
        RowTensor("int64", (6,), range=(1, 2)),
    )
    params = {"rankSize": 2, "type": 3, "quantType": 1, "outDataType": 1}
    row = CsvRow("a.csv:2", 1, "x", "LinearParallelOperation", params, tensors)
    inputs = [rank_inputs(row, rank) for rank in range(2)]
    assert (inputs[0][2].shape, inputs[0][3].dtype) == ((0,), np.int64)
    assert not (inputs[0][3] & 0x1FFF).any()
    scale = inputs[0][3].astype(np.uint32).view(np.float32)
    assert ((scale >= 1) & (scale <= 2)).all()
    assert np.unique(scale).size == 6
    wanted = (inputs[0][0].astype(int) @ inputs[0][1].T.astype(int)) * scale
    assert np.array_equal(expected_outputs(row, inputs)[0][0], wanted.astype(np.float16))


@pytest.mark.parametrize(
    ("kind", "x_rows", "rows", "each"),
    [(5, 12, 100, 3), (5, 12, 9, 1), (6, 12, 100, 1), (6, 100, 9, 2), (5, 0, 0, 0)],
)
def test_customized_tokens_are_even_and_fit(kind: int, x_rows: int, rows: int, each: int) -> None:
    tensors = [RowTensor("float16", (x_rows, 8)), RowTensor("float16", (2, 6, 8))]
    tensors += [RowTensor("int32", (2, 4)), RowTensor("int32", (rows,))]
    moe = {"epSize": 2, "tpSize": 2, "localExpertNums": 2}
    params = {"rankSize": 4, "type": kind, "moeInfo": moe}
    row = CsvRow("a.csv:2", 1, "x", "LinearParallelOperation", params, tuple(tensors))
    inputs = [rank_inputs(row, rank) for rank in range(4)]
    assert inputs[3][2].tolist() == [[each] * 4] * 2
    outputs = expected_outputs(row, inputs)
    assert [y.shape for [y] in outputs] == [(rows, 6)] * 4
    assert sum(block.count for block in row_layout(row, inputs).of(1)) == 6 * each * (
        8 if kind == 5 else 4
    )


def test_other_generators_of_counts_do_what_they_say() -> None:
    row = with_input(gather(2), 2, generator="zero")
    row = with_input(row, 3, generator="random", range=(-3.0, -1.0))
    _, _, counts, displs, _ = rank_inputs(row, 0)
    assert counts.tolist() == [0, 0]
    assert set(displs.tolist()) <= {-3, -2, -1}


def test_inputs_beyond_the_known_ones_are_random() -> None:
    row = gather(2)
    row = replace(row, inputs=(*row.inputs, RowTensor("float32", (50,))))
    assert len(np.unique(rank_inputs(row, 0)[5])) == 50
    other = replace(row, operator="AllReduceOperation", inputs=(RowTensor("int8", (50,)),) * 2)
    assert all(len(np.unique(array)) > 5 for array in rank_inputs(other, 0))


def test_files_are_read_beside_the_case_file(tmp_path: Path) -> None:
    row = gather(2, (2, 2), place=f"{tmp_path / 'cases.csv'}:7")
    (tmp_path / "data").mkdir()
    for rank, rows in enumerate((2, 3)):
        array = np.full((rows, 2), rank + 1, np.float16)
        write_bin(tmp_path / "data" / f"x{rank}.bin", array)
    np.save(tmp_path / "out.npy", np.ones((4, 2), np.float16))
    row = with_input(row, 0, file="data/x{rank}.bin")
    inputs = [rank_inputs(row, rank) for rank in range(2)]
    assert [own[0].shape for own in inputs] == [(2, 2), (3, 2)]
    assert [own[1].tolist() for own in inputs] == [[4], [6]]
    assert inputs[1][2].tolist() == [4, 6]
    row = replace(row, outputs=(replace(row.outputs[0], file="out.npy"),))
    assert all(own[0].tolist() == [[1, 1]] * 4 for own in expected_outputs(row, inputs))


def leaves_row(tmp_path: Path, **params: object) -> CsvRow:
    """Two ranks with 3 and 5 of 8 columns, which are four leaves; OpParam has these fields more."""
    for rank, k in enumerate((3, 5)):
        np.save(tmp_path / f"x{rank}.npy", np.full((2, k), 1 + rank, np.float32))
        np.save(tmp_path / f"w{rank}.npy", np.full((4, k), 3, np.float32))
    tensors = [
        RowTensor("float32", shape, file=file)
        for shape, file in (((2, 4), "x{rank}.npy"), ((4, 4), "w{rank}.npy"))
    ]
    given = {"rankSize": 2, "type": 0, **params}
    place = f"{tmp_path / 'a.csv'}:2"
    return CsvRow(place, 1, "x", "LinearParallelOperation", given, tuple(tensors))


def test_ranks_have_the_columns_that_the_row_lists(tmp_path: Path) -> None:
    row = leaves_row(tmp_path, sumLeaves=8, sumColumns=[3, 5])
    inputs = [rank_inputs(row, rank) for rank in range(2)]
    assert [own[1].shape for own in inputs] == [(4, 3), (4, 5)]
    outputs = expected_outputs(row, inputs)
    assert all((own[0] == 3 * 3 + 2 * 3 * 5).all() and own[0].shape == (2, 4) for own in outputs)
    assert row_bounds(row, inputs) is None
    assert "leaf 7 was added twice" in {fault.text for fault in row_layout(row, inputs).faults}
    with pytest.raises(ValueError, match="x1.npy has shape .2, 5., the row says .2, 4."):
        rank_inputs(leaves_row(tmp_path, sumLeaves=8), 1)
    with pytest.raises(ValueError, match=r"sumColumns \[4, 4\] of rank 0 are \[3, 5\]"):
        expected_outputs(leaves_row(tmp_path, sumLeaves=8, sumColumns=[4, 4]), inputs)


def test_each_rank_has_its_own_of_a_list_of_lists(tmp_path: Path) -> None:
    row = leaves_row(tmp_path, sumLeaves=8, sumColumns=[[3, 5], [5, 3]])
    assert [rank_params(row, rank)["sumColumns"] for rank in range(2)] == [[3, 5], [5, 3]]


def test_outputs_without_a_file_are_golden_s(tmp_path: Path) -> None:
    pair = RowTensor("float16", (2, 3)), RowTensor("float16", (4, 3))
    params = {"rankSize": 2, "type": 2, "keepIntermediate": True}
    outputs = RowTensor("float16", (4, 4)), RowTensor("float16", (4, 3))
    row = CsvRow(
        f"{tmp_path / 'a.csv'}:2", 1, "x", "LinearParallelOperation", params, pair, outputs
    )
    inputs = [rank_inputs(row, rank) for rank in range(2)]
    right = expected_outputs(row, inputs)
    np.save(tmp_path / "y.npy", np.full((4, 4), 7, np.float16))
    mixed = expected_outputs(
        replace(row, outputs=(replace(outputs[0], file="y.npy"), outputs[1])), inputs
    )
    for rank in range(2):
        assert (mixed[rank][0] == 7).all() and not (right[rank][0] == 7).all()
        assert mixed[rank][1].tobytes() == right[rank][1].tobytes()
        assert len(mixed[rank]) == 2


def test_parameters_have_the_own_rank() -> None:
    assert rank_params(gather(), 2) == {"rank": 2, "rankSize": 3}
    failing = replace(gather(), expected=Expectation("create", "ERROR_INVALID_PARAM"))
    assert rank_params(failing, 2)["rank"] == 2
    for outside in (-1, 3, 9):
        row = replace(failing, params={"rank": outside, "rankSize": 3})
        assert rank_params(row, 2)["rank"] == outside
        assert rank_params(replace(row, expected=Expectation()), 2)["rank"] == 2


def test_rows_of_unknown_operators_are_read() -> None:
    row = replace(gather(), operator="FillOperation")
    inputs = [rank_inputs(row, rank) for rank in range(3)]
    with pytest.raises(ValueError, match="a.csv:2: golden has no reference of FillOperation"):
        expected_outputs(row, inputs)
    with pytest.raises(ValueError, match="golden does not know the layout of FillOperation"):
        row_layout(row, inputs)
    short = replace(gather(), inputs=gather().inputs[:4])
    with pytest.raises(ValueError, match="a.csv:2: AllGatherVOperation has 5 inputs, the row 4"):
        expected_outputs(short, [rank_inputs(short, rank) for rank in range(3)])


@pytest.mark.parametrize("form", ["nd", "fractal_nz"])
def test_a_file_of_another_format_contradicts_the_row(tmp_path: Path, form: str) -> None:
    write_bin(tmp_path / "nz.bin", np.zeros((4, 2), np.float16), form="fractal_nz")
    row = gather(place=f"{tmp_path / 'cases.csv'}:7")
    row = with_input(row, 0, file="nz.bin", format=form)
    if form == "fractal_nz":
        assert rank_inputs(row, 0)[0].shape == (4, 2)
        return
    with pytest.raises(ValueError) as caught:
        rank_inputs(row, 0)
    assert str(caught.value).startswith(f"{tmp_path / 'cases.csv'}:7: ")
    assert "its elements lie in format fractal_nz, expected nd" in str(caught.value)
