"""The lists of cases of all operators stay as they are."""

from __future__ import annotations

import dataclasses
import hashlib
import json

from golden.case_files.case_fields import fields_of
from golden.cases import (
    all_cases,
    inputs,
)

# Of every operator's cases; whoever adds one looks that each dtype, share and layout stays.
DIGEST = "95e686b5977243cd"


def test_the_cases_never_change() -> None:
    fields = [fields_of(case) for case in all_cases()]
    assert len({case.id for case in all_cases()}) == len(fields)
    digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode())
    assert digest.hexdigest()[:16] == DIGEST


def test_the_seed_changes_the_data_and_nothing_else() -> None:
    for plain, other in zip(all_cases(text="v.p2."), all_cases(text="v.p2.", seed=9), strict=True):
        assert dataclasses.replace(other, seed=0) == plain
        x, again = inputs(plain)[1]["x"], inputs(other)[1]["x"]
        assert x.tobytes() != again.tobytes() or max(plain.counts) <= 2 or not x.size
