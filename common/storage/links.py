"""The links of a chain as a process remembers them: all of the newest records, and every sixteenth of older ones.

A link is a hash over the link before and the record, so one that is remembered proves all that stands in the file
before it: hashed on from any link that is stored there, the records up to the next remembered link lead to it only if
neither they nor the stored link were changed. To look at an old record costs a few hashes more than at a new one, and
a record takes two bytes of memory in the place of 32.
"""

from __future__ import annotations

from parley.common.protocol.head import Head

LINK_BYTES = 32
FIRST = bytes(LINK_BYTES)
"""The link before all records."""
SPACING = 16
"""Of older records, each of so many is remembered, the first record's among them."""
NEWEST = 1024
"""At least so many of the newest are remembered; a multiple of `SPACING`."""


class Links:
    """Links by the number of their record, (32,) each; 0 is before all. Any thread may look while one adds."""

    __slots__ = ("_newest", "_older", "head")

    def __init__(self) -> None:
        self._older = bytearray()
        """Those of records 1, 1 + `SPACING`, and so on."""
        self._newest = 1, bytearray()
        """The number of a record, and all links from that on."""
        self.head = Head(0, FIRST.hex())
        """The count of records, and the last link."""

    def add(self, link: bytes) -> None:
        """Remember the next record's link."""
        first, newest = self._newest
        newest += link
        self.head = Head(self.head.count + 1, link.hex())
        if len(newest) >= 2 * NEWEST * LINK_BYTES:
            for place in range(0, NEWEST * LINK_BYTES, SPACING * LINK_BYTES):
                self._older += newest[place : place + LINK_BYTES]
            self._newest = first + NEWEST, newest[NEWEST * LINK_BYTES :]

    def find(self, number: int) -> bytes | None:
        """The link of a record from 0 to the last, or None where it is not remembered."""
        if number == 0:
            return FIRST
        following, link = self.following(number)
        return link if following == number else None

    def following(self, number: int) -> tuple[int, bytes]:
        """The first record from this one on, of 1 to the last, whose link is remembered: its number, and the link."""
        first, newest = self._newest
        if number < first:
            number += (1 - number) % SPACING
        links, place = (newest, number - first) if number >= first else (self._older, number // SPACING)
        return number, bytes(links[place * LINK_BYTES : (place + 1) * LINK_BYTES])
