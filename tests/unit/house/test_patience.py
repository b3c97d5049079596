"""No test has a plain time limit for what must come: it would fail because others load the machine.

Limits are `patience(SECONDS)` in Python and `check::Patience(SECONDS)` in C++. Shorter ones than
SHORT_S are times that a test wants to pass, and much longer ones stand for "without end".
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import patience

ROOT = Path(__file__).resolve().parents[3]
SHORT_S, ENDLESS_S = 5, 1e6
# Programs without a test's modules: one is to load the machine, one compares builds by hand.
LEFT_OUT = ("tests/soak/soak", "tests/soak/many_ranks.py")
WORDS = ("timeout", "timeout_s", "seconds")
MAY_HAVE = re.compile("timeout|TIMEOUT|_S = |monotonic|perf_counter")
NAMES = re.compile(r"(LIMIT|PATIENCE|TIMEOUT)_S$")
CPP = re.compile(
    r"(?:now\(\) \+ std::chrono::seconds\(|Deadline::After\(|\btimeout_s = |"
    r"constexpr double k\w*(?:Limit|Timeout)S = |SecondsSince\(\w+\) < |\.count\(\) < )([\d.]+)\b"
)


def is_limit(seconds: object) -> bool:
    """Whether a number, perhaps in a text, is the time limit of what must come."""
    try:
        return not isinstance(seconds, bool) and SHORT_S <= float(seconds) < ENDLESS_S  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False


def of_clock(node: ast.AST) -> bool:
    """Whether this reads a clock."""
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return called and node.func.attr in ("monotonic", "perf_counter")  # type: ignore[attr-defined]


def limits_of(node: ast.AST) -> Iterator[ast.AST]:
    """What stands in a node where time limits stand."""
    if isinstance(node, ast.Call):
        yield from (word.value for word in node.keywords if word.arg in WORDS)
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        if NAMES.search(node.targets[0].id):
            yield node.value
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and of_clock(node.left):
        yield node.right
    elif isinstance(node, ast.Compare):
        sides = zip([node.left, *node.comparators], node.comparators, strict=False)
        yield from (
            right
            for left, right in sides
            if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Sub) and of_clock(left.left)
        )
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and str(key.value).endswith("TIMEOUT_S"):
                yield value


def plain_limits(root: Path) -> list[str]:
    """Where a time limit of a test is plain seconds."""
    found = []
    for path in sorted((root / "tests").rglob("*.py")):
        name = str(path.relative_to(root))
        text = path.read_text()
        if name.startswith(LEFT_OUT) or not MAY_HAVE.search(text):
            continue
        for node in ast.walk(ast.parse(text)):
            for limit in limits_of(node):
                if isinstance(limit, ast.Constant) and is_limit(limit.value):
                    found.append(f"{name}:{limit.lineno}: {limit.value}")
    for path in sorted((root / "tests" / "cpp").rglob("*")):
        if path.suffix in (".cpp", ".h"):
            for number, line in enumerate(path.read_text().splitlines(), start=1):
                if any(is_limit(seconds) for seconds in CPP.findall(line)):
                    found.append(f"{path.relative_to(root)}:{number}: {line.strip()}")
    return found


def test_no_time_limit_is_plain() -> None:
    assert plain_limits(ROOT) == []


PLAIN = """
process.communicate(timeout=60)
comm = collops.init(timeout_s=20)
LIMIT_S = 30.0
deadline = time.monotonic() + 10
assert 1.5 < time.monotonic() - begin < 20
env = {"COLLOPS_TIMEOUT_S": "30"}
group(timeout=timedelta(seconds=20))
"""
FINE = """
run_ranks(work, 2, timeout=0.3)
LIMIT_S = patience(30)
init(timeout_s=1e10)
assert 1.5 < time.monotonic() - begin
"""
PLAIN_CPP = """
const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
constexpr double kLimitS = 30.0;
EXPECT_TRUE(SecondsSince(start) < 10);
Deadline::After(6);
spec.timeout_s = 20;
"""


def test_a_plain_time_limit_is_found(tmp_path: Path) -> None:
    (tmp_path / "tests" / "cpp").mkdir(parents=True)
    (tmp_path / "tests" / "test_it.py").write_text(PLAIN)
    (tmp_path / "tests" / "test_other.py").write_text(FINE)
    (tmp_path / "tests" / "cpp" / "it_test.cpp").write_text(PLAIN_CPP)
    found = sorted(int(line.split(":")[1]) for line in plain_limits(tmp_path))
    assert found == sorted([*range(2, 9), *range(2, 7)])


def test_the_factor_is_measured_once_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(patience.VARIABLE)
    monkeypatch.setattr(patience, "measured", iter([2.5]).__next__)
    command = [sys.executable, "-c", "import patience; print(patience.patience(4))"]
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tools"))
    assert patience.patience(4) == 10
    assert subprocess.check_output(command, text=True) == "10.0\n"
    assert patience.patience(20) == 50


def test_the_factor_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "QUIET_S", 1e9)
    assert patience.measured() == 1
    monkeypatch.setattr(patience, "QUIET_S", 1e-9)
    assert patience.measured() == patience.MOST
