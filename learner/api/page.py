"""The learner's page for people: the runs, and one of them live. It holds no data; its script asks the API."""

from __future__ import annotations

import secrets
from pathlib import Path

from fastapi import Request, Response
from starlette.templating import Jinja2Templates

_PAGES = Jinja2Templates(Path(__file__).parent / "web")


async def show_page(request: Request) -> Response:
    """The page; it asks for the user's token, keeps it until the tab is closed, and loads nothing from elsewhere."""
    nonce = secrets.token_urlsafe(16)
    policy = (
        f"default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }
    return _PAGES.TemplateResponse(request, "index.html", {"nonce": nonce}, headers=headers)
