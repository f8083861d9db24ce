"""Text as people save it: UTF-8, with or without the byte order mark that editors and shells of Windows put first.

PowerShell's ``>`` writes UTF-16, which its mark tells too.
"""

from __future__ import annotations

from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE


def decode_text(content: bytes) -> str:
    r"""The text of a file without its byte order mark, line ends as they are; raises UnicodeDecodeError.

    >>> decode_text(b"\xef\xbb\xbfa word")
    'a word'
    >>> decode_text("a word".encode("utf-16"))
    'a word'
    """
    if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return content.decode("utf-16")
    return content.removeprefix(BOM_UTF8).decode("utf-8")
