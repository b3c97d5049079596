"""examples/same_bits/gpt.py: the same bits at every number of ranks, and a GPT's losses."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import collops  # noqa: E402
from collops.testing import run_ranks  # noqa: E402
from tests.programs import run_example  # noqa: E402

SCRIPT = Path(__file__).resolve().parents[3] / "examples" / "same_bits" / "gpt.py"


@pytest.fixture(scope="module")
def gpt() -> Any:
    spec = importlib.util.spec_from_file_location("gpt", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("ranks", "dtype"), [("1 2 3 4", "float32"), ("1 6", "bfloat16")])
def test_no_bit_depends_on_the_number_of_ranks(tmp_path: Path, ranks: str, dtype: str) -> None:
    done = run_example("same_bits/gpt.py", tmp_path, "--ranks", *ranks.split(), "--dtype", dtype)
    assert (done.returncode, done.stderr) == (0, "")
    _, *lines, verdict = done.stdout.splitlines()
    numbers = ranks.split()
    assert [line.split()[:2] for line in lines] == [[str(i), r] for i in range(5) for r in numbers]
    steps = {(line.split()[0], *line.split()[2:]) for line in lines}
    assert len(steps) == 5  # one of each step, whatever the number of ranks
    assert all(len({step[column] for step in steps}) == 5 for column in (1, 2, 3))
    assert verdict == f"the same bits on {', '.join(numbers)} ranks"
    assert list(tmp_path.iterdir()) == []


def test_the_order_of_the_ranks_gives_other_bits(tmp_path: Path) -> None:
    options = "--ranks", "1", "3", "--steps", "1", "--leaves", "0"
    done = run_example("same_bits/gpt.py", tmp_path, *options)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines()[-1] == "OTHER BITS on 1, 3 ranks"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--steps", "0"], "argument --steps: must be from 1 to 1000, got 0"),
        (["--ranks", "5"], "argument --ranks: invalid choice: 5"),
    ],
)
def test_a_wrong_argument_is_one_line(tmp_path: Path, arguments: list[str], words: str) -> None:
    done = run_example("same_bits/gpt.py", tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(f"gpt.py: {words}")


def _by_torch(gpt: Any, weights: dict[str, Any], tokens: Any, following: Any) -> Any:
    """The mean loss, by torch alone."""
    functional = torch.nn.functional

    def norm(x: Any, name: str) -> Any:
        scale, shift = weights[f"{name} scale"], weights[f"{name} shift"]
        return functional.layer_norm(x, (gpt.WIDTH,), scale, shift)

    def linear(x: Any, name: str) -> Any:
        return functional.linear(x, weights[name], weights[f"{name} shift"])

    x = weights["tokens"][tokens].view(gpt.TEXTS, gpt.LENGTH, -1) + weights["places"]
    for i in range(gpt.LAYERS):
        qkv = linear(norm(x, f"{i} before attention"), f"{i} heads")
        heads = qkv.view(gpt.TEXTS, gpt.LENGTH, gpt.HEADS, 3, gpt.HEAD).permute(3, 0, 2, 1, 4)
        seen = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + linear(seen.transpose(1, 2).flatten(2), f"{i} mix")
        up = functional.gelu(linear(norm(x, f"{i} before mlp"), f"{i} up"))
        x = x + linear(up, f"{i} down")
    return functional.cross_entropy(
        (norm(x, "last") @ weights["logits"].T).flatten(0, 1), following
    )


def _close(rank: int, gpt: Any) -> list[str]:
    """What of the loss and the gradients is not torch's, on one rank."""
    torch.set_num_threads(1)
    batch = gpt.texts_of(0)
    with collops.init() as comm:
        model = gpt.Model(gpt.Place(comm, gpt.LEAVES), torch.float32)
        model.losses(*batch).mean().backward()
        found = {name: weight.grad for name, weight in model.weights.items()}
    wanted = {name: w.detach().clone().requires_grad_() for name, w in model.weights.items()}
    _by_torch(gpt, wanted, *batch).backward()
    return [
        name for name, w in wanted.items() if not torch.allclose(found[name], w.grad, 1e-4, 1e-6)
    ]


def test_its_gradients_are_a_gpts(gpt: Any) -> None:
    assert run_ranks(_close, 1, gpt) == [[]]
