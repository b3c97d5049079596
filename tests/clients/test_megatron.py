"""megatron-core's tensor parallel layers on CPUs, with collops between their ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from megatron.core import ModelParallelConfig, parallel_state, tensor_parallel

import collops.torch
from tests.clients.figures import best_us, note
from tests.torch.groups import run_group

pytestmark = pytest.mark.timeout(300)


def weights_of(w: torch.Tensor) -> torch.Tensor:
    return torch.nn.init.normal_(w, generator=torch.Generator().manual_seed(7))


class Layers(torch.nn.Module):
    """A small model of Megatron's layers."""

    def __init__(self) -> None:
        super().__init__()
        config = ModelParallelConfig(
            tensor_model_parallel_size=2, use_cpu_initialization=True, params_dtype=torch.float32
        )
        made: dict[str, Any] = {"config": config, "init_method": weights_of}
        linear = made | {"bias": False, "skip_bias_add": False}
        column = linear | {"gather_output": False}  # Megatron gathers on GPUs alone
        self.words = tensor_parallel.VocabParallelEmbedding(32, 8, **made)
        self.up = tensor_parallel.ColumnParallelLinear(8, 12, **column)
        self.down = tensor_parallel.RowParallelLinear(12, 8, input_is_parallel=True, **linear)
        self.out = tensor_parallel.ColumnParallelLinear(8, 32, **column)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.down(self.up(self.words(tokens))[0].tanh())
        logits, _ = self.out(hidden)
        return tensor_parallel.vocab_parallel_cross_entropy(logits, tokens.roll(1))


def work(rank: int) -> list[Any]:
    """Losses and gradients of two ranks by two, the calls of collops, and the time of a step."""
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=2)
    across = parallel_state.get_data_parallel_group()
    model = torch.nn.parallel.DistributedDataParallel(Layers(), process_group=across)
    tokens = torch.tensor([[1, 9, 31], [17, 4, 4]]) ^ dist.get_rank(across)

    def step() -> Any:
        loss = model(tokens)
        loss.sum().backward()
        return loss

    loss = step()
    found = [loss.tolist(), *(weight.grad.tolist() for weight in model.parameters())]
    groups = [parallel_state.get_tensor_model_parallel_group(), across]
    on_collops = all(isinstance(group, collops.torch.Group) for group in groups)
    calls = [collops.torch.last_calls(group) for group in groups] if on_collops else []
    took_us = best_us(step, 5)
    parallel_state.destroy_model_parallel()
    return [found, [{call.split()[1] for call in of_one} for of_one in calls], took_us]


def test_its_layers_train_as_on_gloo() -> None:
    want = run_group(work, 4, backend="gloo")
    found = run_group(work, 4)
    assert [values for values, *_ in found] == [values for values, *_ in want]
    assert all(within == {"all_reduce"} for _, (within, _), _ in found)
    assert all("all_reduce" in across for _, (_, across), _ in found)
    note("megatron-core", "step of a tiny model, 2 by 2 ranks", found[0][2], want[0][2])
