r"""The ledger: an append-only record, in one file, of what was spent on one data set, with a hard cap.

The file holds one JSON object a line: a header, then one entry for each charge.

    {"margrave":"ledger","schema":1,"cap":"1/1","created":"2026-01-31T09:00:00+00:00","hash":"…"}
    {"number":1,"time":"…","rho":"1/10","purpose":"measure","total":"1/10","details":{"tables":455},"hash":"…"}

Amounts are ρ of zCDP, exact, as p/q; ``total`` is all that was spent up to and with the entry. ``hash`` is the SHA-256
of the hash of the line before and of the line itself without its hash: lines that were edited, removed from the middle
or put in another order no longer fit. It guards against mishaps, not against a forger, who can compute all hashes
anew or cut off the last lines; whoever must exclude that keeps the hash of an entry elsewhere, say in the release it
paid for.

*Order of events.* `Ledger.charge` takes the lock of the file, reads all of it, checks the cap, appends one line, waits
until it is on disk, and returns; noise is drawn after that. A crash before the line is complete means that `charge`
never returned and nothing was released; a crash after it leaves a charge for which nothing was released. So a crash can
only over-charge, and two processes cannot overspend together. A last line that is not complete is called *torn*: what
was charged before it is safe to read, but nothing more is charged until `Ledger.repair` has booked it.

*What goes in.* Only what the caller gives: never put in a value that was read from the private table.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType

from margrave.errors import BudgetError, BudgetRefusedError, LedgerError
from margrave.privacy.budget import (
    Budget,
    Number,
    exact_number,
    positive_number,
    shown_fraction,
    shown_value,
    spoken_rho,
)
from margrave.privacy.ledger_file import (
    Contents,
    Detail,
    Entry,
    amount_text,
    create,
    entry_line,
    locked,
    parse,
    read_bytes,
    torn_amount,
    write_line,
)

_MOST_TORN_CHARACTERS = 400
# Python writes whole numbers of up to 4,300 digits; a total that keeps to this has fewer, whatever the cap.
_MOST_BITS, _MOST_TOTAL_BITS = 2_000, 10_000


class Ledger:
    """The spending record of one data set, in one file that the caller names; made if it is not there yet.

    Every question is answered from the file as it is at that moment, so several processes may share one. It needs file
    locks, and works on Linux and macOS; on a network file system it is as good as the locks of that system.

    Parameters
    ----------
    path
        The file; its folder must exist.
    cap
        The most that may ever be spent on the data set: ρ of zCDP as a number, or a `Budget`. Needed to begin a
        ledger; on an existing one it may be left out, and must be the same if given.
    """

    def __init__(self, path: str | os.PathLike[str], cap: Number | Budget | None = None) -> None:
        self._path = Path(path)
        asked = None if cap is None else _amount("the cap of a ledger", cap)
        if asked is not None and not os.path.lexists(self._path):
            create(self._path, asked)
        # The longest record seen so far: lines that are there can never go away again.
        self._seen: tuple[int, str] | None = None
        self._cap = self._read().cap
        if asked is not None and asked != self._cap:
            raise LedgerError(
                f"ledger {str(self._path)!r} has the cap {spoken_rho(self._cap)} (exactly {amount_text(self._cap)}), "
                f"not {spoken_rho(asked)}; a cap is fixed when a ledger begins: leave the cap out or give the same"
            )

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @property
    def cap(self) -> Fraction:
        """The most that may be spent: ρ."""
        return self._cap

    @property
    def spent(self) -> Fraction:
        """What was spent so far: ρ."""
        return self._read().spent

    @property
    def remaining(self) -> Fraction:
        """What may still be spent: ρ."""
        return self._cap - self.spent

    @property
    def torn(self) -> str | None:
        """What is wrong with the last line, as a sentence, if it is torn."""
        contents = self._read()
        return self._torn_sentence(contents) if contents.torn else None

    def entries(self) -> tuple[Entry, ...]:
        """Return all charges, the oldest first."""
        return self._read().entries

    def check(self, rho: Number | Budget) -> bool:
        """Return whether a charge of ρ would be accepted now; nothing is charged."""
        asked, contents = _amount("a charge", rho), self._read()
        return not contents.torn and contents.spent + asked <= contents.cap

    def charge(self, rho: Number | Budget, purpose: str, /, **details: Detail) -> Entry:
        """Record that ρ is spent, or refuse because it would pass the cap.

        When it returns, the charge is on disk; whatever is charged for must be drawn after that.

        Parameters
        ----------
        rho
            ρ of zCDP, positive.
        purpose
            What for.
        details
            Texts and finite numbers worth keeping; never a value read from the private table.
        """
        asked = _amount("a charge", rho)
        _check_words(purpose, details)
        with locked(self._path, write=True) as file:
            contents = self._contents(file)
            if contents.torn:
                raise LedgerError(self._torn_sentence(contents))
            if contents.spent + asked > contents.cap:
                raise BudgetRefusedError(_refusal(self._path, contents, asked))
            return self._append(file, contents, asked, purpose, details)

    def repair(self, rho: Number | Budget | None = None) -> Entry:
        """Book a torn last line as spent, so that charges are possible again; return the entry that says so.

        The amount is the one that can be read in the torn line; where it cannot be read, the caller must say it. The
        torn text is kept in the details of the entry. The cap is not passed: at most the remainder is booked.

        Parameters
        ----------
        rho
            The amount to book where the line does not tell: the charge that was under way, or the whole remainder to
            be safe; 0 is right as well if nothing was released after the crash.
        """
        stated = None if rho is None else rho.rho if isinstance(rho, Budget) else exact_number("rho", rho)
        if stated is not None and stated < 0:
            raise BudgetError(f"a repair books at least ρ = 0, got {shown_value(rho)}; give 0 or more")
        with locked(self._path, write=True) as file:
            contents = self._contents(file)
            if not contents.torn:
                raise LedgerError(f"ledger {str(self._path)!r} is whole: there is nothing to repair")
            found = [amount for amount in (torn_amount(contents.torn), stated) if amount is not None]
            if not found:
                raise LedgerError(
                    f"{self._torn_sentence(contents)}; its amount cannot be read, so say what to book: "
                    f"repair(rho=…), where the remainder {amount_text(contents.cap - contents.spent)} is always safe"
                )
            text = contents.torn.decode("utf-8", "backslashreplace")[:_MOST_TORN_CHARACTERS]
            amount = min(max(found), contents.cap - contents.spent)
            return self._append(file, contents, amount, "repair of a torn line", {"torn": text})

    def __repr__(self) -> str:
        try:
            contents = self._read()
        except LedgerError as error:
            return f"Ledger({str(self._path)!r}: {error})"
        spent, left = shown_fraction(contents.spent), shown_fraction(contents.cap - contents.spent)
        charges = "1 charge" if len(contents.entries) == 1 else f"{len(contents.entries)} charges"
        state = "; torn last line, call repair()" if contents.torn else ""
        known = f"spent {spent} in {charges}, {left} left{state}"
        return f"Ledger({str(self._path)!r}, cap {spoken_rho(contents.cap)}: {known})"

    def _read(self) -> Contents:
        with locked(self._path, write=False) as file:
            return self._contents(file)

    def _contents(self, file: int) -> Contents:
        """Read a locked file, and make sure that it continues what was seen before."""
        contents = parse(self._path, read_bytes(self._path, file))
        if self._seen is not None:
            count, last = self._seen
            hashes = [contents.header_hash, *(entry.hash for entry in contents.entries)]
            if len(hashes) <= count or hashes[count] != last:
                raise LedgerError(
                    f"ledger {str(self._path)!r} no longer holds the {count} charges it held before: lines were "
                    "removed or the file was replaced; put the right file back"
                )
        self._seen = (len(contents.entries), contents.last_hash)
        return contents

    def _append(
        self, file: int, contents: Contents, rho: Fraction, purpose: str, details: Mapping[str, Detail]
    ) -> Entry:
        """Write an entry in the place of a torn line, or after the last one."""
        total = contents.spent + rho
        if total.denominator.bit_length() > _MOST_TOTAL_BITS:
            raise LedgerError(
                f"the total of ledger {str(self._path)!r} would be a fraction of thousands of digits; round the "
                "charge up to a fraction with a smaller denominator, such as a multiple of 2**-64"
            )
        line, entry = entry_line(contents, rho, purpose, MappingProxyType(dict(details)))
        try:
            write_line(file, line, at=contents.size, undo=not contents.torn)
        except OSError as error:
            raise LedgerError(
                f"cannot write to ledger {str(self._path)!r} ({error.strerror}); nothing was charged: make room or "
                "mend the disk and try again"
            ) from error
        self._seen = (entry.number, entry.hash)
        return entry

    def _torn_sentence(self, contents: Contents) -> str:
        return (
            f"the last line of ledger {str(self._path)!r} (line {len(contents.entries) + 2}) is torn: a charge was "
            "being written when the process or the machine stopped, and nothing was released for it; call repair() to "
            "book it"
        )


def _amount(what: str, value: Number | Budget) -> Fraction:
    number = value.rho if isinstance(value, Budget) else positive_number(what, value)
    if max(number.numerator.bit_length(), number.denominator.bit_length()) > _MOST_BITS:
        raise BudgetError(f"{what} is a fraction of more than {_MOST_BITS:,} bits; round it to a simpler one")
    return number


def _refusal(path: Path, contents: Contents, asked: Fraction) -> str:
    spent, cap, left = contents.spent, contents.cap, contents.cap - contents.spent
    text = (
        f"ledger {str(path)!r} refuses {spoken_rho(asked)}: {shown_fraction(spent)} of the cap "
        f"{shown_fraction(cap)} is spent, {shown_fraction(left)} remains; ask for no more than that"
    )
    if asked - left < cap / 10**9:
        text += (
            f" (it is over by {float(asked - left):.2g} only: amounts are exact, and the float 0.1 is more than "
            f"the text '0.1'; the remainder is exactly {amount_text(left)})"
        )
    return text


def _check_words(purpose: str, details: Mapping[str, Detail]) -> None:
    if not isinstance(purpose, str) or not purpose.strip():
        raise LedgerError(f"the purpose of a charge must be a text, got {purpose!r}; say in a few words what it is for")
    for name, value in details.items():
        # In this order: a whole number beyond the range of floats is refused before it is made one.
        number = isinstance(value, int | float) and abs(value) < 2**1000 and math.isfinite(value)
        if not (isinstance(value, str) or number):
            raise LedgerError(
                f"detail {name!r} of a charge must be a text or a finite number, got {type(value).__name__}; leave it "
                "out or write it as a text"
            )
