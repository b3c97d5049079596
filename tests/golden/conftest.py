"""What golden's cases hold is kept for as long as one module's tests run."""

from __future__ import annotations

from collections.abc import Iterator

import once
import pytest


@pytest.fixture(autouse=True, scope="module")
def forget_the_cases() -> Iterator[None]:
    yield
    once.forget()
