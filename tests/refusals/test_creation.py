"""Refusals of CreateOperation, from Python: code and message for every row of the table."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from creation_rows import CREATION
from right_calls import (
    EVEN,
    EVERY,
    LISTS,
    REDUCTIONS,
    RIGHT,
    V,
    create,
    outcome,
    refusal,
)

import collops
from collops import TensorDesc as Desc
from collops.launch.rank_table import make_rank_table
from collops.testing import run_ranks

every = pytest.mark.parametrize("name", EVERY)
both = pytest.mark.parametrize("name", V)
reducing = pytest.mark.parametrize("name", REDUCTIONS)
ROWS = [
    pytest.param(name, fields, message, id=f"{name}-{message}-{number}")
    for number, (names, fields, message) in enumerate(CREATION)
    for name in names
]


@every
def test_a_right_struct_is_taken_and_waits_for_no_one(name: str) -> None:
    op, right = create(name), RIGHT[name]
    assert (op.name, op.input_num, op.output_num) == (
        name,
        len(right.inputs()),
        0 if name == "Broadcast" else 1,
    )


@pytest.mark.parametrize(("name", "fields", "message"), ROWS)
def test_creation_is_refused(name: str, fields: dict[str, Any], message: str) -> None:
    error = refusal(create, name, **fields)
    assert (error.code, error.name) == (1, "ERROR_INVALID_PARAM")
    assert isinstance(error, ValueError)
    assert message in error.message
    assert re.match(rf"{name}(Param)?: ", error.message)


def test_every_struct_has_rows() -> None:
    structs = {name for name in dir(collops) if name.endswith("Param")}
    assert {f"{name}Param" for name in EVERY} == structs - {"SendParam", "RecvParam"}
    assert {name for names, *_ in CREATION for name in names} == set(EVERY)


@every
def test_the_longest_domain_is_taken(name: str) -> None:
    create(name, comm_domain="d" * 128)


@both
def test_a_rank_that_nothing_sets_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("COLLOPS_RANK", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(variable, raising=False)
    error = refusal(create, name, rank=-1)
    assert error.code == 1
    assert "rank is -1 and no launcher sets it" in error.message
    monkeypatch.setenv("COLLOPS_RANK", "1")
    create(name, rank=-1)


@every
def test_a_rank_table_that_contradicts_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLLOPS_SERVER_ID", "node-a")
    monkeypatch.setenv("COLLOPS_JOB_ID", f"table-{tmp_path.name}")
    table = tmp_path / "table.json"

    def refused(text: str) -> collops.Error:
        table.write_text(text)
        return refusal(create, name, rank_table_file=str(table))

    size = 2  # as create() makes it
    for text, message in (
        ("{}", f'rank table "{table}": status is missing'),
        (make_rank_table(["node-a"], size + 1), f"lists {size + 1} ranks: pass {size + 1}"),
        (make_rank_table(["node-b"], size), 'COLLOPS_SERVER_ID is "node-a", but the table'),
        (make_rank_table([f"node-{c}" for c in "abcd"], 9), "lists 36 ranks: pass 36"),
    ):
        error = refused(text)
        assert error.code == 1
        assert error.message.startswith(f"{name}: ")
        assert message in error.message
    table.write_text(make_rank_table(["node-a"], size))
    create(name, rank_table_file=str(table))
    table.write_text(json.dumps({"status": "initializing"}))
    create(name, rank_table_file=str(table))


@every
def test_a_backend_that_cannot_run_says_why(name: str) -> None:
    error = refusal(create, name, backend="hccl")
    assert error.code == 103
    assert "libhccl.so" in error.message


@both
def test_the_environment_replaces_a_valid_backend_only(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLLOPS_BACKEND", "shm")
    create(name, backend="hccl")
    assert refusal(create, name, backend="gloo").code == 1
    monkeypatch.setenv("COLLOPS_BACKEND", "hccl=nonsense")
    error = refusal(create, name, backend="hccl")
    assert error.code == 1
    assert "nonsense" in error.message


@every
def test_a_live_domain_with_another_size(name: str) -> None:
    held = create(name)
    lists = {field: [*numbers, 0] for field, numbers in LISTS.items()}
    error = refusal(create, name, rank_size=3, **(lists if name == "AllToAllV" else {}))
    assert error.code == 1
    assert "communicator of 2 ranks" in error.message
    del held


@every
def test_a_field_of_a_wrong_type(name: str) -> None:
    error = refusal(create, name, rank_size="2")
    assert error.code == 1
    assert "rankSize" in error.message


def test_values_that_are_no_struct_are_refused() -> None:
    with pytest.raises(collops.Error, match="a parameter struct .* is needed, got dict"):
        collops.Operation({"rank": 0})  # type: ignore[arg-type]


def test_lists_against_a_communicator_that_knows_its_size() -> None:
    def make(rank: int) -> tuple[int, str, Any]:
        with collops.init() as comm:
            fields = {"rank": rank, "rank_size": 0, "hccl_comm": comm, "comm_domain": ""}
            assert create("AllToAllV", **fields).name == "AllToAllV"
            return outcome(lambda: create("AllToAllV", **fields, sdispls=[0, 0, 0]))

    said = "AllToAllV: sdispls must have 2 numbers, one per rank, got 3"
    assert run_ranks(make, 2) == [(1, said, None)] * 2


@pytest.mark.parametrize("name", EVEN)
def test_both_of_atbs_backends_run_where_the_environment_says(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for backend in ("hccl", "lccl"):
        error = refusal(create, name, backend=backend)
        assert error.code == 103
        assert "libhccl.so" in error.message
    for value in ("shm", "hccl=shm", "lccl=shm"):
        monkeypatch.setenv("COLLOPS_BACKEND", value)
        assert create(name, backend="lccl").name == name


@pytest.mark.parametrize("backend", ["hccl", "lccl", "lcoc", "mc2"])
def test_the_backends_of_linear_parallel_are_hccl(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"backend": backend, "type": 1, "has_residual": False, "comm_mode": 1, "rank_size": 3}
    with pytest.raises(collops.UnsupportedError, match=r"libhccl\.so"):
        create("LinearParallel", **fields)
    monkeypatch.setenv("COLLOPS_BACKEND", "hccl=shm")
    assert create("LinearParallel", **fields).name == "LinearParallel"


def test_an_environment_of_hccl_only_says_what_lcoc_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLOPS_BACKEND", "lcoc=shm")
    assert create("LinearParallel", backend="lcoc").name == "LinearParallel"


def test_hccl_has_no_transpose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLOPS_BACKEND", "shm")
    error = refusal(create, "AllToAll", backend="hccl", transpose=True)
    said = 'AllToAll: transpose does not exist on backend "hccl": use "lccl"'
    assert (error.code, error.message) == (1, said)
    assert create("AllToAll", backend="lccl", transpose=True).name == "AllToAll"


def infer(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch, **fields: Any) -> int:
    """The code of infer_shape, where the environment runs any backend on shm."""
    monkeypatch.setenv("COLLOPS_BACKEND", "shm")
    return outcome(lambda: create(name, **fields).infer_shape([Desc((4, 3), dtype)]))[0]


@reducing
@pytest.mark.parametrize("dtype", ["int16", "bfloat16"])
def test_hccl_has_no_prod_of_short_types(
    name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prod = {REDUCTIONS[name]: "prod"}
    assert infer(name, dtype, monkeypatch, backend="hccl", **prod) == 6
    assert infer(name, dtype, monkeypatch, backend="hccl") == 0
    assert infer(name, dtype, monkeypatch, backend="shm", **prod) == 0


def test_int64_on_atbs_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = {
        (name, backend): infer(name, "int64", monkeypatch, backend=backend)
        for name in REDUCTIONS
        for backend in ("hccl", "lccl", "shm")
    }
    assert codes == {
        ("AllReduce", "hccl"): 0,
        ("AllReduce", "lccl"): 6,
        ("AllReduce", "shm"): 0,
        ("ReduceScatter", "hccl"): 13,
        ("ReduceScatter", "lccl"): 13,
        ("ReduceScatter", "shm"): 0,
    }
