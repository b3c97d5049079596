"""DeepSpeed trains on collops as on gloo, with each stage of ZeRO."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("deepspeed") is None:
    pytest.skip("needs DeepSpeed: pip install 'collops[torch-training]'", allow_module_level=True)

import torch.distributed as dist  # noqa: E402

import collops.torch  # noqa: E402
from tests.torch.groups import run_group  # noqa: E402
from tests.torch.training.training import Compared, batches, loss_of, make_model  # noqa: E402


def prepared() -> Any:
    """DeepSpeed on the default group; it compiles nothing."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed

    # The name deepspeed.comm.torch is torch itself. On a CPU the module would compile an operator
    # of its own with g++, which takes minutes.
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
    deepspeed.init_distributed(dist_backend=dist.get_backend())
    return deepspeed


def zero(stage: int) -> list[float]:
    deepspeed = prepared()
    model = make_model()
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=0.05),
        config={
            "train_micro_batch_size_per_gpu": 5,
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
            "zero_optimization": {"stage": stage},
        },
    )
    losses = []
    for x in batches():
        loss = loss_of(engine, x)
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses


VARIANTS = {
    "zero_0": lambda: zero(0),
    "zero_1": lambda: zero(1),
    "zero_2": lambda: zero(2),
    "zero_3": lambda: zero(3),
}
TWO = Compared(VARIANTS, 2)


@pytest.mark.parametrize("name", VARIANTS)
def test_two_ranks(name: str) -> None:
    TWO.check(name)


def test_its_all_reduce_of_inference() -> None:
    """Without the operator of its own; by torch.distributed, and without that."""

    def work(rank: int) -> list[object]:
        deepspeed = prepared()
        backend = sys.modules["deepspeed.comm.torch"].TorchBackend
        found: list[object] = []
        for _ in range(2):
            x = torch.arange(4.0) + 10**rank
            deepspeed.comm.inference_all_reduce(x)
            found += [x.tolist(), collops.torch.last_calls()[-1].split()[1]]
            backend.inference_all_reduce = lambda self, x, op, group=None: (
                collops.torch.all_reduce_(x, group=group)
            )
        return found

    total = [11.0, 13.0, 15.0, 17.0]
    want = [total, "all_reduce", total, "collops.torch.all_reduce"]
    assert run_group(work, 2) == [want] * 2
