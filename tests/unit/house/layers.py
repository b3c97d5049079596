"""Finds includes and imports of a tree that break the layers."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

# From the bottom; a file includes its own layer and the ones before it.
LAYERS = [
    "ops/collops/core",
    "ops/collops/kernels",
    "ops/collops/comm",
    "ops/collops/operators",
    "bindings",
]
BACKENDS = "ops/collops/comm/backends"
# Backends that run another one inside a host.
MADE_OF = {"shm": ("ucx",)}
BACKEND_TABLE = f"{BACKENDS}/backend_table.cpp"
CONTROL = "ops/collops/comm/control/"
NOT_FOR_CONTROL = "|".join(
    (
        r"ops/collops/comm/backends/",
        r"ops/collops/comm/((backend_)?communicator|call|call_scope|registry)\.h",
        r"ops/collops/comm/((call_)?window|fused_call)",
    )
)
TORCH_FOLDER = "python/collops/torch/"
# torch is also what the benchmarks compare with.
TORCH_PEERS = ("python/collops/bench/peers/gloo.py", "python/collops/bench/torch/")
JAX_FOLDER = "python/collops/jax/"
# Headers of vendors, by the one backend that may see them.
VENDOR_HEADERS = {
    "cuda": r"cuda|cublas|cooperative_groups",
    "nccl": r"nccl",
    "hccl": r"hccl|acl/",
    "ucx": r"uc[pst]/",
}
# What golden may import inside a function, if it is there.
OPTIONAL_OF_GOLDEN = {
    ("golden/compare/plot.py", "matplotlib"),
    ("golden/case_files/tensor_files.py", "torch"),
}
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
TOP = {"core", "cuda_array", "cuda_memory", "errors", "tensors", "terminal"}
PACKAGE_ROOMS: dict[str, set[str]] = {
    "errors": set(),
    "core": {"errors", "_core"},
    "terminal": {"errors", "core"},
    "tensor_types": set(),
    "cuda_memory": set(),
    "cuda_array": {"errors", "core"},
    # golden has the words for element types, which it needs without the package.
    "tensors": {"errors", "core", "cuda_memory", "cuda_array", "golden"},
    "atb": TOP,
    "collectives": TOP | {"atb"},
    "launch": TOP | {"atb", "collectives"},
    "testing": TOP | {"atb", "launch"},
    "torch": TOP | {"collectives", "launch", "torch_backend", "torch_gloo", ""},
    "jax": TOP | {"collectives", "launch", ""},
    "ray": {"launch", "errors"},
    "torch_backend": {"torch", "torch_gloo", "errors"},
    "torch_gloo": {"core", "errors"},
    "vllm_plugin": {"torch"},
    "sglang_plugin": {"torch", ""},
    "golden_run": TOP | {"launch", "golden", ""},
    # bench/torch times calls of collops.torch.
    "bench": TOP | {"launch", "golden", "torch", ""},
    # plan reads what bench writes, and takes its words.
    "plan": TOP | {"bench", "launch", ""},
    "trace": TOP,
    "npu_check": TOP | {"launch", "testing", "golden_run", "golden", ""},
    "demo": TOP | {"testing", "golden", "examples", ""},
    "__main__": {"cli"},
    "cli": TOP
    | {"launch", "golden_run", "bench", "plan", "trace", "torch", "demo", "npu_check"}
    | {"golden", "examples", ""},
}
BINDING_HEADERS = r"pybind11/|Python\.h"
FRAMEWORK_HEADERS = r"torch/|ATen/|c10/"
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def layer_of(path: str) -> int | None:
    """The layer of a file of the repository."""
    for number, layer in enumerate(LAYERS):
        if path.startswith(layer + "/"):
            return number
    # The headers that include the public ones.
    is_top = re.fullmatch(r"ops/collops/\w+\.h", path)
    return LAYERS.index("ops/collops/operators") if is_top else None


def backend_of(path: str) -> str | None:
    """The backend whose folder holds a file."""
    match = re.match(rf"{BACKENDS}/([^/]+)/", path)
    return match[1] if match else None


def check_vendor_header(path: str, header: str) -> str | None:
    """The error of including a header of the system, by the file that includes it."""
    if re.match(FRAMEWORK_HEADERS, header):
        return "no file sees a framework's headers"
    if re.match(BINDING_HEADERS, header) and not path.startswith("bindings/"):
        return "only bindings/ sees Python"
    for backend, pattern in VENDOR_HEADERS.items():
        if re.match(pattern, header) and backend_of(path) != backend:
            return f"only {BACKENDS}/{backend} sees this vendor's headers"
    return None


def check_own_header(path: str, header: str) -> str | None:
    """The error of including a header of collops, below ops/ or beside a binding."""
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
    users = {backend, *MADE_OF.get(backend, ())}
    if backend is not None and backend_of(path) not in users and path != BACKEND_TABLE:
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


def imported(path: str, text: str, *, types: bool = False) -> Iterator[str]:
    """The full name of all that a Python file imports while it runs; `types`: for types alone too.

    A name's module may be the name without its last part.
    """
    package = path.removeprefix("python/").split("/")[:-1]

    def walk(node: ast.AST) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from (alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = package[: len(package) + 1 - child.level] if child.level else []
                module = [*base, *([child.module] if child.module else [])]
                yield from (".".join([*module, alias.name]) for alias in child.names)
            guarded = not types and isinstance(child, ast.If) and is_typing_guard(child)
            yield from walk(ast.Module(child.orelse, []) if guarded else child)  # type: ignore[attr-defined]

    return walk(ast.parse(text))


def rooms_of(path: str, text: str, package: str, *, types: bool = False) -> set[str]:
    """The rooms of a package that a file imports from; "" is the package itself."""
    names = imported(path, text, types=types)
    return {
        name.removeprefix(package).removeprefix(".").partition(".")[0]
        for name in names
        if name.partition(".")[0] == package
    }


def check_golden_room(path: str, text: str) -> list[str]:
    """Every import of a room of golden by one that stands below it or does not know it."""
    own = path.removeprefix("golden/").removesuffix(".py").partition("/")[0]
    if own in ("__init__", "__main__"):
        return []
    if own not in GOLDEN_ROOMS:
        return [f"{path} stands in no room of golden: {', '.join(GOLDEN_ROOMS)}"]
    rooms = rooms_of(path, text, "golden", types=True)
    unknown = (rooms & {*GOLDEN_ROOMS, "__main__"}) - GOLDEN_ROOMS[own] - {own}
    problems = [f"{path} imports golden/{room}: {own} does not know it" for room in sorted(unknown)]
    hidden = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    hidden &= {"__import__", "importlib"}
    return problems + [f"{path} uses {name}: golden's imports are statements" for name in hidden]


def check_package_room(path: str, text: str) -> list[str]:
    """Every import of a room of the package by one that does not know it."""
    own = path.removeprefix("python/collops/").removesuffix(".py").partition("/")[0]
    if own == "__init__":
        return []
    if own not in PACKAGE_ROOMS:
        return [f"{path} stands in no room of the package: {', '.join(PACKAGE_ROOMS)}"]
    unknown = rooms_of(path, text, "collops") - PACKAGE_ROOMS[own] - {own}
    return [f"{path} imports collops.{room}: {own} does not know it" for room in sorted(unknown)]


def module_graph(root: Path, folder: str) -> dict[str, set[str]]:
    """The modules that each module of a package imports, for types alone included."""
    top = root / folder
    found = {}
    for path in sorted(top.rglob("*.py")):
        module = ".".join(path.relative_to(top.parent).with_suffix("").parts)
        names = imported(str(path.relative_to(root)), path.read_text(), types=True)
        found[module.removesuffix(".__init__")] = {n for n in names if n.startswith(f"{top.name}.")}
    graph = {}
    for module, names in found.items():
        graph[module] = {n if n in found else n.rpartition(".")[0] for n in names} - {top.name}
    return graph


def check_imports(path: str, text: str) -> list[str]:
    """Every forbidden import of one Python file, with the reason."""
    problems = []
    for name in imported(path, text):
        top, problem = name.partition(".")[0], None
        if path.startswith("golden/"):
            allowed = top in ("golden", "numpy") or top in sys.stdlib_module_names
            if not allowed and (path, top) not in OPTIONAL_OF_GOLDEN:
                problem = "golden knows numpy and the standard library alone"
        elif top in ("torch", "torch_npu") and not path.startswith((TORCH_FOLDER, *TORCH_PEERS)):
            problem = f"only {TORCH_FOLDER} imports torch (sys.modules may be looked at)"
        elif top in ("jax", "jaxlib") and not path.startswith(JAX_FOLDER):
            problem = f"only {JAX_FOLDER} imports jax"
        if problem is not None:
            problems.append(f"{path} imports {name}: {problem}")
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
