"""The pages of a Parquet column, weighed before they are decompressed.

A column is a row of pages, each with a small header in Thrift's compact protocol that says how many bytes the page has
in the file and how many after decompression. The reader believes it and takes that much memory, whatever the summary at
the end of the file says. So the headers are read here first, and nothing else of the pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

# Kinds of fields in Thrift's compact protocol: two for true and false, whole numbers, bytes, a structure.
_TRUTHS, _BYTE, _WHOLE, _BINARY, _STRUCTURE = (1, 2), 3, (4, 5, 6), 8, 12
_LONGEST_HEADER = 1 << 16
# Fields of a page's header.
_SIZE, _SIZE_IN_FILE = 2, 3


def page_sizes(stream: BinaryIO, begin: int, length: int) -> Iterator[int]:
    """Iterate over the sizes, after decompression, of the pages in a range of a file; ValueError if these are none.

    Parameters
    ----------
    stream
        The file.
    begin, length
        Where the pages of a column begin, and how many bytes they have.
    """
    end = begin + length
    while begin < end:
        stream.seek(begin)
        header = _Header(stream.read(min(_LONGEST_HEADER, end - begin)))
        fields = header.structure()
        size, in_file = fields.get(_SIZE, -1), fields.get(_SIZE_IN_FILE, -1)
        if size < 0 or in_file < 0:
            raise ValueError("a page does not say how large it is")
        yield size
        begin += header.position + in_file
    if begin != end:
        raise ValueError("the pages of a column do not fill it")


class _Header:
    """The bytes of a header, read from front to back."""

    def __init__(self, content: bytes) -> None:
        self._content, self.position = content, 0

    def structure(self, depth: int = 0) -> dict[int, int]:
        """Return the whole numbers of a structure by the number of their field, and go behind it."""
        if depth > 4:
            raise ValueError("the header of a page has structures inside each other")
        found: dict[int, int] = {}
        field = 0
        while (mark := self._byte()) != 0:
            step, kind = mark >> 4, mark & 15
            field = field + step if step else self._signed()
            if kind in _WHOLE:
                found[field] = self._signed()
            elif kind == _STRUCTURE:
                self.structure(depth + 1)
            elif kind == _BINARY:
                length = self._varint()
                self.position += length
            elif kind == _BYTE:
                self._byte()
            elif kind not in _TRUTHS:
                raise ValueError("the header of a page has a field of another kind")
        return found

    def _byte(self) -> int:
        if self.position >= len(self._content):
            raise ValueError("the header of a page has no end")
        self.position += 1
        return self._content[self.position - 1]

    def _varint(self) -> int:
        """Return a whole number of 7 bits a byte, the lowest first."""
        number = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise ValueError("the header of a page has a number without end")

    def _signed(self) -> int:
        """Return a whole number whose sign is its lowest bit."""
        number = self._varint()
        return number >> 1 ^ -(number & 1)
