"""python -m golden, as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from golden.__main__ import main
from golden.case_files import read_cases, write_cases
from golden.cases import all_cases, expected, inputs

from patience import patience
from tests import programs

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = programs.run_forked(main, arguments, cwd=ROOT)
    assert done.returncode == code, done.stderr
    return done


def test_list_names_every_case() -> None:
    """As a user starts it: by another process."""
    command = [sys.executable, "-B", "-m", "golden", "list"]
    done = programs.run(command, cwd=ROOT, capture_output=True, timeout=patience(60))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    cases = all_cases()
    assert lines[0].split()[:4] == ["case", "ranks", "dtype", "reduce"]
    assert [line.split()[0] for line in lines[1:-1]] == [case.id for case in cases]
    assert lines[-1] == f"{len(cases)} cases"


def test_list_one_operator_filtered() -> None:
    lines = run("list", "--op", "reduce_scatter_v", "--filter", "p3.max-int8").stdout.splitlines()
    assert lines[1].split() == [
        *("reduce_scatter_v.p3.max-int8", "3", "int8", "max", "special"),
        *("97", "194", "291", "25", "49", "73"),
    ]
    assert lines[2] == "1 case"


def test_write_and_read_back(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "cases"
    done = run("write", str(folder), "--filter", "p2.", "--seed", "7")
    want = all_cases(text="p2.", seed=7)
    assert done.stdout == f"{len(want)} cases in {folder / 'manifest.json'}\n"
    read = list(read_cases(folder / "manifest.json"))
    assert [case for case, _, _ in read] == want
    for case, tensors, outputs in read:
        for got, own in zip(tensors, inputs(case), strict=True):
            assert list(got) == list(own)
            for name, tensor in own.items():
                assert got[name].dtype == tensor.dtype
                assert got[name].shape == tensor.shape
                assert got[name].tobytes() == tensor.tobytes()
        for output, right in zip(outputs, expected(case), strict=True):
            assert (output.dtype, output.shape) == (right.dtype, right.shape)
            assert output.tobytes() == right.tobytes()


def test_generate_is_another_word_for_write(tmp_path: Path) -> None:
    for word in ("write", "generate"):
        run(word, str(tmp_path / word), "--filter", "p2.shares-3-5")
    one, two = (
        {p.name: p.read_bytes() for p in (tmp_path / w).iterdir()} for w in ("write", "generate")
    )
    assert one == two


def test_list_the_rows_of_case_files(tmp_path: Path) -> None:
    sample = (ROOT / "examples" / "golden" / "all_gather_v.csv").read_text().splitlines()
    other = sample[1].replace("AllGatherVOperation", "ElewiseOperation   ").replace("1 ", "77", 1)
    bad = sample[2].replace("NO_ERROR", "S:OOPS").replace("2 ", "88", 1)
    (tmp_path / "mixed.csv").write_text("\n".join([*sample, other, bad]))
    (tmp_path / "uneven").symlink_to(ROOT / "examples" / "golden" / "uneven")
    lines = run("list", str(tmp_path / "mixed.csv"), "--filter", "7-8,77,88").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == ["7", "8", "77", "88"]
    assert lines[1].split()[2:] == ["AllGatherVOperation", "2", "NO_ERROR", "run"]
    assert lines[2].split()[3:] == ["1", "C:ERROR_INVALID_PARAM", "run"]
    assert lines[3].endswith("skip: ElewiseOperation is not an operator of collops")
    assert f"malformed: {tmp_path / 'mixed.csv'}:30: column ExpectedError is neither" in lines[4]
    assert lines[-1] == "4 rows: 2 run, 1 skip, 1 malformed"
    chosen = run("list", str(tmp_path / "mixed.csv"), "--op", "all_gather_v", "--filter", "bf16")
    # The row that cannot be read is chosen by its name and its operator as the others are.
    assert chosen.stdout.splitlines()[-1] == "3 rows: 2 run, 1 malformed"


def test_the_manifest_states_every_case(tmp_path: Path) -> None:
    run("write", str(tmp_path), "--op", "all_gather_v", "--filter", "p2.shares-3-5")
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["schema"] == 1
    [entry] = manifest["cases"]
    assert entry == {
        "id": "all_gather_v.p2.shares-3-5",
        "file": "all_gather_v.p2.shares-3-5.npz",
        "inputs": ["x", "sendCount", "recvCounts", "rdispls", "y"],
        "operator": "all_gather_v",
        "name": "shares-3-5",
        "rank_size": 2,
        "dtype": "float16",
        "counts": [24, 40],
        "displs": [0, 24],
        "x_shapes": [[6, 4], [10, 4]],
        "rows": [16, 16],
        "op": "",
        "kind": "index",
        "seed": 0,
    }


def test_a_file_is_an_ordinary_npz(tmp_path: Path) -> None:
    run("write", str(tmp_path), "--filter", "p2.dtype-bfloat16")
    file = tmp_path / "all_gather_v.p2.dtype-bfloat16.npz"
    with zipfile.ZipFile(file) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    with np.load(file, allow_pickle=False) as tensors:
        assert tensors["rank1/x"].dtype == np.uint16
        assert tensors["rank0/output"].tobytes() == tensors["rank1/output"].tobytes()
        assert tensors["rank0/recvCounts"].tolist() == [12, 24]


def test_same_seed_same_bytes_other_seed_other_bytes(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b", "c")]
    for folder, seed in zip(folders, ("5", "5", "6"), strict=True):
        run("write", str(folder), "--filter", "p3.d", "--seed", seed)  # every dtype
    a, b, c = ({p.name: p.read_bytes() for p in folder.iterdir()} for folder in folders)
    assert a == b
    assert a.keys() == c.keys()
    assert all(a[name] != c[name] for name in a if "no-rows" not in name)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("list", "--op", "all_to_none"),
            "operator 'all_to_none' is unknown; use one of all_gather",
        ),
        (("write", "{dir}", "--op", "x"), "operator 'x' is unknown"),
        (("list", "--filter", "p99"), "no case has 'p99' in its id"),
        (("write", "{dir}", "--filter", "zzz"), "no case has 'zzz' in its id"),
        (("write",), "the following arguments are required: DIR"),
        (("write", "{dir}", "--seed", "many"), "invalid int value: 'many'"),
        ((), "the following arguments are required: list|generate|compare"),
        (("list", "gone.csv"), "gone.csv: No such file or directory"),
        (("list", "examples/golden/all_gather_v.csv", "--op", "x"), "operator 'x' is unknown"),
        (("list", "examples/golden/all_gather_v.csv", "--filter", "zz"), "no row has 'zz' in its"),
        (("list", "examples/golden/all_gather_v.csv", "--filter", "9-1"), "ends before it begins"),
        (("list", "examples/golden/all_gather_v.csv", "--filter", "1,999"), "has the number 999"),
        (
            ("list", "examples/golden/all_gather_v.csv", "--filter", "900-999"),
            "no row has '900-999'",
        ),
        (("compare", "a.npy"), "the following arguments are required: B"),
        (("show",), "invalid choice: 'show'"),
    ],
)
def test_wrong_requests_are_one_line(
    arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    done = run(*(a.replace("{dir}", str(target)) for a in arguments), code=2)
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert not target.exists()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = run("write", str(tmp_path / "file" / "x"), "--filter", "p2.", code=1)
    assert done.stderr == f"python -m golden write: {tmp_path}/file/x: Not a directory\n"


@pytest.mark.parametrize(
    "arguments", [("--help",), ("list", "--help"), ("generate", "--help"), ("compare", "--help")]
)
def test_help(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).stdout.startswith("usage: python -m golden")


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = '( "$0" -m golden list; echo status $? >&2 ) | true'
    done = programs.run(
        ["sh", "-c", command, sys.executable], cwd=ROOT, capture_output=True, timeout=patience(60)
    )
    assert done.stderr == "status 0\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema": 2, "cases": []}', "schema is 2, this golden reads 1"),
        ("", "is not JSON (Expecting value: line 1 column 1 (char 0))"),
        ('{"schema": 2, "schema": 1}', "is not JSON (schema is given twice in one object)"),
        ("[" * 100000, "is not JSON (maximum recursion depth"),
        ("[]", "schema is None, this golden reads 1"),
    ],
)
def test_files_that_are_no_manifest_are_refused(tmp_path: Path, text: str, message: str) -> None:
    manifest = tmp_path / "manifest.json"
    manifest.write_text(text)
    with pytest.raises(ValueError) as caught:
        list(read_cases(manifest))
    assert str(caught.value).startswith(f"{manifest}: {message}")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("operator", None, "case 1: operator is not one of all_gather_v, reduce_scatter_v, "),
        ("operator", "zz", "all_to_all_v_v2, send, recv, got 'zz'"),
        ("rank_size", None, "case 1: rank_size is not a whole number from 1, got None"),
        ("rank_size", "zz", "case 1: rank_size is not a whole number from 1, got 'zz'"),
        ("dtype", "half", "case 1: dtype is not one of float16, "),
        ("counts", [1, "x"], "case 1: counts is not a list of whole numbers, got [1, 'x']"),
        ("x_shapes", [1, 2], "case 1: x_shapes is not a list of whole numbers, got [1, 2]"),
        ("inputs", None, "case 1: "),
        ("inputs", ["z"], "p2.shares-3-5.npz: has no rank0/z"),
    ],
)
def test_a_manifest_with_a_wrong_field(
    tmp_path: Path, field: str, value: object, message: str
) -> None:
    manifest = write_cases(all_cases("all_gather_v", text="p2.shares-3-5"), tmp_path)
    content = json.loads(manifest.read_text())
    content["cases"][0][field] = value
    manifest.write_text(json.dumps(content))
    with pytest.raises(ValueError) as caught:
        list(read_cases(manifest))
    assert str(tmp_path) in str(caught.value)
    assert message in str(caught.value)


def test_run_needs_the_package() -> None:
    done = run("run", "cases.csv", code=2)
    assert done.stderr == "python -m golden: run needs an installed collops: collops golden run\n"
