"""A process group of torchft over collops, for replicas that come and go.

torchft is imported here, so collops.torch does not import this module.
"""

from __future__ import annotations

from typing import Any

from torchft.process_group import ProcessGroupWrapper

from collops.torch.group import Group
from collops.torch.meeting import meet

__all__ = ["ProcessGroupCollops"]

_NAME = "torchft"  # of each group, in messages


class ProcessGroupCollops(ProcessGroupWrapper):
    """A group of collops whose ranks torchft's Manager changes, in place of ProcessGroupGloo.

    ``Manager(pg=ProcessGroupCollops(timeout=timedelta(seconds=30)), ...)``. configure() leaves the
    group before it and meets the ranks of the new one, which may be processes, or threads of one
    process. Ranks that still wait in the old group get PeerLostError. `timeout` is how long
    configure() and each call wait for other ranks.
    """

    _pg: Any
    _errored: Exception | None = None

    def _create_pg(self, store: Any, rank: int, world_size: int) -> Group:
        self._errored = None
        communicator = meet(store, rank, world_size, _NAME, self._timeout.total_seconds())
        return Group(communicator, store, _NAME)

    def getBackendName(self) -> str:
        """The name under which register() makes it known."""
        return "torchft-collops"

    def set_timeout(self, timeout: Any) -> None:
        """Sets how long configure() and each call wait for other ranks."""
        super().set_timeout(timeout)
        if self._pg is not None:
            self._pg.set_timeout(timeout)

    def abort(self, errored: bool = True) -> None:
        """Ends the calls under way in this rank, and leaves the group until configure()."""
        if errored:
            self._errored = RuntimeError("the process group was aborted")
        self.shutdown()

    def shutdown(self) -> None:
        """Leaves the group: the other ranks get PeerLostError when they wait for this one."""
        group, self._pg = self._pg, None
        if group is not None:
            group.shutdown()

    def errored(self) -> Exception | None:
        """What abort() has left; the error of a call is raised where the call is waited for."""
        return self._errored
