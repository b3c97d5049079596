"""python -m golden compare, as a user runs it."""

from __future__ import annotations

import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from golden.__main__ import main
from golden.case_files import write_cases
from golden.case_files.bin_file import write_bin
from golden.cases import all_cases
from golden.compare import compare
from golden.compare.html import html_page
from golden.data import fill
from golden.data.dtypes import Array
from golden.operators.output_layout import OutputLayout

from patience import patience

ROOT = Path(__file__).resolve().parents[3]
MOVE = ("--op", "all_gather_v")


@pytest.fixture
def tensors(tmp_path: Path) -> Path:
    """A folder with a tensor, itself in other forms, and one that differs."""
    right = fill((16, 5), "bfloat16", 0)
    write_bin(tmp_path / "right.bin", right)
    np.save(tmp_path / "right.npy", right)
    np.savez(tmp_path / "right.npz", anything=right)
    wrong = right.copy()
    wrong[0:8], wrong[8:16] = right[8:16], right[0:8]
    np.save(tmp_path / "wrong.npy", wrong)
    np.save(tmp_path / "short.npy", right[:3])
    np.save(tmp_path / "half.npy", right.view(np.float16))
    return tmp_path


def run(
    capsys: pytest.CaptureFixture[str], *arguments: str | Path, status: int
) -> tuple[list[str], str]:
    assert main(["compare", *map(str, arguments)]) == status
    out, err = capsys.readouterr()
    return out.splitlines(), err


@pytest.mark.parametrize("a", ["right.bin", "right.npy", "right.npz"])
@pytest.mark.parametrize("b", ["right.bin", "right.npy", "right.npz"])
@pytest.mark.parametrize("dtype", ["bfloat16", "bf16"])
def test_equal(
    tensors: Path, capsys: pytest.CaptureFixture[str], a: str, b: str, dtype: str
) -> None:
    out, err = run(capsys, tensors / a, tensors / b, *MOVE, "--dtype", dtype, status=0)
    assert (out, err) == (["equal: 80 elements of bfloat16, bit for bit"], "")


def test_different(tensors: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = (tensors / "wrong.npy", tensors / "right.bin")
    out, err = run(capsys, *files, *MOVE, "--dtype", "bf16", "--counts", "40,40", status=1)
    assert err == ""
    assert out[0] == "different: 80 of 80 elements of bfloat16, bit for bit"
    assert out[4].startswith("pattern: swapped blocks: rank 0's block holds rank 1's block and ")
    assert out[6:9] == [
        "  row 0, columns 0..4",
        "    got       -214.0* -213.0* -212.0* -211.0* -210.0*",
        "    expected   -254.0  -253.0  -252.0  -251.0  -250.0",
    ]


def test_other_shapes_are_different(tensors: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = (tensors / "short.npy", tensors / "right.bin")
    out, _ = run(capsys, *files, *MOVE, "--dtype", "bf16", status=1)
    assert out == [
        "different: shape [3, 5], expected [16, 5]",
        "pattern: wrong shape: rows 3..15 of the expected ones are missing; all else is right",
    ]


def save_outputs(path: Path, outputs: list[Array]) -> Path:
    np.savez(path, **{f"rank{rank}/output": array for rank, array in enumerate(outputs)})
    return path


def test_a_case_file_has_its_blocks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [case] = all_cases("all_gather_v", text="p3.layout-gaps-of-rows")
    write_cases([case], tmp_path)
    file = tmp_path / f"{case.id}.npz"
    with np.load(file) as entries:
        right = [entries[f"rank{rank}/output"] for rank in range(3)]
    wrong = [array.copy() for array in right]
    start, count = case.displs[1], case.counts[1]
    wrong[2].reshape(-1)[start : start + count] = 0
    got = save_outputs(tmp_path / "got.npz", wrong)
    out, _ = run(capsys, got, file, *MOVE, "--dtype", case.dtype, status=1)
    place = f"elements {start}..{start + count - 1}"
    assert f"pattern: missing rank 1: its block ({place}) was left zero in rank 2" in out


def test_a_case_of_a_reduction_brings_its_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [case] = all_cases("reduce_scatter_v", text="p3.data-random-float32")
    write_cases([case], tmp_path)
    file = tmp_path / f"{case.id}.npz"
    with np.load(file) as entries:
        total = entries["rank0/x"] + entries["rank2/x"]
    flat = total.reshape(-1)
    places = zip(case.counts, case.displs, strict=True)
    wrong = [flat[start : start + n].reshape(-1, total.shape[1]) for n, start in places]
    got = save_outputs(tmp_path / "got.npz", wrong)
    arguments = (got, file, "--op", "reduce_scatter_v", "--dtype", "float32")
    out, _ = run(capsys, *arguments, status=1)
    assert out[4].startswith("pattern: missing rank 1: its elements were left out of the sum in")
    out, _ = run(capsys, *arguments, "--tolerance", "atb", status=1)
    assert out[0].endswith("ATB: relative error at most 10 x 2^-14, mean and RMSE 2 x")


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("--tolerance exact", 1),
        ("--tolerance atb", 0),
        ("--tolerance atb-percent", 0),
        ("--tolerance 0.001", 1),
        ("--tolerance 0.005", 0),
        ("--tolerance atb --reduce max", 1),
        ("--tolerance atb --terms 4096", 0),
    ],
)
def test_tolerances(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, status: int
) -> None:
    right = np.linspace(1, 2, 1000, dtype=np.float16)
    np.save(tmp_path / "b.npy", right)
    np.save(tmp_path / "a.npy", right + np.where(np.arange(1000) % 2, 0.002, -0.002).astype("f2"))
    files = (tmp_path / "a.npy", tmp_path / "b.npy")
    arguments = ("--op", "all_reduce", "--dtype", "float16", *words.split())
    run(capsys, *files, *arguments, status=status)


def test_a_picture(tensors: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    for file, status in (("wrong.npy", 1), ("right.npy", 0)):
        png = tensors / f"{file}.png"
        arguments = (tensors / file, tensors / "right.bin", *MOVE, "--dtype", "bf16")
        out, _ = run(capsys, *arguments, "--counts", "40,40", "--plot", png, status=status)
        assert out[-1] == f"plot: {png}"
        assert png.read_bytes().startswith(b"\x89PNG")


def test_a_picture_without_matplotlib(
    tensors: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    png = tensors / "error.png"
    files = (tensors / "wrong.npy", tensors / "right.bin")
    out, err = run(capsys, *files, *MOVE, "--dtype", "bf16", "--plot", png, status=2)
    assert (out, png.exists()) == ([], False)
    assert err.endswith("error.png cannot be drawn without matplotlib: pip install matplotlib\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("right.bin gone.npy --op broadcast --dtype bf16", "No such file or directory"),
        ("right.bin . --op broadcast --dtype bf16", ": is a folder; a tensor's file ends in .bin"),
        ("right.bin right.json", "right.json: a tensor's file ends in .bin or .npy, a file of se"),
        ("right.bin half.npy", "right.bin holds bfloat16, "),
        ("right.bin right.npy --tolerance atb", "--tolerance atb depends on the operator: name it"),
        ("right.bin right.npy --html page.txt", "--html page.txt: a page's file ends in .html"),
        ("gone.bin right.npy --html no/page.html", "--html no/page.html: there is no folder no"),
        ("gone.bin right.npy --plot no/x.png", "--plot no/x.png: there is no folder no"),
        ("gone.bin right.npy --html folder.html", "--html folder.html: is a folder"),
        ("right.bin gone.pt", "gone.pt: No such file or directory"),
        ("right.bin right.npy --op gather --dtype bf16", "operator 'gather' is unknown; use one"),
        ("right.bin half.npy --op broadcast --dtype bf16", "holds float16, --dtype says bfloat16"),
        ("right.bin right.npy --op broadcast --dtype bf16 --tolerance x", "tolerance 'x' is unkno"),
        ("right.bin right.npy --op all_reduce --dtype bf16 --reduce x", "reduction 'x' is unknown"),
        ("right.bin right.npy --op brodcast", "; did you mean 'broadcast'?"),
        ("right.bin right.npy --op broadcast --tolerance abt", "or a number; did you mean 'atb'?"),
        ("right.bin right.npy --reduce summ", "bor, bxor; did you mean 'sum'?"),
        ("right.bin right.npy --op broadcast --dtype bf16 --counts 1,x", "--counts are whole num"),
        ("right.bin right.npy --op broadcast --dtype bf16 --counts 80,1", "--counts make 81 elem"),
        ("right.bin right.npy --op broadcast --dtype bf16 --counts 40,39", "give every rank's"),
        ("two.npz right.npz --op broadcast --dtype bf16", "two.npz has a, b, "),
        ("damaged.bin right.npz --op broadcast --dtype bf16", "has no line $End=1"),
        (
            "nz.bin right.npz --op broadcast --dtype bf16",
            "nz.bin: its elements lie in format fract",
        ),
        (
            "right.bin right.bin --op broadcast --dtype bf16 --plot noext",
            "a plot's file ends in .p",
        ),
        (
            "right.bin right.bin --op broadcast --dtype bf16 --plot x.jpg",
            "a plot's file ends in .p",
        ),
    ],
)
def test_wrong_requests_are_one_line(
    tensors: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: str,
    message: str,
) -> None:
    monkeypatch.chdir(tensors)
    (tensors / "folder.html").mkdir()
    (tensors / "damaged.bin").write_bytes(b"dtype=27\n")
    write_bin(tensors / "nz.bin", np.zeros((16, 5), np.uint16), form="fractal_nz")
    np.savez(tensors / "two.npz", a=np.zeros(2, np.uint16), b=np.zeros(2, np.uint16))
    a, b, *others = arguments.split()
    out, err = run(capsys, tensors / a, tensors / b, *others, status=2)
    assert out == []
    assert err.startswith("python -m golden compare: ")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("terms", ["0", "-5", "x"])
def test_terms_are_a_number_from_1(
    tensors: Path, capsys: pytest.CaptureFixture[str], terms: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(capsys, tensors / "a", "b", *MOVE, "--dtype", "bf16", f"--terms={terms}", status=2)
    assert f"must be a whole number from 1, got '{terms}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("dtype", "right", "limit"), [("double", 1.7e308, "2"), ("float32", 1e30, "1e300")]
)
def test_no_tolerance_makes_an_infinity_of_a_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], dtype: str, right: float, limit: str
) -> None:
    kind = np.float64 if dtype == "double" else np.float32
    np.save(tmp_path / "a.npy", np.array([np.inf, 1], kind))
    np.save(tmp_path / "b.npy", np.array([right, 1], kind))
    files = (tmp_path / "a.npy", tmp_path / "b.npy")
    out, _ = run(capsys, *files, *MOVE, "--dtype", dtype, "--tolerance", limit, status=1)
    assert out[0].startswith("different: 1 of 2 elements")


def test_the_pattern_rounding_names_operators_that_add_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right = fill((30, 7), "float32", 0, kind="random")
    np.save(tmp_path / "a.npy", np.nextafter(right, np.float32(np.inf)))
    np.save(tmp_path / "b.npy", right)
    for op, more in (("all_gather_v", ", but all_gather_v adds nothing up: "), ("all_reduce", "")):
        files = (tmp_path / "a.npy", tmp_path / "b.npy")
        out, _ = run(capsys, *files, "--op", op, "--dtype", "float32", status=1)
        assert out[4].startswith(f"pattern: rounding: 210 errors of at most 1 ULP{more}")
        assert out[4].endswith("ULP") != bool(more)


def test_the_exit_status_reaches_the_shell(tensors: Path) -> None:
    command = [sys.executable, "-m", "golden", "compare", str(tensors / "wrong.npy")]
    for other, status in (("wrong.npy", 0), ("right.npy", 1), ("gone.npy", 2)):
        arguments = [str(tensors / other), *MOVE, "--dtype", "bf16"]
        done = subprocess.run(
            [*command, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=patience(60)
        )
        assert done.returncode == status
        assert done.stdout.count("\n") == {0: 1, 1: 15, 2: 0}[status]


def test_neither_operator_nor_dtype_is_needed(
    tensors: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = run(capsys, tensors / "right.npy", tensors / "right.bin", status=0)
    assert (out, err) == (["equal: 80 elements of bfloat16, bit for bit"], "")


def test_the_operator_of_a_case_is_in_its_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [case] = all_cases("all_reduce", text="p2.sum-int32")
    write_cases([case], tmp_path)
    file = tmp_path / f"{case.id}.npz"
    with np.load(file) as entries:
        wrong = [np.maximum(entries["rank0/x"], entries["rank1/x"])] * 2
    got = save_outputs(tmp_path / "got.npz", wrong)
    out, _ = run(capsys, got, file, status=1)
    assert "pattern: wrong reduction: max in place of sum in all outputs" in out
    (tmp_path / "manifest.json").unlink()
    out, _ = run(capsys, got, file, "--op", "all_reduce", status=1)
    assert "pattern: wrong reduction: max in place of sum in all outputs" in out


def test_tensors_of_torch(tensors: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    right = torch.from_numpy(np.load(tensors / "right.npy").view(np.int16)).view(torch.bfloat16)
    torch.save(right, tensors / "one.pt")
    torch.save({"anything": right}, tensors / "named.pt")
    for name in ("one.pt", "named.pt"):
        out, _ = run(capsys, tensors / name, tensors / "right.bin", status=0)
        assert out == ["equal: 80 elements of bfloat16, bit for bit"]
    torch.save({"step": 3}, tensors / "other.pt")
    _, err = run(capsys, tensors / "other.pt", tensors / "right.bin", status=2)
    assert "other.pt: 'step' is a int, expected a tensor" in err


def test_without_torch_the_message_converts(
    tensors: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    (tensors / "one.pt").write_bytes(b"\x80\x02")
    _, err = run(capsys, tensors / "one.pt", tensors / "right.bin", status=2)
    assert (
        "one.pt: reading it needs torch: pip install torch; or convert a tensor where torch is: "
        in err
    )
    assert "t = torch.load('one.pt', 'cpu').detach(); numpy.save('one.npy', t.numpy())" in err
    # numpy has no bfloat16; float() would compare other bits.
    assert "; of bfloat16, with t.view(torch.int16).numpy().view('uint16') in place of" in err


def test_a_page(tensors: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tensors / "page.html"
    files = (tensors / "wrong.npy", tensors / "right.bin", "--counts", "40,40", "--html", page)
    out, _ = run(capsys, *files, status=1)
    assert out[-1] == f"page: {page}"
    text = page.read_text()
    assert "<h1 class=different>Different</h1>" in text
    assert "Pattern: swapped blocks: rank 0&#x27;s block holds rank 1&#x27;s block" in text
    assert "<td>0</td><td>0..39</td><td>40 of 40</td>" in text
    assert "<td>-214.0</td><td>-254.0</td>" in text
    assert text.count("<rect class=wrong") == 80
    assert "http" not in text
    assert "The redder" not in text
    assert "The first 60 of 80 elements that differ" in text
    # A file of one tensor has no name to show in each row.
    assert "<tr><th>row</th><th>column</th><th>got</th><th>expected</th></tr>" in text
    run(capsys, tensors / "right.npy", tensors / "right.bin", "--html", page, status=0)
    assert "<h1 class=equal>Equal</h1>" in page.read_text()


def test_a_page_of_a_long_column_is_folded_and_shows_how_much_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right = np.arange(64 * 128, dtype=np.int32)
    wrong = right.copy()
    wrong[: 2 * 64 : 2] += 1  # every second element of the first two lines of the picture
    np.save(tmp_path / "a.npy", wrong)
    np.save(tmp_path / "b.npy", right)
    page = tmp_path / "page.html"
    run(capsys, tmp_path / "a.npy", tmp_path / "b.npy", "--html", page, status=1)
    text = page.read_text()
    assert "output: 64 of 8192 wrong, 64 in a line" in text
    assert text.count("<rect class=wrong") == 32
    assert "<rect class=wrong x=2 y=0 width=1 height=1 />" in text
    wrong[64] -= 1
    np.save(tmp_path / "a.npy", wrong)
    run(capsys, tmp_path / "a.npy", tmp_path / "b.npy", "--html", page, status=1)
    text = page.read_text()
    assert "<rect class=wrong x=0 y=0 width=1 height=1 opacity=0.65 />" in text
    assert "The redder a square, the more of its elements are wrong." in text


def test_a_folded_last_line_that_is_wrong_as_a_whole_is_as_red_as_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right = np.arange(64 * 128 + 3, dtype=np.int32)
    wrong = right.copy()
    wrong[126 * 64 :] += 1  # in the picture's last line of squares, two lines and three elements
    np.save(tmp_path / "a.npy", wrong)
    np.save(tmp_path / "b.npy", right)
    page = tmp_path / "page.html"
    run(capsys, tmp_path / "a.npy", tmp_path / "b.npy", "--html", page, status=1)
    text = page.read_text()
    squares = re.findall(r"<rect class=wrong x=\d+ y=(\d+) width=1 height=1 />", text)
    assert squares == ["63"] * 64
    assert "opacity" not in text


@pytest.mark.parametrize("shape", [(4, 1 << 20), (1 << 20, 4), (1 << 11, 1 << 11)])
def test_a_page_takes_little_more_memory_than_a_copy_of_its_mask(shape: tuple[int, int]) -> None:
    right, wrong = np.zeros(shape, np.int8), np.zeros(shape, np.int8)
    wrong[:, 0] = 1
    result = compare([wrong], [right], "int8")
    tracemalloc.start()
    page = html_page(result, [wrong], [right], layout=OutputLayout(), names=[""], files=("a", "b"))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert page.count("<rect class=wrong") == min(64, shape[0])
    assert most < 4 * right.size
