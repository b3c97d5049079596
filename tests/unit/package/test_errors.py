"""Every exception is a collops.Error with ATB's code, and a standard exception besides."""

from __future__ import annotations

import builtins
import copy
import pickle
import re
from pathlib import Path

import pytest

import collops
import collops.errors
from collops.core import core
from collops.errors import raise_status, status_error, status_of
from collops.testing import run_ranks

ROOT = Path(__file__).resolve().parents[3]
STANDARD = {
    1: ValueError,
    4: RuntimeError,
    8: ValueError,
    23: ValueError,
    25: RuntimeError,
    26: MemoryError,
    27: MemoryError,
    100: TimeoutError,
    101: ConnectionError,
    102: ValueError,
    103: NotImplementedError,
    104: ConnectionError,
}


@pytest.mark.parametrize("method", ["all_gather_matmul", "matmul_all_reduce", "broadcast"])
def test_a_missing_argument_names_the_class_that_users_know(method: str) -> None:
    with pytest.raises(TypeError, match=rf"^Communicator\.{method}\(\) missing"):
        getattr(collops.Communicator, method)()


@pytest.mark.parametrize("code", STANDARD)
def test_an_error_is_also_a_standard_exception(code: int) -> None:
    with pytest.raises(STANDARD[code]) as caught:
        raise_status(code, "AllGatherV: a sentence")
    error = caught.value
    assert isinstance(error, collops.Error)
    assert (error.code, error.message) == (code, "AllGatherV: a sentence")
    assert str(error) == f"AllGatherV: a sentence [{error.name}]"


@pytest.mark.parametrize("code", [3, 4, 12, 25, 26, 27, 29])
def test_a_failure_of_the_system_or_of_memory_is_no_argument_error(code: int) -> None:
    error = status_error(code, "no room")
    assert not isinstance(error, (collops.ArgumentError, ValueError))
    assert isinstance(error, collops.OutOfMemoryError if code in (26, 27) else RuntimeError)


def test_the_page_lists_every_class_with_its_codes() -> None:
    page = (ROOT / "docs/errors.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (?:`(\w+)`)? *\| ([\d, ]+) \|$", page, re.MULTILINE)
    classes = {kind.__name__ for kind in collops.Error.__subclasses__()}
    assert {name for name, _, _ in rows} == classes
    for name, standard, codes in rows:
        for code in codes.split(", "):
            error = status_error(int(code), "")
            assert type(error).__name__ == name
            assert isinstance(error, getattr(builtins, standard or "RuntimeError"))
    returned = {int(code) for code in re.findall(r"^### (\d+) `ERROR_", page, re.MULTILINE)}
    assert {int(code) for _, _, codes in rows for code in codes.split(", ")} == returned


def test_codes_and_names_are_the_cores() -> None:
    names = {code.value: code.name for code in collops.ErrorCode}
    assert {code: core().error_name(code) for code in range(-1, 120)} == {
        code: names.get(code, "ERROR_UNKNOWN") for code in range(-1, 120)
    }


def test_an_unknown_code_has_a_name() -> None:
    assert status_error(77, "text").name == "ERROR_UNKNOWN"


@pytest.mark.parametrize("code", STANDARD)
def test_errors_pickle_and_copy(code: int) -> None:
    error = status_error(code, "a sentence")
    error.__dict__["rank"] = 3
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert (again.code, str(again), again.__dict__["rank"]) == (code, str(error), 3)


def test_code_and_message_of_any_exception_for_other_ranks() -> None:
    assert status_of(status_error(8, "too long")) == (8, "too long")
    assert status_of(MemoryError("no room")) == (27, "MemoryError: no room")
    assert status_of(KeyError("k")) == (3, "KeyError: 'k'")


def _told_of_an_abort(rank: int, pad: str) -> str:
    comm = collops.init()
    if rank == 1:
        comm.abort(pad + "\u00e9" * 600)
        return ""
    with pytest.raises(collops.AbortedError) as raised:
        comm.barrier()
    return str(raised.value)


@pytest.mark.parametrize("pad", ["", "x"])
def test_a_peers_message_may_be_cut_within_a_character(pad: str) -> None:
    told, _ = run_ranks(_told_of_an_abort, 2, pad)
    assert told.startswith(f"rank 1 aborted: {pad}\u00e9\u00e9")
    assert told.endswith(" (reported by rank 1) [ERROR_ABORTED]")
