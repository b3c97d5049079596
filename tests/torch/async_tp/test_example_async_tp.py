"""examples/torch/async_tp.py: equal to eager, all patterns fused; a wrong argument is one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.programs import run_example

torch = pytest.importorskip("torch")

COMPILER = {
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    # The trial of what the processor can takes as long as the rest of the compilation.
    "TORCHINDUCTOR_VEC_ISA_OK": "1",
}


@pytest.mark.slow
def test_the_three_ways_agree(tmp_path: Path) -> None:
    env = COMPILER | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    done = run_example("torch/async_tp.py", tmp_path, "--rows", "8", ranks=2, **env)
    assert done.returncode == 0, done.stderr
    title, _, *rows, verdict = done.stdout.splitlines()
    assert title == "an MLP 256 -> 1024 -> 256, 2 ranks of 8 rows"
    assert [row[:8].strip() for row in rows] == ["eager", "compiled", "async TP"]
    assert [row[8:].split()[1:3] for row in rows] == [["0", "0"], ["0", "0"], ["2", "2"]]
    assert verdict == "equal to eager"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rows", "0"], "--rows: must be from 1 to 100000, got 0"),
        ([], "run it by torchrun --nproc-per-node 2"),
    ],
)
def test_a_wrong_start_is_one_line(tmp_path: Path, arguments: list[str], words: str) -> None:
    done = run_example("torch/async_tp.py", tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("async_tp.py: ")
    assert words in line
