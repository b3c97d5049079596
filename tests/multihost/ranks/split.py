"""One rank that splits its communicator in every way, and checks what its subgroups compute.

Argument: the host of each rank, with commas.
"""

from __future__ import annotations

import sys

import numpy as np

import collops
from collops import Communicator


def gathered(part: Communicator, number: int) -> list[int]:
    """The numbers of all ranks of `part`, gathered, after a reduction of them was checked."""
    numbers = [int(x) for x in part.all_gatherv(np.array([number], np.int64))]
    total = part.all_reduce(np.array([number, part.rank], np.int64)).tolist()
    assert total == [sum(numbers), sum(range(part.size))], total
    long = part.all_gatherv(np.full(100_003 + part.rank, number, np.int32))
    parts = [np.full(100_003 + rank, x, np.int32) for rank, x in enumerate(numbers)]
    assert np.array_equal(long, np.concatenate(parts))
    part.barrier()
    return numbers


def check_keys(comm: Communicator) -> None:
    """Two groups of ranks from everywhere, numbered backwards by their keys."""
    wanted = [rank for rank in range(comm.size) if rank % 2 == comm.rank % 2][::-1]
    with comm.split(comm.rank % 2, -comm.rank) as part:
        assert (part.size, part.rank) == (len(wanted), wanted.index(comm.rank))
        assert gathered(part, comm.rank) == wanted
        assert gathered(comm, comm.rank) == list(range(comm.size))
        assert gathered(part, comm.rank * 10) == [rank * 10 for rank in wanted]


def check_hosts(comm: Communicator, hosts: list[int]) -> None:
    """A group per host, and one of a rank of each host; the other ranks are in none."""
    own = hosts[comm.rank]
    here = [rank for rank in range(comm.size) if hosts[rank] == own]
    host = comm.split(own, comm.rank)
    assert gathered(host, comm.rank) == here
    leaders = sorted({hosts.index(other) for other in hosts})
    across = comm.split(0 if comm.rank in leaders else None, comm.rank)
    assert (across is None) == (comm.rank not in leaders)
    if across is not None:
        assert gathered(across, comm.rank) == leaders
        across.close()
    assert gathered(host, comm.rank) == here
    host.close()


def check_nested(comm: Communicator) -> None:
    """Splits of splits, closed before and after the group that they were split from."""
    first = comm.split(0, -comm.rank)
    second = first.split(0, -first.rank)
    third = second.split(int(second.rank == 0), second.rank)
    rest = list(range(1, comm.size)) if comm.rank else [0]
    assert gathered(third, comm.rank) == rest
    first.close()
    assert gathered(second, comm.rank) == list(range(comm.size))
    assert gathered(third, comm.rank) == rest
    third.close()
    assert gathered(comm, comm.rank) == list(range(comm.size))
    second.close()


def check_refusal(comm: Communicator) -> None:
    """A rank whose split is wrong refuses it, and the next one is good."""
    try:
        comm.split(2**40 if comm.rank == 1 else 0)
    except collops.Error as error:
        wanted = "ERROR_INVALID_PARAM" if comm.rank == 1 else "ERROR_RANK_MISMATCH"
        assert error.name == wanted, error
        assert "split: color must be from 0" in error.message, error
    else:
        raise AssertionError("no error")
    with comm.split(0) as part:
        assert gathered(part, comm.rank) == list(range(comm.size))


def main(placement: str) -> None:
    comm = collops.init(backend="ucx")
    check_keys(comm)
    check_hosts(comm, [int(host) for host in placement.split(",")])
    check_nested(comm)
    check_refusal(comm)
    comm.close()
    print("split", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
