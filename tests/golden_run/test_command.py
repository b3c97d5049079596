"""`collops golden run` as a command: arguments, output, exit status, files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from collops.golden.case_files.manifest import SCHEMA, write_cases
from collops.golden.cases import all_cases

from collops.cli import main
from patience import patience
from tests import programs

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "examples" / "golden"
CaseFile = Callable[..., Path]


def golden(
    *arguments: object, code: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs `collops golden` with these arguments, after some code that plants a fault."""
    if not code:
        return programs.run_forked(
            main, ["golden", *map(str, arguments)], env=environment, timeout=patience(110)
        )
    program = f"{code}\nfrom collops.cli import main; raise SystemExit(main())"
    return programs.run(
        [sys.executable, "-c", program, "golden", *map(str, arguments)],
        capture_output=True,
        timeout=patience(110),
        env={**os.environ, **environment},
    )


def closing_line(done: subprocess.CompletedProcess[str]) -> str:
    return re.sub(r"; [0-9.]+ cases per second$", "", done.stdout.splitlines()[-1])


def planted(*lines: str) -> str:
    """Code with which a rank makes another `report` of what it did."""
    body = "".join(f"    {line}\n" for line in lines)
    return (
        "from collops.golden_run import rank\n"
        "import numpy as np\n"
        "from dataclasses import replace\n"
        "right = rank.execute\n"
        f"def execute(call, own):\n    report = right(call, own)\n{body}    return report\n"
        "import collops.golden_run.runner as r\n"
        "r.Runner.__init__.__kwdefaults__['work'] = execute"
    )


WRONG = planted("report = replace(report, outputs=tuple(y * 0 for y in report.outputs))")
NONE_SKIPPED = "0 differ from ATB by intent, 0 skipped"


def test_every_sample_runs() -> None:
    """As a user runs them: by another process, whose status is the command's."""
    words = ["run", *sorted(map(str, SAMPLES.glob("*.csv"))), "--max-skipped", "0"]
    command = [sys.executable, "-m", "collops", "golden", *words]
    done = programs.run(command, capture_output=True, timeout=patience(110))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert re.search(r" 0 failed, .*; [0-9.]+ cases per second\n$", done.stdout)


def test_a_folder_stands_for_its_case_files(case_file: CaseFile, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    case_file({}, {}, name="a.csv")
    case_file({}, name="b/c.csv")
    [case] = all_cases("all_gather_v", text="p2.shares-3-5")
    write_cases([case], tmp_path / "b")
    done = golden("run", tmp_path)
    assert closing_line(done) == f"4 passed, 0 failed, {NONE_SKIPPED}", done.stdout
    (tmp_path / "empty").mkdir()
    done = golden("run", tmp_path / "empty")
    assert done.returncode == 2
    assert "empty: this folder has no .csv and no manifest.json" in done.stderr


def test_keys_that_no_struct_has_are_ignored_with_a_warning(case_file: CaseFile) -> None:
    path = case_file({"params": {"rankSizes": 7, "any": {}}}, {})
    done = golden("run", path)
    assert closing_line(done) == f"2 passed, 0 failed, {NONE_SKIPPED}", done.stdout
    said = "OpParam has rankSizes, any, which AllGatherVParam does not have: ignored"
    assert done.stderr == f"collops golden run: warning: {path}:2: {said}\n"


def test_a_failure_ends_with_a_line_for_an_issue(case_file: CaseFile) -> None:
    done = golden("run", case_file({"expected": "C:ERROR_INVALID_PARAM"}))
    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    assert first == "collops golden run: 1 failed"
    assert re.match(r"for an issue: collops .*, numpy .*, backend shm$", second)


def test_backend_is_what_the_struct_named_once_it_was_checked(case_file: CaseFile) -> None:
    path = case_file(
        {"params": {"backend": "hccl"}},
        {"params": {"backend": "hccc"}, "expected": "C:ERROR_INVALID_PARAM"},
    )
    assert closing_line(golden("run", path, "--backend", "shm")).startswith("2 passed, 0 failed")
    done = golden("run", path, "--backend", "hccl=shm")
    assert closing_line(done).startswith("2 passed, 0 failed")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--backend", "smh"], "backend 'smh' is unknown; use one of hccl, nccl"),
        (["--backend", "hccl=smh"], "backend 'smh' is unknown; use one of hccl, nccl"),
        (["--backend", "hcl=shm"], "backend 'hcl' is unknown; use one of hccl, nccl"),
        (["--backend", "hccl=shm,nccl"], "'nccl' is not a pair such as hccl=shm"),
        (["--backend", "hccl=nccl"], "backend nccl: "),
        (["--backend", "hccl=lccl"], "backend 'lccl' is unknown"),
        (["--filter", "nowhere"], "no case has 'nowhere' in its name or as its number"),
        (["--filter", "5-2"], "the range 5-2 ends before it begins"),
        (["--timeout", "0"], "--timeout: must be a number of seconds above 0, got '0'"),
        (["--timeout", "x"], "--timeout: must be a number of seconds above 0, got 'x'"),
        (["--max-skipped", "-1"], "--max-skipped: a whole number of 0 or more is needed, got '-1'"),
        (["--max-skipped", "x"], "--max-skipped: a whole number of 0 or more is needed, got 'x'"),
        (["--junit", "/nonexist/x.xml"], "--junit /nonexist/x.xml: there is no folder /nonexist"),
        (["--junit", "/"], "--junit /: is a folder; name a file"),
        (["--plot", "/nonexist/x.png"], "--plot /nonexist/x.png: there is no folder /nonexist"),
        (["--tolerance", "loose"], "invalid choice: 'loose'"),
        (["gone.csv"], "gone.csv"),
    ],
)
def test_wrong_requests(case_file: CaseFile, arguments: list[str], words: str) -> None:
    done = golden("run", case_file({}), *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_the_variable_is_the_option_s_default(case_file: CaseFile) -> None:
    path = case_file({})
    done = golden("run", path, COLLOPS_BACKEND="nccl")
    assert (done.returncode, done.stdout) == (2, "")
    assert "collops golden run: COLLOPS_BACKEND=nccl: backend nccl: " in done.stderr
    assert golden("run", path, "--backend", "shm", COLLOPS_BACKEND="nccl").returncode == 0
    for variable in ("hccl=shm", ""):
        assert golden("run", path, COLLOPS_BACKEND=variable).returncode == 0


def test_a_file_without_cases(case_file: CaseFile, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"schema": SCHEMA, "cases": []}))
    (tmp_path / "empty.csv").touch()
    paths = (case_file(), tmp_path / "empty.csv", tmp_path / "manifest.json")
    words = ("has no row below the line of column names", "is empty; ", "has no cases")
    for path, problem in zip(paths, words, strict=True):
        done = golden("run", path)
        assert done.returncode == 2
        assert done.stderr.startswith(f"collops golden run: {path}: {problem}")


def test_filters(case_file: CaseFile) -> None:
    path = case_file({}, {"CaseName": "bf16_one", "dtype": "bf16"}, {}, {})
    for text, count in (("bf16", 1), ("1,3-4", 3), (" 1, 3 - 4", 3), ("", 4), ("case_", 3)):
        done = golden("run", path, "--filter", text)
        assert closing_line(done) == f"{count} passed, 0 failed, {NONE_SKIPPED}"


def test_skipped_rows_are_counted_by_reason_and_never_passed(case_file: CaseFile) -> None:
    nz = {"InFormat": "fractal_nz;nd;nd;nd;nd"}
    path = case_file({}, nz, nz, {"operator": "FillOperation"})
    done = golden("run", path)
    reasons = "2 FRACTAL_NZ data, 1 FillOperation is not an operator of collops"
    assert closing_line(done) == (
        f"1 passed, 0 failed, 0 differ from ATB by intent, 3 skipped ({reasons})"
    )
    assert done.stdout.splitlines()[:-1] == [
        f"skipped {path}: 2 case_2, {path}: 3 case_3: FRACTAL_NZ data",
        f"skipped {path}: 4 case_4: FillOperation is not an operator of collops",
    ]
    assert golden("run", path, "--max-skipped", 3).returncode == 0
    done = golden("run", path, "--max-skipped", 2)
    assert done.returncode == 1
    assert "3 were skipped, --max-skipped is 2" in done.stderr


def test_more_ranks_than_the_backend_takes(case_file: CaseFile) -> None:
    many = {"ranks": 129, "rows": 0}
    done = golden("run", case_file({}, many, {**many, "expected": "C:ERROR_UNSUPPORTED"}))
    assert closing_line(done).startswith("2 passed, 0 failed, ")
    assert closing_line(done).endswith(", 1 skipped (1 more than 128 ranks)")


def test_a_malformed_row_fails_and_hides_no_other(case_file: CaseFile) -> None:
    path = case_file({}, {"InNum": "five"}, {})
    done = golden("run", path)
    assert done.returncode == 1
    assert closing_line(done) == f"2 passed, 1 failed, {NONE_SKIPPED}"
    assert "cases.csv:3: column InNum is not a whole number, got 'five'" in done.stdout
    assert golden("run", path, "--filter", "case_2").stdout.startswith(f"FAILED {path}: 2 case_2\n")


OVERLAP = {"DataGenType": "random;customize;customize;zero"}
NO_ROWS = {
    "rows": 0,
    "InShape": "0,5;1;2;2;8",
    "OutShape": "8,5",
    "expected": "I:ERROR_INVALID_TENSOR_SIZE",
}
MORE = {"dtype": "uint8", "expected": "I:ERROR_INVALID_TENSOR_INI_MATCH"}


def test_what_differs_by_intent_is_run_as_collops_does_it(case_file: CaseFile) -> None:
    done = golden("run", case_file({}, OVERLAP, NO_ROWS, MORE))
    assert done.returncode == 0, done.stdout
    assert closing_line(done) == "1 passed, 0 failed, 3 differ from ATB by intent, 0 skipped"
    assert "2 case_2: blocks must not overlap" in done.stdout
    assert "3 case_3: a rank may have no rows" in done.stdout
    assert "4 case_4: collops takes more dtypes than ATB" in done.stdout


def test_a_known_difference_that_no_longer_occurs_fails(case_file: CaseFile) -> None:
    code = (
        "from collops.golden.case_files import differences as d\n"
        "from dataclasses import replace\n"
        "d.DIFFERENCES = tuple(replace(k, instead=d._ACCEPTED) for k in d.DIFFERENCES)"
    )
    done = golden("run", case_file({}, OVERLAP), code=code)
    assert done.returncode == 1
    assert "differs from ATB by intent (blocks must not overlap), but not as it should" in (
        done.stdout
    )
    assert "got S:ERROR_INVALID_PARAM on all ranks" in done.stdout


def test_ranks_have_other_data_unless_asked(case_file: CaseFile, tmp_path: Path) -> None:
    path = f"f'{tmp_path}/data{{own}}'"
    code = planted(f"open({path}, 'wb').write(call.inputs(own)[0].array.tobytes())")

    def data(*arguments: object) -> list[bytes]:
        done = golden("run", case_file({}), *arguments, code=code)
        assert done.returncode == 0, done.stderr
        return [(tmp_path / f"data{rank}").read_bytes() for rank in range(2)]

    first, second = data()
    assert first != second
    assert data("--same-data") == [first, first]
    assert data("--seed", 3) != [first, second]
    assert data() == [first, second]


def test_junit(case_file: CaseFile, tmp_path: Path) -> None:
    path = case_file({}, OVERLAP, {"operator": "FillOperation"}, {"OutShape": "8,6"})
    done = golden("run", path, SAMPLES / "reduce_scatter_v.csv", "--junit", tmp_path / "out.xml")
    assert done.returncode == 1
    suites = ElementTree.parse(tmp_path / "out.xml").getroot().findall("testsuite")
    assert [suite.get("name") for suite in suites] == [
        str(path),
        str(SAMPLES / "reduce_scatter_v.csv"),
    ]
    first = suites[0]
    assert [first.get(key) for key in ("tests", "failures", "skipped")] == ["4", "1", "2"]
    children = [[child.tag for child in case] for case in first.findall("testcase")]
    assert children == [[], ["skipped"], ["skipped"], ["failure"]]
    failure = first.find("testcase/failure")
    assert failure is not None and str(failure.text).startswith("expected NO_ERROR\ngot other ")
    assert str(failure.get("message")).startswith("got other outputs on all ranks: infer_shape ")
    assert suites[1].get("failures") == "0"


def test_tolerance_of_atb(case_file: CaseFile) -> None:
    code = planted(
        "[y] = report.outputs",
        "report = replace(report, outputs=(np.nextafter(y, np.float16(99)),))",
    )
    path = case_file({"operator": "ReduceScatterVOperation", "rows": 64})
    done = golden("run", path, code=code)
    assert done.returncode == 1
    assert "pattern: rounding" in done.stdout
    done = golden("run", path, "--tolerance", "atb", code=code)
    assert closing_line(done) == f"1 passed, 0 failed, {NONE_SKIPPED}", done.stdout


def test_plot(case_file: CaseFile, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "error.png"
    path = case_file({})
    done = golden("run", path, "--plot", picture)
    assert done.returncode == 0
    assert "plot: none, no output was wrong\n" in done.stdout
    assert not picture.exists()
    done = golden("run", path, "--plot", picture, code=WRONG)
    assert done.returncode == 1
    assert f"plot: {picture}\n" in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("operator", ["all_gather_v", "reduce_scatter_v"])
def test_golden_s_own_cases(tmp_path: Path, operator: str) -> None:
    cases = [
        case
        for case in all_cases(operator, text="p3.")
        if case.op in ("", "sum", "max", "min") and "huge" not in case.name
    ]
    manifest = write_cases(cases, tmp_path)
    done = golden("run", manifest)
    assert closing_line(done) == f"{len(cases)} passed, 0 failed, {NONE_SKIPPED}", done.stdout
    single = tmp_path / f"{cases[0].id}.npz"
    assert closing_line(golden("run", single)).startswith("1 passed, 0 failed")


def test_expected_outputs_are_read_from_the_case_file(tmp_path: Path) -> None:
    [case] = all_cases("all_gather_v", text="p2.shares-3-5")
    manifest = write_cases([case], tmp_path)
    path = tmp_path / f"{case.id}.npz"
    with np.load(path) as tensors:
        changed = {name: tensors[name].copy() for name in tensors.files}
    changed["rank1/output"][2, 1] += 1
    np.savez(path, **changed)
    done = golden("run", manifest)
    assert done.returncode == 1
    assert "different: 1 of 128 elements" in done.stdout
    assert "rank 1 row 2 column 1" in done.stdout


def test_reductions_that_atb_lacks_are_skipped(tmp_path: Path) -> None:
    manifest = write_cases(all_cases("reduce_scatter_v", text="p2.avg-float16"), tmp_path)
    done = golden("run", manifest)
    assert done.returncode == 1 and "nothing passed" in done.stderr
    assert "1 skipped (1 reduce_scatter_v has no avg in ATB)" in done.stdout


def test_files_that_are_no_cases(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"schema": 99}))
    done = golden("run", tmp_path / "manifest.json")
    assert (done.returncode, "schema is 99, this golden reads" in done.stderr) == (2, True)
    np.savez(tmp_path / "other.npz", a=np.zeros(1))
    done = golden("run", tmp_path / "other.npz")
    assert done.returncode == 2
    (tmp_path / "manifest.json").unlink()
    done = golden("run", tmp_path / "other.npz")
    assert (done.returncode, "other.npz: has no manifest.json" in done.stderr) == (2, True)


def test_the_other_commands_need_no_core(tmp_path: Path) -> None:
    code = "import sys; sys.modules['collops._core'] = None"
    done = golden("list", SAMPLES / "all_gather_v.csv", code=code)
    assert done.stdout.endswith("27 rows: 27 run\n")
    done = golden("generate", tmp_path, "--filter", "all_gather_v.p2.shares-ones", code=code)
    assert done.stdout.startswith("1 case")
    file = tmp_path / "all_gather_v.p2.shares-ones.npz"
    done = golden("compare", file, file, "--op", "all_gather_v", "--dtype", "float16", code=code)
    assert done.stdout.startswith("equal: ")
    done = golden("run", SAMPLES / "all_gather_v.csv", code=code)
    assert done.returncode == 2
    assert "collops cannot load its C++ core" in done.stderr
