"""What CreateOperation refuses, from Python: code and message for every line of the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import collops

OPERATORS = {
    "AllGatherV": collops.AllGatherVParam,
    "ReduceScatterV": collops.ReduceScatterVParam,
}
both = pytest.mark.parametrize("name", OPERATORS)


def create(name: str, **fields: Any) -> collops.Operation:
    """An operation of rank 0 of 2 with some other fields."""
    values = {"rank": 0, "rank_size": 2, "backend": "shm", "comm_domain": "negative", **fields}
    return collops.Operation(OPERATORS[name](**values))


def refusal(name: str, **fields: Any) -> collops.Error:
    with pytest.raises(collops.Error) as caught:
        create(name, **fields)
    return caught.value


@both
def test_a_right_struct_is_taken_and_waits_for_no_one(name: str) -> None:
    assert create(name).name == name


@both
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rank_size": 1}, "rankSize must be >= 2, got 1"),
        ({"rank_size": 0}, "rankSize must be >= 2, got 0"),
        ({"rank_size": -4}, "rankSize must be >= 2, got -4"),
        ({"rank": 2}, "rank must be in [0, 2), got 2"),
        ({"rank": -2}, "rank must be in [0, 2), got -2"),
        ({"rank_root": 2}, "rankRoot must be in [0, 2), got 2"),
        ({"rank_root": -1}, "rankRoot must be in [0, 2), got -1"),
        ({"comm_mode": -1}, "commMode must be 0 (COMM_MULTI_PROCESS) or 1"),
        ({"comm_mode": 2}, "COMM_MULTI_THREAD), got 2"),
        ({"backend": "gloo"}, 'unknown backend "gloo"; pass "hccl", "nccl", "cuda", "shm"'),
        ({"backend": ""}, 'unknown backend ""'),
        ({"backend": "lccl"}, 'backend "lccl" does not run this operator'),
        ({"backend": "lcoc"}, 'backend "lcoc" does not run this operator'),
        ({"backend": "mc2"}, 'backend "mc2" does not run this operator'),
        ({"comm_domain": "d" * 129}, "commDomain has 129 characters, the limit is 128"),
        ({"rsv": bytes(63) + b"\7"}, "rsv"),
        ({"rank_table_file": "/no/such/table.json"}, 'rankTableFile "/no/such/table.json"'),
    ],
)
def test_creation_is_refused(name: str, fields: dict[str, Any], message: str) -> None:
    error = refusal(name, **fields)
    assert (error.code, error.name) == (1, "ERROR_INVALID_PARAM")
    assert isinstance(error, ValueError)
    assert message in error.message
    assert error.message.startswith(name)


@both
def test_the_longest_domain_is_taken(name: str) -> None:
    create(name, comm_domain="d" * 128)


@pytest.mark.parametrize("reduce_type", ["prod", "avg", "SUM", ""])
def test_reduce_type(reduce_type: str) -> None:
    error = refusal("ReduceScatterV", reduce_type=reduce_type)
    assert error.code == 1
    assert f'must be "sum", "max" or "min", got "{reduce_type}"' in error.message


@both
def test_nothing_says_the_rank(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("COLLOPS_RANK", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(variable, raising=False)
    error = refusal(name, rank=-1)
    assert error.code == 1
    assert "rank is -1 and no launcher says it" in error.message
    monkeypatch.setenv("COLLOPS_RANK", "1")
    create(name, rank=-1)


@both
def test_a_rank_table_is_not_supported(name: str, tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    table.write_text(json.dumps({"version": "1.0"}))
    error = refusal(name, rank_table_file=str(table))
    assert error.code == 103
    assert isinstance(error, NotImplementedError)
    assert str(table) in error.message


@both
def test_a_backend_that_cannot_run_says_why(name: str) -> None:
    error = refusal(name, backend="hccl")
    assert error.code == 103
    assert "libhccl.so" in error.message


@both
def test_the_environment_replaces_a_valid_backend_only(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLLOPS_BACKEND", "shm")
    create(name, backend="hccl")
    assert refusal(name, backend="gloo").code == 1
    monkeypatch.setenv("COLLOPS_BACKEND", "hccl=nonsense")
    error = refusal(name, backend="hccl")
    assert error.code == 1
    assert "nonsense" in error.message


@both
def test_a_live_domain_with_another_size(name: str) -> None:
    held = create(name)
    error = refusal(name, rank_size=3)
    assert error.code == 1
    assert "rankSize 2, got 3" in error.message
    del held


@both
def test_a_field_of_a_wrong_type(name: str) -> None:
    error = refusal(name, rank_size="2")
    assert error.code == 1
    assert "rankSize" in error.message


def test_what_is_no_struct() -> None:
    with pytest.raises(collops.Error, match="a parameter struct .* is needed, got dict"):
        collops.Operation({"rank": 0})  # type: ignore[arg-type]
