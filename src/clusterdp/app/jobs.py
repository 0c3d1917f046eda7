"""Work longer than a page: it goes on when its page is closed. One runs at a time."""

from __future__ import annotations

import threading
import traceback
import warnings
from typing import TYPE_CHECKING, Any

from clusterdp.app.pages import in_words
from clusterdp.errors import ClusterDPError, OwnerNotice

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterdp._progress import RowsDone

_AT_WORK = threading.Lock()


class Job:
    """A run, with how far it is and how it ended. It is a `Progress` for what it runs.

    Attributes:
        result: What it made; None before, and if it failed.
        error: Why it failed; None if it did not.
        messages: What the owner alone should know. It can depend on true outcomes, and is kept in
            memory until the app ends.
        is_done: Whether it ended.
    """

    def __init__(self, run: Callable[[Job], Any]) -> None:
        self.result: Any = None
        self.error: ClusterDPError | None = None
        self.messages: list[str] = []
        self.is_done = False
        self._name, self._done, self._total = "starting", 0, 0
        # Not a daemon: a release is finished, or interrupted by the person and by nothing else.
        self._thread = threading.Thread(target=self._work, args=(run,))

    def start(self) -> Job:
        """Begin, as soon as no other job is at work."""
        self._thread.start()
        return self

    def wait(self, seconds: float | None = None) -> None:
        """Until it ended, or for some seconds."""
        self._thread.join(seconds)

    def notify(self, message: str) -> None:
        """Take a message for the owner."""
        self.messages.append(message)

    def stage(self, name: str, n_rows: int) -> RowsDone:
        """Start a stage over that many rows."""
        self._name, self._done, self._total = name, 0, n_rows

        def advance(done: int) -> None:
            self._done += done

        return advance

    @property
    def state(self) -> dict[str, Any]:
        """How far it is, for a page that asks."""
        held = {"stage": self._name, "done": self._done, "total": self._total}
        return {**held, "finished": self.is_done}

    def _work(self, run: Callable[[Job], Any]) -> None:
        with _AT_WORK:
            usual = warnings.showwarning

            def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
                if issubclass(category, OwnerNotice):
                    self.notify(str(message))
                else:
                    usual(message, category, *where)

            warnings.showwarning = show  # type: ignore[assignment]  # it takes what it needs
            try:
                self.result = run(self)
            except ClusterDPError as error:
                self.error = error
            except BaseException as error:  # noqa: BLE001 - the page has to say that it ended
                print("".join(traceback.format_tb(error.__traceback__)))  # noqa: T201
                self.error = ClusterDPError(
                    f"A mistake in clusterdp ({type(error).__name__}). The terminal shows where."
                )
            finally:
                warnings.showwarning = usual
                self.is_done = True

    @property
    def problem(self) -> str:
        """Why it failed, and what was not done, in sentences."""
        if self.error is None:
            return ""
        return " ".join([in_words(str(self.error)), *getattr(self.error, "__notes__", ())])
