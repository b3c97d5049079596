"""The site of docs/: its API pages have every public name, its links lead to pages of the site."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from api_pages import API_PAGES, api_page
from repository_pages import ROOT, links_of, page_of, repository_pages, with_site_links

import collops

SOURCES = {
    "collops.golden.compare": "golden/compare/__init__.py",
    "collops.ray": "python/collops/ray.py",
    "collops.testing": "python/collops/testing/__init__.py",
    "collops.jax": "python/collops/jax/__init__.py",
    "collops.torch": "python/collops/torch/__init__.py",
    "collops.torch.serving": "python/collops/torch/serving/__init__.py",
    "collops.torch.torchft": "python/collops/torch/torchft.py",
}


def public_names(source: Path) -> list[str]:
    """`__all__` of a module, which may need packages that are not here."""
    for node in ast.parse(source.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    raise AssertionError(f"{source} has no __all__")


def documented() -> list[str]:
    return [name for page in API_PAGES.values() for name in page.names]


@pytest.mark.parametrize("module", SOURCES)
def test_the_api_pages_have_every_name_of_a_module(module: str) -> None:
    names = [f"{module}.{name}" for name in public_names(ROOT / SOURCES[module])]
    assert set(names) <= set(documented())


def test_the_api_pages_have_every_name_of_the_package_once() -> None:
    modules = {"golden", "testing", "trace", "__version__"}
    names = [f"collops.{name}" for name in collops.__all__ if name not in modules]
    assert sorted(name for name in documented() if name.count(".") == 1) == names
    assert len(set(documented())) == len(documented())


def test_an_api_page_names_what_mkdocstrings_fills_in() -> None:
    page = api_page(API_PAGES["testing"])
    assert page.startswith("# Testing\n\n")
    assert "\n\n::: collops.testing.run_ranks\n\n" in page


def test_the_navigation_has_every_page() -> None:
    """mkdocs warns of a page that is missing there, but is not installed everywhere."""
    text = (ROOT / "mkdocs.yml").read_text()
    pages = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]
    pages += [f"api/{name}.md" for name in API_PAGES]
    assert [page for page in pages if f"- {page}\n" not in text and f": {page}\n" not in text] == []


@pytest.mark.parametrize(
    ("page", "link", "moved"),
    [
        ("docs/operators/send.md", "../errors.md#codes", "../errors.md#codes"),
        ("docs/gpu.md", "../README.md", "repository/overview.md"),
        ("docs/gpu.md", "#nccl", "#nccl"),
        ("docs/gpu.md", "../examples/torch", "repository/examples/torch/index.md"),
        (
            "docs/operators/send.md",
            "../../examples/uneven_batch.py",
            "../repository/examples/uneven_batch.py.md",
        ),
        ("README.md", "docs/operators/send.md", "../operators/send.md"),
        ("README.md", "https://example.org/x", "https://example.org/x"),
    ],
)
def test_links_lead_to_pages_of_the_site(page: str, link: str, moved: str) -> None:
    text = f"a [b]({link}) `[c](gone.md)`\n```text\n[d](gone.md)\n```\n"
    assert with_site_links(page, text) == text.replace(f"({link})", f"({moved})")


def test_what_lies_outside_docs_and_is_linked_has_a_page() -> None:
    pages = repository_pages()
    assert {"README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/two_hosts"} <= pages.keys()
    assert all(links_of(path, text) <= pages.keys() for path, text in pages.items())
    assert "\n## two_hosts.sh\n" in pages["examples/two_hosts"]
    assert page_of("LICENSE") == "repository/LICENSE.md"
