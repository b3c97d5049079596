"""Checks of one case or one seed, made in few tests: pytest's own work costs more than a check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def each_seed(number: int, *others: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a check of one seed, or of a seed and one of `others`, one test of that many seeds."""

    def as_test(check: Callable[..., None]) -> Callable[..., None]:
        def test() -> None:
            given = [
                (seed, *rest) for rest in [(o,) for o in others] or [()] for seed in range(number)
            ]
            check_all(check, {f"seed {' '.join(map(str, one))}": one for one in given})

        test.__doc__ = check.__doc__
        return test

    return as_test


def check_all(check: Callable[..., None], given: dict[str, Sequence[Any]]) -> None:
    """Makes one check after the other; the first that fails names its case."""
    for name, arguments in given.items():
        try:
            check(*arguments)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
        except Exception as error:
            raise RuntimeError(f"{name}: {type(error).__name__}: {error}") from error
