"""The cases of LinearParallel that are quantised, and those with experts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from ..case import Case
from .experts import Tokens, received_rows, sent_rows
from .groups import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL_EXPERTS,
    EXPERTS_ALL_TO_ALL,
    PURE,
    REDUCE_SCATTER,
    LinearParallel,
)
from .quantised import PER_CHANNEL, PER_GROUP, PER_TENSOR, PER_TOKEN

# A case from its name, parameters, the rows of every x, k, n, and dtype; kind is that of the data.
Make = Callable[..., Case]
_HALVES = ("float16", "bfloat16")
_MODES = {PER_TENSOR: "tensor", PER_CHANNEL: "channel", PER_GROUP: "group", PER_TOKEN: "token"}
_WRAPS = 131_072  # of the largest products, in a sum of int32


def quantised_cases(
    kinds: dict[int, LinearParallel], words: dict[int, str], make: Make
) -> Iterator[Case]:
    """Yield W8A8 and W8A16 of every type, with each kind of scale, and shapes and data that hurt.

    Args:
        kinds: the parameters of every type; words: their names.
        make: `make(name, call, rows, k, columns, dtype, kind)`.

    Example:
        >>> from .cases import linear_parallel_cases
        >>> names = [case.name for case in linear_parallel_cases(2)]
        >>> [name for name in names if name.startswith("quantised-w8a16-pure-group")]
        ['quantised-w8a16-pure-group-whole', 'quantised-w8a16-pure-group-random']
    """
    for at, (kind, plain) in enumerate(kinds.items()):
        size = plain.rank_size
        for mode in (PER_TENSOR, PER_CHANNEL, *([PER_TOKEN] if kind == ALL_REDUCE else [])):
            call = replace(
                plain,
                quant_type=mode,
                out_dtype=_HALVES[(at + mode) % 2],
                trans_weight=(at + mode) % 3 != 0,
                has_residual=at % 2 == 0,
                has_bias=mode != PER_TOKEN,
                keep_intermediate=kind == ALL_GATHER and mode == PER_CHANNEL,
            )
            name = f"quantised-w8a8-{words[kind]}-{_MODES[mode]}"
            yield make(f"{name}-full", call, 3 * size, 70, 21, "int8", "full")
            if mode != PER_TENSOR:
                yield make(f"{name}-special", call, size, 3, 40, "int8", "special")
        for mode in (PER_TENSOR, PER_CHANNEL, PER_GROUP):
            call = replace(
                plain,
                quant_type=mode,
                quant_group_size=(32, 64, 7, 1, 0)[at] if mode == PER_GROUP else 0,
                trans_weight=(at + mode) % 2 == 0,
                has_residual=at % 2 == 1,
                has_bias=(at + mode) % 3 != 0,
            )
            name = f"quantised-w8a16-{words[kind]}-{_MODES[mode]}"
            dtype = _HALVES[(at + mode) % 2]
            yield make(f"{name}-whole", call, 2 * size, 64, 13, dtype, "exact")
            yield make(f"{name}-random", call, 2 * size, 150, 13, dtype, "random")
    pure = replace(kinds[PURE], quant_type=PER_CHANNEL, out_dtype="float16")
    total = replace(kinds[ALL_REDUCE], quant_type=PER_CHANNEL, out_dtype="bfloat16")
    token = replace(kinds[ALL_REDUCE], quant_type=PER_TOKEN, out_dtype="float16", has_bias=False)
    for rows, k, columns in ((1, 1, 1), (47, 33, 383), (48, 31, 384), (49, 2, 385), (2, 1025, 17)):
        name = f"quantised-shape-{rows}x{k}x{columns}"
        yield make(name, pure if rows % 2 else total, rows, k, columns, "int8", "full")
    for call, k in ((total, 1025), (pure, 64), (replace(total, trans_weight=False), 2049)):
        yield make(f"quantised-saturating-{k}", call, 5, k, 9, "int8", "saturating")
    yield make("quantised-token-special", token, 17, 6, 17, "int8", "special")
    yield make("quantised-token-whole", token, 17, 64, 9, "float16", "exact")
    yield make("quantised-wraps", pure, 1, _WRAPS + 5, 3, "int8", "saturating")
    for kind in (ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER):
        call = replace(kinds[kind], quant_type=PER_TENSOR, out_dtype="float16")
        yield make(f"quantised-no_rows-{words[kind]}", call, 0, 9, 4, "int8", "full")


def quantised_leaves(
    kinds: dict[int, LinearParallel], words: dict[int, str]
) -> Iterator[tuple[str, LinearParallel, int, str, str]]:
    """Yield name, parameters, rows, dtype and data of W8A8 and W8A16 of every type, with leaves.

    Args:
        kinds: the parameters of every type; words: their names.

    Example:
        >>> call = LinearParallel(PURE, 1, sum_leaves=3)
        >>> [name for name, *_ in quantised_leaves({PURE: call}, {PURE: "pure"})][:2]
        ['leaves-w8a8-pure-tensor-full', 'leaves-w8a16-pure-tensor']
    """
    for at, (kind, plain) in enumerate(kinds.items()):
        for mode, word in _MODES.items():
            turned = replace(plain, trans_weight=(at + mode) % 2 == 0, quant_type=mode)
            turned = replace(turned, has_bias=mode != PER_TOKEN)
            name = f"{'uneven_k-' if mode % 2 else ''}{words[kind]}-{word}"
            if mode != PER_GROUP and (mode != PER_TOKEN or kind == ALL_REDUCE):
                call = replace(turned, out_dtype=_HALVES[(at + mode) % 2])
                for data in ("full", "saturating", "special") if kind == ALL_REDUCE else ("full",):
                    yield f"leaves-w8a8-{name}-{data}", call, plain.rank_size, "int8", data
            if mode != PER_TOKEN:
                call = replace(turned, quant_group_size=7 if mode == PER_GROUP else 0)
                dtype = _HALVES[(at + mode) % 2]
                yield f"leaves-w8a16-{name}", call, plain.rank_size, dtype, "random"


def expert_cases(size: int) -> Iterator[Case]:
    """Yield types 5 and 6 with every ep and tp, matrices that hurt, and every kind of product.

    Example:
        >>> [case.name for case in expert_cases(2)][:2]
        ['experts-there-1x2-mixed', 'experts-back-1x2-mixed']
    """
    draw = np.random.default_rng(17)
    grids = [(ep, size // ep) for ep in range(1, size + 1) if size % ep == 0]
    number = 0
    for ep, tp in grids:
        for pattern in _PATTERNS if (ep, tp) == grids[-1] else ("mixed", "one_expert"):
            local = {"none": 1, "single": 1, "many": 16, "panels": 1}.get(pattern, 3)
            tokens = _tokens(pattern, ep, local, draw)
            for kind, word in ((ALL_TO_ALL_EXPERTS, "there"), (EXPERTS_ALL_TO_ALL, "back")):
                number += 1
                call = LinearParallel(
                    kind,
                    size,
                    trans_weight=number % 3 != 0,
                    has_residual=number % 4 < 2,
                    local_experts=local,
                    ep_size=ep,
                    tp_size=tp,
                )
                name = f"experts-{word}-{ep}x{tp}-{pattern}"
                dtype = ("float16", "bfloat16", "float32")[number % 3]
                yield _expert_case(name, call, tokens, 19, 10, dtype, "exact", tail=number % 3)
    for kind, word in ((ALL_TO_ALL_EXPERTS, "there"), (EXPERTS_ALL_TO_ALL, "back")):
        for at, (ep, tp) in enumerate((grids[-1], grids[len(grids) // 2])):
            tokens = _tokens("mixed", ep, 2, draw)
            plain = LinearParallel(kind, size, local_experts=2, ep_size=ep, tp_size=tp)
            yield _expert_case(
                f"experts-{word}-{ep}x{tp}-random-{at}", plain, tokens, 150, 9, "float32", "random"
            )
            for mode in (PER_CHANNEL, PER_TOKEN):
                call = replace(
                    plain,
                    quant_type=mode,
                    out_dtype=_HALVES[(at + mode) % 2],
                    has_residual=at == 0,
                    trans_weight=mode == PER_CHANNEL,
                )
                for data, k in (("full", 33), ("saturating", 1026), ("special", 3)):
                    name = f"experts-{word}-{ep}x{tp}-{_MODES[mode]}-{data}-{at}"
                    yield _expert_case(name, call, tokens, k, 17, "int8", data, tail=at)


_PATTERNS = ("mixed", "one_expert", "one_source", "none", "single", "many", "empty_rank", "panels")


def _tokens(pattern: str, ep: int, local: int, draw: np.random.Generator) -> Tokens:
    """Return the rows of each source for each expert of all."""
    experts = ep * local
    tokens: Tokens = draw.integers(0, 6, (ep, experts))
    tokens[:, -1] = 0  # an expert that gets nothing
    if pattern == "one_expert":
        tokens[:, 1:], tokens[:, 0] = 0, range(7, 7 + ep)
    elif pattern == "one_source":
        tokens[1:] = 0
    elif pattern == "none":
        tokens[:] = 0
    elif pattern == "single":
        tokens = np.arange(1, ep * experts + 1).reshape(ep, experts)
    elif pattern == "many":
        tokens = draw.integers(0, 2, (ep, experts))
    elif pattern == "panels":
        tokens = 47 + np.arange(ep * experts).reshape(ep, experts) % 3
    elif pattern == "empty_rank":
        tokens[:, :local], tokens[0] = 0, 0
    return tokens


def _expert_case(
    name: str,
    call: LinearParallel,
    tokens: Tokens,
    k: int,
    columns: int,
    dtype: str,
    kind: str,
    *,
    tail: int = 0,
) -> Case:
    """Return a case with `tail` rows more in x, and in the output, than there are."""
    ranks = range(call.rank_size)
    sent, received = (
        [count(call, tokens, r) for r in ranks] for count in (sent_rows, received_rows)
    )
    given, put = (sent, received) if call.type == ALL_TO_ALL_EXPERTS else (received, sent)
    return Case(
        operator="linear_parallel",
        name=name,
        rank_size=call.rank_size,
        dtype=dtype,
        counts=tuple(map(int, tokens.reshape(-1))),
        displs=(),
        x_shapes=tuple((rows + tail, k) for rows in given),
        rows=tuple(rows + tail * (r + 1) for r, rows in enumerate(put)),
        kind=kind,
        linear=call,
        columns=columns,
    )
