"""What the simulated CANN lacks is refused by name: it would leave the outputs unwritten."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from collops.testing import run_ranks
from tests.npu.simulated.simulated_rank import Rank

OPERATOR_NOT_FOUND = 100024


@pytest.mark.parametrize("function", ["aclopCompileAndExecute", "aclopCompileAndExecuteV2"])
def test_an_operator_that_is_run_by_its_name(function: str) -> None:
    def work(rank: int) -> tuple[int, str]:
        one = Rank(rank, 1)
        call: Any = getattr(one.acl, function)
        nothing = ctypes.c_void_p()
        code = call(b"Sin", 0, nothing, nothing, 0, nothing, nothing, nothing, 1, 1, None, nothing)
        return code, one.text()

    [(code, text)] = run_ranks(work, 1)
    assert code == OPERATOR_NOT_FOUND
    assert "the operator Sin is not simulated" in text


def test_torch_raises_what_is_not_simulated() -> None:
    """torch_npu runs sin by its name, as it finds no aclnnSin here."""

    def work(rank: int) -> str:
        import torch

        torch.npu.set_device(rank)
        x = torch.ones(3).npu()
        try:
            x.sin()
            torch.npu.synchronize()
        except RuntimeError as error:
            return str(error)
        return "no error"

    [message] = run_ranks(work, 1)
    assert "the operator Sin is not simulated" in message, message
