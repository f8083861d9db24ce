"""Links that lead out of ``docs`` or into it: to a page that is made of the file, or to its path in words."""

from __future__ import annotations

import posixpath
import re
from typing import Any

OUTSIDE = {
    "README.md": "index.md",
    "SECURITY.md": "project/security.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
}
"""The project's own documents, and where the site has them."""
_ORIGIN = {page: name for name, page in OUTSIDE.items()}
_LINK = re.compile(r"(!?)\[([^\]]+)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, /, *, page: Any, **_: object) -> str:  # noqa: ANN401 -- MkDocs has its own types
    """A page's text with its links as the site has them; MkDocs calls this for each."""
    source = page.file.src_uri
    origin = _ORIGIN.get(source, f"docs/{source}")

    def moved(match: re.Match[str]) -> str:
        image, words, link, anchor = match[1], match[2], match[3], match[4] or ""
        target = posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))
        if target in OUTSIDE:
            aim = OUTSIDE[target]
        elif target.startswith("docs/") and (image or target.endswith(".md")):
            aim = target.removeprefix("docs/")
        else:
            return f"{words} (`{target}`)"
        return f"{image}[{words}]({posixpath.relpath(aim, posixpath.dirname(source) or '.')}{anchor})"

    return _LINK.sub(moved, markdown)
