"""An HTTP proxy as its URL names it."""

from __future__ import annotations

import httpx
import pytest

from parley.common.errors import InvalidInputError
from parley.common.service.http.proxy import ProxyAccess


@pytest.mark.parametrize(
    ("text", "url", "password", "pair"),
    [
        ("http://proxy.example:3128", "http://proxy.example:3128", "", None),
        ("http://proxy.example", "http://proxy.example:80", "", None),
        ("http://ann:secret@[::1]:3128/", "http://[::1]:3128", "ann:secret", ("ann", "secret")),
        ("http://ann:p%40s%3A%2Fs@proxy.example:3128", "http://proxy.example:3128", "ann:p@s:/s", ("ann", "p@s:/s")),
        ("http://ann@proxy.example:3128", "http://proxy.example:3128", "ann:", ("ann", "")),
    ],
)
def test_a_proxy_is_told_user_and_password_as_they_are(
    text: str, url: str, password: str, pair: tuple[str, str] | None
) -> None:
    proxy = ProxyAccess.of(text)
    assert (proxy.url, proxy.password) == (url, password)
    assert proxy.for_client().raw_auth == (pair and tuple(part.encode() for part in pair))
    assert proxy.for_client().url == httpx.URL(url)
    assert "secret" not in repr(proxy)


@pytest.mark.parametrize(
    "text",
    ["proxy.example:3128", "socks5://ann:secret@h:1", "https://ann:secret@h", "http://ann:se/cret@h:1", "http://", "-"],
)
def test_a_proxy_that_is_named_otherwise_is_refused_in_words_without_its_password(text: str) -> None:
    with pytest.raises(InvalidInputError, match="http://host:port or http://user:password@host:port") as refused:
        ProxyAccess.of(text)
    assert "cret" not in str(refused.value)
