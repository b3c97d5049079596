"""What goes wrong in a call of collops.jax: our message, on every rank, in time."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import pytest

from collops.testing import run_ranks
from tests.jax.test_calls import begin, rows_of


def message_of(work: Any) -> str:
    """The message of the error that `work` raises, which is one of JAX's."""
    import jax

    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        jax.block_until_ready(work())
    return str(caught.value)


def disagreeing(rank: int) -> str:
    jax, cjax, _ = begin()
    gather = jax.jit(lambda x: cjax.all_gatherv(x, [2, 2 + rank]))
    return message_of(lambda: gather(rows_of(rank, 2 + rank)))


def test_sizes_on_which_the_ranks_disagree() -> None:
    for text in run_ranks(disagreeing, 2):
        assert "all_gatherv: the ranks disagree in call 1: sizes[1] is 2 on rank 0" in text


def refused(rank: int) -> tuple[str, list[float]]:
    """A wrong call of rank 0's alone; then a right one, of the same communicator."""
    jax, cjax, _ = begin()
    rows = 3 if rank == 0 else 2
    text = message_of(lambda: jax.jit(lambda x: cjax.all_gatherv(x, [2, 2]))(rows_of(rank, rows)))
    after = jax.jit(lambda x: cjax.all_reduce(x))(np.float32([rank, 1]))
    return text, np.asarray(after).tolist()


def test_a_refused_call_and_one_after_it() -> None:
    (own, after), (told, also) = run_ranks(refused, 2)
    fault = "all_gatherv: sizes[0] is 2, but x has 3 rows on rank 0"
    assert f"INVALID_ARGUMENT: {fault}" in own
    assert "FAILED_PRECONDITION: all_gatherv: rank 0 (pid " in told and fault in told
    assert after == also == [1.0, 2.0]


def losing(rank: int) -> tuple[str, float]:
    jax, cjax, _ = begin()
    total = jax.jit(lambda x: cjax.all_reduce(x))
    jax.block_until_ready(total(np.float32(rank)))
    if rank == 1:
        os._exit(3)
    start = time.monotonic()
    text = message_of(lambda: total(np.float32(rank)))
    return text, time.monotonic() - start


def test_a_rank_that_dies() -> None:
    with pytest.raises(Exception) as caught:
        run_ranks(losing_and_telling, 2)
    text = str(caught.value)
    assert "UNAVAILABLE: all_reduce: " in text and "rank 1" in text, text


def losing_and_telling(rank: int) -> None:
    text, seconds = losing(rank)
    raise AssertionError(f"after {seconds:.0f} s: {text}" if seconds < 10 else "too late")


def absent(rank: int) -> str:
    jax, cjax, comm = begin()
    comm.timeout_s = 1
    if rank == 1:
        time.sleep(4)
        return ""
    return message_of(lambda: jax.jit(cjax.all_reduce)(np.float32(1)))


def test_a_rank_that_does_not_come() -> None:
    text = run_ranks(absent, 2)[0]
    assert "DEADLINE_EXCEEDED: all_reduce: " in text and "rank 1" in text


def wrong(rank: int) -> list[str]:
    """What is found when a function is traced."""
    jax, cjax, comm = begin()
    x = rows_of(0, 2)
    texts = []
    for error, work in (
        (NotImplementedError, lambda: jax.vmap(lambda x: cjax.all_gatherv(x, [2]))(x)),
        (ValueError, lambda: jax.jit(cjax.all_gatherv)(x, np.array([2]))),
        (ValueError, lambda: cjax.all_gatherv(x, [2], dim=2)),
        (ValueError, lambda: cjax.all_gatherv(np.float32(1), [1])),
        (ValueError, lambda: cjax.all_reduce(x, "summ")),
        (ValueError, lambda: cjax.all_gatherv(x, [2.5])),
        (ValueError, lambda: cjax.all_gatherv(jax.numpy.ones(2, "float8_e5m2"), [2])),
        (ValueError, lambda: cjax.ragged_all_to_all(x, x[:, :1], [0], [0], [0], [0])),
        (ValueError, lambda: cjax.ragged_all_to_all(x, x, [0], [[0]], [0], [0])),
    ):
        with pytest.raises(error) as caught:
            work()
        texts.append(str(caught.value))
    assert float(jax.jit(lambda x: cjax.all_reduce(x, comm=comm))(np.float32(3))) == 3
    return texts


def test_a_program_of_several_devices() -> None:
    texts = run_ranks(on_two_devices, 1)
    assert "not supported for more than 1 device: [calls of collops]" in texts[0]


def on_two_devices(rank: int) -> str:
    import jax

    jax.config.update("jax_num_cpu_devices", 2)
    _, cjax, _ = begin()
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    spec = jax.sharding.PartitionSpec("x")
    work = jax.shard_map(cjax.all_reduce, mesh=mesh, in_specs=spec, out_specs=spec)
    with pytest.raises(ValueError) as caught:
        jax.jit(work)(rows_of(rank, 4))
    total = jax.jit(cjax.all_reduce)
    for device in (0, 1, 1, 0):  # each of them alone, in turn
        x = jax.device_put(rows_of(device, 4), jax.devices()[device])
        assert total(x).devices() == {jax.devices()[device]}
        np.testing.assert_array_equal(total(x), rows_of(device, 4))
    return str(caught.value)


def test_what_is_refused_when_a_function_is_traced() -> None:
    wanted = [
        "all_gatherv: vmap would make one call of the ranks out of many: call it outside of vmap",
        "all_gatherv: sizes is computed inside the traced function, and shapes depend on it",
        "all_gatherv: dim must be from -2 to 1, got 2",
        "all_gatherv: x has 0 dims, it needs at least 1",
        'op must be "sum", "prod", "max", "min", "avg", "band", "bor" or "bxor", got \'summ\'',
        "all_gatherv: sizes[0] must be a whole number, got 2.5",
        "all_gatherv: x has elements of type float8_e5m2",
        "ragged_all_to_all: output must be float32 rows of shape (2,) as operand",
        "ragged_all_to_all: send_sizes must be a list of whole numbers",
    ]
    for text, want in zip(run_ranks(wrong, 1)[0], wanted, strict=True):
        assert want in text


def closed(rank: int) -> list[str]:
    jax, cjax, comm = begin()
    total = jax.jit(lambda x: cjax.all_reduce(x, comm=comm))
    jax.block_until_ready(total(np.float32(1)))
    later = jax.jit(lambda x: cjax.all_reduce(x, "avg", comm=comm))
    comm.close()
    return [message_of(lambda call=call: call(np.float32(1))) for call in (total, later)]


def test_a_closed_communicator() -> None:
    for text in run_ranks(closed, 1)[0]:
        assert "all_reduce: this communicator has ended" in text


def forgotten(rank: int) -> str:
    import collops

    jax, cjax, _ = begin()
    part = collops.init(comm_domain="part")
    total = jax.jit(lambda x: cjax.all_reduce(x, comm=part))
    part.close()
    collops.init(comm_domain="part").close()  # and the first one is not the registry's any more
    return message_of(lambda: total(np.float32(1)))


def test_a_communicator_that_was_closed_before_the_first_call() -> None:
    assert (
        "the communicator for which this program was compiled is gone" in run_ranks(forgotten, 1)[0]
    )


def as_threads(rank: int) -> str:
    import collops
    from collops import jax as cjax

    try:
        cjax.all_reduce(np.float32(1), comm=collops.init())
    except NotImplementedError as error:
        return str(error)
    return ""


def test_ranks_that_are_threads() -> None:
    texts = run_ranks(as_threads, 2, threads=True)
    assert all("ranks of collops.jax are processes" in text for text in texts)
