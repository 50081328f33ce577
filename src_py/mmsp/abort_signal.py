"""`AbortSignal`: one switch that stops any number of requests; `AbortError`: what they raise.

`abort()` may run on any thread, in a callback, in an operating system's signal handler, or in a `__del__`
that interrupts this very module. The rules that make it safe:

- Nothing here takes a lock. Every change of state is one atomic step of a dict: `setdefault` decides who
  aborts first, `pop` decides who tells a listener. A handler that lands between two steps finds each
  listener either in the dict or taken by somebody who will tell it.
- A listener that subscribes writes itself down *before* it looks whether the signal is aborted already;
  `abort()` sets the flag *before* it looks who is written down. One of the two sees the other.
- The sockets of all streams are shut first, then their loops are told, then users' callbacks run.
- Streams are held weakly: a signal that lives as long as the program keeps no stream alive.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["AbortError", "AbortSignal"]


class AbortError(asyncio.CancelledError):
    """A stop made through this stream or its signal; `reason` is the object that was given to `abort`.

    A `CancelledError`, so it passes `except Exception`. asyncio drops such an error in places of its own
    (a `TaskGroup` child ends silently, `gather(return_exceptions=True)` makes a fresh one): the reason
    is on `signal.reason` and `stream.reason` as well.
    """

    def __init__(self, reason: Any = None) -> None:
        super().__init__(*(() if reason is None else (reason,)))

    @property
    def reason(self) -> Any:
        return self.args[0] if self.args else None


class Listener(Protocol):
    """What a stream is to its signal. Both are called on the thread that aborts and never raise."""

    def signal_cut(self, reason: Any) -> bool:
        """Shut the socket, now; True when this stop is the one that ended the call."""
        ...

    def signal_settle(self) -> None:
        """Have the loop do the rest."""
        ...


class _Aborted:
    """The fact of an abort; its identity tells whose abort came first."""

    __slots__ = ("reason",)

    def __init__(self, reason: Any) -> None:
        self.reason = reason


class AbortSignal:
    """A switch that is thrown once. One signal serves any number of calls, of any client and thread.

    >>> signal = AbortSignal()
    >>> signal.abort("the user pressed Stop")
    >>> signal.aborted, signal.reason
    (True, 'the user pressed Stop')
    """

    __slots__ = ("__weakref__", "_callbacks", "_listeners", "_state")

    def __init__(self) -> None:
        self._state: dict[str, _Aborted] = {}
        self._listeners: dict[int, weakref.ref[Listener]] = {}
        self._callbacks: dict[object, Callable[[], object]] = {}

    @property
    def aborted(self) -> bool:
        return "aborted" in self._state

    @property
    def reason(self) -> Any:
        """The object given to the first `abort`; None before it, or when none was given."""
        aborted = self._state.get("aborted")
        return None if aborted is None else aborted.reason

    def abort(self, reason: Any = None) -> None:
        """Stop every call this signal was given to. The first call wins; returns at once; never raises."""
        aborted = _Aborted(reason)
        if self._state.setdefault("aborted", aborted) is aborted:
            self._stop_listeners(reason)
            self._run_callbacks()

    def throw_if_aborted(self) -> None:
        """Raise `AbortError` with the reason if the signal is aborted."""
        if self.aborted:
            raise AbortError(self.reason)

    def on_abort(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback()` once, on the thread that aborts; at once if that has happened already.

        Returns a function that takes the subscription back. What the callback raises goes to
        `sys.unraisablehook`.
        """
        key = object()
        callbacks = self._callbacks
        callbacks[key] = callback
        if self.aborted:
            self._run_callback(key)
        return lambda: callbacks.pop(key, None) and None

    async def wait(self) -> Any:
        """Return the reason as soon as the signal is aborted."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(resolve)
            except RuntimeError:
                pass  # the loop was closed: nobody waits any more

        def resolve() -> None:
            if not future.done():
                future.set_result(None)

        unsubscribe = self.on_abort(wake)
        try:
            await future
        finally:
            unsubscribe()
        return self.reason

    def __repr__(self) -> str:
        return f"<AbortSignal {'aborted' if self.aborted else 'open'}>"

    def _listen(self, listener: Listener) -> None:
        """Tell `listener` of an abort, also of one that has happened already."""
        self._listeners[id(listener)] = weakref.ref(listener)
        if self.aborted:
            self._stop_listeners(self.reason)

    def _forget(self, listener: Listener) -> None:
        self._listeners.pop(id(listener), None)

    def _stop_listeners(self, reason: Any) -> None:
        stopped: list[Listener] = []
        for key in list(self._listeners):
            reference = self._listeners.pop(key, None)
            listener = None if reference is None else reference()
            if listener is not None and listener.signal_cut(reason):
                stopped.append(listener)
        for listener in stopped:
            listener.signal_settle()

    def _run_callbacks(self) -> None:
        for key in list(self._callbacks):
            self._run_callback(key)

    def _run_callback(self, key: object) -> None:
        callback = self._callbacks.pop(key, None)
        if callback is None:
            return
        try:
            callback()
        except BaseException as error:  # abort() never raises, and a callback may raise AbortError
            _Unraised(error)


class _Unraised:
    """Has the interpreter itself report `error` to `sys.unraisablehook`: only a dying object can."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __del__(self) -> None:
        raise self._error
