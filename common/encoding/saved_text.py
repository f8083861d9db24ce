"""Text as people save it: UTF-8, with or without the byte order mark that editors and shells of Windows put first.

PowerShell's ``>`` writes UTF-16, which its mark tells too.
"""

from __future__ import annotations

import io
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE

_UTF16 = (BOM_UTF16_LE, BOM_UTF16_BE)


def is_utf16(start: bytes) -> bool:
    """Whether a file that begins so says that it is UTF-16."""
    return start.startswith(_UTF16)


def text_of(file: io.BufferedReader, errors: str = "strict") -> io.TextIOWrapper:
    """An open file's text without its mark, to be read piece by piece; ``errors`` as `open` has them."""
    encoding = "utf-16" if is_utf16(file.peek(len(BOM_UTF16_LE))) else "utf-8-sig"
    return io.TextIOWrapper(file, encoding, errors)


def as_utf8(content: bytes) -> bytes:
    """The content of a file as UTF-8 without a mark, where a mark tells its encoding; raises UnicodeDecodeError."""
    return content.decode("utf-16").encode() if is_utf16(content) else content.removeprefix(BOM_UTF8)


def decode_text(content: bytes) -> str:
    r"""The text of a file without its byte order mark, line ends as they are; raises UnicodeDecodeError.

    >>> decode_text(b"\xef\xbb\xbfa word")
    'a word'
    >>> decode_text("a word".encode("utf-16"))
    'a word'
    """
    return as_utf8(content).decode()
