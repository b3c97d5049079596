"""examples/torch/fsdp2_training.py: equal to one process, and a wrong loss is reported."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.programs import run_example

pytest.importorskip("torch")

SCRIPT = Path(__file__).resolve().parents[3] / "examples" / "torch" / "fsdp2_training.py"


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("fsdp2_training", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_equals_one_process(tmp_path: Path) -> None:
    done = run_example("torch/fsdp2_training.py", tmp_path, "--steps", "3", ranks=2)
    assert done.returncode == 0, done.stderr
    title, _, *steps, equal, windows = done.stdout.splitlines()
    assert title.endswith("sharded over 2 ranks")
    assert [line.split()[0] for line in steps] == ["0", "1", "2"]
    assert len({line.split()[1] for line in steps}) == 3
    assert equal == "equal to one process"
    assert windows == "windows were made in the first step alone"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--steps", "0"], "argument --steps: must be from 1 to 10000, got 0"),
        ([], "start it with torchrun --nproc-per-node 2"),
    ],
)
def test_a_wrong_start_is_one_line(tmp_path: Path, arguments: list[str], words: str) -> None:
    done = run_example("torch/fsdp2_training.py", tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(f"fsdp2_training.py: {words}")


def test_what_differs_is_reported(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    losses, windows = [5.0, 4.0], [3, 3]
    assert example.report(losses, windows, [5.0, 4.0001])
    assert not example.report(losses, windows, [5.0, 4.001])
    assert not example.report(losses, [3, 4], losses)
    printed = capsys.readouterr().out
    assert printed.count("NOT equal to one process") == 1
    assert printed.count("AGAIN") == 1


def test_ranks_have_texts_of_their_own(example: Any) -> None:
    first, following = example.texts_of(0, 0)
    assert first.shape == (example.LINES, example.CONTEXT)
    assert following.shape == (example.LINES,)
    for other in ((1, 0), (0, 1)):
        assert not first.equal(example.texts_of(*other)[0])
