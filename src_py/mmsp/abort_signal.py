"""`AbortSignal`: one switch that stops any number of requests; `AbortError`: what they raise.

`abort()` may run on any thread, in a callback, in an operating system's signal handler, or in a `__del__`
that interrupts this very module. The rules that make it safe:

- Nothing here takes a lock. Every change of state is one atomic step of a dict: `setdefault` decides who
  aborts first, `pop` decides who tells a listener. A handler that lands between two steps finds each
  listener either in the dict or taken by somebody who will tell it.
- A listener that subscribes writes itself down *before* it looks whether the signal is aborted already;
  `abort()` sets the flag *before* it looks who is written down. One of the two sees the other.
- The sockets of all streams are shut first, then their loops are told, then users' callbacks run: also
  those of the signals that follow this one.
- A signal made by `any` stands with its sources only while somebody listens to it; at other times it asks
  them. Who leaves last looks again whether somebody came meanwhile.
- Signals made from signals are walked in a loop, and each of them once: neither a chain of thousands nor
  a net in which many ways lead to one source costs more than it has signals and sources.
- Streams are held weakly: a signal that lives as long as the program keeps no stream alive.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Protocol, Self

from . import timer
from .plain import argument_shown

__all__ = ["AbortError", "AbortSignal", "checked_signal"]


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
    """The fact of an abort; its identity tells whose abort came first, `number` whose of all signals."""

    __slots__ = ("number", "reason")

    _numbers = itertools.count()

    def __init__(self, reason: Any) -> None:
        self.reason = reason
        self.number = next(self._numbers)


class AbortSignal:
    """A switch that is thrown once. One signal serves any number of calls, of any client and thread.

    >>> signal = AbortSignal()
    >>> signal.abort("the user pressed Stop")
    >>> signal.aborted, signal.reason
    (True, 'the user pressed Stop')
    """

    __slots__ = ("__weakref__", "_callbacks", "_followers", "_listeners", "_sources", "_state")

    def __init__(self) -> None:
        self._state: dict[str, _Aborted] = {}
        self._sources: tuple[AbortSignal, ...] = ()
        self._followers: dict[int, AbortSignal] = {}
        self._listeners: dict[int, weakref.ref[Listener]] = {}
        self._callbacks: dict[object, Callable[[], object]] = {}

    @classmethod
    def timeout(cls, seconds: float) -> Self:
        """A signal that aborts itself after so many seconds from now, for the reason `TimeoutError`.

        It needs no event loop, and a blocked one does not delay it. Dropped, it leaves no timer.
        """
        seconds = _checked_seconds(seconds)
        signal = cls()
        reason = TimeoutError(f"aborted after {seconds:g} s")
        if seconds <= 0:
            signal.abort(reason)
        elif seconds < math.inf:
            timer.call_later(seconds, signal, lambda late: late.abort(reason))
        return signal

    @classmethod
    def any(cls, signals: Iterable[AbortSignal]) -> Self:
        """A signal that is aborted when one of `signals` is, for the reason of the first.

        It holds its sources, and they hold it only while somebody listens to it: what is given to a call
        needs no other place, and leaves nothing behind when the call is over.
        """
        sources = _checked_sources(signals)
        signal = cls()
        signal._sources = sources
        return signal

    @property
    def aborted(self) -> bool:
        return self._fact() is not None

    @property
    def reason(self) -> Any:
        """The object given to the first `abort`; None before it, or when none was given."""
        fact = self._fact()
        return None if fact is None else fact.reason

    def abort(self, reason: Any = None) -> None:
        """Stop every call this signal was given to. The first call wins; returns at once; never raises."""
        aborted = _Aborted(reason)
        if self._fact() is None and self._state.setdefault("aborted", aborted) is aborted:
            self._spread(aborted)

    def throw_if_aborted(self) -> None:
        """Raise `AbortError` with the reason if the signal is aborted."""
        if self.aborted:
            raise AbortError(self.reason)

    def on_abort(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback()` once, on the thread that aborts; at once if that has happened already.

        Returns a function that takes the subscription back. What the callback raises goes to
        `sys.unraisablehook`.
        """
        if not callable(callback):
            raise TypeError(f"callback is a function, not {type(callback).__name__}")
        key = object()
        self._callbacks[key] = callback
        self._follow()
        if self.aborted:
            self._run_callback(key)
            self._rest()

        def unsubscribe() -> None:
            self._callbacks.pop(key, None)
            self._rest()

        return unsubscribe

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

    def _fact(self) -> _Aborted | None:
        """The abort that counts: this signal's own, or the first of its sources'."""
        fact = self._state.get("aborted")
        if fact is None and self._sources:
            facts = [each for source in self._above() if (each := source._state.get("aborted"))]
            if facts:
                first = min(facts, key=lambda each: each.number)
                fact = self._state.setdefault("aborted", first)
        return fact

    def _above(self) -> list[AbortSignal]:
        """This signal, its sources and theirs, each once; not those above one that is aborted."""
        walk: list[AbortSignal] = [self]
        found: set[AbortSignal] = {self}
        for signal in walk:
            if not signal._state:
                new = [each for each in signal._sources if each not in found]
                found.update(new)
                walk += new
        return walk

    # who is told

    def _listen(self, listener: Listener) -> None:
        """Tell `listener` of an abort, also of one that has happened already."""
        self._listeners[id(listener)] = weakref.ref(listener)
        self._follow()
        if self.aborted:
            self._settle(self._cut(self.reason))
            self._rest()

    def _forget(self, listener: Listener) -> None:
        self._listeners.pop(id(listener), None)
        self._rest()

    def _is_heard(self) -> bool:
        return bool(self._listeners or self._callbacks or self._followers)

    def _follow(self) -> None:
        """Stand with the sources, and they with theirs, since somebody listens."""
        if self._sources:
            for signal in self._above():
                for source in signal._sources:
                    source._followers[id(signal)] = signal

    def _rest(self) -> None:
        """Leave the sources, if nobody listens any more; then those whom this leaves alone do so too."""
        walk: list[AbortSignal] = [self]
        for signal in walk:
            if not signal._sources or signal._is_heard():
                continue
            for source in signal._sources:
                if source._followers.pop(id(signal), None) is not None:
                    walk.append(source)
            if signal._is_heard():  # somebody came meanwhile
                signal._follow()
                if (fact := signal._fact()) is not None:
                    signal._spread(fact)
                walk.append(signal)  # who came may have left again before it followed

    def _spread(self, fact: _Aborted) -> None:
        """Sockets first, then loops, then callbacks; of this signal and of all that follow it."""
        told = self._reached(fact)
        stopped = [listener for signal in told for listener in signal._cut(fact.reason)]
        self._settle(stopped)
        for signal in told:
            for key in list(signal._callbacks):
                signal._run_callback(key)
        for signal in told:
            signal._rest()

    def _reached(self, fact: _Aborted) -> list[AbortSignal]:
        """This signal, its followers and theirs, those aborted by this very fact; the nearest first."""
        told: list[AbortSignal] = [self]
        for signal in told:
            for key in list(signal._followers):
                follower = signal._followers.pop(key, None)
                if follower is not None and follower._state.setdefault("aborted", fact) is fact:
                    told.append(follower)
        return told

    def _cut(self, reason: Any) -> list[Listener]:
        """Shut the sockets of those who listen; they are told no more."""
        stopped: list[Listener] = []
        for key in list(self._listeners):
            reference = self._listeners.pop(key, None)
            listener = None if reference is None else reference()
            if listener is not None and listener.signal_cut(reason):
                stopped.append(listener)
        return stopped

    def _settle(self, stopped: list[Listener]) -> None:
        for listener in stopped:
            listener.signal_settle()

    def _run_callback(self, key: object) -> None:
        callback = self._callbacks.pop(key, None)
        if callback is None:
            return
        try:
            callback()
        except BaseException as error:  # abort() never raises, and a callback may raise AbortError
            _Unraised(error)


def checked_signal(signal: Any) -> AbortSignal | None:
    """A signal or none. Raises `TypeError`."""
    if signal is None or isinstance(signal, AbortSignal):
        return signal
    raise TypeError(
        f"signal is an mmsp.AbortSignal, not {type(signal).__name__}: make one, and have what you have "
        "call its abort()"
    )


def _checked_sources(signals: Any) -> tuple[AbortSignal, ...]:
    if not isinstance(signals, Iterable):
        one = ": put it into a list" if isinstance(signals, AbortSignal) else ""
        raise TypeError(f"any() takes a list of AbortSignals, not {type(signals).__name__}{one}")
    sources = list(signals)
    for each in sources:
        if not isinstance(each, AbortSignal):
            raise TypeError(f"any() takes AbortSignals, not {type(each).__name__}")
    return tuple(dict.fromkeys(sources))


def _checked_seconds(seconds: Any) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"seconds is a number, not {argument_shown(seconds)}")
    try:
        number = float(seconds)
    except OverflowError:
        raise ValueError(
            "seconds is a number that a float can hold; math.inf is for ever"
        ) from None
    if math.isnan(number):
        raise ValueError("seconds is a number, not NaN")
    return number


class _Unraised:
    """Has the interpreter itself report `error` to `sys.unraisablehook`: only a dying object can."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __del__(self) -> None:
        raise self._error
