# SPDX-License-Identifier: Apache-2.0
"""Calls that continue while their servers undergo changes."""

import threading
import time
from collections.abc import Callable
from typing import Self

from tests.support.server import eventually


class Traffic:
    """A call repeated in threads until the `with` block ends.

    Args:
        call: makes one call and checks it.
        pause: seconds between a thread's calls.
    """

    def __init__(self, call: Callable[[], object], threads: int = 2, pause: float = 0.02) -> None:
        self._call = call
        self._pause = pause
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(threads)]
        self.seconds: list[float] = []
        self.failures: list[Exception] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        self.wait_for(1)
        return self

    def __exit__(self, *exception: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def wait_for(self, count: int) -> None:
        """Waits until this many more calls have ended."""
        wanted = len(self.seconds) + len(self.failures) + count
        eventually(lambda: len(self.seconds) + len(self.failures) >= wanted, f"{count} calls ended")

    def _run(self) -> None:
        while not self._ending.wait(self._pause):
            began = time.monotonic()
            try:
                self._call()
            except Exception as failure:  # a failure is raised in the test
                self.failures.append(failure)
            else:
                self.seconds.append(time.monotonic() - began)
