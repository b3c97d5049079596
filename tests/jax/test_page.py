"""docs/jax.md: its program runs, and computes what one process does."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np

from tests.jax.test_ranks import outputs_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "jax.md"


def test_the_pages_program(tmp_path: Path) -> None:
    (source,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    program = tmp_path / "program.py"
    program.write_text(source)
    (printed,) = outputs_of(
        [[sys.executable, "-m", "collops", "run", "-n", "2", str(program)]], [{}]
    )
    loss, gradient = printed.removeprefix("[0] ").split(maxsplit=1)
    x = np.concatenate([np.arange(2.0).reshape(-1, 2), np.arange(6.0).reshape(-1, 2)]) / 10
    y = np.tanh(x @ np.ones((2, 2)))
    np.testing.assert_allclose(2 * float(loss), (y**2).sum(), rtol=1e-6)
    np.testing.assert_allclose(json.loads(gradient), x.T @ (2 * y * (1 - y**2)), rtol=1e-5)
