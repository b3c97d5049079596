"""SendTo and RecvFrom, the messages of comm.exchange()."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class SendTo:
    """A message of comm.exchange() that this rank sends.

    Args:
        x: [...] the tensor; as comm.send() takes it.
        to: the rank that receives, which may be this one.
        tag: from 0 to 2**31 - 1, the same as the receiver's.

    Source of the semantics: torch.distributed.P2POp with isend.

    Example:
        >>> import collops
        >>> collops.SendTo([1.5], to=3).tag
        0
    """

    x: Any
    to: int
    tag: int = 0


@dataclass(eq=False)
class RecvFrom:
    """A message of comm.exchange() that this rank receives.

    After the exchange `source` is the rank that sent the message.

    Args:
        out: [...] the memory for the tensor; as comm.recv() takes it.
        from_: the rank that sends, which may be this one; None: any rank.
        tag: from 0 to 2**31 - 1, the same as the sender's.

    Source of the semantics: torch.distributed.P2POp with irecv.

    Example:
        >>> import collops
        >>> collops.RecvFrom([0.0], tag=7).from_ is None
        True
    """

    out: Any
    from_: int | None = None
    tag: int = 0
    source: int | None = field(default=None, init=False)
