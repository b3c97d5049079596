"""Accelerate trains on collops as on gloo, on a group that exists and on one of our making."""

from __future__ import annotations

import importlib.util
import os
from datetime import timedelta
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("accelerate") is None:
    pytest.skip("needs Accelerate: pip install 'collops[torch-training]'", allow_module_level=True)

import torch.distributed as dist  # noqa: E402

import collops  # noqa: E402
import collops.torch.accelerate  # noqa: E402
from collops.testing import run_ranks  # noqa: E402
from tests.torch.groups import TIMEOUT_S, default_group, run_group  # noqa: E402
from tests.torch.training.training import Compared, batches, loss_of, make_model  # noqa: E402


def tell_launcher(rank: int, size: int) -> None:
    """The variables of torchrun, which Accelerate reads."""
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), LOCAL_WORLD_SIZE=str(size)
    )
    os.environ["OMP_NUM_THREADS"] = "1"


def accelerated() -> list[float]:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == dist.get_world_size()
    model = make_model()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.05))
    losses = []
    for x in batches():
        loss = loss_of(model, x)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    own = torch.full((2,), losses[-1] + accelerator.process_index)
    rows = [own[: 1 + accelerator.process_index % 2]]
    padded = accelerator.pad_across_processes(rows[0], dim=0)
    whole = accelerator.gather(padded).tolist()
    return [*losses, *whole, *accelerator.reduce(own, "mean").tolist()]


def existing_group() -> list[float]:
    tell_launcher(dist.get_rank(), dist.get_world_size())
    return accelerated()


TWO = Compared({"existing_group": existing_group}, 2)


def test_an_existing_group() -> None:
    TWO.check("existing_group")


def test_a_group_of_our_making(tmp_path: Any) -> None:
    """Without a group, state() makes it from the launcher's variables."""
    path = tmp_path / "store"

    def work(rank: int) -> list[Any]:
        tell_launcher(rank, 2)
        state = collops.torch.accelerate.state(
            timedelta(seconds=TIMEOUT_S), init_method=f"file://{path}", rank=rank, world_size=2
        )
        losses = accelerated()
        own = isinstance(default_group(), collops.torch.Group)
        dist.destroy_process_group()
        return [state.backend, own, losses]

    for rank, (backend, own, losses) in enumerate(run_ranks(work, 2)):
        assert (backend, own) == ("collops", True)
        assert losses == TWO.of("collops", "existing_group")[rank]


def refusal() -> str:
    with pytest.raises(collops.ArgumentError) as refused:
        collops.torch.accelerate.state()
    return str(refused.value)


def test_refusals() -> None:
    def work(rank: int) -> list[str]:
        os.environ.pop("WORLD_SIZE", None)
        alone = refusal()
        tell_launcher(rank, 2)
        collops.torch.accelerate.state()
        return [alone, refusal()]

    for alone, again in run_group(work, 2):
        assert "reads the number of ranks from WORLD_SIZE, got 1, the group has 2" in alone
        assert "Accelerate has a state already" in again
    [message] = run_group(lambda _: refusal(), 1, backend="gloo")
    assert "the default group has the backend gloo" in message


@pytest.mark.parametrize("backend", ["collops", "cpu:collops"])
def test_accelerate_takes_the_name(backend: str, tmp_path: Any) -> None:
    """Accelerate makes the group itself; another unknown name is refused as before."""
    path = tmp_path / "store"

    def work(rank: int) -> list[Any]:
        from accelerate import Accelerator, InitProcessGroupKwargs, PartialState

        tell_launcher(rank, 2)
        with pytest.raises(ValueError, match="mpich is not available, please use gloo"):
            PartialState(cpu=True, backend="mpich")
        PartialState._reset_state()
        limit = timedelta(seconds=TIMEOUT_S)
        made = InitProcessGroupKwargs(backend=backend, init_method=f"file://{path}", timeout=limit)
        backends = [Accelerator(cpu=True, kwargs_handlers=[made]).state.backend]
        losses = accelerated()
        own = isinstance(default_group(), collops.torch.Group)
        dist.destroy_process_group()
        return [backends, own, losses]

    for rank, (backends, own, losses) in enumerate(run_ranks(work, 2)):
        assert (backends, own) == ([backend], True)
        assert losses == TWO.of("collops", "existing_group")[rank]


def test_a_program_that_knows_gloo_alone(tmp_path: Any) -> None:
    """COLLOPS_AS=gloo: Accelerate says gloo, and the group is of collops."""
    path = tmp_path / "store"

    def work(rank: int) -> list[Any]:
        from accelerate import Accelerator, InitProcessGroupKwargs

        tell_launcher(rank, 2)
        where = InitProcessGroupKwargs(init_method=f"file://{path}")
        backend = Accelerator(cpu=True, kwargs_handlers=[where]).state.backend
        losses = accelerated()
        own = isinstance(default_group(), collops.torch.Group)
        dist.destroy_process_group()
        return [backend, own, losses]

    for rank, (backend, own, losses) in enumerate(run_ranks(work, 2, env={"COLLOPS_AS": "gloo"})):
        assert (backend, own) == ("gloo", True)
        assert losses == TWO.of("gloo", "existing_group")[rank]
