"""The layers: who may include and import whom (docs/architecture.md), read from the sources."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# From the bottom; a file includes its own layer and the ones before it.
LAYERS = ["ops/core", "ops/kernels", "ops/comm", "ops/operators", "bindings"]
BACKENDS = "ops/comm/backends"
BACKEND_TABLE = f"{BACKENDS}/backend_table.cpp"
CONTROL = "ops/comm/control/"
NOT_FOR_CONTROL = r"ops/comm/(backends/|(communicator|call|registry)\.h|(call_)?window|fused_call)"
TORCH_FOLDER = "python/collops/torch/"
# torch is also what the benchmarks compare with.
TORCH_PEER = "python/collops/bench/peers/torch_calls.py"
# Headers of vendors, by the one backend that may see them.
VENDOR_HEADERS = {
    "cuda": r"cuda|cublas|cooperative_groups",
    "nccl": r"nccl",
    "hccl": r"hccl|acl/",
    "ucx": r"uc[pst]/",
}
# What golden may import inside a function, if it is there.
OPTIONAL_OF_GOLDEN = {("golden/compare/plot.py", "matplotlib")}
# The rooms of golden, and which others each may import; golden/__main__.py may import all.
GOLDEN_ROOMS: dict[str, set[str]] = {
    "data": set(),
    "operators": {"data"},
    "cases": {"data", "operators"},
    "case_files": {"data", "operators", "cases"},
    "explain": {"data", "operators"},
    "compare": {"data", "operators", "cases", "case_files", "explain"},
}
# The rooms of the package, and which others each may import while it runs; its top (what all rooms
# share) is a room for each of its modules.
TOP = {"core", "errors", "tensors"}
PACKAGE_ROOMS: dict[str, set[str]] = {
    "errors": set(),
    "core": {"errors", "_core"},
    "tensors": {"errors", "core"},
    "atb": TOP,
    "collectives": TOP | {"atb"},
    "launch": TOP | {"atb", "collectives"},
    "testing": TOP | {"atb", "launch"},
    "golden_run": TOP | {"launch", "golden", ""},
    "bench": TOP | {"launch", "golden", ""},
    "demo": TOP | {"testing", "golden", "examples", ""},
    "cli": TOP | {"launch", "golden_run", "bench", "demo", "golden", "examples", ""},
}
BINDING_HEADERS = r"pybind11/|Python\.h"
FRAMEWORK_HEADERS = r"torch/|ATen/|c10/"
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def layer_of(path: str) -> int | None:
    """The layer of a file of the repository."""
    for number, layer in enumerate(LAYERS):
        if path.startswith(layer + "/"):
            return number
    return None


def backend_of(path: str) -> str | None:
    """The backend whose folder holds a file."""
    match = re.match(rf"{BACKENDS}/([^/]+)/", path)
    return match[1] if match else None


def check_vendor_header(path: str, header: str) -> str | None:
    """What is wrong with a header of the system, by the file that includes it."""
    if re.match(FRAMEWORK_HEADERS, header):
        return "no file sees a framework's headers"
    if re.match(BINDING_HEADERS, header) and not path.startswith("bindings/"):
        return "only bindings/ sees Python"
    for backend, pattern in VENDOR_HEADERS.items():
        if re.match(pattern, header) and backend_of(path) != backend:
            return f"only {BACKENDS}/{backend} sees this vendor's headers"
    return None


def check_own_header(path: str, header: str) -> str | None:
    """What is wrong with a header of ours, which lies below ops/ (or beside a binding)."""
    target = f"ops/{header}"
    if path.startswith("bindings/") and layer_of(target) is None:
        return None
    above, below = layer_of(path), layer_of(target)
    if above is None or below is None:
        return "an include is relative to ops/ and names its layer"
    if below > above:
        return f"{LAYERS[above]} lies below {LAYERS[below]}"
    if path.startswith(CONTROL) and re.match(NOT_FOR_CONTROL, target):
        return f"{CONTROL} knows no communicator, no call and no backend"
    backend = backend_of(target)
    if backend is not None and backend_of(path) != backend and path != BACKEND_TABLE:
        return f"only the backend itself and {BACKEND_TABLE} include {BACKENDS}/{backend}"
    return None


def check_includes(path: str, text: str) -> list[str]:
    """Every forbidden include of one C++ file, with the reason."""
    problems = []
    for bracket, header in INCLUDE.findall(text):
        own = bracket == '"' and not re.match(rf"{BINDING_HEADERS}|{FRAMEWORK_HEADERS}", header)
        problem = check_vendor_header(path, header)
        if own and problem is None:
            problem = check_own_header(path, header)
        if problem is not None:
            problems.append(f"{path} includes {header}: {problem}")
    return problems


def is_typing_guard(node: ast.AST) -> bool:
    """Whether this is `if TYPE_CHECKING:`, whose imports never run."""
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def imports(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Name and level of every import that can run; level 0 is absolute."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((alias.name, 0) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield child.module or "", child.level
        if isinstance(child, ast.If) and is_typing_guard(child):
            yield from (found for other in child.orelse for found in imports(other))
        else:
            yield from imports(child)


def golden_imports(path: str, text: str) -> Iterator[tuple[str, str]]:
    """Module and name of every import of golden by one of its files, such as data.dtypes, Array."""
    package = path.removeprefix("golden/").split("/")[:-1]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and 0 < node.level <= len(package) + 1:
            base = package[: len(package) + 1 - node.level] + (node.module or "").split(".")
            yield from ((".".join(filter(None, base)), alias.name) for alias in node.names)


def check_golden_room(path: str, text: str) -> list[str]:
    """Every import of a room of golden by one that stands below it or does not know it."""
    own = path.removeprefix("golden/").removesuffix(".py").partition("/")[0]
    if own in ("__init__", "__main__"):
        return []
    if own not in GOLDEN_ROOMS:
        return [f"{path} stands in no room of golden: {', '.join(GOLDEN_ROOMS)}"]
    rooms = {(module or name).partition(".")[0] for module, name in golden_imports(path, text)}
    unknown = (rooms & {*GOLDEN_ROOMS, "__main__"}) - GOLDEN_ROOMS[own] - {own}
    problems = [f"{path} imports golden/{room}: {own} does not know it" for room in sorted(unknown)]
    hidden = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    hidden &= {"__import__", "importlib"}
    return problems + [f"{path} uses {name}: golden's imports are statements" for name in hidden]


def package_imports(node: ast.AST) -> Iterator[str]:
    """What a file of the package imports of it while it runs, such as launch.mail.post; "" is all.

    A name's module may be the name without its last part.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            names = [alias.name for alias in child.names]
        elif isinstance(child, ast.ImportFrom):
            names = [f"{'.' * child.level}{child.module}.{alias.name}" for alias in child.names]
        else:
            names = []
        yield from (
            name.removeprefix("collops").removeprefix(".")
            for name in names
            if name.startswith(".") or name.partition(".")[0] == "collops"
        )
        if isinstance(child, ast.If) and is_typing_guard(child):
            yield from (found for other in child.orelse for found in package_imports(other))
        else:
            yield from package_imports(child)


def check_package_room(path: str, text: str) -> list[str]:
    """Every import of a room of the package by one that does not know it."""
    own = path.removeprefix("python/collops/").removesuffix(".py").partition("/")[0]
    if own == "__init__":
        return []
    if own not in PACKAGE_ROOMS:
        return [f"{path} stands in no room of the package: {', '.join(PACKAGE_ROOMS)}"]
    rooms = {name.partition(".")[0] for name in package_imports(ast.parse(text))}
    unknown = rooms - PACKAGE_ROOMS[own] - {own}
    return [f"{path} imports collops.{room}: {own} does not know it" for room in sorted(unknown)]


def package_graph(root: Path) -> dict[str, set[str]]:
    """The modules that each module of the package imports while it runs."""
    folder = root / "python" / "collops"
    texts = {
        ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(
            ".__init__"
        ): path.read_text()
        for path in sorted(folder.rglob("*.py"))
    }
    graph = {}
    for module, text in texts.items():
        names = set(package_imports(ast.parse(text)))
        graph[module] = {name if name in texts else name.rpartition(".")[0] for name in names}
    return graph


def check_imports(path: str, text: str) -> list[str]:
    """Every forbidden import of one Python file, with the reason."""
    problems = []
    depth = path.count("/") - 1
    for name, level in imports(ast.parse(text)):
        top = name.partition(".")[0]
        problem = None
        if path.startswith("golden/"):
            allowed = top == "numpy" or top in sys.stdlib_module_names
            if level == 0 and not allowed and (path, top) not in OPTIONAL_OF_GOLDEN:
                problem = "golden knows numpy and the standard library alone"
            elif level > depth + 1:
                problem = "golden stays inside its folder"
        elif (level, top) in {(0, "torch"), (0, "torch_npu")} and not path.startswith(
            (TORCH_FOLDER, TORCH_PEER)
        ):
            problem = f"only {TORCH_FOLDER} imports torch (sys.modules may be looked at)"
        if problem is not None:
            problems.append(f"{path} imports {'.' * level}{name}: {problem}")
    return problems


def repository_problems(root: Path) -> list[str]:
    """The forbidden includes and imports of a whole tree."""
    problems = []
    for folder in ("ops", "bindings"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in {".h", ".cpp", ".cu", ".cuh"}:
                problems += check_includes(str(path.relative_to(root)), path.read_text())
    for folder in ("golden", "python/collops"):
        for path in sorted((root / folder).rglob("*.py")):
            name, text = str(path.relative_to(root)), path.read_text()
            problems += check_imports(name, text)
            room = check_golden_room if folder == "golden" else check_package_room
            problems += room(name, text)
    return problems


def include_circle(root: Path, folder: str) -> list[str]:
    """The first circle of stems below a folder, each of which includes the next; empty if none."""
    return circle_in(include_graph(root, folder))


def include_graph(root: Path, folder: str) -> dict[str, set[str]]:
    """The stems that each stem below a folder includes."""
    graph: dict[str, set[str]] = {}
    for path in sorted((root / folder).rglob("*")):
        if path.suffix in {".h", ".cpp"}:
            stem = str(path.relative_to(root).with_suffix(""))
            found = {
                f"ops/{Path(name).with_suffix('')}" for _, name in INCLUDE.findall(path.read_text())
            }
            graph.setdefault(stem, set()).update(found - {stem})
    return graph


def golden_graph(root: Path) -> dict[str, set[str]]:
    """The modules that each module of golden imports; a package is its __init__."""
    texts = {}
    for path in sorted((root / "golden").rglob("*.py")):
        name = str(path.relative_to(root))
        module = name.removeprefix("golden/").removesuffix(".py").removesuffix("__init__")
        texts[module.strip("/").replace("/", ".")] = golden_imports(name, path.read_text())
    graph = {}
    for module, found in texts.items():
        names = {(f"{base}.{name}".lstrip("."), base) for base, name in found}
        graph[module] = {full if full in texts else base for full, base in names}
    return graph


def circle_in(graph: dict[str, set[str]]) -> list[str]:
    """The first circle of a graph; empty if it has none."""
    done: set[str] = set()

    def walk(stem: str, way: list[str]) -> list[str]:
        if stem in way:
            return [*way[way.index(stem) :], stem]
        circles = (
            walk(name, [*way, stem]) for name in sorted(graph.get(stem, ())) if stem not in done
        )
        circle = next(filter(None, circles), [])
        done.add(stem)
        return circle

    return next(filter(None, (walk(stem, []) for stem in sorted(graph))), [])


def test_no_file_stands_in_a_circle() -> None:
    for folder in ("ops/core", "ops/kernels", "ops/comm", "ops/operators"):
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
        ("atb/a.py", "from collops.collectives.plans import Kept"),
        ("collectives/a.py", "def f():\n    from collops.launch.init import init"),
        ("collectives/a.py", "import collops"),
        ("launch/a.py", "from collops.testing import run_ranks"),
        ("launch/a.py", "from collops import testing"),
        ("testing/a.py", "import collops.golden_run.pool"),
        ("golden_run/a.py", "from collops.bench import BENCHES"),
        ("bench/a.py", "from collops.golden_run import npu"),
        ("atb/a.py", "from ..collectives import plans"),
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
        ("atb/a.py", "if TYPE_CHECKING:\n    from collops.collectives.level import PlainLevel"),
        ("collectives/a.py", "from collops.atb.operation import Operation\nimport numpy"),
        ("golden_run/a.py", "import collops\nfrom collops.golden.data import fill"),
        ("launch/a.py", "from collops.launch import mail"),
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
    (room / "b.py").write_text("import math\n")
    assert circle_in(package_graph(tmp_path)) == []


def test_a_planted_circle_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "ops" / "operators" / "some"
    folder.mkdir(parents=True)
    (folder / "a.cpp").write_text('#include "operators/some/b.h"\n')
    (folder / "b.cpp").write_text('#include "operators/some/a.h"\n')
    stems = [f"ops/operators/some/{name}" for name in "aba"]
    assert include_circle(tmp_path, "ops/operators") == stems
    (folder / "b.cpp").write_text('#include "operators/some/b.h"\n')
    assert include_circle(tmp_path, "ops/operators") == []


def test_the_tree_keeps_its_layers() -> None:
    assert list((ROOT / "ops").rglob("*.cpp")), "no C++ source was found"
    assert list((ROOT / "golden").rglob("*.py")), "no golden source was found"
    problems = repository_problems(ROOT)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("path", "text", "reason"),
    [
        ("ops/core/a.h", '#include "kernels/copy/copy.h"', "lies below"),
        ("ops/kernels/a.cpp", '#include "comm/communicator.h"', "lies below"),
        ("ops/comm/a.cpp", '#  include "operators/params.h"', "lies below"),
        (
            "ops/operators/a.cpp",
            '#include "comm/backends/shm/segment.h"',
            "only the backend itself",
        ),
        (
            "ops/comm/backends/ucx/a.h",
            '#include "comm/backends/shm/x.h"',
            "only the backend itself",
        ),
        ("ops/comm/a.cpp", '#include "communicator.h"', "relative to ops/"),
        ("ops/comm/control/a.h", '#include "comm/call.h"', "knows no communicator"),
        ("ops/comm/control/a.h", '#include "comm/call_window.h"', "knows no communicator"),
        ("ops/comm/backends/shm/a.h", "#include <nccl.h>", "vendor"),
        ("ops/kernels/a.cpp", "#include <cuda_runtime.h>", "vendor"),
        ("ops/core/a.cpp", "#include <pybind11/pybind11.h>", "only bindings/ sees Python"),
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
        ("ops/operators/a.cpp", '#include "comm/communicator.h"\n#include "core/status.h"'),
        ("ops/comm/backends/shm/a.cpp", '#include "comm/backends/shm/a.h"'),
        (BACKEND_TABLE, '#include "comm/backends/shm/create.h"'),
        ("ops/comm/backends/nccl/a.cpp", "#include <nccl.h>"),
        ("bindings/a.cpp", '#include "caster.h"\n#include "operators/params.h"'),
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
    (tmp_path / "ops" / "core").mkdir(parents=True)
    (tmp_path / "ops" / "core" / "bad.h").write_text('#include "operators/params.h"\n')
    (tmp_path / "golden" / "data").mkdir(parents=True)
    (tmp_path / "golden" / "data" / "bad.py").write_text("import collops\nfrom ..cases import x\n")
    assert len(repository_problems(tmp_path)) == 3


def test_the_package_imports_nothing_heavy() -> None:
    heavy = ("numpy", "torch", "ml_dtypes", "collops._core")
    program = f"import collops, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
