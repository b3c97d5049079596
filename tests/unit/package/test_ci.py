""".ci/run: which steps fail it, which are only left out, and what runs once more, alone. Its steps
are stand-ins here, some with small tests that pytest and ctest run as they run the real ones."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import alone
from patience import patience

ROOT = Path(__file__).resolve().parents[3]
MAKE = """#!/bin/sh
echo "made $1"
if [ -e "steps/$1" ]; then exec sh "steps/$1"; fi
"""
# As timeout does, with a step that never ends.
TIMEOUT = """#!/bin/sh
while [ "$1" = -k ]; do shift 2; done
shift
case "$*" in *"$HANGING"*) exit 124 ;; esac
exec "$@"
"""
# A step that says why it cannot run, on a machine that warns of something else.
WITHOUT_TOOLS = """#!/bin/sh
echo 'collops: no such tool'
echo 'a warning' >&2
exit 77
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in which every step ends well at once."""
    for folder in (".ci", "tools", "bin", ".venv/bin"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    (tmp_path / "tools" / "preflight.sh").write_text("exit 0\n")
    (tmp_path / ".ci" / "seconds").write_text("check 41\n")
    for name in ("alone", "patience", "run_tests"):
        shutil.copy(ROOT / "tools" / f"{name}.py", tmp_path / "tools")
    for name, text in (
        ("bin/timeout", TIMEOUT),
        ("bin/make", MAKE),
        ("bin/qemu-aarch64", "#!/bin/sh\n"),
        (".venv/bin/python", WITHOUT_TOOLS),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def run(
    checkout: Path, hanging: str = "nothing", limit_s: int = 5000, require: str = ""
) -> tuple[int, list[str]]:
    """The exit status, and the lines after the heading of the summary."""
    path = f"{checkout / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", ".ci/run"],
        cwd=checkout,
        env={
            **os.environ,
            "PATH": path,
            "HANGING": hanging,
            "CI_LIMIT_S": str(limit_s),
            "CI_REQUIRE": require,
        },
        capture_output=True,
        text=True,
        timeout=patience(60),
    )
    (checkout / "printed").write_text(done.stdout + done.stderr)
    lines = done.stdout.splitlines()
    heading = lines.index("== summary") if "== summary" in lines else -1
    return done.returncode, lines[heading + 1 :]


def test_steps_without_their_tools_are_left_out(checkout: Path) -> None:
    status, summary = run(checkout)
    assert status == 0
    assert summary[:8] == [
        "left out: docs (no such tool)",
        "left out: wheel (no such tool)",
        "left out: test-torch (no such tool)",
        "left out: test-npu (no such tool)",
        "left out: test-torch-versions (no such tool)",
        "left out: test-multihost (no such tool)",
        "left out: cross-arm64 (no such tool)",
        "left out: test-npu-oldest (no such tool)",
    ]


@pytest.mark.parametrize(
    ("step", "command"),
    [("check", "make check"), ("tsan", "make sanitize ARGS=tsan"), ("fuzz", "make fuzz")],
)
def test_a_step_that_hangs_fails(checkout: Path, step: str, command: str) -> None:
    status, summary = run(checkout, hanging=command)
    assert status == 1
    assert summary[-1] == f"failed: {step}"


def test_what_is_required_fails_where_it_is_left_out(checkout: Path) -> None:
    status, summary = run(checkout, require="torch,npu,fuzz")
    assert status == 1
    assert summary[-1] == "failed: test-torch test-npu"
    status, summary = run(checkout, require="tsan,check", limit_s=530)
    assert status == 1
    assert summary[-1] == "failed: tsan"


def test_a_requirement_that_does_not_exist_is_an_error(checkout: Path) -> None:
    status, lines = run(checkout, require="npu,torhc")
    assert status == 2
    assert lines[0].startswith("CI_REQUIRE: no such name: torhc; use torch, ")


# A step that runs the tests of the checkout while another program runs beside them.
BESIDE = """touch beside
"$PYTHON" -c '
import run_tests
run_tests.REPORTS.mkdir(parents=True, exist_ok=True)
outcomes = [run_tests.run_python(["tests"])]
if (run_tests.BUILD / "CTestTestfile.cmake").exists():
    outcomes.append(run_tests.Outcome("C++"))
    ctest = ["ctest", "--test-dir", str(run_tests.BUILD), "--output-on-failure"]
    run_tests.run_ctest(ctest, run_tests.REPORTS / "ctest.xml", outcomes[1])
run_tests.print_summary(outcomes)
raise SystemExit(run_tests.status_of(outcomes))'
status=$?
rm beside
exit $status
"""
# Tests of all kinds: each of those that fail says so.
TESTS = """
import os, pathlib, pytest
@pytest.mark.parametrize("at", ["a b", "c"])
def test_beside(at):
    assert at == "c" or not pathlib.Path("beside").exists(), "not alone"
def test_well(): pass
@pytest.fixture
def clean():
    yield
    assert not pathlib.Path("beside").exists(), "not alone"
def test_left_behind(clean): pass
"""
ALWAYS = "def test_always(): assert False, 'it is wrong'\n"


def with_tests(checkout: Path, **modules: str) -> None:
    """Gives the step `test` these modules of tests."""
    for folder in ("steps", "tests"):
        (checkout / folder).mkdir(exist_ok=True)
    (checkout / "steps" / "test").write_text(BESIDE)
    for name, text in modules.items():
        (checkout / "tests" / f"test_{name}.py").write_text(text)


@pytest.fixture
def in_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules of the stand-in's tools, for its steps; and a pytest that starts quickly."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", "tools")


@pytest.mark.usefixtures("in_tools")
def test_what_fails_only_beside_other_work_passes_alone(checkout: Path) -> None:
    """Tests of Python and C++, and a step that is one program."""
    with_tests(checkout, here=TESTS)
    (checkout / "steps" / "soak").write_text("if [ ! -e once ]; then touch once; exit 3; fi\n")
    build = checkout / "build" / f"cmake-{sys.implementation.cache_tag}"
    build.mkdir(parents=True)
    (build / "CTestTestfile.cmake").write_text(
        f'add_test(cpp_test sh -c "test ! -e {checkout}/beside")\nadd_test(other_test true)\n'
    )
    status, summary = run(checkout)
    assert summary[-5:-1] == [
        "passed only alone: soak",
        "passed only alone: tests/test_here.py::test_beside[a b]",
        "passed only alone: tests/test_here.py::test_left_behind",
        "passed only alone: cpp_test",
    ]
    assert status == 0
    printed, log = (checkout / "printed").read_text(), checkout / "out" / "ci" / "test.log"
    assert "AssertionError: not alone" in printed
    assert "AssertionError: not alone" in log.read_text()


@pytest.mark.usefixtures("in_tools")
def test_what_fails_twice_or_passed_only_alone_before_is_red(checkout: Path) -> None:
    with_tests(checkout, here=TESTS, always=ALWAYS)
    named = "# not yet mended\ntests/test_here.py::test_left_behind\n"
    (checkout / "tests" / "passed_only_alone.txt").write_text(named)
    status, summary = run(checkout)
    assert summary[-4:] == [
        "red: tests/test_always.py::test_always: failed alone too",
        "passed only alone: tests/test_here.py::test_beside[a b]",
        "red: tests/test_here.py::test_left_behind: passed only alone a second time: mend it",
        "failed: test",
    ]
    assert status == 1
    printed = (checkout / "printed").read_text()
    assert "AssertionError: it is wrong" in printed.partition("FAILED again")[2]


def test_few_tests_are_known_to_pass_only_alone() -> None:
    """At most three at once wait to be mended, and each of them exists."""
    names = alone.not_yet_mended(alone.LIST.read_text())
    assert len(names) == len(set(names)) <= 3
    programs = {path.stem for path in (ROOT / "tests" / "cpp").rglob("*_test.cpp")}
    for name in names:
        path, _, test = name.partition("::")
        assert name in programs or test.partition("[")[0] in (ROOT / path).read_text()
