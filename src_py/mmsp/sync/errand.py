"""`Errand`: what one thread has another thread's event loop do, while it waits for the outcome."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar, cast

from ..abort_signal import AbortError
from .aborted import Aborted

__all__ = ["Errand"]

T = TypeVar("T")

_GLANCE = 0.05  # s, the most that such a signal is late


class Errand(Generic[T]):
    """`work` is run once, on the loop.

    `wait` can be interrupted by a signal handler, and then be left: the work goes on without anybody.
    """

    __slots__ = ("_done", "_error", "_result", "_task", "_work")

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._result: T | None = None
        self._error: BaseException | None = None
        self._done = threading.Lock()
        self._done.acquire()

    def begin(self, under_way: set[Errand[Any]]) -> None:
        """On the loop; `under_way` holds the errand as long as it runs."""
        under_way.add(self)
        self._task = asyncio.get_running_loop().create_task(self._run(under_way))

    async def _run(self, under_way: set[Errand[Any]]) -> None:
        try:
            self._result = await self._work()
        except asyncio.CancelledError as error:
            if not isinstance(error, AbortError):
                raise  # the loop is ending, and with it the interpreter: nobody is to be woken
            self._error = error
        except BaseException as error:
            self._error = error
        finally:
            under_way.discard(self)
        self._done.release()

    def wait(self) -> None:
        """Until the work is done. Raises nothing of its own: only what a signal handler raises.

        A signal interrupts a lock that is being waited for, but one that comes in the last moment before
        is only noted: the interpreter would call its handler when the wait is over. So the main thread,
        which runs the handlers, looks up now and then.
        """
        if threading.get_ident() == threading.main_thread().ident:
            while not self._done.acquire(timeout=_GLANCE):
                pass
        else:
            self._done.acquire()

    def result(self) -> T:
        """What the work returned, or raised; an abort as `Aborted`."""
        error, self._error = self._error, None
        if error is not None:
            try:
                if isinstance(error, AbortError):
                    raise Aborted(error.reason) from None
                raise error
            finally:
                del error  # its traceback holds this frame
        return cast("T", self._result)
