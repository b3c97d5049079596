"""A rank that ends in the middle of training: its peer's step raises PeerLostError at once."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import collops.torch.fsdp  # noqa: E402
from collops.testing import RankErrors  # noqa: E402
from patience import patience  # noqa: E402
from tests.torch.groups import run_group  # noqa: E402
from tests.torch.training.training import batches, loss_of, make_model  # noqa: E402

PROMISED_S, MARGIN_S = 1.0, patience(4.0)  # the second for a machine that others load


def replicated() -> Any:
    return DistributedDataParallel(make_model(), gradient_as_bucket_view=True)


def sharded() -> Any:
    model = make_model()
    mesh = dist.init_device_mesh("cpu", (2,))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    collops.torch.fsdp.use(model)
    return model


def train_until_the_loss(rank: int, kind: str, folder: str) -> None:
    model = {"ddp": replicated, "fsdp2": sharded}[kind]()
    for number, x in enumerate(batches(2)):
        loss = loss_of(model, x)
        if number == 1:
            dist.barrier()
            if rank == 1:  # in the middle of the step, and without a word
                Path(folder, "ended").write_text(str(time.monotonic()))
                os._exit(3)
            break
        loss.backward()
    try:
        loss.backward()
        outcome = "no error"
    except Exception as error:
        outcome = f"{time.monotonic()} {type(error).__name__} {error}"
    Path(folder, "outcome").write_text(outcome)


# torch's C++ gives the error of a future to DDP as a RuntimeError with its text.
@pytest.mark.parametrize(
    ("kind", "kinds"), [("ddp", "RuntimeError PeerLostError"), ("fsdp2", "PeerLostError")]
)
def test_the_backward_pass_raises(tmp_path: Path, kind: str, kinds: str) -> None:
    with pytest.raises(RankErrors) as failed:
        run_group(train_until_the_loss, 2, kind, str(tmp_path))
    assert 1 in failed.value.errors
    ended = float((tmp_path / "ended").read_text())
    outcome = (tmp_path / "outcome").read_text()
    moment, name, message = outcome.split(" ", 2)
    assert name in kinds.split()
    assert "PEER_LOST" in message
    assert "rank 1" in message
    assert float(moment) - ended <= PROMISED_S + MARGIN_S
