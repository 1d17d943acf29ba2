# SPDX-License-Identifier: Apache-2.0
"""Fetches payloads through the cache, so that only one process fetches a missing payload."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from attnbias._cache.cache import Cache, Draft
from attnbias._errors import NotFoundError
from attnbias._files import metadata_of
from attnbias._spec.info import Payload, TensorInfo, borrow, require_within
from attnbias._spec.request import Request, key_of, names_a_table
from attnbias._spec.results import to_result
from attnbias._transport.download import Download, ask_for_description
from attnbias._transport.retry import CallOptions, Deadline

_FIRST_PAUSE: Final = 0.002  # seconds between checks of a lock that another process holds
_LARGEST_PAUSE: Final = 0.05
_MOST_WAIT: Final = 5.0  # seconds to wait for a lock; the process that holds it may be stuck


@dataclass(eq=False)
class CachedFetch:
    """Gets or describes one payload. Each object is used only once."""

    request: Request
    options: CallOptions
    deadline: Deadline
    cache: Cache

    def __post_init__(self) -> None:
        self.offline = self.options.calls.endpoint.offline
        self._spec = self.request.to_spec()
        self._key = key_of(self._spec)
        # A server may change the table behind a name; only an offline client uses the earlier
        # table.
        self._may_differ = not self.offline and names_a_table(self._spec)

    async def describe(self) -> TensorInfo:
        """Returns the cached description, or else the server's, which is then cached."""
        if not self._may_differ:
            find = partial(self.cache.find_description, self._key, self._spec)
            if (found := await self.options.calls.do(find)) is not None:
                return found
        if self.offline:
            raise self._missing()
        info, answer = await ask_for_description(self._spec, self.options, self.deadline)
        store = partial(self.cache.store_description, self._key, answer)
        await self.options.calls.do(store)
        return info

    async def get(self) -> Payload:
        """Returns the payload, either in ``out`` or read-only."""
        payload = await self._find() or await self._fetch()
        if self.options.out is None:
            payload.memory.flags.writeable = False
            return payload
        target = borrow(self.options.out, payload.info)
        if target.ctypes.data != payload.memory.ctypes.data:
            await self.options.calls.do(partial(np.copyto, target, payload.memory))
        return payload

    async def _find(self) -> Payload | None:
        """Returns the cached payload without a call; None if the cache has none."""
        if self._may_differ:
            return None
        find = partial(self.cache.find, self._key, accept=self._accept)
        found = await self.options.calls.do(find)
        if found is None and self.offline:
            raise self._missing()
        return found

    def _accept(self, info: TensorInfo) -> None:
        require_within(info.nbytes, self.options.max_tensor_bytes)

    def _missing(self) -> NotFoundError:
        return NotFoundError(
            f"offline=True, and {self.cache.folder} does not have {self.request.brief()}: "
            "get it once with an online client that uses this cache"
        )

    async def _fetch(self) -> Payload:
        """Fetches and stores the payload, or waits for the process that does."""
        with contextlib.ExitStack() as held:
            draft = await self._lock(held)
            if (found := await self._find()) is not None:
                return found
            described, _ = await ask_for_description(self._spec, self.options, self.deadline)
            find = partial(self.cache.find, self._key, described.fingerprint, self._accept)
            if (found := await self.options.calls.do(find)) is not None:
                return found
            payload = await Download(self._spec, self.options, self.deadline).run()
            if draft is None:
                return payload
            result = to_result(payload.info, payload.memory, self.request)
            metadata = metadata_of(result, payload.info)
            store = partial(self.cache.store, draft, payload, metadata)
            kept = await self.options.calls.do(store)
            return payload if kept is None or self.options.out is not None else kept

    async def _lock(self, held: contextlib.ExitStack) -> Draft | None:
        """Returns the lock for fetching the payload, held until ``held`` exits.

        Returns None if the folder cannot be written to, or another process holds the lock for too
        long.
        """

        def try_lock() -> Draft | None:
            draft = self.cache.try_lock(self._key)
            # Entered here, since a task cancelled in the meantime would not receive the draft.
            return draft if draft is None else held.enter_context(draft)

        pause, stuck = _FIRST_PAUSE, self.cache.stuck
        give_up = time.monotonic() + (0 if self._key in stuck else _MOST_WAIT)
        while True:
            try:
                draft = await self.options.calls.do(try_lock)
            except OSError as error:
                self.cache.warn(f"cannot be written: {error}")
                return None
            if draft is not None:
                stuck.discard(self._key)
                return draft
            if time.monotonic() >= give_up:
                stuck.add(self._key)
                self.cache.warn(f"has been locked for {_MOST_WAIT:g} s: drafts/{self._key}")
                return None
            await self.options.calls.pause(min(pause, self.deadline.remaining() or pause))
            pause = min(2 * pause, _LARGEST_PAUSE)
