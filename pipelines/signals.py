"""Turns ending signals into one exception, so that launched programs are ended and recorded."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

#: How often to check for the parent process, s.
_INTERVAL_S = 0.5

#: Time until a signal is repeated that the main thread has not handled, s.
_AGAIN_S = 0.2

#: Time limit for ending launched programs, s; supervisors also end them without this process.
_PATIENCE_S = 20.0


class Ended(BaseException):
    """A signal asked this process to end; `advice` is appended to the message."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.advice = ""

    @property
    def exit_code(self) -> int:
        """What the command line returns."""
        return 128 + self.number

    def __str__(self) -> str:
        what = f"ended by {signal.Signals(self.number).name}"
        if self.number == signal.SIGINT:
            what = "interrupted"
        elif _state.orphaned:
            what = "the parent process ended"
        return what + self.advice


class _State:
    """State that the handlers set and the watching threads read."""

    def __init__(self) -> None:
        self.interrupted = False
        self.launching = False
        self.parent = 0
        self.received: int | None = None
        self.orphaned = False
        self.left = threading.Event()


_state = _State()


def install() -> None:
    """End this process by SIGTERM and SIGHUP with a sentence; ignored ones stay ignored.

    A thread does so, since the main thread may be in a call that does not check for signals.
    SIGINT stays KeyboardInterrupt, which `check` raises again if Python lost it.
    """
    _state.parent = os.getppid()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _note)
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    threading.Thread(target=_insist, args=(woken,), daemon=True).start()


def check() -> None:
    """Raise KeyboardInterrupt if Ctrl-C was pressed but the exception of its handler was lost.

    Python drops exceptions of a callback of its import system, and of `__del__`.
    """
    if _state.interrupted:
        raise KeyboardInterrupt


@contextmanager
def unwrapped() -> Iterator[None]:
    """Raise the exception of a signal handler, if Python wrapped it in a RuntimeError.

    Python does so within `__set_name__`, which runs while a module with dataclasses is imported.
    """
    try:
        yield
    except RuntimeError as error:
        if error.__cause__ is None or isinstance(error.__cause__, Exception):
            raise
        raise error.__cause__ from None


def _note(*_: object) -> None:
    """Do nothing: the thread is woken.  Unlike SIG_IGN, programs do not inherit this."""


def _insist(woken: int) -> None:
    ending = {int(n) for n in _ENDING if signal.getsignal(n) is not signal.SIG_IGN}
    while True:
        number = os.read(woken, 1)[0]
        if number not in ending:
            continue
        if number == signal.SIGINT and not _state.launching:
            _state.interrupted = True
            continue
        if _state.received is not None and not _state.launching:
            continue
        launching = _state.launching
        _wake_main(number)
        # A main thread that received it during a launch ends this process, with its own sentence.
        heard = launching and _state.received is not None
        if not heard or not _state.left.wait(_PATIENCE_S):
            os.write(2, f"perfpipe: {Ended(number)}\n".encode())
            os._exit(128 + number)


def _wake_main(number: int) -> None:
    """Repeat a signal of a launch until the main thread handles it.

    The kernel may deliver it to any thread, which does not interrupt a call of the main thread.
    """
    main = threading.main_thread().ident
    while main and _state.launching and _state.received is None and not _state.left.wait(_AGAIN_S):
        signal.pthread_kill(main, number)


@contextmanager
def launching() -> Iterator[None]:
    """Raise Ended in the block for the signals that end this process, once.

    Also raises Ended, as for SIGHUP, if the parent process ends, but not if this process runs in
    the background (nohup, `&`), where that is expected.  Without `install`, nothing changes.
    """
    if signal.getsignal(signal.SIGTERM) is not _note:
        yield
        return
    before = {n: signal.getsignal(n) for n in _ENDING}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _end)
    _state.left.clear()
    _state.launching = True
    if signal.SIG_IGN not in before.values():
        threading.Thread(target=_watch, daemon=True).start()
    try:
        yield
    except Exception as error:
        # Some libraries turn it into their own exception.
        if _state.received is None:
            raise
        raise Ended(_state.received) from error
    finally:
        _state.launching = False
        _state.left.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _: FrameType | None) -> None:
    # Cleaning up takes seconds, and `timeout` and terminals send their signals twice.
    if _state.received is None:
        _state.received = number
        raise Ended(number)


def _watch() -> None:
    background = False
    while not _state.left.wait(_INTERVAL_S):
        if os.getppid() == _state.parent:
            background = _in_background()
        else:
            if not background:
                _state.orphaned = True
                os.kill(os.getpid(), signal.SIGHUP)
            return


def _in_background() -> bool:
    """Return whether this process is a background job of a terminal."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) != os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
