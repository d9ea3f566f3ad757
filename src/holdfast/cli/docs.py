"""`holdfast docs`: the pages come with the package; the list of them, or one."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

from . import exits
from .options import Options, Usage


def docs(options: Options) -> int:
    pages = dict(_pages())
    if not options.named:
        return _list(pages, options)
    name = options.name.removeprefix("docs/").removesuffix(".md").rstrip("/")  # as links write it
    page = pages.get(name) or pages.get(f"{name}/index")
    if page is None:
        near = difflib.get_close_matches(name, pages, 1)
        raise Usage(f"there is no page {options.name!r}{f'; did you mean {near[0]}?' if near else ''}", "docs")
    print(page.read_text(encoding="utf-8"), end="")
    return exits.OK


def _list(pages: dict[str, Path], options: Options) -> int:
    if options.flag("json"):
        import json

        print(json.dumps({name: str(path) for name, path in pages.items()}, indent=2))
        return exits.OK
    width = max(map(len, pages), default=0)
    for name, path in pages.items():
        print(f"{name:<{width}}  {_title(path)}")
    print("\nOne of them: holdfast docs PAGE. Where they are: holdfast docs --json")
    return exits.OK


def _pages() -> Iterator[tuple[str, Path]]:
    package = Path(__file__).parents[1]
    for folder in (package / "docs", package.parents[1] / "docs"):  # installed; in a checkout
        found = sorted(folder.glob("**/*.md"))
        if found:
            for path in found:
                yield path.relative_to(folder).with_suffix("").as_posix(), path
            return


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as page:
        return next((line[2:].strip() for line in page if line.startswith("# ")), "")
