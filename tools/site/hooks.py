"""What `make docs` adds to mkdocs: API pages, pages for what lies outside docs/, links to them."""

from __future__ import annotations

from typing import Any

from api_pages import API_PAGES, api_page
from mkdocs.structure.files import File, Files
from repository_pages import page_of, repository_pages, with_site_links

# The path in the repository of each page of the site that is a page there.
_paths: dict[str, str] = {}


def on_files(files: Files, config: Any) -> Files:
    """Adds the generated pages."""
    _paths.update({file.src_uri: f"docs/{file.src_uri}" for file in files.documentation_pages()})
    for name, page in API_PAGES.items():
        files.append(File.generated(config, f"api/{name}.md", content=api_page(page)))
    for path, text in repository_pages().items():
        _paths[page_of(path)] = path
        files.append(File.generated(config, page_of(path), content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lets the links of a page lead to pages of the site."""
    path = _paths.get(page.file.src_uri)
    return markdown if path is None else with_site_links(path, markdown)
