"""The file of a ledger: its lines and their hashes, the lock, and writes that are on disk before they return.

The format is described in ``privacy.ledger``, which decides what is written; here is how.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any
from uuid import uuid4

from margrave.errors import LedgerError

Detail = str | int | float

SCHEMA = 1
_HEADER_KEYS = ["margrave", "schema", "cap", "created"]
_ENTRY_KEYS = ["number", "time", "rho", "purpose", "total", "details"]
_AMOUNT = re.compile(r"(0|[1-9][0-9]*)/([1-9][0-9]*)")
_TORN_AMOUNT = re.compile(rb'\{"number":[0-9]+,"time":"[^"]*","rho":"([0-9]+/[0-9]+)"')
_json = partial(json.dumps, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True)
class Entry:
    """One charge.

    Attributes
    ----------
    number
        1 for the first charge, and so on.
    time
        When it was charged, in UTC, as ISO 8601.
    rho
        What was charged: ρ, exact.
    purpose
        What for, in the words of the caller.
    total
        What was spent up to and with this charge.
    details
        Further texts and numbers that the caller gave.
    hash
        The hash of the line, which vouches for all lines before it as well.
    """

    number: int
    time: str
    rho: Fraction
    purpose: str
    total: Fraction
    details: Mapping[str, Detail] = field(hash=False)
    hash: str


@dataclass(frozen=True)
class Contents:
    """What a file holds.

    Attributes
    ----------
    cap
        The cap in the header.
    header_hash
        The hash of the header.
    entries
        All complete entries.
    size
        How many bytes the header and they take.
    torn
        The bytes of a torn last line after them; empty if there is none.
    """

    cap: Fraction
    header_hash: str
    entries: tuple[Entry, ...]
    size: int
    torn: bytes

    @property
    def spent(self) -> Fraction:
        """The sum of all entries."""
        return self.entries[-1].total if self.entries else Fraction(0)

    @property
    def last_hash(self) -> str:
        """The hash of the last complete line."""
        return self.entries[-1].hash if self.entries else self.header_hash


def amount_text(value: Fraction) -> str:
    """Return a fraction as ``p/q``."""
    return f"{value.numerator}/{value.denominator}"


def entry_line(contents: Contents, rho: Fraction, purpose: str, details: Mapping[str, Detail]) -> tuple[bytes, Entry]:
    """Return the line that continues the contents, and the entry it holds."""
    number, time, total = len(contents.entries) + 1, _now(), contents.spent + rho
    values = (number, time, amount_text(rho), purpose, amount_text(total), dict(details))
    line, digest = _sealed(dict(zip(_ENTRY_KEYS, values, strict=True)), contents.last_hash)
    return line, Entry(number, time, rho, purpose, total, details, digest)


def torn_amount(torn: bytes) -> Fraction | None:
    """Return the amount that a torn line was to charge, if the line reached that far."""
    found = _TORN_AMOUNT.match(torn)
    with suppress(ValueError, ZeroDivisionError):
        return None if found is None else Fraction(found[1].decode())
    return None


def parse(path: Path, raw: bytes) -> Contents:
    """Return what the bytes of a ledger say, or explain why they cannot be trusted."""
    *lines, torn = raw.split(b"\n")
    cap, last = _parse_header(path, lines[0] if lines else b"")
    size, header_hash = len(lines[0]) + 1 if lines else 0, last
    total, entries = Fraction(0), []
    for number, line in enumerate(lines[1:], start=1):
        record = _parse_json(line)
        if record is None and number == len(lines) - 1 and not torn:
            # A crash of the machine can leave a line with an end and a hole: it is torn all the same.
            torn = line + b"\n"
            break
        entry = _parse_entry(path, number, line, record, last)
        if entry.total != total + entry.rho or entry.total > cap:
            raise _tampered(path, number, "does not add up with the lines before it")
        entries.append(entry)
        size, last, total = size + len(line) + 1, entry.hash, entry.total
    return Contents(cap, header_hash, tuple(entries), size, torn)


def _parse_header(path: Path, line: bytes) -> tuple[Fraction, str]:
    record = _parse_json(line) or {}
    if record.get("margrave") != "ledger" or not isinstance(record.get("schema"), int):
        raise LedgerError(
            f"{str(path)!r} is not a ledger: its first line is not a header", remedy="give the file of a ledger"
        )
    if record["schema"] > SCHEMA:
        raise LedgerError(
            f"ledger {str(path)!r} was written by a newer margrave (schema {record['schema']}",
            remedy=f"this one reads up to {SCHEMA}); update margrave",
        )
    cap = _amount(record.get("cap"))
    if cap is None or not _genuine(line, record, _HEADER_KEYS, ""):
        raise _tampered(path, 0, "was edited")
    return cap, str(record["hash"])


def _parse_entry(path: Path, number: int, line: bytes, record: dict[str, Any] | None, previous: str) -> Entry:
    record = record or {}
    if isinstance(record.get("number"), int) and record["number"] != number:
        raise _tampered(path, number, f"is entry {record['number']}: lines were removed or put in another order")
    rho, total = _amount(record.get("rho")), _amount(record.get("total"))
    if rho is None or total is None or not _genuine(line, record, _ENTRY_KEYS, previous):
        raise _tampered(path, number, "was edited, or the line before it was")
    return Entry(
        number=number,
        time=str(record["time"]),
        rho=rho,
        purpose=str(record["purpose"]),
        total=total,
        details=MappingProxyType(record["details"]),
        hash=str(record["hash"]),
    )


def _tampered(path: Path, number: int, what: str) -> LedgerError:
    return LedgerError(
        f"ledger {str(path)!r} was tampered with: line {number + 1} {what}",
        remedy="what was spent is not known from it any more: restore the file from a backup",
    )


def _parse_json(line: bytes) -> dict[str, Any] | None:
    with suppress(ValueError, RecursionError):
        record = json.loads(line)
        return record if isinstance(record, dict) else None
    return None


def _amount(text: object) -> Fraction | None:
    with suppress(ValueError):
        if isinstance(text, str) and (found := _AMOUNT.fullmatch(text)):
            return Fraction(int(found[1]), int(found[2]))
    return None


def _genuine(line: bytes, record: Mapping[str, Any], keys: list[str], previous: str) -> bool:
    """Return whether the line is, byte for byte, what margrave writes after the line with the previous hash."""
    with suppress(KeyError, ValueError, TypeError):
        return (
            isinstance(record.get("details", {}), dict)
            and _sealed({key: record[key] for key in keys}, previous)[0] == line + b"\n"
        )
    return False


def _sealed(record: Mapping[str, object], previous: str) -> tuple[bytes, str]:
    """Return the line of a record, with its hash, and the hash."""
    digest = hashlib.sha256((previous + _json(record)).encode()).hexdigest()
    return (_json({**record, "hash": digest}) + "\n").encode(), digest


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@contextmanager
def locked(path: Path, *, write: bool) -> Iterator[int]:
    """Open a ledger and hold its lock: alone for writing, together with other readers else. Waits for the lock."""
    lock = _file_locks()
    try:
        found = os.stat(path)  # noqa: PTH116 — compared with os.fstat below
        if not stat.S_ISREG(found.st_mode):
            raise LedgerError(f"{str(path)!r} is a folder or a device, not a ledger", remedy="name a file")
        file = os.open(path, os.O_RDWR if write else os.O_RDONLY)
    except FileNotFoundError as error:
        raise LedgerError(
            f"there is no ledger {str(path)!r}", remedy="check the name, or give a cap to create one"
        ) from error
    except (OSError, ValueError) as error:
        raise LedgerError(
            f"cannot open ledger {str(path)!r} ({_reason(error)})", remedy="check its permissions"
        ) from error
    try:
        try:
            lock.flock(file, lock.LOCK_EX if write else lock.LOCK_SH)
            replaced = not os.path.samestat(os.fstat(file), os.stat(path))  # noqa: PTH116
        except OSError as error:
            raise LedgerError(
                f"cannot lock ledger {str(path)!r} ({_reason(error)})", remedy="keep it on a local disk"
            ) from error
        if replaced:
            raise LedgerError(
                f"ledger {str(path)!r} was replaced while it was opened",
                remedy="find out what replaced it, then try again",
            )
        yield file
    finally:
        # A process that was forked meanwhile has the file open too, and closing it here would not end the lock.
        with suppress(OSError):
            lock.flock(file, lock.LOCK_UN)
        os.close(file)


def _file_locks() -> ModuleType:
    try:
        import fcntl
    except ImportError as error:
        raise LedgerError(
            "a ledger needs the file locks of Linux and macOS (Python's fcntl), which this system lacks",
            remedy="without them two processes could overspend together: keep the ledger on one of those systems",
        ) from error
    return fcntl


def read_bytes(path: Path, file: int) -> bytes:
    """Return all bytes of an open file."""
    pieces: list[bytes] = []
    try:
        while piece := os.pread(file, 1 << 20, sum(map(len, pieces))):
            pieces.append(piece)
    except OSError as error:
        raise LedgerError(
            f"cannot read ledger {str(path)!r} ({_reason(error)})", remedy="free or repair the disk, then retry"
        ) from error
    return b"".join(pieces)


def write_line(file: int, line: bytes, *, at: int, undo: bool) -> None:
    """Write a line in place of all bytes from ``at`` on, and wait until it is on disk.

    If that fails and ``undo`` is set, the file is cut back to ``at``; the caller holds the lock, so no other
    process has seen the piece. If even the cut fails, the piece is found as a torn line.
    """
    try:
        done = 0
        while done < len(line):
            done += os.pwrite(file, line[done:], at + done)
        os.ftruncate(file, at + len(line))
        _sync(file)
    except OSError:
        if undo:
            with suppress(OSError):
                os.ftruncate(file, at)
                _sync(file)
        raise


def header(cap: Fraction) -> tuple[bytes, Contents]:
    """Return the first line of a new ledger, and what a file with this line alone holds."""
    line, digest = _sealed(dict(zip(_HEADER_KEYS, ("ledger", SCHEMA, amount_text(cap), _now()), strict=True)), "")
    return line, Contents(cap, digest, (), len(line), b"")


def create(path: Path, content: bytes) -> bool:
    """Create a ledger with these lines; return False if one exists, as when another process has just created it.

    The lines are written to a file of another name, which is then linked to the right one: a ledger is never there
    without them, and of two processes that begin one, one wins. A process killed in between leaves its draft, a
    hidden file that means nothing and may be deleted.
    """
    with _draft(path, content) as draft:
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            _sync(folder)
        finally:
            os.close(folder)
    return True


def require_beginning(path: Path, content: bytes) -> None:
    """Refuse, before it is needed, a place where no ledger with these lines can be created; nothing stays there."""
    with _draft(path, content):
        pass


@contextmanager
def _draft(path: Path, content: bytes) -> Iterator[Path]:
    """Write lines to a hidden file next to a ledger, which is removed when the block ends."""
    _file_locks()
    draft = path.with_name(f".{path.name}.{uuid4().hex}.draft")
    try:
        try:
            file = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            try:
                write_line(file, content, at=0, undo=False)
            finally:
                os.close(file)
            yield draft
        finally:
            draft.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        raise LedgerError(
            f"cannot create ledger {str(path)!r} ({_reason(error)})",
            remedy="its folder must exist, be writable and have room",
        ) from error


def _sync(file: int) -> None:
    """Wait until the file is on disk; macOS has a stronger call than fsync for it."""
    lock = _file_locks()
    if hasattr(lock, "F_FULLFSYNC"):
        with suppress(OSError):
            lock.fcntl(file, lock.F_FULLFSYNC)
            return
    os.fsync(file)


def _reason(error: OSError | ValueError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
