"""The bench's skeleton knows no operator but by the table, and no operator knows another one."""

from __future__ import annotations

from pathlib import Path

from collops.cli.main import every_parser
from collops.terminal.arguments import subparsers
from tests.unit.house.layers import PACKAGE_ROOMS, imported

ROOT = Path(__file__).resolve().parents[3]
BENCH = "python/collops/bench/"
OPERATORS = f"{BENCH}operators/"
TABLE = "collops.bench.operators"
# What a file of the bench knows besides: the parts of one operator in several files, and what
# chooses by an operator's times.
KNOWN = {
    "operators/linear_parallel.py": {"linear_variants"},
    "torch/measure.py": {"torch_calls"},
    "torch/padding.py": {"padding"},
    "torch/training.py": {"torch_calls"},
    "tune.py": {"collectives"},
}


def check(path: str, text: str, operators: set[str]) -> list[str]:
    """Every import by which a file of the bench knows an operator that it must not know."""
    own = path.removeprefix(OPERATORS).partition("/")[0].removesuffix(".py")
    known = KNOWN.get(path.removeprefix(BENCH), {own} if path.startswith(OPERATORS) else set())
    foreign = operators - known
    return [
        f"{path} imports {name}: the bench finds an operator by {TABLE} alone"
        for name in imported(path, text, types=True)
        if name.startswith(f"{TABLE}.") and name.split(".")[3] in foreign
    ]


def test_the_bench_knows_an_operator_by_its_table_alone() -> None:
    operators = {path.stem for path in (ROOT / OPERATORS).iterdir()} - {"__init__", "__pycache__"}
    assert operators, "no operator was found"
    problems = [
        problem
        for path in sorted((ROOT / BENCH).rglob("*.py"))
        for problem in check(str(path.relative_to(ROOT)), path.read_text(), operators)
    ]
    assert not problems, "\n".join(problems)


def test_nothing_in_the_library_imports_the_bench() -> None:
    knowing = {room for room, known in PACKAGE_ROOMS.items() if "bench" in known}
    assert knowing == {"cli", "plan"}


def test_the_help_pages_have_few_options() -> None:
    pages = subparsers(subparsers(every_parser())["bench"]).values()
    options = {name for page in pages for action in page._actions for name in action.option_strings}
    assert len({name for name in options if name.startswith("--")}) <= 40
