"""Serves the learner's page for people: files without data, whose scripts ask the API as any other client does.

Two scripts are no files of the folder: `statistics.js`, which lists the statistics of this version, and `provider.js`,
which names the identity provider at which people sign in.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI, Request, Response

from parley.common.learning.statistics import STATISTICS, WEIGHED
from parley.common.service.http.pages import page_headers
from parley.common.service.http.representations import compressible, tag_of, tagged
from parley.learner.settings import SignIn

_FOLDER = Path(__file__).parent / "web"
_MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_HEADERS = page_headers(
    "style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; require-trusted-types-for 'script'"
)


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page, as it is sent."""

    content: bytes
    media_type: str
    tag: str

    @classmethod
    def of(cls, content: bytes, suffix: str) -> PageFile:
        """Return the page's file with this content, tagged so that a browser can ask whether it has changed."""
        return cls(content, _MEDIA_TYPES[suffix], tag_of(content))

    @compressible
    async def answer(self, request: Request) -> Response:
        """Answer with the file, or 304 if the browser has it. Its headers forbid other sources and inline scripts."""
        headers = {**_HEADERS, "Cache-Control": "no-cache", "ETag": self.tag}
        return tagged(request, Response(self.content, media_type=self.media_type, headers=headers))


def statistics_script() -> bytes:
    """Return the script that lists the statistics with a title, in the order of their registry."""
    entries = [
        {"name": name, "title": statistic.title, "shown": statistic.shown, "better": statistic.better}
        for name, statistic in STATISTICS.items()
        if statistic.title
    ]
    constants = {"STATISTICS": entries, "WEIGHED": dict(WEIGHED)}
    lines = (f"export const {name} = {json.dumps(value, ensure_ascii=False)};\n" for name, value in constants.items())
    return "".join(lines).encode()


def provider_script(sign_in: SignIn | None) -> bytes:
    """Return the script that names the identity provider, or null where tokens are the only way to sign in."""
    return f"export const PROVIDER = {json.dumps(sign_in and sign_in.provider)};\n".encode()


_FILES = {
    "/" if path.name == "index.html" else f"/page/{path.name}": PageFile.of(path.read_bytes(), path.suffix)
    for path in sorted(_FOLDER.iterdir())
    if path.suffix in _MEDIA_TYPES
} | {"/page/statistics.js": PageFile.of(statistics_script(), ".js")}
_PROVIDER = "/page/provider.js"
PAGE_PATHS = frozenset({*_FILES, _PROVIDER})
"""The paths that need no token: the page, its scripts and its style."""


def add_page(app: FastAPI, sign_in: SignIn | None) -> None:
    """Add the page at / and its files below /page."""
    for path, file in {**_FILES, _PROVIDER: PageFile.of(provider_script(sign_in), ".js")}.items():
        app.add_api_route(
            path,
            file.answer,
            include_in_schema=False,
            response_class=Response,
            responses={200: {"content": {file.media_type: {}}}},
        )
