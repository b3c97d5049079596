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
    "torch": TOP | {"collectives", "launch", "torch_backend", ""},
    "torch_backend": {"torch", "errors"},
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


def package_imports(node: ast.AST, *, types: bool = False) -> Iterator[str]:
    """What a file of the package imports of it, such as errors.nearest; "" is all.

    That is while it runs, with `types` also for types alone. A name's module may be the name
    without its last part.
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
        if not types and isinstance(child, ast.If) and is_typing_guard(child):
            yield from (found for other in child.orelse for found in package_imports(other))
        else:
            yield from package_imports(child, types=types)


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
    """The modules that each module of the package imports, for types alone included."""
    folder = root / "python" / "collops"
    texts = {
        ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(
            ".__init__"
        ): path.read_text()
        for path in sorted(folder.rglob("*.py"))
    }
    graph = {}
    for module, text in texts.items():
        names = set(package_imports(ast.parse(text), types=True))
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
            (TORCH_FOLDER, *TORCH_PEERS)
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
