"""Ctrl-C: one line and exit code 130, wherever it comes.

Until a command runs there is nothing to tidy up, and the process just ends. A command gets Python's KeyboardInterrupt,
so that it can. Python drops one that comes while it runs a finalizer or a callback of its own, and the command would go
on as if nobody had asked; such a one is delivered again.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType

INTERRUPTED: Final = 128 + signal.SIGINT
MESSAGE: Final = "Error: interrupted"
_LOOK_AGAIN_SECONDS: Final = 0.01


def end_at_once() -> None:
    """While the program is being imported. A process whose parent ignores the signal keeps ignoring it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_in_commands() -> None:
    """From here on a command may have something to tidy up."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.unraisablehook = _delivered_again


def _end(_number: int, _frame: FrameType | None) -> None:
    os.write(2, f"{MESSAGE}\n".encode())
    os._exit(INTERRUPTED)


def _delivered_again(dropped: Any) -> None:
    if dropped.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(dropped)
        return
    import threading

    threading.Thread(target=_interrupt_main_thread, daemon=True).start()


def _interrupt_main_thread() -> None:
    """With a signal, which also ends a wait for input, where there are signals between threads. Not before the main
    thread has left the hook: in there it would only be dropped a second time."""
    import threading
    import time

    main = threading.main_thread().ident or 0
    while any(code is _delivered_again.__code__ for code in _running(main)):
        time.sleep(_LOOK_AGAIN_SECONDS)
    if sys.platform == "win32":
        import _thread

        _thread.interrupt_main()
    else:
        signal.pthread_kill(main, signal.SIGINT)


def _running(thread: int) -> Iterator[CodeType]:
    """The code of every call that a thread is in."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back
