r"""The ledger: an append-only record, in one file, of what was spent on one data set, with a hard cap.

The file holds one JSON object a line: a header, then one entry for each charge.

    {"margrave":"ledger","schema":1,"cap":"1/1","created":"2026-01-31T09:00:00+00:00","hash":"…"}
    {"number":1,"time":"…","rho":"1/10","purpose":"measure","total":"1/10","details":{"domain":"…"},"hash":"…"}

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

*When a file begins.* A ledger that does not exist yet is created by its first charge, header and entry in one, or by
`Ledger.create`. A run that is refused leaves no file behind.

*What goes in.* Only what the caller gives: never put in a value that was read from the private table. The mechanisms of
margrave put in what was measured (the fingerprint of the domain, the address of the table without credentials, the
query, the workload), and a ledger that names a domain refuses another one.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

from margrave.errors import BudgetRefusedError, LedgerError, PlanError
from margrave.escaping import html_table
from margrave.privacy.budget import (
    DEFAULT_DELTA,
    Budget,
    Number,
    exact_number,
    format_rho,
    positive_number,
    shown_epsilon,
    shown_fraction,
    shown_value,
    zcdp_epsilon,
)
from margrave.privacy.ledger_file import (
    Contents,
    Detail,
    Entry,
    amount_text,
    create,
    entry_line,
    header,
    locked,
    parse,
    read_bytes,
    require_beginning,
    torn_amount,
    write_line,
)

_MOST_TORN_CHARACTERS = 400
# Python writes whole numbers of up to 4,300 digits; a total that keeps to this has fewer, whatever the cap.
_MOST_BITS, _MOST_TOTAL_BITS = 2_000, 10_000
# ε is stated of no smaller ρ than this; a smaller one has no more.
_LEAST_STATED = Fraction(1, 10**99)
_SHOWN_FINGERPRINT = 12
# A path made of a URL has one slash. A single letter is a drive of Windows.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


@dataclass(frozen=True)
class Balance:
    """What may be spent, what was spent and what is left, as ρ, and what each of them means as ε.

    Attributes
    ----------
    cap, spent, left
        ρ of zCDP, exact; spent and left add up to the cap.
    delta
        Where ε is stated.
    """

    cap: Fraction
    spent: Fraction
    left: Fraction
    delta: float

    def epsilon(self, rho: Fraction) -> float:
        """Return ε of this ρ alone, rounded up, at the stated δ. These ε do not add up."""
        return zcdp_epsilon(rho=max(rho, _LEAST_STATED), delta=self.delta) if rho > 0 else 0.0

    def __str__(self) -> str:
        named = (("spent", self.spent), ("cap", self.cap), ("left", self.left))
        words = ", ".join(f"{word} {format_rho(rho)} (ε = {shown_epsilon(self.epsilon(rho))})" for word, rho in named)
        return f"{words}, each ε at δ = {self.delta:g}; ρ adds up, these ε do not"


class Ledger:
    """The spending record of one data set, in one file that the caller names; created by its first charge.

    Every question is answered from the file as it is at that moment, so several processes may share one. It needs file
    locks, and works on Linux and macOS; on a network file system it is as good as the locks of that system.

    Parameters
    ----------
    path
        The file; its folder must exist.
    cap
        The most that may ever be spent on the data set: ρ of zCDP as a number, or a `Budget`. Needed to begin a
        ledger; on an existing one it may be left out, and must be the same if given.
    any_domain
        Whether a charge may name another domain than the charges before it; by default it is refused, because one
        ledger is for one data set.
    notes
        Texts and numbers that go into every charge made with this object, such as the title of a release.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        cap: Number | Budget | None = None,
        *,
        any_domain: bool = False,
        notes: Mapping[str, Detail] | None = None,
    ) -> None:
        self._path, self._any_domain, self._notes = require_local(path), any_domain, dict(notes or {})
        if not isinstance(any_domain, bool):
            raise LedgerError(f"any_domain is {shown_value(any_domain)}", remedy="give True or False")
        _check_details(self._notes)
        self._asked = None if cap is None else _amount("the cap of a ledger", cap)
        # The longest record seen so far: lines that are there can never go away again.
        self._seen: tuple[int, str] | None = None
        if self._asked is not None and self.is_new:
            require_beginning(self._path, header(self._asked)[0])
        self._cap = self._read().cap

    @classmethod
    def create(cls, path: str | os.PathLike[str], cap: Number | Budget) -> Ledger:
        """Create a ledger now, with no charge in it; refuse if the file exists.

        Parameters
        ----------
        path
            The file; its folder must exist.
        cap
            The most that may ever be spent on the data set: ρ of zCDP as a number, or a `Budget`.
        """
        if not create(require_local(path), header(_amount("the cap of a ledger", cap))[0]):
            raise LedgerError(
                f"{str(path)!r} already exists", remedy="a ledger is never started over: name another file"
            )
        return cls(path)

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @property
    def cap(self) -> Fraction:
        """The most that may be spent: ρ."""
        return self._cap

    @property
    def is_new(self) -> bool:
        """Whether there is no file yet: the first charge will create it."""
        return self._asked is not None and self._seen is None and not os.path.lexists(self._path)

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

    def balance(self, delta: float | None = None) -> Balance:
        """Return cap, spending and remainder with what each means as ε.

        Parameters
        ----------
        delta
            Where ε is stated; by default where the last charge that names a δ was stated, or else 1e-9.
        """
        contents = self._read()
        named = [value for one in contents.entries if isinstance(value := one.details.get("delta"), float)]
        stated = delta if delta is not None else named[-1] if named else DEFAULT_DELTA
        zcdp_epsilon(rho=1, delta=stated)  # refuses what is not a δ
        return Balance(contents.cap, contents.spent, contents.cap - contents.spent, stated)

    def to_dict(self, delta: float | None = None) -> dict[str, Any]:
        """Return plain values that JSON can hold: what was spent, what is left, and every charge.

        Parameters
        ----------
        delta
            Where ε is stated, as in `balance`.
        """
        balance = self.balance(delta)
        amounts = {"cap": balance.cap, "spent": balance.spent, "remaining": balance.left}
        return {
            "ledger": str(self._path),
            **{name: str(amount) for name, amount in amounts.items()},
            **{f"{name}_rho": float(amount) for name, amount in amounts.items()},
            **{f"{name}_epsilon": balance.epsilon(amount) for name, amount in amounts.items()},
            "delta": balance.delta,
            "epsilons": "each of its own rho at delta; they do not add up",
            "torn": self.torn,
            "entries": [
                {
                    "number": one.number,
                    "time": one.time,
                    "rho": str(one.rho),
                    "purpose": one.purpose,
                    "details": dict(one.details),
                    "hash": one.hash,
                }
                for one in self.entries()
            ],
        }

    def require_domain(self, fingerprint: str) -> None:
        """Raise `LedgerError` if the charges so far name other domains than this one, unless any domain is allowed.

        Parameters
        ----------
        fingerprint
            The fingerprint of the domain that is to be charged for.
        """
        self._check_domain(self._read(), fingerprint)

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
        noted = {**self._notes, **details}
        _check_purpose(purpose)
        _check_details(noted)
        if self.is_new:
            begun = self._begin(asked, purpose, noted)
            if begun is not None:
                return begun
        with locked(self._path, write=True) as file:
            contents = self._contents(file)
            self._check_charge(contents, asked, noted)
            return self._append(file, contents, asked, purpose, noted)

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
            raise PlanError(f"a repair books at least ρ = 0, got {shown_value(rho)}", remedy="give 0 or more")
        with locked(self._path, write=True) as file:
            contents = self._contents(file)
            if not contents.torn:
                raise LedgerError(f"ledger {str(self._path)!r} is complete: there is nothing to repair")
            found = [amount for amount in (torn_amount(contents.torn), stated) if amount is not None]
            if not found:
                raise LedgerError(
                    f"{self._torn_sentence(contents)}",
                    remedy=f"its amount cannot be read, so say what to book: "
                    f"repair(rho=…), where the remainder {amount_text(contents.cap - contents.spent)} is always safe",
                )
            text = contents.torn.decode("utf-8", "backslashreplace")[:_MOST_TORN_CHARACTERS]
            amount = min(max(found), contents.cap - contents.spent)
            return self._append(file, contents, amount, "repair of a torn line", {"torn": text})

    def _repr_html_(self) -> str:
        try:
            entries = () if self.is_new else self.entries()
        except LedgerError:
            entries = ()  # the caption says what is wrong
        rows = [(f"{one.number}", one.time, f"{float(one.rho):.6g}", one.purpose) for one in entries]
        return html_table(repr(self), ("", "time", "ρ", "purpose"), rows)

    def __repr__(self) -> str:
        try:
            contents = self._read()
        except LedgerError as error:
            return f"Ledger({str(self._path)!r}: {error})"
        spent, left = shown_fraction(contents.spent), shown_fraction(contents.cap - contents.spent)
        charges = "1 charge" if len(contents.entries) == 1 else f"{len(contents.entries)} charges"
        state = "; torn last line, call repair()" if contents.torn else ""
        known = "not begun yet" if self.is_new else f"spent {spent} in {charges}, {left} left{state}"
        return f"Ledger({str(self._path)!r}, cap {format_rho(contents.cap)}: {known})"

    def _read(self) -> Contents:
        if self._asked is not None and self.is_new:
            return header(self._asked)[1]
        with locked(self._path, write=False) as file:
            return self._contents(file)

    def _contents(self, file: int) -> Contents:
        """Read a locked file, and make sure that it continues what was seen before."""
        contents = parse(self._path, read_bytes(self._path, file))
        if self._asked is not None and self._asked != contents.cap:
            raise LedgerError(
                f"ledger {str(self._path)!r} has the cap {format_rho(contents.cap)} (exactly "
                f"{amount_text(contents.cap)}), not {format_rho(self._asked)}",
                remedy="a cap is fixed when a ledger is created: leave the cap out or give the same",
            )
        if self._seen is not None:
            count, last = self._seen
            hashes = [contents.header_hash, *(entry.hash for entry in contents.entries)]
            if len(hashes) <= count or hashes[count] != last:
                raise LedgerError(
                    f"ledger {str(self._path)!r} no longer holds the {count} charges it held before: lines were "
                    "removed or the file was replaced",
                    remedy="put the right file back",
                )
        self._seen = (len(contents.entries), contents.last_hash)
        return contents

    def _begin(self, rho: Fraction, purpose: str, details: Mapping[str, Detail]) -> Entry | None:
        """Write a new ledger whose first entry is this one; None if another process was faster."""
        line, contents = header(self._cap)
        self._check_charge(contents, rho, details)
        first, entry = entry_line(contents, rho, purpose, MappingProxyType(dict(details)))
        if not create(self._path, line + first):
            return None
        self._seen = (entry.number, entry.hash)
        return entry

    def _check_charge(self, contents: Contents, rho: Fraction, details: Mapping[str, Detail]) -> None:
        """Refuse a charge after a torn line, past the cap, or for another domain."""
        if contents.torn:
            raise LedgerError(self._torn_sentence(contents))
        if contents.spent + rho > contents.cap:
            raise BudgetRefusedError(_refusal(self._path, contents, rho))
        if "domain" in details:
            self._check_domain(contents, details["domain"])

    def _check_domain(self, contents: Contents, fingerprint: Detail) -> None:
        """Refuse a domain that is not among those charged for, if any are; older charges name none."""
        known = [str(one.details["domain"]) for one in contents.entries if "domain" in one.details]
        if self._any_domain or not known or fingerprint in known:
            return
        shown = [str(one)[:_SHOWN_FINGERPRINT] for one in (known[0], fingerprint)]
        raise LedgerError(
            f"ledger {str(self._path)!r} is charged for the domain {shown[0]}… and this table has the domain "
            f"{shown[1]}…",
            remedy="nothing was read or charged: one ledger is for one data set, so name the ledger of this "
            "table, or, if these are the same people, say so with any_domain=True (--ledger-any-domain)",
        )

    def _append(
        self, file: int, contents: Contents, rho: Fraction, purpose: str, details: Mapping[str, Detail]
    ) -> Entry:
        """Write an entry in place of a torn line, or after the last one."""
        total = contents.spent + rho
        if total.denominator.bit_length() > _MOST_TOTAL_BITS:
            raise LedgerError(
                f"the total of ledger {str(self._path)!r} would be a fraction of thousands of digits",
                remedy="round the charge up to a fraction with a smaller denominator, such as a multiple of 2**-64",
            )
        line, entry = entry_line(contents, rho, purpose, MappingProxyType(dict(details)))
        try:
            write_line(file, line, at=contents.size, undo=not contents.torn)
        except OSError as error:
            raise LedgerError(
                f"cannot write to ledger {str(self._path)!r} ({error.strerror})",
                remedy="nothing was charged: free or repair the disk, then retry",
            ) from error
        self._seen = (entry.number, entry.hash)
        return entry

    def _torn_sentence(self, contents: Contents) -> str:
        return (
            f"the last line of ledger {str(self._path)!r} (line {len(contents.entries) + 2}) is torn: a charge was "
            "being written when the process or the machine stopped, and nothing was released for it; call repair() to "
            "book it (margrave ledger repair)"
        )


def _amount(what: str, value: Number | Budget) -> Fraction:
    number = value.rho if isinstance(value, Budget) else positive_number(what, value)
    if max(number.numerator.bit_length(), number.denominator.bit_length()) > _MOST_BITS:
        raise PlanError(f"{what} is a fraction of more than {_MOST_BITS:,} bits", remedy="round it to a simpler one")
    return number


def _refusal(path: Path, contents: Contents, asked: Fraction) -> str:
    spent, cap, left = contents.spent, contents.cap, contents.cap - contents.spent
    text = (
        f"ledger {str(path)!r} refuses {format_rho(asked)}: {shown_fraction(spent)} of the cap "
        f"{shown_fraction(cap)} is spent, {shown_fraction(left)} remains; ask for no more than that"
    )
    if asked - left < cap / 10**9:
        text += (
            f" (it is over by {float(asked - left):.2g} only: amounts are exact, and the float 0.1 is more than "
            f"the text '0.1'; the remainder is exactly {amount_text(left)})"
        )
    return text


def _check_purpose(purpose: str) -> None:
    if not isinstance(purpose, str) or not purpose.strip():
        raise LedgerError(
            f"the purpose of a charge must be a text, got {purpose!r}", remedy="say in a few words what it is for"
        )


def require_local(path: str | os.PathLike[str]) -> Path:
    """Return the path of a ledger; raise `LedgerError` for the URL of something else, which may hold a password."""
    if _URL.match(os.fspath(path)):
        raise LedgerError("the ledger is given as a URL, and it is a file on this machine", remedy="give its path")
    return Path(path)


def _check_details(details: Mapping[str, Detail]) -> None:
    for name, value in details.items():
        # In this order: a whole number beyond the range of floats is refused before it is made one.
        number = isinstance(value, int | float) and abs(value) < 2**1000 and math.isfinite(value)
        if not (isinstance(value, str) or number):
            raise LedgerError(
                f"detail {name!r} of a charge must be a text or a finite number, got {type(value).__name__}",
                remedy="leave it out or write it as a text",
            )
