"""The headers of every page that a service sends: it loads nothing but what is named, and nobody frames it."""

from __future__ import annotations


def page_headers(sources: str) -> dict[str, str]:
    """The headers of a page of HTML, or of a part of one; ``sources`` are the policy's directives of what it may load.

    >>> page_headers("style-src 'self'")["Content-Security-Policy"].partition(";")[0]
    "default-src 'none'"
    """
    return {
        "Content-Security-Policy": (
            f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
    }
