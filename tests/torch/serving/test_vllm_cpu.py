"""The plug-in for vLLM, on modules with the names and signatures of vLLM 0.32."""

from __future__ import annotations

import enum
import logging
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from collops import vllm_plugin  # noqa: E402
from collops.torch.serving import vllm_cpu  # noqa: E402

EXPERTS, RANKS = 6, 2


class CpuPlatform:
    dist_backend = "gloo"

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        return "vllm.distributed.device_communicators.cpu_communicator.CpuCommunicator"

    @classmethod
    def use_custom_op_collectives(cls) -> bool:
        return False

    def is_cpu(self) -> bool:
        return True


class CudaPlatform(CpuPlatform):
    dist_backend = "nccl"

    def is_cpu(self) -> bool:
        return False


class CompilationMode(enum.IntEnum):
    NONE = 0
    DYNAMO_TRACE_ONCE = 2


class Config:
    """vLLM's, of which one choice is read."""

    compilation_config: Any


CONFIG = Config()


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that makes an object vLLM's platform."""

    def use(current: Any) -> Any:
        for name, attributes in {
            "vllm": {},
            "vllm.config": {
                "CompilationMode": CompilationMode,
                "get_current_vllm_config_or_none": lambda: CONFIG,
            },
            "vllm.logger": {"init_logger": logging.getLogger},
            "vllm.platforms": {"current_platform": current},
        }.items():
            module = ModuleType(name)
            module.__dict__.update(attributes)
            monkeypatch.setitem(sys.modules, name, module)
        return current

    return use


def test_cpu_ranks_use_collops(platform: Any) -> None:
    current = platform(type("Own", (CpuPlatform,), {})())
    vllm_plugin.register()
    vllm_plugin.register()
    assert current.dist_backend == "collops"
    for mode in CompilationMode:
        CONFIG.compilation_config = SimpleNamespace(mode=mode)
        assert current.use_custom_op_collectives() == (mode != CompilationMode.NONE)
    module, _, name = current.get_device_communicator_cls().rpartition(".")
    assert (module, name) == ("collops.torch.serving.vllm_cpu", "CpuCommunicator")


def test_it_can_be_turned_off(platform: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLOPS_VLLM", "0")
    current = platform(type("Own", (CpuPlatform,), {})())
    vllm_plugin.register()
    assert current.dist_backend == "gloo"


def test_other_devices_are_left_alone(platform: Any) -> None:
    current = platform(type("Own", (CudaPlatform,), {})())
    vllm_plugin.register()
    assert current.dist_backend == "nccl"
    assert not current.use_custom_op_collectives()


def test_a_vllm_that_has_changed_runs_without(
    platform: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Changed:
        dist_backend = "gloo"

        def is_cpu(self) -> bool:
            return True

    current = platform(Changed())
    vllm_plugin.register()
    assert current.dist_backend == "gloo"
    assert "get_device_communicator_cls" in caplog.text


def routed(ids: list[list[int]], rank: int) -> tuple[Any, Any, Any]:
    """A rank's map of experts, which every second of is, and what a router gives it."""
    mine = torch.arange(EXPERTS) % RANKS == rank
    expert_map = torch.where(mine, torch.arange(EXPERTS) // RANKS, -1).to(torch.int32)
    topk = torch.tensor(ids, dtype=torch.int32)
    return expert_map, topk, torch.arange(1.0, topk.numel() + 1).view(topk.shape)


def test_own_experts() -> None:
    rows, ids, weights = vllm_cpu.own_experts(*routed([[0, 1, 2], [1, 3, 5], [4, 5, 1]], 0))
    assert rows is not None
    assert rows.tolist() == [0, 2]
    assert ids.tolist() == [[0, 1], [2, 2]]
    assert ids.dtype == torch.int32
    assert weights.tolist() == [[1, 3], [7, 0]]


@pytest.mark.parametrize(
    ("ids", "rank", "rows", "own"),
    [
        ([[0, 2], [4, 0]], 0, None, [[0, 1], [2, 0]]),  # all here
        ([[0, 2], [4, 0]], 1, [], []),  # none here
        ([[0, 1], [3, 2]], 1, None, [[0], [1]]),  # one of each token
    ],
)
def test_own_experts_of_all_tokens_or_none(ids: Any, rank: int, rows: Any, own: Any) -> None:
    got, here, weights = vllm_cpu.own_experts(*routed(ids, rank))
    assert (got if got is None else got.tolist()) == rows
    assert here.tolist() == own
    assert weights.shape == here.shape


class Experts:
    """Experts that multiply, as vLLM's CPU experts do: expert_map is an argument, and not read."""

    def apply(
        self,
        output: Any,
        hidden_states: Any,
        w1: Any,
        topk_weights: Any,
        topk_ids: Any,
        expert_map: Any,
    ) -> None:
        output.zero_()
        for column in range(topk_ids.shape[1]):
            part = w1[topk_ids[:, column].long()] * hidden_states
            output += part * topk_weights[:, column : column + 1]


class Reads(Experts):
    def apply(self, output: Any, expert_map: Any) -> None:  # type: ignore[override]
        output.fill_(expert_map)


def test_who_ignores_the_map() -> None:
    assert vllm_cpu._ignores(Experts.apply, "expert_map")
    assert not vllm_cpu._ignores(Reads.apply, "expert_map")
    assert not vllm_cpu._ignores(vllm_cpu._with_expert_map(Experts.apply), "expert_map")


@pytest.mark.parametrize("tokens", [0, 1, 7])
def test_the_ranks_parts_add_up(tokens: int) -> None:
    """The sum over the ranks, each with its own experts' weights, is what one rank computes."""
    generator = torch.Generator().manual_seed(36)
    x = torch.randint(-3, 4, (tokens, 4), generator=generator).float()
    w1 = torch.randint(-3, 4, (EXPERTS, 4), generator=generator).float()
    ids = torch.rand(tokens, EXPERTS, generator=generator).argsort(1)[:, :3]
    weights = torch.randint(1, 4, ids.shape, generator=generator).float()
    expected, total = torch.empty_like(x), torch.zeros_like(x)
    Experts().apply(expected, x, w1, weights, ids.int(), None)
    apply = vllm_cpu._with_expert_map(Experts.apply)
    for rank in range(RANKS):
        expert_map, _, _ = routed([[0]], rank)
        part = torch.full_like(x, float("nan"))
        own = w1[rank::RANKS]
        apply(
            Experts(),
            part,
            hidden_states=x,
            w1=own,
            topk_weights=weights,
            topk_ids=ids.int(),
            expert_map=expert_map,
        )
        total += part
    assert torch.equal(total, expected)
    again = torch.empty_like(x)
    apply(Experts(), again, x, w1, weights, ids.int(), None)
    assert torch.equal(again, expected)
