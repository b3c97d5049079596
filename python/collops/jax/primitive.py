"""The primitive of all calls: what JAX does with them, and in which order.

Its effect is one of JAX's ordered ones: JAX hands a token from call to call, through loops,
branches and functions, and from one compiled program to the next. So neither JAX nor XLA drops,
repeats or reorders calls, and they keep the order of the program on every rank.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NoReturn

import jax
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from collops.core import core
from collops.jax.private import custom_call, effects, hlo, ir, keep_token_in_place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.collectives.communicator import Communicator


class CallEffect(effects.Effect):  # type: ignore[misc]  # jax counts as untyped
    """The effect of a call: the other ranks are in it, too."""

    def __repr__(self) -> str:
        return "calls of collops"


_effect = CallEffect()
for _allowed in (
    effects.ordered_effects,
    effects.lowerable_effects,
    effects.control_flow_allowed_effects,
    effects.custom_derivatives_allowed_effects,
    effects.remat_allowed_effects,
):
    _allowed.add_type(CallEffect)
keep_token_in_place(CallEffect)

_call = Primitive("collops_call")
_call.multiple_results = True


def call(
    name: str,
    comm: Communicator,
    arrays: Sequence[Any],
    results: Sequence[tuple[tuple[int, ...], Any]],
    attributes: dict[str, Any],
    aliases: dict[int, int] | None = None,
) -> list[Any]:
    """Makes a call, or adds it to the program that JAX traces.

    Args:
        name: the handler's.
        comm: the communicator.
        arrays: what the handler reads.
        results: shape and dtype of each array that it writes.
        attributes: numbers, and lists of numbers as tuples, by the handler's names for them.
        aliases: by the index of an array: the result that begins as a copy of it.
    """
    return _call.bind(  # type: ignore[no-any-return]
        *arrays,
        name=name,
        comm=comm,
        results=tuple(results),
        attributes=tuple(sorted(attributes.items())),
        aliases=tuple((aliases or {}).items()),
    )


def _results(*arrays: Any, results: Any, **params: Any) -> tuple[list[Any], set[Any]]:
    return [jax.core.ShapedArray(shape, dtype) for shape, dtype in results], {_effect}


_call.def_effectful_abstract_eval(_results)


@functools.lru_cache(maxsize=256)
def _compiled(params: tuple[tuple[str, Any], ...]) -> Any:
    return jax.jit(functools.partial(_call.bind, **dict(params)))


def _run(*arrays: Any, **params: Any) -> Any:
    return _compiled(tuple(params.items()))(*arrays)


_call.def_impl(_run)


@functools.cache
def _register() -> None:
    for name, handler in core().xla_handlers().items():
        jax.ffi.register_ffi_target(f"collops_{name}", handler, platform="cpu")


def _lower(
    context: Any,
    *arrays: Any,
    name: str,
    comm: Communicator,
    results: Any,
    attributes: Any,
    aliases: Any,
) -> list[Any]:
    """One custom call, which takes a token besides and returns one."""
    _register()
    numbers = {
        word: ir.DenseI64ArrayAttr.get(value)
        if isinstance(value, tuple)
        else ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
        for word, value in (("comm", comm.handle), *attributes)
    }
    made = custom_call(
        f"collops_{name}",
        result_types=[
            *(
                ir.RankedTensorType.get(shape, mlir.dtype_to_ir_type(dtype))
                for shape, dtype in results
            ),
            hlo.TokenType.get(),
        ],
        operands=[*arrays, context.tokens_in.get(_effect)],
        backend_config=numbers,
        has_side_effect=True,
        operand_output_aliases=dict(aliases),
        operand_layouts=[*map(_layout, context.avals_in), ()],
        result_layouts=[*map(_layout, context.avals_out), ()],
    )
    *written, token = made.results
    context.set_tokens_out(mlir.TokenSet({_effect: token}))
    return list(written)


def _layout(aval: Any) -> tuple[int, ...]:
    return tuple(reversed(range(aval.ndim)))


mlir.register_lowering(_call, _lower, platform="cpu")


def _refuse_vmap(_arrays: Any, _dims: Any, *, name: str, **params: Any) -> NoReturn:
    raise NotImplementedError(
        f"{name}: vmap would make one call of the ranks out of many: call it outside of vmap, with "
        "the batch as a dimension of x"
    )


batching.primitive_batchers[_call] = _refuse_vmap
