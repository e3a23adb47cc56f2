"""Loops that are compiled when they are first called, and not when their module is imported.

The compiler (numba) takes as long to import as all else that a query of a saved release needs. So a decorated function
is a `Kernel` at first, which asks for the compiler when it is called. Kernels call each other, and the compiler must
then see compiled functions: before a kernel is compiled, every kernel that its module knows by name is replaced there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from threading import RLock
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

# Threads may call a kernel for the first time at once.
_LOCK = RLock()


class Kernel:
    """A function that is compiled when it is first called.

    Parameters
    ----------
    function
        A function that numba can compile.
    options
        The options of ``numba.njit``.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self._function, self._options = function, options
        self._compiled: Callable[..., Any] | None = None
        update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:  # noqa: ANN401 — the decorator keeps the types of the function
        """Call the compiled function."""
        return (self._compiled or self.compiled())(*arguments)

    def compiled(self) -> Callable[..., Any]:
        """Return numba's form of the function."""
        with _LOCK:
            if self._compiled is None:
                from numba import njit

                self._compiled = cast("Callable[..., Any]", njit(**self._options)(self._function))
                names = self._function.__globals__
                for name, value in list(names.items()):
                    if isinstance(value, Kernel):
                        names[name] = value.compiled()
            return self._compiled


def compiler(**options: Any) -> Callable[[Function], Function]:  # noqa: ANN401 — as numba takes them
    """Return a decorator for functions to compile with these options of ``numba.njit``."""

    def decorator(function: Function) -> Function:
        return cast("Function", Kernel(function, options))

    return decorator
