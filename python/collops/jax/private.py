"""The names that JAX keeps to itself, looked up here and nowhere else in collops.jax.

No release of JAX promises them. One that is missing is an error of the import, which says with
which version it was tested.
"""

from __future__ import annotations

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

__all__ = ["custom_call", "distributed", "effects", "hlo", "ir"]
