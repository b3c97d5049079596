"""The reader of ATB's case files: accepted rows, messages about others, the sample files."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden.case_files.csv_cases import COLUMNS, read_rows, scan_rows
from golden.case_files.csv_row import CsvRow, Expectation, RowError, RowTensor
from golden.data.acl_types import FORMATS

GATHER = {
    "CaseNum": "4",
    "CaseName": "gather",
    "OpName": "AllGatherVOperation",
    "OpParam": '{"rank":0,"rankSize":2,"backend":"hccl"}',
    "InNum": "5",
    "InDType": "bf16;int64;int64;int64;float16",
    "InFormat": "nd;nd;nd;nd;nd",
    "InShape": "10,50;1;2;2;20",
    "OutNum": "1",
    "OutDType": "bf16",
    "OutFormat": "nd",
    "OutShape": "20,50",
    "ExpectedError": "NO_ERROR",
}


def write(folder: Path, *rows: dict[str, str], columns: list[str] = COLUMNS, pad: int = 0) -> Path:
    """A case file of rows that differ from GATHER in the cells given."""
    lines = ["|".join(columns)]
    for row in rows:
        cells = {**GATHER, **row}
        lines.append("|".join(cells.get(name, "").ljust(pad) for name in columns))
    path = folder / "cases.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def one(folder: Path, **cells: str) -> CsvRow:
    [row] = read_rows(write(folder, cells))
    return row


@pytest.mark.parametrize("pad", [0, 60])
def test_a_row(tmp_path: Path, pad: int) -> None:
    cells = {"DataGenType": "random;customize;zero;one", "DataGenRange": "-100,100;;0,3"}
    cells |= {"InTensorFile": ";a.bin;;b.npy", "OutTensorFile": "out put.bin"}
    cells |= {"SocVersion": "Ascend310P, Ascend910B"}
    path = write(tmp_path, cells, pad=pad)
    [row] = read_rows(path)
    assert row == CsvRow(
        place=f"{path}:2",
        number=4,
        name="gather",
        operator="AllGatherVOperation",
        params={"rank": 0, "rankSize": 2, "backend": "hccl"},
        inputs=(
            RowTensor("bfloat16", (10, 50), "nd", "random", (-100.0, 100.0)),
            RowTensor("int64", (1,), "nd", "customize", (-5.0, 5.0), "a.bin"),
            RowTensor("int64", (2,), "nd", "zero", (0.0, 3.0)),
            RowTensor("int64", (2,), "nd", "one", (-5.0, 5.0), "b.npy"),
            RowTensor("float16", (20,)),
        ),
        outputs=(RowTensor("bfloat16", (20, 50), file="out put.bin"),),
        expected=Expectation(),
        soc_versions=("Ascend310P", "Ascend910B"),
    )
    assert row.rank_size == 2


def test_more_generators_than_inputs_and_ranges_written_backwards(tmp_path: Path) -> None:
    row = one(tmp_path, DataGenType="one;" * 9, DataGenRange="1,-1;" * 9)
    assert {(t.generator, t.range) for t in row.inputs} == {("one", (-1.0, 1.0))}


@pytest.mark.parametrize(
    ("column", "text"), [("InTensorFile", ";;;;y.npy;z.npy"), ("OutTensorFile", ";y.npy")]
)
def test_more_files_than_tensors_are_reported(tmp_path: Path, column: str, text: str) -> None:
    with pytest.raises(RowError, match=rf"cases.csv:2: column {column} names more files than \d"):
        one(tmp_path, **{column: text})


def test_a_row_without_outputs_may_have_a_file_of_the_result(tmp_path: Path) -> None:
    none = dict.fromkeys(("OutDType", "OutFormat", "OutShape"), "")
    row = one(tmp_path, OutNum="0", OutTensorFile="y.npy", **none)
    assert (row.outputs, row.result_file) == ((), "y.npy")
    assert one(tmp_path, OutTensorFile="y.npy").result_file == ""


@pytest.mark.parametrize("column", ["OutNum", "OutDType", "OutFormat", "OutShape"])
def test_outputs_that_are_reserved_are_those_of_infer_shape(tmp_path: Path, column: str) -> None:
    row = one(tmp_path, **{column: "reserved"})
    assert (row.outputs, row.infers_outputs) == ((), True)
    assert not one(tmp_path).infers_outputs
    with pytest.raises(RowError, match=f"OutTensorFile names a file, but {column} is reserved"):
        one(tmp_path, **{column: "reserved", "OutTensorFile": "y.npy"})


def test_a_bias_of_shape_0_is_an_empty_tensor(tmp_path: Path) -> None:
    row = one(tmp_path, InShape="10,50;0;2;2;20")
    assert row.inputs[1].shape == (0,)
    assert row.inputs[1].can_be_made


@pytest.mark.parametrize(
    ("text", "stage", "name", "code"),
    [
        ("NO_ERROR", "", "NO_ERROR", 0),
        ("C:ERROR_INVALID_PARAM", "create", "ERROR_INVALID_PARAM", 1),
        ("I:ERROR_INVALID_TENSOR_INI_MATCH", "infer_shape", "ERROR_INVALID_TENSOR_INI_MATCH", 13),
        ("S: ERROR_INVALID_TENSOR_DIM_NUM", "setup", "ERROR_INVALID_TENSOR_DIM_NUM", 16),
        ("E:ERROR_COMM_EMPTY", "execute", "ERROR_COMM_EMPTY", 28),
        ("S:ERROR_COPY_HOST_MEMORY_FAIL", "setup", "ERROR_COPY_HOST_MEMORY_FAIL", 29),
        ("E:ERROR_RANK_MISMATCH", "execute", "ERROR_RANK_MISMATCH", 102),
    ],
)
def test_expected_errors(tmp_path: Path, text: str, stage: str, name: str, code: int) -> None:
    expected = one(tmp_path, ExpectedError=text).expected
    assert (expected.stage, expected.name, expected.code) == (stage, name, code)
    assert str(expected) == text.replace(" ", "")


def test_nothing_is_asked_of_the_tensors_where_creation_fails(tmp_path: Path) -> None:
    row = one(tmp_path, ExpectedError="C:ERROR_INVALID_PARAM", InNum="4", InShape="1;2")
    assert (row.inputs, row.outputs, row.params["rankSize"]) == ((), (), 2)


def test_a_suffix_of_the_operator_is_cut(tmp_path: Path) -> None:
    assert one(tmp_path, OpName="AllGatherVOperation_0_1").operator == "AllGatherVOperation"


@pytest.mark.parametrize(
    ("word", "dtype"), [("float", "float32"), ("double", "float64"), ("uint16", "uint16")]
)
def test_words_of_dtypes(tmp_path: Path, word: str, dtype: str) -> None:
    tensor = one(tmp_path, OutDType=word).outputs[0]
    assert (tensor.dtype, tensor.can_be_made) == (dtype, dtype != "uint16")


@pytest.mark.parametrize("word", FORMATS)
def test_words_of_formats(tmp_path: Path, word: str) -> None:
    assert one(tmp_path, OutFormat=word.upper()).outputs[0].format == word


def test_lists_may_end_in_a_separator_and_there_may_be_nothing(tmp_path: Path) -> None:
    assert one(tmp_path, OutShape="20,50;", OutDType="bf16;").outputs[0].shape == (20, 50)
    row = one(tmp_path, OutNum="0", OutDType="", OutFormat="", OutShape="", InShape="0,3;1;2;2;20")
    assert (row.outputs, row.inputs[0].shape) == ((), (0, 3))


def test_blank_lines_a_mark_at_the_beginning_and_other_orders_of_columns(tmp_path: Path) -> None:
    path = write(tmp_path, {}, {"CaseNum": "5"}, columns=[*COLUMNS[::-1], "Remark"])
    path.write_bytes(b"\xef\xbb\xbf\n" + path.read_bytes().replace(b"\n", b"\r\n\r\n"))
    assert [(row.number, row.place) for row in read_rows(path)] == [
        (4, f"{path}:4"),
        (5, f"{path}:6"),
    ]


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"CaseNum": "x"}, "column CaseNum is not a whole number, got 'x'"),
        ({"CaseNum": "1" * 5000}, "column CaseNum has more than 18 digits, got '111"),
        ({"OpName": ""}, "column OpName is empty"),
        ({"OpName": "AllGatherVOpration"}, "is not an operator: did you mean AllGatherVOperation"),
        ({"OpName": "allreduceoperation_1"}, "is not an operator: did you mean AllReduceOperation"),
        ({"OpParam": '{"rank":'}, "column OpParam is not JSON (Expecting value"),
        (
            {"OpParam": '{"twoDimTPInfo":{"agDim":1,"agDim":2}}'},
            "column OpParam is not JSON (agDim is given twice in one object)",
        ),
        ({"OpParam": "[" * 100000}, "column OpParam is nested too deeply, got '[[["),
        ({"OpParam": f'{{"rankSize":{"9" * 5000}}}'}, "a number of 5000 digits does not fit"),
        ({"OpParam": "[1]"}, "column OpParam is not a JSON object, got '[1]'"),
        ({"InNum": "-5"}, "column InNum is not a whole number, got '-5'"),
        ({"InNum": "4"}, "column InDType names 5 tensors where the row has 4, got 'bf16;int64;"),
        ({"InShape": "1;2"}, "column InShape names 2 tensors where the row has 5, got '1;2'"),
        ({"InFormat": "nd"}, "column InFormat names 1 tensors where the row has 5, got 'nd'"),
        ({"OutNum": "0"}, "column OutDType names 1 tensors where the row has 0"),
        ({"OutDType": "half"}, "column OutDType: dtype 'half' is unknown; use one of"),
        ({"OutFormat": "nz"}, "column OutFormat has a word that is not one of undefined, nchw"),
        ({"OutShape": "2,x"}, "column OutShape has a dim that is not a whole number, got '2,x'"),
        ({"OutShape": f"2,{'9' * 5000}"}, "column OutShape has a dim that does not fit into 64"),
        ({"OutShape": "2,9223372036854775808"}, "column OutShape has a dim that does not fit"),
        ({"OutShape": "2,,3"}, "column OutShape has a dim that is not a whole number, got '2,,3'"),
        ({"DataGenType": "random;ones"}, "column DataGenType has a word that is not one of one"),
        (
            {"DataGenRange": "5;5,5,3"},
            "is not a range LOW,HIGH; other counts: a .npy in InTensorFile, as in "
            "examples/golden/uneven, got '5'",
        ),
        ({"DataGenRange": "x"}, "column DataGenRange is not a range LOW,HIGH, got 'x'"),
        ({"DataGenRange": "0,inf"}, "column DataGenRange is not a range LOW,HIGH, got '0,inf'"),
        ({"ExpectedError": ""}, "column ExpectedError is neither NO_ERROR nor one of C:, I:, S:"),
        ({"ExpectedError": "X:ERROR_INVALID_PARAM"}, "column ExpectedError is neither NO_ERROR"),
        ({"ExpectedError": "S:ERROR_BAD"}, "and a code, got 'S:ERROR_BAD'"),
        ({"ExpectedError": "ERROR_INVALID_PARAM"}, "column ExpectedError is neither NO_ERROR"),
        ({"ExpectedError": "I:NO_ERROR"}, "column ExpectedError is neither NO_ERROR"),
    ],
)
def test_malformed_rows(tmp_path: Path, cells: dict[str, str], message: str) -> None:
    path = write(tmp_path, {"CaseNum": "1"}, cells, {"CaseNum": "9"})
    with pytest.raises(RowError) as caught:
        read_rows(path)
    assert str(caught.value).startswith(f"{path}:3: column ")
    assert message in str(caught.value)
    # One bad row does not hide the others.
    first, bad, last = scan_rows(path)
    assert isinstance(first, CsvRow)
    assert isinstance(last, CsvRow)
    assert isinstance(bad, RowError)
    assert bad.number == (None if "CaseNum" in cells else 4)
    assert bad.name == "gather"
    assert len(str(bad)) < 400 + len(str(path))


def test_rows_of_other_lengths_and_missing_columns(tmp_path: Path) -> None:
    path = write(tmp_path, {}, {})
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1] + "|x", lines[1].rpartition("|")[0]]))
    problems = [str(row) for row in scan_rows(path)]
    assert (
        "column ExpectedError is followed by 1 cell too many: the row has 22 cells, the line of "
        "names 21" in (problems[0])
    )
    assert (
        "column ExpectedError is missing: the row has 20 cells, the line of names 21" in problems[1]
    )
    path = write(tmp_path, {}, columns=[name for name in COLUMNS if name != "InShape"])
    with pytest.raises(RowError, match=r"cases.csv:1: column InShape is missing among the column"):
        list(scan_rows(path))


def test_misspelt_and_repeated_columns(tmp_path: Path) -> None:
    for old, new, message in (
        ("SocVersion", "SocVersoin", r"unknown column 'SocVersoin'; did you mean 'SocVersion'\?"),
        ("SocVersion", "OpParam", "column OpParam is named twice, got 'CaseNum|"),
    ):
        path = write(tmp_path, {}, columns=[new if name == old else name for name in COLUMNS])
        with pytest.raises(RowError, match=message):
            read_rows(path)


@pytest.mark.parametrize("name", ["ReduceOperation", "GatherOperation", "ScatterOperation"])
def test_another_operator_of_atb_is_no_misspelling_of_ours(tmp_path: Path, name: str) -> None:
    assert one(tmp_path, OpName=name).operator == name


def test_unknown_columns_are_ignored_unless_misspelt(tmp_path: Path) -> None:
    for name in ("InTensor", "Remark", "InNums2"):
        path = write(tmp_path, {}, columns=[name if c == "TestType" else c for c in COLUMNS])
        assert len(read_rows(path)) == 1


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"cases.csv: is not UTF-8 text"):
        read_rows(tmp_path / "cases.csv")
