"""Results in memory that the caller passes."""

from __future__ import annotations

import torch

from collops.errors import ErrorCode
from collops.torch.calls import refuse
from collops.torch.operators.names import communicator_of


def check_no_gradients(name: str, group: str, *tensors: torch.Tensor | None) -> None:
    """Refuses a call with `out` through which gradients would have to pass, as torch does."""
    given = [x for x in tensors if x is not None]
    if torch.is_grad_enabled() and any(x.requires_grad for x in given):
        refuse(
            communicator_of(group, given[0].device),
            name,
            ErrorCode.ERROR_UNSUPPORTED,
            f"{name}: gradients do not pass a call with out=: leave it out, pass .detach(), or "
            "call under torch.no_grad()",
        )
