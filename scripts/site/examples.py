"""Examples of docstrings as code on the site's pages: Markdown would take ``>>>`` for quotations of quotations."""

from __future__ import annotations

import re

from griffe import Extension, Object

_EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).+)*", re.MULTILINE)


class Examples(Extension):
    """Fences each example, for mkdocstrings."""

    def on_object(self, *, obj: Object, **_: object) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """A docstring's text with each example, from its ``>>>`` to the next empty line, as a block of code."""
    return _EXAMPLE.sub(lambda match: f"```pycon\n{match[0]}\n```", text)
