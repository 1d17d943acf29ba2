# SPDX-License-Identifier: Apache-2.0
"""A folder that caches payloads for all processes on a machine. docs/cache.md describes it.

A file is complete before it gets its name, and is never modified: it is only replaced or removed,
and processes that have mapped it keep the old content.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import math
import mmap
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeAlias

import crc32c
import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from attnbias._cache.folder import Folder, UnsafeError
from attnbias._checks import require_integer
from attnbias._errors import Error, escaped
from attnbias._spec.enums import enum_name
from attnbias._spec.info import Payload, TensorInfo, to_tensor_info
from attnbias._transport import forks
from attnbias._transport.download import read_description
from attnbias.v1 import encodings_pb2, service_pb2, tensor_pb2

Accept: TypeAlias = Callable[[TensorInfo], None]

_TENSORS, _REQUESTS, _DESCRIPTIONS, _DRAFTS = "tensors", "requests", "descriptions", "drafts"
_SUFFIX: Final = ".safetensors"
_NAME: Final = re.compile(r"[0-9a-f]{64}")
_TENSOR: Final = re.compile(rf"[0-9a-f]{{64}}\{_SUFFIX}")
_OTHER: Final = re.compile(r"[0-9a-f]{64}(\..*)?", re.DOTALL)
_ALIGNMENT: Final = 64  # alignment of a payload in its file, in bytes
_LENGTH_BYTES: Final = 8  # length prefix of a .safetensors file
_MOST_HEAD_BYTES: Final = 64 << 20  # maximum bytes of the JSON; a list of positions needs a few MiB
_MOST_LINE_BYTES: Final = 256
_STALE: Final = 60.0  # seconds after which an unlocked draft is abandoned

_log = logging.getLogger("attnbias")


@dataclass(frozen=True)
class CacheEntry:
    """A tensor in a cache.

    Attributes:
        path: its file, which ``attnbias.load`` can read.
        nbytes: the size of the file.
        last_used: time of the last request for it.
        info: its description, with ``fingerprint`` and ``resolved_spec``.
    """

    path: Path
    nbytes: int
    last_used: datetime
    info: TensorInfo


class Cache:
    """The folder in which ``Client(cache=folder)`` caches tensors.

    Only files that no other user could have written are used.

    Args:
        folder: its path, which need not exist; "~" is the home folder.
        max_bytes: maximum total size of its tensors, in bytes; None means no limit.

    Raises:
        ValueError: folder is a file, or a folder that belongs to another user or that other users
            can write to.
    """

    def __init__(self, folder: str | os.PathLike[str], *, max_bytes: int | None = None) -> None:
        require_bytes(max_bytes, "max_bytes")
        self.folder = require_folder(folder, "folder")
        self.max_bytes = max_bytes
        self._checked: set[_Stamp] = set()
        self._has_warned = False
        self.stuck: set[str] = set()
        """Keys whose locks another process has held for too long."""

    def __repr__(self) -> str:
        return f"Cache({str(self.folder)!r})"

    def entries(self) -> list[CacheEntry]:
        """Returns the tensors, most recently used first; skips damaged ones (see ``verify``).

        Raises:
            OSError: the folder cannot be read, or other users can write to it.
        """
        used = self._last_uses()
        found = []
        for tensors, name in self._files(_TENSORS):
            with contextlib.suppress(OSError, _DamagedError):
                file, stamp = _map(tensors, name)
                last = datetime.fromtimestamp(used.get(file.name, stamp.mtime_ns) / 1e9, UTC)
                path = tensors.path / name
                found.append(CacheEntry(path, stamp.size, last, file.payload.info))
        return sorted(found, key=lambda entry: entry.last_used, reverse=True)

    def verify(self) -> list[Path]:
        """Reads every file, removes damaged ones, and returns their names.

        A removed tensor is fetched again on the next request. A folder in place of a file is also
        returned, but not removed.

        Raises:
            OSError: the folder cannot be read, or other users can write to it.
        """
        damaged = []
        for tensors, name in self._files(_TENSORS):
            try:
                _map(tensors, name)[0].check()
            except FileNotFoundError:
                pass
            except (OSError, _DamagedError):
                _remove_file(tensors, name)
                damaged.append(tensors.path / name)
        return damaged

    def clear(self) -> None:
        """Removes everything. Processes that use a tensor keep their mapping of it.

        Raises:
            OSError: the folder cannot be written to, or other users can write to it.
        """
        for kind in (_TENSORS, _REQUESTS, _DESCRIPTIONS):
            for folder, name in self._files(kind):
                _remove_file(folder, name)
        self._sweep(older_than=-math.inf)
        with contextlib.suppress(FileNotFoundError), Folder.opened(self.folder) as root:
            for kind in (_TENSORS, _REQUESTS, _DESCRIPTIONS, _DRAFTS):
                with contextlib.suppress(OSError):  # in use, or not empty
                    root.remove_folder(kind)

    def find(
        self, key: str, fingerprint: str | None = None, accept: Accept = lambda _: None
    ) -> Payload | None:
        """Returns the payload for a request, mapped read-only; None if it has to be fetched.

        If ``fingerprint`` is None, the request's last payload is used. ``accept`` receives the
        description before the payload is read, and may raise.
        """
        try:
            known = None
            with contextlib.suppress(FileNotFoundError), self._inside(_REQUESTS) as requests:
                known = _known_in(requests, key)
            if fingerprint is None:
                if known is None:
                    return None
                fingerprint = known.fingerprint
            payload, stamp = self._open(fingerprint, known and known.stamp, accept)
            self._note(key, _Known(fingerprint, stamp), known)
        except FileNotFoundError:
            return None
        except _DamagedError as error:
            _log.warning("%s; treating it as missing", escaped(str(error)))
            return None
        except OSError as error:
            self.warn(f"cannot be read: {error}")
            return None
        return payload

    def writable(self, info: TensorInfo) -> npt.NDArray[np.uint8] | None:
        """Returns a cached payload in writable memory: each page is shared until it is written to.

        Returns None if it has been removed or replaced since this process opened it.
        """
        try:
            with (
                self._inside(_TENSORS) as tensors,
                tensors.open(_name_of(info.fingerprint)) as file,
            ):
                stamp = _Stamp.of(os.fstat(file.fileno()))
                if stamp not in self._checked:
                    return None
                return np.memmap(file, np.uint8, mode="c", offset=stamp.size - info.nbytes)
        except (OSError, ValueError, _DamagedError):
            return None

    def find_description(self, key: str, spec: encodings_pb2.TensorSpec) -> TensorInfo | None:
        """Returns the description of a request's payload; None if a server has to be called."""
        payload = self.find(key)
        if payload is not None:
            return payload.info
        try:
            with self._inside(_DESCRIPTIONS) as descriptions:
                return read_description(descriptions.read(key, _MOST_HEAD_BYTES), spec)
        except (Error, OSError):
            return None

    def store_description(self, key: str, answer: bytes) -> None:
        """Stores a server's description of a request's payload as received."""
        with contextlib.suppress(OSError):  # the folder may be read-only
            self._replace(_DESCRIPTIONS, key, answer)

    def try_lock(self, key: str) -> Draft | None:
        """Returns the lock for fetching a request's payload; None if another process holds it.

        Raises OSError if the folder cannot be written to.
        """
        try:
            import fcntl  # noqa: F401, PLC0415  # not on every system
        except ImportError as error:
            raise OSError("this system has no flock") from error
        with Folder.opened(self.folder, create=True) as root:
            return _try_lock(root.folder(_DRAFTS, create=True), key)

    def store(self, draft: Draft, payload: Payload, metadata: dict[str, str]) -> Payload | None:
        """Stores a fetched payload and returns it mapped; None if it cannot be stored."""
        head = _head_of(payload, metadata)
        size = len(head) + payload.info.nbytes
        if self.max_bytes is not None and size > self.max_bytes:
            self.warn(f"does not store {size} bytes: cache_bytes is {self.max_bytes}")
            return None
        fingerprint = payload.info.fingerprint
        try:
            name = _name_of(fingerprint)
            self._sweep()
            self._make_room(size)
            stamp = draft.write(head, payload.memory)
            # Written before the tensor gets its name, so that processes waiting for the draft find
            # both.
            self._note(draft.key, _Known(fingerprint, stamp), None)
            with self._inside(_TENSORS, create=True) as tensors:
                draft.move(tensors, name)
            return self._open(fingerprint, stamp, lambda _: None)[0]
        except (OSError, _DamagedError) as error:
            self.warn(f"cannot store what was fetched: {error}")
            return None

    def warn(self, why: str) -> None:
        """Warns once that the cache is unusable."""
        if not self._has_warned:
            self._has_warned = True
            _log.warning("the cache %s %s; calls continue without it", self.folder, escaped(why))

    @contextlib.contextmanager
    def _inside(self, kind: str, *, create: bool = False) -> Iterator[Folder]:
        with (
            Folder.opened(self.folder, create=create) as root,
            root.folder(kind, create=create) as folder,
        ):
            yield folder

    def _files(self, kind: str) -> Iterator[tuple[Folder, str]]:
        """Yields this package's files in a folder; the folder need not exist."""
        of_kind = _TENSOR if kind == _TENSORS else _OTHER
        with contextlib.suppress(FileNotFoundError), self._inside(kind) as folder:
            for name in filter(of_kind.fullmatch, folder.names()):
                yield folder, name

    def _open(
        self, fingerprint: str, trusted: _Stamp | None, accept: Accept
    ) -> tuple[Payload, _Stamp]:
        """Maps a tensor; reads its bytes unless its file is known to have been checked."""
        name = _name_of(fingerprint)
        with self._inside(_TENSORS) as tensors:
            try:
                file, stamp = _map(tensors, name)
                accept(file.payload.info)
                if stamp != trusted and stamp not in self._checked:
                    file.check()
            except _DamagedError:
                with contextlib.suppress(OSError):  # the folder may be read-only
                    tensors.remove(name)
                raise
        self._checked.add(stamp)
        return file.payload, stamp

    def _note(self, key: str, now: _Known, before: _Known | None) -> None:
        """Records a request's tensor and the stamp of its last check, and marks it as used."""
        with contextlib.suppress(OSError):  # the folder may be read-only
            if now == before:
                with self._inside(_REQUESTS) as requests, requests.open(key) as file:
                    os.utime(file.fileno())
                return
            self._replace(_REQUESTS, key, now.line(key))

    def _replace(self, kind: str, key: str, data: bytes) -> None:
        """Replaces a file in ``requests`` or ``descriptions`` atomically."""
        with (
            self._inside(kind, create=True) as folder,
            self._inside(_DRAFTS, create=True) as drafts,
        ):
            draft = f"{key}.{secrets.token_hex(8)}"
            with drafts.create(draft) as file:
                file.write(data)
            drafts.move(draft, folder, key)

    def _last_uses(self) -> dict[str, int]:
        """Returns the time of each tensor's last request, by fingerprint."""
        uses: dict[str, int] = {}
        for requests, name, fingerprint in self._requests():
            with contextlib.suppress(OSError):
                last = requests.status(name).st_mtime_ns
                uses[fingerprint] = max(last, uses.get(fingerprint, 0))
        return uses

    def _requests(self) -> Iterator[tuple[Folder, str, str]]:
        """Yields each file in ``requests`` with the fingerprint of its tensor."""
        for requests, name in self._files(_REQUESTS):
            with contextlib.suppress(OSError):
                if (known := _known_in(requests, name)) is not None:
                    yield requests, name, known.fingerprint

    def _make_room(self, size: int) -> None:
        """Evicts the least recently used tensors until ``size`` more bytes fit."""
        if self.max_bytes is None:
            return
        sizes = {}
        for tensors, name in self._files(_TENSORS):
            with contextlib.suppress(FileNotFoundError):
                sizes[_fingerprint_of(name)] = tensors.status(name).st_size
        excess = sum(sizes.values()) + size - self.max_bytes
        if excess <= 0:
            return
        used, evicted = self._last_uses(), set()
        for fingerprint in sorted(sizes, key=lambda fingerprint: used.get(fingerprint, 0)):
            if excess > 0:
                evicted.add(fingerprint)
                excess -= sizes[fingerprint]
        for tensors, name in self._files(_TENSORS):
            if _fingerprint_of(name) in evicted:
                _remove_file(tensors, name)
        for requests, name, fingerprint in self._requests():
            if fingerprint in evicted:
                with contextlib.suppress(OSError):
                    requests.remove(name)

    def _sweep(self, older_than: float = _STALE) -> None:
        """Removes drafts left by processes that have died."""
        with contextlib.suppress(OSError):
            for drafts, name in self._files(_DRAFTS):
                with contextlib.suppress(OSError):
                    if time.time() - drafts.status(name).st_mtime < older_than:
                        continue
                    if (draft := self.try_lock(name.partition(".")[0])) is not None:
                        with draft:
                            drafts.remove(name)


def require_folder(folder: str | os.PathLike[str], name: str) -> Path:
    """Returns a cache's path; raises ValueError naming ``name`` if it cannot be a cache.

    A file, the home of an unknown user, and a folder that other users can write to are rejected.
    """
    try:
        path = Path(folder).expanduser().absolute()
    except RuntimeError as error:
        raise ValueError(
            f"{name}: got {str(folder)!r}, where ~ names no user; want a path"
        ) from error
    if os.path.isfile(path):  # Path's own method raises on missing permissions
        raise ValueError(f"{name}: got {str(folder)!r}, which is a file; want a folder")
    try:
        with Folder.opened(path):
            pass
    except UnsafeError as error:
        raise ValueError(f"{name}: {error}") from None
    except OSError:  # missing or unreadable: calls continue without the cache
        pass
    return path


def require_bytes(value: int | None, name: str) -> None:
    """Rejects an invalid size limit for a cache; errors refer to it as ``name``."""
    if value is not None:
        require_integer(value, name, "a number of bytes, or None", "at least 1, or None")


class Draft(forks.Forkable):
    """An unfinished file and the lock for writing it; a context manager that closes both.

    The kernel releases the lock when the process dies. The lock file is never written to.
    """

    def __init__(self, key: str, drafts: Folder, lock: int) -> None:
        self.key = key
        self._name = f"{key}{_SUFFIX}"
        self._drafts = drafts
        self._lock: int | None = lock
        forks.watch(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, head: bytes, memory: Any) -> _Stamp:
        """Writes a whole file, replacing an unfinished one, and syncs it to the disk."""
        self._drafts.remove(self._name)
        with self._drafts.create(self._name) as file:
            file.write(head)
            file.write(memory)
            file.flush()
            os.fsync(file.fileno())
            return _Stamp.of(os.fstat(file.fileno()))

    def move(self, folder: Folder, name: str) -> None:
        self._drafts.move(self._name, folder, name)

    def close(self) -> None:
        """Releases the lock and removes a draft that has not become a tensor."""
        import fcntl  # noqa: PLC0415  # not on every system

        if self._lock is None:  # in a child of the process that holds the lock
            return
        with contextlib.suppress(OSError):
            if _is_at(self._lock, self._drafts, self.key):
                self._drafts.remove(self._name)
                self._drafts.remove(self.key)
            # A recently forked child may still have the file open.
            fcntl.flock(self._lock, fcntl.LOCK_UN)
        self.leave()

    def leave(self) -> bool:
        """Implements Forkable. A lock lasts as long as any process has the file open."""
        if self._lock is not None:
            os.close(self._lock)
            self._drafts.close()
            self._lock = None
        return False


def _try_lock(drafts: Folder, key: str) -> Draft | None:
    """Locks a key. The draft closes the folder; if the lock is taken, this function closes it."""
    import fcntl  # noqa: PLC0415  # not on every system

    with contextlib.ExitStack() as opened:
        opened.enter_context(drafts)
        try:
            lock = drafts.lock_file(key)
        except UnsafeError:
            drafts.remove(key)
            lock = drafts.lock_file(key)
        opened.callback(os.close, lock)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(lock, drafts, key):
                draft = Draft(key, drafts, lock)
                opened.pop_all()
                return draft
    return None


def _is_at(lock: int, drafts: Folder, key: str) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), drafts.status(key))
    except FileNotFoundError:
        return False


class _Stamp(NamedTuple):
    """Values that change whenever a file is modified by ordinary means."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> _Stamp:
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)


class _Known(NamedTuple):
    """Contents of a request file: its tensor, and that tensor's stamp when it was checked."""

    fingerprint: str
    stamp: _Stamp

    def line(self, key: str) -> bytes:
        return " ".join(map(str, (self.fingerprint, *self.stamp, key))).encode() + b"\n"


class _DamagedError(Exception):
    """A file differs from what was stored in it; the message names the file and the difference."""


@dataclass(frozen=True)
class _File:
    """A tensor's file, as its header describes it."""

    name: str
    payload: Payload
    crc32c: str

    def check(self) -> None:
        _require(self.name, "checksum", _checksum(self.payload.memory), self.crc32c)


def _require(name: str, what: str, got: object, want: object) -> None:
    if got != want:
        raise _DamagedError(f"{name}{_SUFFIX} is damaged: {what} is {got}, want {want}")


def _map(tensors: Folder, name: str) -> tuple[_File, _Stamp]:
    """Maps a tensor without reading its payload; rejects a damaged or unsafe file."""
    try:
        with tensors.open(name) as file:
            stamp = _Stamp.of(os.fstat(file.fileno()))
            if stamp.size < _LENGTH_BYTES:
                raise _DamagedError(f"{name} is damaged: it has {stamp.size} bytes")
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except UnsafeError as error:
        raise _DamagedError(str(error)) from error
    return _parse(mapped, _fingerprint_of(name)), stamp


def _parse(mapped: mmap.mmap, fingerprint: str) -> _File:
    """Finds the header and the payload; raises _DamagedError if either is incomplete."""
    size = int.from_bytes(mapped[:_LENGTH_BYTES], "little")
    most = min(_MOST_HEAD_BYTES, len(mapped) - _LENGTH_BYTES)
    if size > most:
        raise _DamagedError(
            f"{fingerprint}{_SUFFIX} is damaged: its JSON has {size} bytes, want at most {most}"
        )
    begin = _LENGTH_BYTES + size
    try:
        metadata = json.loads(mapped[_LENGTH_BYTES:begin])["__metadata__"]
        encoded = base64.b64decode(metadata["attnbias.header"], validate=True)
        _require(
            fingerprint,
            "the header's checksum",
            _checksum(encoded),
            metadata["attnbias.header_crc32c"],
        )
        header = service_pb2.TensorHeader.FromString(encoded)
        info = to_tensor_info(header)
        _require(fingerprint, "the fingerprint", info.fingerprint, fingerprint)
        _require(fingerprint, "the payload's size", len(mapped) - begin, info.nbytes)
        memory = np.frombuffer(mapped, np.uint8)[begin:]
        return _File(fingerprint, Payload(info, memory, header), metadata["attnbias.crc32c"])
    except (DecodeError, Error, LookupError, RecursionError, TypeError, ValueError) as error:
        raise _DamagedError(f"{fingerprint}{_SUFFIX} is damaged: {error}") from error


def _head_of(payload: Payload, metadata: dict[str, str]) -> bytes:
    """Returns the bytes that precede the payload in its file.

    safetensors' own writer would sort the tensors, but the payload must stay as received.
    """
    header = payload.header.SerializeToString()
    kind = tensor_pb2.DataType.DESCRIPTOR
    content: dict[str, Any] = {
        "__metadata__": {
            **metadata,
            "attnbias.header": base64.b64encode(header).decode(),
            "attnbias.header_crc32c": _checksum(header),
            "attnbias.crc32c": _checksum(payload.memory),
        }
    }
    for part in payload.header.parts:
        content[part.name] = {
            "dtype": enum_name(kind, part.data_type).upper(),
            "shape": list(part.shape),
            "data_offsets": [part.offset, part.offset + part.size_bytes],
        }
    text = json.dumps(content, separators=(",", ":")).encode()
    text += b" " * (-(_LENGTH_BYTES + len(text)) % _ALIGNMENT)
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text


def _checksum(data: Any) -> str:
    return f"{crc32c.crc32c(data):08x}"


def _name_of(fingerprint: str) -> str:
    if _NAME.fullmatch(fingerprint) is None:
        raise _DamagedError(f"fingerprint: got {fingerprint!r}, want 64 hex digits")
    return f"{fingerprint}{_SUFFIX}"


def _fingerprint_of(name: str) -> str:
    return name.removesuffix(_SUFFIX)


def _known_in(requests: Folder, name: str) -> _Known | None:
    """Parses a file in ``requests``; None if the file is invalid."""
    try:
        line = requests.read(name, _MOST_LINE_BYTES)
    except UnsafeError:
        return None
    form = rb"([0-9a-f]{64}) (\d{1,19}) (\d{1,19}) (\d{1,20}) %s\n"
    match = re.fullmatch(form % re.escape(name.encode()), line)
    if match is None:
        return None
    return _Known(match[1].decode(), _Stamp(int(match[2]), int(match[3]), int(match[4])))


def _remove_file(folder: Folder, name: str) -> None:
    """Removes a file, but not a folder with that name."""
    with contextlib.suppress(IsADirectoryError):
        folder.remove(name)
