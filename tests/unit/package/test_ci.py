""".ci/run: which steps fail it, and which are only left out. Its steps are stand-ins here."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
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
    for name, text in (
        ("bin/timeout", TIMEOUT),
        ("bin/make", '#!/bin/sh\necho "made $1"\n'),
        ("bin/qemu-aarch64", "#!/bin/sh\n"),
        (".venv/bin/python", WITHOUT_TOOLS),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def run(
    checkout: Path, hanging: str = "nothing", limit_s: int = 1400, require: str = ""
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
        timeout=60,
    )
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
        "left out: test-npu-oldest (no such tool)",
        "left out: test-multihost (no such tool)",
        "left out: cross-arm64 (no such tool)",
    ]


@pytest.mark.parametrize(
    ("step", "command"),
    [("check", "make check"), ("tsan", "make sanitize ARGS=tsan"), ("fuzz", "make fuzz")],
)
def test_a_step_that_hangs_fails(checkout: Path, step: str, command: str) -> None:
    status, summary = run(checkout, hanging=command)
    assert status == 1
    assert summary[-1] == f"failed: {step}"


def test_a_step_that_has_no_time_is_left_out(checkout: Path) -> None:
    status, summary = run(checkout, hanging="make sanitize", limit_s=230)
    assert status == 0
    assert any(line.startswith("left out: asan-ubsan (needs 1200 s, 2") for line in summary)


def test_what_is_required_fails_where_it_is_left_out(checkout: Path) -> None:
    status, summary = run(checkout, require="torch,npu,fuzz")
    assert status == 1
    assert summary[-1] == "failed: test-torch test-npu"
    status, summary = run(checkout, require="tsan,check", limit_s=230)
    assert status == 1
    assert summary[-1] == "failed: tsan"


def test_a_requirement_that_does_not_exist_is_an_error(checkout: Path) -> None:
    status, lines = run(checkout, require="npu,torhc")
    assert status == 2
    assert lines[0].startswith("CI_REQUIRE: no such name: torhc; use torch, ")
