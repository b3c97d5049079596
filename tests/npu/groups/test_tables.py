"""Groups of the hccl backend that are connected by a rank table."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collops
from collops.launch.rank_table import table_refusal
from collops.testing import run_ranks
from patience import patience
from tests.npu.npu_ranks import error_of, hccl_group

RANKS = 3


def write(folder: Path, devices: list[int], status: str = "completed") -> str:
    """A rank table of one server; its path."""
    listed = [{"device_id": str(d), "rank_id": str(r)} for r, d in enumerate(devices)]
    server = {"server_id": "here", "device": listed}
    table = {"version": "1.0", "status": status, "server_count": "1", "server_list": [server]}
    path = folder / "table.json"
    whole = path.with_suffix(".new")
    whole.write_text(json.dumps(table))
    whole.rename(path)  # ranks that wait for it never read a part
    return str(path)


def total(npu: Any, comm: Any) -> float:
    """An AllReduce of ones: how many ranks take part."""
    return float(npu.array(comm.all_reduce(npu.tensor(np.ones(1, np.float32))))[0])


@pytest.mark.parametrize("how", ["variable", "parameter"])
def test_groups_of_one_table(npu: Any, tmp_path: Path, how: str) -> None:
    """HCCL takes a table once, so a second domain connects by root info."""
    path = write(tmp_path, [3, 1, 2])

    def work(rank: int) -> tuple[list[Any], int, int, list[Any], int]:
        npu.choose([3, 1, 2][rank])
        fields = {"rank": rank, "rank_size": RANKS, "backend": "hccl"}
        if how == "parameter":
            fields["rank_table_file"] = path
        first, second = (
            collops.Operation(collops.AllGatherVParam(**fields, comm_domain=domain))
            for domain in ("first", "second")
        )
        results = [npu.gather(op, rank, RANKS, v) for v, op in enumerate((first, second, first))]
        live = npu.live_communicators()
        collops.core.core().close_all("test")
        closed = npu.live_communicators()
        # All over again, with the second domain first.
        again = [
            npu.gather(
                collops.Operation(collops.AllGatherVParam(**fields, comm_domain=domain)),
                rank,
                RANKS,
                7,
            )
            for domain in ("second", "first")
        ]
        del first, second
        collops.core.core().close_all("test")
        return results, live, closed, again, npu.live_communicators()

    env = {"RANK_TABLE_FILE": path} if how == "variable" else {}
    want = [npu.gathered(RANKS, value) for value in range(3)]
    assert (
        run_ranks(work, RANKS, env=env, timeout=patience(20))
        == [(want, 2, 0, [npu.gathered(RANKS, 7)] * 2, 0)] * RANKS
    )


@pytest.mark.parametrize(
    ("env", "megabytes"),
    [({}, 200), ({"HCCL_BUFFSIZE": "50"}, 50), ({"COLLOPS_HCCL_BUFFER_MB": "7"}, 7)],
    ids=["default", "hccl's", "ours"],
)
def test_buffers_of_every_kind_of_communicator(
    npu: Any, tmp_path: Path, env: dict[str, str], megabytes: int
) -> None:
    path = write(tmp_path, [0, 1])

    def work(rank: int) -> tuple[int, int, dict[str, str]]:
        npu.choose(rank)
        groups = [collops.init(backend="hccl", comm_domain=name) for name in ("table", "root info")]
        groups.append(groups[0].split(0))
        assert [total(npu, group) for group in groups] == [2.0] * 3
        facts = dict(collops.core.core().backend_facts("hccl"))
        buffers = npu.open_library("libhccl.so").SimBufferMb()
        return npu.live_communicators(), buffers, facts

    env = env | {"RANK_TABLE_FILE": path, "HCCL_BUFFSIZE": env.get("HCCL_BUFFSIZE", "999")}
    env = env if megabytes != 200 else {"RANK_TABLE_FILE": path}
    for live, buffers, facts in run_ranks(work, 2, env=env, timeout=patience(20)):
        assert (live, buffers) == (3, 6 * megabytes)
        assert facts["memory"].startswith(f"2 x {megabytes} MB for each communicator")
        assert facts["communicators"] == f"3 made in this process, with {6 * megabytes} MB"


def test_a_domain_may_be_closed_and_made_again(npu: Any, tmp_path: Path) -> None:
    """Also where the first domain lives on, whose ranks HCCL has connected by the table."""
    path = write(tmp_path, list(range(RANKS)))

    def work(rank: int) -> list[float]:
        npu.choose(rank)
        first = collops.init(backend="hccl", comm_domain="first")
        totals = []
        for _ in range(3):
            second = collops.init(backend="hccl", comm_domain="second")
            totals.append(total(npu, second))
            second.close()
        return [*totals, total(npu, first)]

    env = {"RANK_TABLE_FILE": path}
    assert run_ranks(work, RANKS, env=env, timeout=patience(20)) == [[RANKS] * 4] * RANKS


def test_long_names_of_parts_differ_in_hccl(npu: Any, tmp_path: Path) -> None:
    """Each part of a part has a longer name, of which HCCL takes 127 characters."""
    path = write(tmp_path, list(range(RANKS)))

    def work(rank: int) -> list[float]:
        npu.choose(rank)
        part = collops.init(backend="hccl")
        totals = []
        for _ in range(12):
            part = part.split(0)
            totals.append(total(npu, part))
        return totals

    env = {"RANK_TABLE_FILE": path}
    assert run_ranks(work, RANKS, env=env, timeout=patience(20)) == [[RANKS] * 12] * RANKS


def test_threads_with_a_table(npu: Any, tmp_path: Path) -> None:
    path = write(tmp_path, list(range(RANKS)))

    def work(rank: int) -> list[int]:
        npu.choose(rank)
        param = collops.AllGatherVParam(
            rank=rank, rank_size=RANKS, rank_table_file=path, comm_mode=collops.COMM_MULTI_THREAD
        )
        return npu.gather(collops.Operation(param), rank, RANKS, 2)

    env = {"COLLOPS_TIMEOUT_S": f"{patience(10):g}"}
    assert (
        run_ranks(work, RANKS, env=env, threads=True, timeout=patience(20))
        == [npu.gathered(RANKS, 2)] * 3
    )


@pytest.mark.parametrize("first", ["torch_npu", "collops"])
def test_beside_torch_npu_which_takes_the_table_too(
    npu: Any,
    torch_module: Any,
    tmp_path: Path,
    first: str,
    capfd: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """torch_npu passes RANK_TABLE_FILE to HCCL by itself; whoever comes second uses root info."""
    monkeypatch.setattr(logging.root, "handlers", [])  # the lines go to standard error
    path = write(tmp_path, list(range(RANKS)))

    def work(rank: int) -> list[float]:
        npu.choose(rank)
        found = []
        for who in sorted(["torch_npu", "collops"], key=lambda name: name != first):
            if who == "collops":
                found.append(total(npu, collops.init(backend="hccl")))
            else:
                hccl_group(torch_module, rank, RANKS, tmp_path)
                x = npu.tensor(np.ones(1, np.float32))
                torch_module.distributed.all_reduce(x)
                found.append(float(npu.array(x)[0]))
        return found

    env = {"RANK_TABLE_FILE": path}
    assert run_ranks(work, RANKS, env=env, timeout=patience(40)) == [[RANKS] * 2] * RANKS
    said = "the ranks connect by root info: another library, such as torch_npu, has passed a rank"
    assert capfd.readouterr().err.count(said) == (RANKS if first == "torch_npu" else 0)


def test_another_device_than_the_tables_is_hccls_error(npu: Any, tmp_path: Path) -> None:
    path = write(tmp_path, [0, 1])

    def work(rank: int) -> tuple[int, str]:
        npu.choose(1 - rank)
        error = error_of(lambda: collops.init(backend="hccl"))
        return error.code, error.message

    for code, message in run_ranks(work, 2, env={"RANK_TABLE_FILE": path}, timeout=patience(20)):
        assert code == 25
        assert "HcclCommInitClusterInfoConfig returned 7 (HCCL_E_UNAVAIL): EI9999" in message
        assert "the rank table has device" in message
        assert "for this rank, but the thread's is" in message


def test_a_table_that_breaks_hccls_rules_is_refused_at_creation(npu: Any, tmp_path: Path) -> None:
    """By each rank alone, in the words of `collops rank-table check`."""
    path = write(tmp_path, [1, 1])
    rule = table_refusal(path, "hccl")
    assert rule.endswith('device_id "1" of server "here" is given to ranks 0 and 1')

    def work(rank: int) -> tuple[int, str]:
        npu.choose(1)
        param = collops.AllGatherVParam(rank=rank, rank_size=2, rank_table_file=path)
        error = error_of(lambda: collops.Operation(param))
        return error.code, error.message

    assert run_ranks(work, 2, timeout=patience(20)) == [(1, rule)] * 2


def test_a_table_that_is_not_complete_is_waited_for(npu: Any, tmp_path: Path) -> None:
    path = write(tmp_path, [], "initializing")

    def work(rank: int) -> float:
        npu.choose(rank)
        if rank == 1:
            threading.Timer(0.3, lambda: write(tmp_path, [0, 1])).start()
        comm = collops.init(backend="hccl")
        part = comm.split(0)
        assert part is not None
        return total(npu, comm) + total(npu, part)

    assert run_ranks(work, 2, env={"RANK_TABLE_FILE": path}, timeout=patience(20)) == [4.0] * 2


def test_parts_of_a_table_group(npu: Any, tmp_path: Path) -> None:
    """Of a group that has not met, of parts, with a rank in none, and closed in any order."""
    path = write(tmp_path, [0, 1, 2, 3])

    def work(rank: int) -> list[Any]:
        npu.choose(rank)
        whole = collops.init(backend="hccl")
        outer = whole.split(-1 if rank == 0 else 5)  # ranks 1, 2 and 3
        found: list[Any] = []
        if outer is None:
            found.append(None)
        else:
            inner = outer.split(0 if outer.rank > 0 else 1)  # ranks 2 and 3 of the whole group
            assert inner is not None
            found += [total(npu, outer), inner.rank, inner.size, total(npu, inner)]
            # HCCL splits off no subgroup in another order: that one connects by itself.
            turned = outer.split(0, -rank)
            assert turned is not None
            found += [turned.rank, total(npu, turned), total(npu, outer)]
            turned.close()
        found.append(total(npu, whole))
        groups = [whole] if outer is None else [whole, outer, inner]
        for group in groups:
            group.barrier()
        for group in groups if rank % 2 else groups[::-1]:
            group.close()
        return [*found, npu.live_communicators()]

    results = run_ranks(work, 4, env={"RANK_TABLE_FILE": path}, timeout=patience(20))
    assert results[0] == [None, 4.0, 0]
    assert results[1] == [3.0, 0, 1, 1.0, 2, 3.0, 3.0, 4.0, 0]
    assert results[2] == [3.0, 0, 2, 2.0, 1, 3.0, 3.0, 4.0, 0]
    assert results[3] == [3.0, 1, 2, 2.0, 0, 3.0, 3.0, 4.0, 0]
