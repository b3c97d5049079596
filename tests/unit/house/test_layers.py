"""The layers: who may include and import whom (docs/architecture.md), read from the sources."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.house.layers import (
    BACKEND_TABLE,
    check_golden_room,
    check_imports,
    check_includes,
    check_package_room,
    circle_in,
    golden_graph,
    include_circle,
    package_graph,
    repository_problems,
)

ROOT = Path(__file__).resolve().parents[3]


def test_no_file_stands_in_a_circle() -> None:
    for folder in (
        "ops/collops/core",
        "ops/collops/kernels",
        "ops/collops/comm",
        "ops/collops/operators",
    ):
        assert include_circle(ROOT, folder) == []
    assert circle_in(golden_graph(ROOT)) == []
    assert len(package_graph(ROOT)) > 50
    assert circle_in(package_graph(ROOT)) == []


def test_a_planted_circle_of_golden_is_found(tmp_path: Path) -> None:
    room = tmp_path / "golden" / "data"
    room.mkdir(parents=True)
    (room / "__init__.py").write_text("from .a import x\n")
    (room / "a.py").write_text("from .b import y\n")
    (room / "b.py").write_text("def f():\n    from . import a\n")
    assert circle_in(golden_graph(tmp_path)) == ["data.a", "data.b", "data.a"]
    (room / "b.py").write_text("from . import x\n")
    assert circle_in(golden_graph(tmp_path)) == ["data", "data.a", "data.b", "data"]
    (room / "b.py").write_text("import math\n")
    assert circle_in(golden_graph(tmp_path)) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("golden/data/a.py", "from ..operators.case import Case"),
        ("golden/operators/a.py", "from ..cases import inputs"),
        ("golden/operators/linear_parallel/a.py", "from ...case_files import manifest"),
        ("golden/operators/a.py", "def f():\n    from .. import explain"),
        ("golden/case_files/a.py", "from ..compare import compare"),
        ("golden/case_files/a.py", "from ..explain.evidence import Evidence"),
        ("golden/explain/a.py", "from ..compare.report import shown"),
        ("golden/compare/a.py", "from ..__main__ import main"),
        ("golden/tables/a.py", "import numpy"),
        ("golden/tables.py", "import numpy"),
        ("golden/data/a.py", "import importlib\nimportlib.import_module('collops')"),
    ],
)
def test_a_room_of_golden_that_imports_what_it_must_not_know_is_found(path: str, text: str) -> None:
    [problem] = check_golden_room(path, text)
    assert problem.startswith(path)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("golden/__main__.py", "from .compare import command\nfrom .cases import all_cases"),
        ("golden/operators/linear_parallel/a.py", "from ..case import Case\nfrom . import b"),
        ("golden/compare/a.py", "from ..case_files.tensor_files import read_tensor"),
    ],
)
def test_a_room_of_golden_may_import_what_it_knows(path: str, text: str) -> None:
    assert check_golden_room(path, text) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("errors.py", "from collops.core import core"),
        ("atb/a.py", "from collops.collectives.calls import PlainCalls"),
        ("collectives/a.py", "def f():\n    from collops.launch.init import init"),
        ("collectives/a.py", "import collops"),
        ("launch/a.py", "from collops.testing import run_ranks"),
        ("launch/a.py", "from collops import testing"),
        ("testing/a.py", "import collops.golden_run.pool"),
        ("golden_run/a.py", "from collops.bench import BENCHES"),
        ("bench/a.py", "from collops.golden_run import pool"),
        ("atb/a.py", "from ..collectives import calls"),
        ("words/a.py", "import math"),
        ("words.py", "import math"),
    ],
)
def test_a_room_that_imports_what_it_must_not_know_is_found(path: str, text: str) -> None:
    [problem] = check_package_room(f"python/collops/{path}", text)
    assert problem.startswith(f"python/collops/{path}")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("__init__.py", "from collops.cli import main"),
        ("atb/a.py", "if TYPE_CHECKING:\n    from collops.collectives.calls import PlainCalls"),
        ("collectives/a.py", "from collops.atb.operation import Operation\nimport numpy"),
        ("golden_run/a.py", "import collops\nfrom collops.golden.data import fill"),
        ("launch/a.py", "from collops.launch import processes"),
    ],
)
def test_a_room_may_import_what_it_knows(path: str, text: str) -> None:
    assert check_package_room(f"python/collops/{path}", text) == []


def test_a_planted_circle_of_the_package_is_found(tmp_path: Path) -> None:
    room = tmp_path / "python" / "collops" / "launch"
    room.mkdir(parents=True)
    (room / "a.py").write_text("from collops.launch.b import x\n")
    (room / "b.py").write_text("def f():\n    from collops.launch import a\n")
    assert circle_in(package_graph(tmp_path)) == ["launch.a", "launch.b", "launch.a"]
    (room / "b.py").write_text("if TYPE_CHECKING:\n    from collops.launch.a import y\n")
    assert circle_in(package_graph(tmp_path)) == ["launch.a", "launch.b", "launch.a"]
    (room / "b.py").write_text("import math\n")
    assert circle_in(package_graph(tmp_path)) == []


def test_a_planted_circle_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "ops" / "collops" / "operators" / "some"
    folder.mkdir(parents=True)
    (folder / "a.cpp").write_text('#include "collops/operators/some/b.h"\n')
    (folder / "b.cpp").write_text('#include "collops/operators/some/a.h"\n')
    stems = [f"ops/collops/operators/some/{name}" for name in "aba"]
    assert include_circle(tmp_path, "ops/collops/operators") == stems
    (folder / "b.cpp").write_text('#include "collops/operators/some/b.h"\n')
    assert include_circle(tmp_path, "ops/collops/operators") == []


def test_the_tree_keeps_its_layers() -> None:
    assert list((ROOT / "ops").rglob("*.cpp")), "no C++ source was found"
    assert list((ROOT / "golden").rglob("*.py")), "no golden source was found"
    problems = repository_problems(ROOT)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("path", "text", "reason"),
    [
        ("ops/collops/core/a.h", '#include "collops/kernels/copy.h"', "lies below"),
        ("ops/collops/kernels/a.cpp", '#include "collops/comm/communicator.h"', "lies below"),
        ("ops/collops/comm/a.cpp", '#  include "collops/operators/params.h"', "lies below"),
        (
            "ops/collops/operators/a.cpp",
            '#include "collops/comm/backends/shm/segment.h"',
            "only the backend itself",
        ),
        (
            "ops/collops/comm/backends/shm/a.h",
            '#include "collops/comm/backends/ucx/x.h"',
            "only the backend itself",
        ),
        ("ops/collops/comm/a.cpp", '#include "communicator.h"', "relative to ops/"),
        ("ops/collops/comm/control/a.h", '#include "collops/comm/call.h"', "knows no communicator"),
        (
            "ops/collops/comm/control/a.h",
            '#include "collops/comm/fused_call.h"',
            "knows no communicator",
        ),
        ("ops/collops/comm/backends/shm/a.h", "#include <nccl.h>", "vendor"),
        ("ops/collops/kernels/a.cpp", "#include <cuda_runtime.h>", "vendor"),
        ("ops/collops/core/a.cpp", "#include <pybind11/pybind11.h>", "only bindings/ sees Python"),
        ("bindings/a.cpp", "#include <torch/extension.h>", "framework"),
        ("bindings/a.cpp", '#include "torch/extension.h"', "framework"),
    ],
)
def test_a_forbidden_include_is_found(path: str, text: str, reason: str) -> None:
    [problem] = check_includes(path, f"#include <vector>\n{text}\n")
    assert path in problem
    assert reason in problem


@pytest.mark.parametrize(
    ("path", "text", "reason"),
    [
        ("golden/data/a.py", "import collops", "numpy and the standard library"),
        (
            "golden/data/a.py",
            "def f():\n    from collops import _core",
            "numpy and the standard library",
        ),
        ("golden/data/a.py", "import ml_dtypes", "numpy and the standard library"),
        ("golden/data/a.py", "from ... import comm", "stays inside"),
        ("python/collops/a.py", "import torch.distributed", "only python/collops/torch/"),
        ("python/collops/a.py", "def f():\n    import torch", "only python/collops/torch/"),
        ("python/collops/a.py", "try:\n    from torch import nn\nexcept E: pass", "only python/"),
    ],
)
def test_a_forbidden_import_is_found(path: str, text: str, reason: str) -> None:
    [problem] = check_imports(path, f"import os\nimport numpy as np\n{text}\n")
    assert path in problem
    assert reason in problem


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "ops/collops/operators/a.cpp",
            '#include "collops/comm/communicator.h"\n#include "collops/core/status.h"',
        ),
        ("ops/collops/comm/backends/shm/a.cpp", '#include "collops/comm/backends/shm/a.h"'),
        (BACKEND_TABLE, '#include "collops/comm/backends/shm/create.h"'),
        ("ops/collops/comm/backends/nccl/a.cpp", "#include <nccl.h>"),
        ("bindings/a.cpp", '#include "caster.h"\n#include "collops/operators/params.h"'),
    ],
)
def test_an_allowed_include_passes(path: str, text: str) -> None:
    assert check_includes(path, text) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("golden/data/a.py", "from . import dtypes\nfrom .kinds import fill"),
        ("python/collops/torch/a.py", "import torch"),
        ("python/collops/a.py", "if TYPE_CHECKING:\n    import torch"),
        ("python/collops/a.py", "torch = sys.modules.get('torch')"),
    ],
)
def test_an_allowed_import_passes(path: str, text: str) -> None:
    assert check_imports(path, text) == []


def test_a_planted_violation_is_found_in_a_tree(tmp_path: Path) -> None:
    (tmp_path / "ops" / "collops" / "core").mkdir(parents=True)
    (tmp_path / "ops" / "collops" / "core" / "bad.h").write_text(
        '#include "collops/operators/params.h"\n'
    )
    (tmp_path / "golden" / "data").mkdir(parents=True)
    (tmp_path / "golden" / "data" / "bad.py").write_text("import collops\nfrom ..cases import x\n")
    assert len(repository_problems(tmp_path)) == 3


def test_the_package_imports_nothing_heavy() -> None:
    heavy = ("numpy", "torch", "ml_dtypes", "collops._core")
    program = f"import collops, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
