"""Collects the messages that the sources of the operators, of the bindings and of the package have.

A message is what one call of COLLOPS_CHECK_ARG, Error, Throw, or one `raise` puts together: its
literals, with anything in between. Of a choice between literals each is a message of its own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CPP = ("ops/collops/operators", "bindings")
PYTHON = ("atb", "collectives", "tensors.py", "errors.py", "__init__.py", "cuda_array.py")
CALL = re.compile(r"\b(COLLOPS_CHECK_ARG|Error|Throw)\(")
COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*')
# A literal, or a character of what is none.
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)\'|[^\s]')
ANY = "\0"
# Text that is none of a message's own: names, numbers and single words between values.
LEAST = 10


def cpp_arguments(text: str) -> list[list[str]]:
    """The arguments of a call, whose text begins behind the parenthesis, as lists of tokens."""
    arguments: list[list[str]] = [[]]
    depth = 0
    for match in TOKEN.finditer(text):
        token = match[0]
        if token == ")" and depth == 0:
            break
        depth += token in ("(", "[", "{")
        depth -= token in (")", "]", "}")
        if token == "," and depth == 0:
            arguments.append([])
        else:
            arguments[-1].append(token)
    return arguments


def choices(tokens: list[str]) -> list[str]:
    """What an argument may add: its literal, each literal of a choice, or anything."""
    literals: list[str] = []
    before = ""
    for token in tokens:
        if token.startswith('"') and before.startswith('"'):
            literals[-1] += ast.literal_eval(token)
        elif token.startswith('"') and before in ("", "?", ":"):
            literals.append(ast.literal_eval(token))
        before = token
    # Beside literals, the choice of another value, or a call that is given them.
    is_choice = "?" in tokens
    others = is_choice and any(
        t not in "?:" and b in "?:" and t[0] != '"' for b, t in pairwise(tokens)
    )
    return [*literals, *([ANY] if others or not literals else [])]


def of_cpp(text: str) -> Iterator[str]:
    text = COMMENT.sub(lambda match: match[1] or "", text)
    for match in CALL.finditer(text):
        arguments = cpp_arguments(text[match.end() :])
        skipped = 2 if match[1] == "COLLOPS_CHECK_ARG" else 1
        for parts in product(*(choices(one) for one in arguments[skipped:])):
            yield "".join(parts)


def of_value(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(of_value(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return of_value(node.left) + of_value(node.right)
    return ANY


def of_python(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from map(of_value, node.exc.args)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "raise_status":
            yield from map(of_value, node.args)


def collected() -> dict[str, str]:
    """Each message, with "..." for what is not its own, and the file that it is in."""
    found: dict[str, str] = {}
    files = [p for folder in CPP for p in sorted((ROOT / folder).rglob("*.[ch]*"))]
    package = ROOT / "python" / "collops"
    modules = [p for name in PYTHON for p in sorted((package / name).rglob("*.py"))]
    modules += [package / name for name in PYTHON if name.endswith(".py")]
    for path in (*files, *modules):
        text = path.read_text()
        for message in of_cpp(text) if path.suffix != ".py" else of_python(text):
            message = re.sub(f"{ANY}+", ANY, message)
            if len(message.replace(ANY, "")) >= LEAST:
                found.setdefault(message.replace(ANY, "..."), str(path.relative_to(ROOT)))
    return found


def reads(message: str, texts: str) -> bool:
    """Whether one of the lines of `texts` has the message's literals in their order."""
    parts = message.split("...")
    longest, at = max(parts, key=len), -1
    while (at := texts.find(longest, at + 1)) >= 0:
        end = texts.find("\n", at)
        line, behind = texts[texts.rfind("\n", 0, at) + 1 : end if end >= 0 else None], 0
        for part in parts:
            behind = line.find(part, behind)
            if behind < 0:
                break
            behind += len(part)
        else:
            return True
    return False
