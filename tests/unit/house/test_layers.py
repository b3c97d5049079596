"""The layers: who may include and import whom (docs/architecture.md), read from the sources."""

from __future__ import annotations

from pathlib import Path

from tests.unit.house.layers import circle_in, include_graph, module_graph, repository_problems

ROOT = Path(__file__).resolve().parents[3]


def test_no_file_stands_in_a_circle() -> None:
    for layer in ("core", "kernels", "comm", "operators"):
        assert circle_in(include_graph(ROOT, f"ops/collops/{layer}")) == []
    for package in ("golden", "python/collops"):
        assert len(module_graph(ROOT, package)) > 30
        assert circle_in(module_graph(ROOT, package)) == []


def test_the_tree_keeps_its_layers() -> None:
    assert list((ROOT / "ops").rglob("*.cpp")), "no C++ source was found"
    assert list((ROOT / "golden").rglob("*.py")), "no golden source was found"
    problems = repository_problems(ROOT)
    assert not problems, "\n".join(problems)


def test_planted_violations_are_found(tmp_path: Path) -> None:
    """Of each kind one, in a tree that has nothing else."""
    planted = {
        "ops/collops/core/a.h": ('#include "collops/kernels/copy.h"', "lies below"),
        "ops/collops/core/b.h": ("#include <pybind11/pybind11.h>", "only bindings/ sees Python"),
        "ops/collops/kernels/a.cpp": ("#include <cuda_runtime.h>", "this vendor's headers"),
        "ops/collops/comm/a.cpp": ('#include "communicator.h"', "relative to ops/"),
        "ops/collops/comm/control/a.h": (
            '#include "collops/comm/call.h"',
            "knows no communicator",
        ),
        "ops/collops/operators/a.cpp": (
            '#include "collops/comm/backends/shm/segment.h"',
            "only the backend itself",
        ),
        "bindings/a.cpp": ('#include "torch/extension.h"', "a framework's headers"),
        "golden/data/a.py": ("import collops", "numpy and the standard library"),
        "golden/data/b.py": ("from ..operators.case import Case", "data does not know it"),
        "golden/tables.py": ("import numpy", "stands in no room of golden"),
        "python/collops/errors.py": ("def f():\n    import torch", "only python/collops/torch/"),
        "python/collops/tensors.py": ("import jax", "only python/collops/jax/"),
        "python/collops/atb/a.py": (
            "from collops.collectives import calls",
            "atb does not know it",
        ),
    }
    for name, (text, _) in planted.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    found = {problem.split()[0]: problem for problem in repository_problems(tmp_path)}
    assert found.keys() == planted.keys()
    for name, (_, reason) in planted.items():
        assert reason in found[name]
    room = tmp_path / "golden" / "data"
    (room / "__init__.py").write_text("from .a import x\n")
    (room / "a.py").write_text("def f():\n    from . import b\n")
    (room / "b.py").write_text("from . import a\n")
    circle = circle_in(module_graph(tmp_path, "golden"))
    assert circle == ["golden.data.a", "golden.data.b", "golden.data.a"]
