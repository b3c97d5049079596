"""Pages of the site for what lies outside docs/: README.md, the examples, whole folders.

On the web page of a repository a link such as ../examples/uneven_batch.py shows that file. The site
has docs/ alone, so every linked file and folder gets a page, and the links lead there.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = re.compile(r"^(`{3,}).*?^\1$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<=\]\()[^)\s:]+(?=\))")
ROOM = "repository"
LANGUAGES = {".cpp": "cpp", ".csv": "text", ".json": "json", ".py": "python", ".sh": "sh"}


def page_of(path: str) -> str:
    """The site's name of a path of the repository, for example of `docs/gpu.md`: `gpu.md`."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path == "README.md":
        return f"{ROOM}/overview.md"
    if path.endswith(".md"):
        return f"{ROOM}/{path}"
    return f"{ROOM}/{path}/index.md" if (ROOT / path).is_dir() else f"{ROOM}/{path}.md"


def target_of(path: str, link: str) -> str:
    """The path of the repository to which a page's link leads."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link.partition("#")[0]))


def outside(text: str) -> Iterator[tuple[int, str]]:
    """The parts of a page that are not code, each with its place."""
    begin = 0
    for match in CODE.finditer(text):
        yield begin, text[begin : match.start()]
        begin = match.end()
    yield begin, text[begin:]


def with_site_links(path: str, text: str) -> str:
    """A page of the repository whose links lead to pages of the site."""
    here = posixpath.dirname(page_of(path))

    def moved(match: re.Match[str]) -> str:
        if match[0].startswith("#"):
            return match[0]
        page = posixpath.relpath(page_of(target_of(path, match[0])), here)
        return page + "".join(match[0].partition("#")[1:])

    for begin, part in reversed(list(outside(text))):
        text = text[:begin] + LINK.sub(moved, part) + text[begin + len(part) :]
    return text


def links_of(path: str, text: str) -> set[str]:
    """The paths outside docs/ to which a page links."""
    links = [link for _, part in outside(text) for link in LINK.findall(part)]
    targets = {target_of(path, link) for link in links if not link.startswith("#")}
    return {target for target in targets if not target.startswith("docs/")}


def listing(path: Path) -> str:
    """A source file as a block of code."""
    fence = "````"
    if path.suffix == ".npy":
        return f"{path.stat().st_size} bytes.\n"
    return f"{fence}{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text()}{fence}\n"


def text_of(path: str) -> str:
    """The page of a file or a folder; a folder's has the text files that lie in it."""
    place = ROOT / path
    if path.endswith(".md"):
        return place.read_text()
    if place.is_file():
        return f"# {path}\n\n{listing(place)}"
    entries = sorted(entry for entry in place.iterdir() if not entry.name.startswith(("_", ".")))
    folders = [f"- `{entry.name}/`" for entry in entries if entry.is_dir()]
    files = [f"## {entry.name}\n\n{listing(entry)}" for entry in entries if entry.is_file()]
    return "\n".join([f"# {path}/", "", *folders, "", *files])


def repository_pages() -> dict[str, str]:
    """The text of every path outside docs/ that a page links to, directly or not."""
    docs = [(str(page.relative_to(ROOT)), page) for page in sorted((ROOT / "docs").rglob("*.md"))]
    waiting = {target for path, page in docs for target in links_of(path, page.read_text())}
    pages: dict[str, str] = {}
    while waiting:
        path = waiting.pop()
        pages[path] = text_of(path)
        waiting |= links_of(path, pages[path]) - pages.keys()
    return pages
