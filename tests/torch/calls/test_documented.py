"""docs/torch.md lists every public call of torch.distributed, as the tests have it."""

from __future__ import annotations

import inspect
import re

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from tests.torch.calls.documented import ALSO, OTHERS, PAGE, call_rows, page_with, table  # noqa: E402

# Questions, and checks of what torch itself has.
ASKING = r"(get|is|supports)_\w+"


def test_the_page_has_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == page_with(table())


def test_no_call_is_missing() -> None:
    listed = {name for line in call_rows() for name in re.findall(r"\w+", line.split("|")[1])}
    listed |= set(OTHERS) | set(ALSO)
    public = {
        name
        for name, value in inspect.getmembers(dist, inspect.isfunction)
        if value.__module__ == "torch.distributed.distributed_c10d"
        and not name.startswith("_")
        and not re.fullmatch(ASKING, name)
    }
    assert public - listed == set()
