"""The names that JAX keeps to itself, looked up here and nowhere else in collops.jax.

No release of JAX promises them. One that is missing is an error of the import, which says with
which version it was tested.
"""

from __future__ import annotations

import functools
from typing import Any

import jax

TESTED = "0.10.2"

try:
    from jax._src import distributed, effects
    from jax._src.interpreters.mlir import custom_call
    from jax._src.lib.mlir import ir
    from jax._src.lib.mlir.dialects import hlo
except ImportError as error:
    raise ImportError(
        f"collops.jax was tested with jax {TESTED}; jax {jax.__version__} lacks a part of it, "
        f"{error}: install that version, or a newer collops"
    ) from error


def keep_token_in_place(effect_type: type) -> None:
    """Lets a program take the token that the program before it has left, if it is on its device.

    JAX copies the token for each program, to where it is, which takes more than half of the time
    of a small program. Where a release does it in another way, it stays as it is.
    """
    try:
        from jax._src import core
        from jax._src.dispatch import RuntimeTokenSet

        copied = RuntimeTokenSet.get_token_input
    except (ImportError, AttributeError):
        return

    @functools.wraps(copied)
    def token_of(tokens: Any, effect: Any, devices: Any) -> Any:
        token = tokens.current_tokens.get(effect) if isinstance(effect, effect_type) else None
        if isinstance(token, core.Token) and token._buf.devices() == set(devices):
            return token
        return copied(tokens, effect, devices)

    RuntimeTokenSet.get_token_input = token_of


__all__ = ["custom_call", "distributed", "effects", "hlo", "ir", "keep_token_in_place"]
