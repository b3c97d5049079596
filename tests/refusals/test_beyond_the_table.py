"""What no line of the table can say: right calls, files, mended structs, several ranks at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collops
from collops import RecvFrom, SendTo
from collops import TensorDesc as Desc
from collops.core import core
from collops.launch.rank_table import make_rank_table
from collops.testing import run_ranks
from patience import patience
from tests.refusals.right_calls import RIGHT, f4
from tests.unit.atb.param_values import DEFAULTS


def create(name: str, **fields: Any) -> collops.Operation:
    """The operation of rank 0 of 2 with some other fields."""
    return collops.Operation(RIGHT[name].param(RIGHT[name].call(0, **fields)))


def ending(call: Any) -> tuple[int, str]:
    """Code and message of a call that fails; 0 of one that does not."""
    try:
        call()
    except collops.Error as error:
        return error.code, error.message
    return 0, ""


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_call_passes(name: str) -> None:
    right = RIGHT[name]
    ins, outs = right.tensors(right.call(0))
    op = create(name)
    assert (op.name, op.input_num, op.output_num) == (name, len(ins), len(outs))
    assert op.infer_shape(ins) == [Desc(out.shape, "float32") for out in outs]
    assert (op.get_workspace_size(ins, outs) > 0) == (name == "LinearParallel")


def test_a_rank_table_that_contradicts_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLLOPS_SERVER_ID", "node-a")
    monkeypatch.setenv("COLLOPS_JOB_ID", f"table-{tmp_path.name}")
    table = tmp_path / "table.json"
    for text, message in (
        ("{}", f'AllGatherV: rank table "{table}": status is missing'),
        (make_rank_table(["node-a"], 3), "lists 3 ranks: pass 3"),
        (make_rank_table(["node-b"], 2), 'COLLOPS_SERVER_ID is "node-a", but the table'),
        (make_rank_table([f"node-{c}" for c in "abcd"], 9), "lists 36 ranks: pass 36"),
    ):
        table.write_text(text)
        code, said = ending(lambda: create("AllGatherV", rank_table_file=str(table)))
        assert (code, message in said) == (1, True), said
    for text in (make_rank_table(["node-a"], 2), json.dumps({"status": "initializing"})):
        table.write_text(text)
        create("AllGatherV", rank_table_file=str(table))


def test_a_wrong_list_is_mended_by_update() -> None:
    right = RIGHT["LinearParallel"]
    ins, _ = right.tensors(right.call(0))
    op = create("LinearParallel", gather_rows=[4, 3])
    assert "gatherRows[0] is 4" in ending(lambda: op.infer_shape(ins))[1]
    op.update(right.param(right.call(0, gather_rows=[3, 9])))
    assert op.infer_shape(ins) == [Desc((12, 5), "float32")]


def domain_of_lccl(rank: int) -> list[tuple[int, str]]:
    found = []
    for domain in ("65535", "65536", "70000:300", "layer-70000"):
        param = collops.AllGatherParam(rank=rank, rank_size=2, backend="lccl", comm_domain=domain)
        op, x = collops.Operation(param), f4(6, 2)
        outs = [np.empty((2, 6, 2), np.float32)]
        assert op.get_workspace_size([x], outs) == 0
        found.append(ending(lambda op=op, x=x, outs=outs: op.execute([x], outs)))
    return found


def test_a_number_that_no_domain_of_lccl_has_is_refused_by_the_second_phase() -> None:
    said = 'AllGather: as a number, commDomain of backend "lccl" must be from 0 to 65535, got '
    refused = [(28, f"{said}65536"), (28, f"{said}70000")]
    found = run_ranks(domain_of_lccl, 2, env={"COLLOPS_BACKEND": "shm"})
    assert found == [[(0, ""), *refused, (0, "")]] * 2


def test_several_ranks_may_refuse() -> None:
    """Each has its own error, or where it has none, that of another rank."""

    def work(rank: int) -> list[Any]:
        comm = collops.init()
        x = f4(6, 2)
        heard = [ending(lambda: comm.all_gatherv(x if rank == 0 else x.T, [6, 6, 6]))[0]]
        heard.append(ending(lambda: comm.all_gatherv(x, [rank]))[0])
        return [heard, comm.all_gatherv(x).shape]

    first, *others = run_ranks(work, 3)
    assert first == [[102, 1], (18, 2)]
    assert others == [[[1, 1], (18, 2)]] * 2


def pure_linear(rank: int) -> tuple[int, Any]:
    right = RIGHT["LinearParallel"]
    op = collops.Operation(right.param(right.call(rank, type=collops.ParallelType.PURE_LINEAR)))
    ins, _ = right.tensors(right.call(rank))
    outs = [np.empty((3, 5), np.float32)]
    code = ending(lambda: op.execute([ins[0][:2], *ins[1:]], outs))[0] if rank == 1 else 0
    return code, np.array_equal(op.forward(ins)[0], ins[0] @ ins[1].T + 1)


def test_the_type_without_communication_refuses_for_itself() -> None:
    assert run_ranks(pure_linear, 2) == [(0, True), (1, True)]


def test_two_sends_first_time_out_with_advice_to_exchange() -> None:
    def work(rank: int) -> tuple[int, str]:
        with collops.init() as comm:
            comm.barrier()
            collops.init(timeout_s=0.5)
            return ending(lambda: comm.send(f4(6), 1 - rank))

    for code, message in run_ranks(work, 2):
        assert code == 100
        assert "two ranks that both send first wait for each other, exchange does not" in message


def test_a_message_of_another_length_ends_the_group() -> None:
    """Also for a rank that has no part in it."""

    def work(rank: int) -> tuple[int, str]:
        with collops.init(timeout_s=patience(20)) as comm:
            calls = (lambda: comm.send(f4(6), 1), lambda: comm.recv(f4(5), 0), comm.barrier)
            return ending(calls[rank])

    for code, message in run_ranks(work, 3):
        assert code == 102
        assert "receives 5 float32: both must state the same dtype" in message


def test_a_message_may_follow_one_that_was_refused() -> None:
    def work(rank: int) -> bool:
        with collops.init(timeout_s=patience(20)) as comm:
            wrong = SendTo(strided, 0, 5) if rank == 1 else RecvFrom(x.copy(), 1, 5)
            code = ending(lambda: comm.exchange([wrong]))[0] if rank < 2 else 0
            assert code == (102, 14, 0)[rank]
            if rank == 1:
                comm.send(x, 0, 5)
            return bool(rank or (comm.recv(np.zeros(6, np.float32), 1, 5) == x).all())

    x, strided = f4(6), f4(12)[::2]
    assert all(run_ranks(work, 3))


def test_gathered_shapes_may_differ_where_sizes_are_given() -> None:
    def work(rank: int) -> list[float]:
        x = f4(2, 2) if rank == 0 else f4(2, 2, 1)
        return list(collops.init().all_gatherv(x, [2, 2]).ravel())

    assert run_ranks(work, 2) == [[0.0, 1.0, 2.0, 3.0] * 2] * 2


def test_an_array_of_another_class_is_still_an_array() -> None:
    assert core().describe(np.matrix([[1, 2]]))["shape"] == "[1, 2]"
    assert core().describe(np.ma.masked_array([1, 2], [1, 0]).filled(7))["numel"] == 2


@pytest.mark.parametrize("kind", DEFAULTS, ids=lambda kind: kind.__name__)
def test_numbers_of_a_struct_are_numbers(kind: type[Any]) -> None:
    for name in [name for name, value in DEFAULTS[kind].items() if type(value) is int]:
        with pytest.raises(collops.Error, match=r'must be an integer .* got "0"') as caught:
            collops.Operation(kind(**{"rank_size": 2, name: "0"}))
        assert caught.value.code == 1


def test_what_advice_for_torch_tensors_says_works() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed here")
    op, counts = create("AllGatherV"), torch.tensor([8, 8])
    x = torch.empty(4, 2, device="meta")
    ins = [x, counts[:1], counts, torch.tensor([0, 8]), torch.empty(8, dtype=torch.float16)]
    assert [desc.shape for desc in op.infer_shape(ins)] == [(8, 2)]
    out = torch.empty(8, 2)
    _, said = ending(lambda: op.get_workspace_size(ins, [out]))
    advice = said.partition("e.g. by ")[2].partition(", and")[0]
    assert advice == 'torch.empty_like(tensor, device="cpu")'
    ins[0] = eval(advice, {"torch": torch, "tensor": x})
    assert op.get_workspace_size(ins, [out]) == 0
    assert "output is a meta" in ending(lambda: op.get_workspace_size(ins, [out.to("meta")]))[1]
    ins[2] = counts.to("meta")
    assert "torch.tensor(counts)" in ending(lambda: op.get_workspace_size(ins, [out]))[1]
    negated = torch.tensor([1 + 2j]).conj().imag
    with collops.init(0, 1) as comm:
        assert comm.all_gatherv(negated.resolve_neg()).tolist() == [-2.0]
        assert comm.reduce_scatterv([negated]).tolist() == [-2.0]  # copied, and so by torch
        bits = torch.ones(3, dtype=torch.float8_e4m3fn).requires_grad_()
        assert comm.all_gatherv(bits.detach()).shape == (3,)
