# SPDX-License-Identifier: Apache-2.0
"""A folder that keeps payloads, shared by all processes of a machine. docs/cache.md describes it.

A file in it is whole from the moment that it has its name, and is never written again: it is
replaced or removed, and whoever has it mapped keeps what he has.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import logging
import mmap
import os
import re
import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import crc32c
import numpy as np
from google.protobuf.message import DecodeError, Message

from attnbias import _forks
from attnbias._checks import require_instance
from attnbias._description import read_description
from attnbias._enums import enum_name
from attnbias._errors import Error
from attnbias._info import TensorInfo, to_tensor_info
from attnbias._memory import Payload
from attnbias.v1 import service_pb2, tensor_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedRandom
    from types import TracebackType

    import numpy.typing as npt

_SUFFIX: Final = ".safetensors"
_NAME: Final = re.compile(r"[0-9a-f]{64}")
_KEY_PREFIX: Final = b"attnbias request 1\n"
_ALIGNMENT: Final = 64  # bytes, of a payload in its file
_LENGTH_BYTES: Final = 8  # of what a .safetensors begins with
_STALE: Final = 60.0  # seconds after which a draft that nobody holds is nobody's

_log = logging.getLogger("attnbias")


@dataclass(frozen=True)
class CacheEntry:
    """A tensor that a cache has.

    Attributes:
        path: its file, which ``attnbias.load`` reads.
        nbytes: the size of the file.
        last_used: when it was last asked for.
        info: what it is; see ``fingerprint`` and ``resolved_spec`` there.
    """

    path: Path
    nbytes: int
    last_used: datetime
    info: TensorInfo


class Cache:
    """The folder that ``Client(cache=folder)`` keeps tensors in.

    Args:
        folder: where it is, or will be; "~" is the home.
        max_bytes: what its tensors may take; None is any.
    """

    def __init__(self, folder: str | os.PathLike[str], *, max_bytes: int | None = None) -> None:
        require_bytes(max_bytes, "max_bytes")
        self.folder = require_folder(folder, "folder")
        self.max_bytes = max_bytes
        self._tensors = self.folder / "tensors"
        self._requests = self.folder / "requests"
        self._descriptions = self.folder / "descriptions"
        self._drafts = self.folder / "drafts"
        self._checked: set[_Stamp] = set()
        self._has_warned = False

    def __repr__(self) -> str:
        return f"Cache({str(self.folder)!r})"

    def entries(self) -> list[CacheEntry]:
        """The tensors that it has, the last used first; damaged ones are left to ``verify``."""
        used = self._last_uses()
        found = []
        for path in self._files():
            with contextlib.suppress(FileNotFoundError, _DamagedError):
                mapped, stamp = _map(path)
                info = _parse(mapped, path.stem).payload.info
                last = datetime.fromtimestamp(used.get(path.stem, stamp.mtime_ns) / 1e9, UTC)
                found.append(CacheEntry(path, stamp.size, last, info))
        return sorted(found, key=lambda entry: entry.last_used, reverse=True)

    def verify(self) -> list[Path]:
        """Reads every file, removes those that are damaged, and returns their names.

        What was removed is fetched again when it is asked for.
        """
        damaged = []
        for path in self._files():
            try:
                _parse(_map(path)[0], path.stem).check()
            except FileNotFoundError:
                pass
            except _DamagedError:
                path.unlink(missing_ok=True)
                damaged.append(path)
        return damaged

    def clear(self) -> None:
        """Removes all that it has. Those who use some of it keep what they have."""
        for path in self._files():
            path.unlink(missing_ok=True)
        for folder in (self._requests, self._descriptions):
            for path in _named(folder):
                path.unlink(missing_ok=True)
        self._sweep(older_than=0)
        for folder in (self._tensors, self._requests, self._descriptions, self._drafts):
            with contextlib.suppress(OSError):  # somebody uses it, or it has files of others
                folder.rmdir()

    def find(self, key: str, fingerprint: str | None = None) -> Payload | None:
        """The payload of a request, mapped and read-only; None where it has to be fetched.

        Args:
            key: of the request, as ``key_of`` makes it.
            fingerprint: of the payload; None is the one that the request had before.
        """
        try:
            known = self._read_request(key)
            if fingerprint is None:
                if known is None:
                    return None
                fingerprint = known.fingerprint
            payload, stamp = self._open(fingerprint, known and known.stamp)
            self._note(key, _Known(fingerprint, stamp), known)
        except FileNotFoundError:
            return None
        except _DamagedError as error:
            _log.warning("%s; it counts as missing", error)
            return None
        except OSError as error:
            self.warn(f"cannot be read: {error}")
            return None
        return payload

    def writable(self, info: TensorInfo) -> npt.NDArray[np.uint8] | None:
        """A payload that it has, for one who may write: each page is shared until then.

        None where it has gone.
        """
        try:
            with self._file_of(info.fingerprint).open("rb") as file:
                begin = os.fstat(file.fileno()).st_size - info.nbytes
                return np.memmap(file, np.uint8, mode="c", offset=begin)
        except (OSError, ValueError):
            return None

    def find_description(self, key: str) -> TensorInfo | None:
        """What a request's payload is; None where a server has to be asked."""
        payload = self.find(key)
        if payload is not None:
            return payload.info
        try:
            return read_description((self._descriptions / key).read_bytes())
        except (Error, OSError):
            return None

    def store_description(self, key: str, answer: bytes) -> None:
        """Keeps what a server said that a request's payload is, as it came."""
        with contextlib.suppress(OSError):  # of a folder that is only read
            self._replace(self._descriptions / key, answer)

    def try_lock(self, key: str) -> Draft | None:
        """The right to fetch the answer to a request; None while somebody else has it.

        Raises:
            OSError: the folder cannot be written.
        """
        return _try_lock(self._drafts, key)

    def store(self, draft: Draft, payload: Payload, metadata: dict[str, str]) -> Payload | None:
        """Keeps what was fetched, and gives it mapped; None where it cannot be kept."""
        head = _head_of(payload, metadata)
        size = len(head) + payload.info.nbytes
        if self.max_bytes is not None and size > self.max_bytes:
            self.warn(f"does not keep {size} bytes: cache_bytes is {self.max_bytes}")
            return None
        fingerprint = payload.info.fingerprint
        try:
            path = self._file_of(fingerprint)
            self._sweep()
            self._make_room(size)
            stamp = draft.write(head, payload.memory)
            # Before the tensor has its name: whoever waits for the draft finds both.
            self._note(draft.key, _Known(fingerprint, stamp), None)
            self._tensors.mkdir(exist_ok=True)
            draft.path.replace(path)
            return self._open(fingerprint, stamp)[0]
        except (OSError, _DamagedError) as error:
            self.warn(f"cannot keep what was fetched: {error}")
            return None

    def warn(self, why: str) -> None:
        """Says once that the cache does not do what it is for."""
        if not self._has_warned:
            self._has_warned = True
            _log.warning("the cache %s %s; calls go on without it", self.folder, why)

    def _open(self, fingerprint: str, trusted: _Stamp | None) -> tuple[Payload, _Stamp]:
        """Maps a tensor, whose bytes are read only if its file is not known to have been."""
        path = self._file_of(fingerprint)
        try:
            mapped, stamp = _map(path)
            file = _parse(mapped, fingerprint)
            if stamp != trusted and stamp not in self._checked:
                file.check()
        except _DamagedError:
            with contextlib.suppress(OSError):  # of a folder that is only read
                path.unlink()
            raise
        self._checked.add(stamp)
        return file.payload, stamp

    def _file_of(self, fingerprint: str) -> Path:
        if _NAME.fullmatch(fingerprint) is None:
            raise _DamagedError(f"fingerprint: got {fingerprint!r}, want 64 hex digits")
        return self._tensors / f"{fingerprint}{_SUFFIX}"

    def _files(self) -> list[Path]:
        return [path for path in _listed(self._tensors) if _is_tensor(path)]

    def _read_request(self, key: str) -> _Known | None:
        try:
            return _Known.parse((self._requests / key).read_bytes())
        except FileNotFoundError:
            return None

    def _note(self, key: str, now: _Known, before: _Known | None) -> None:
        """Has a request name its tensor, as it was when it was last checked, and be used now."""
        path = self._requests / key
        with contextlib.suppress(OSError):  # of a folder that is only read
            if now == before:
                os.utime(path)
                return
            self._replace(path, now.line())

    def _replace(self, path: Path, data: bytes) -> None:
        """Has a file of ``requests`` or ``descriptions`` be this, whole from the first moment."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._drafts.mkdir(exist_ok=True)
        draft = self._drafts / f"{path.name}.{secrets.token_hex(8)}"
        draft.write_bytes(data)
        draft.replace(path)

    def _last_uses(self) -> dict[str, int]:
        """When each tensor was last asked for, by its fingerprint."""
        uses: dict[str, int] = {}
        for path in _named(self._requests):
            with contextlib.suppress(FileNotFoundError):
                known = _Known.parse(path.read_bytes())
                if known is not None:
                    last = max(path.stat().st_mtime_ns, uses.get(known.fingerprint, 0))
                    uses[known.fingerprint] = last
        return uses

    def _make_room(self, size: int) -> None:
        """Removes what was not used for longest, until so many bytes more are within the bound."""
        if self.max_bytes is None:
            return
        sizes = {}
        for path in self._files():
            with contextlib.suppress(FileNotFoundError):
                sizes[path] = path.stat().st_size
        excess = sum(sizes.values()) + size - self.max_bytes
        if excess <= 0:
            return
        used = self._last_uses()
        removed = set()
        for path in sorted(sizes, key=lambda path: used.get(path.stem, 0)):
            if excess <= 0:
                break
            path.unlink(missing_ok=True)
            removed.add(path.stem)
            excess -= sizes[path]
        for path in _named(self._requests):
            with contextlib.suppress(FileNotFoundError):
                known = _Known.parse(path.read_bytes())
                if known is not None and known.fingerprint in removed:
                    path.unlink()

    def _sweep(self, older_than: float = _STALE) -> None:
        """Removes the drafts of those who died over them."""
        for path in _named(self._drafts):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime < older_than:
                    continue
                if (draft := _try_lock(self._drafts, path.name)) is not None:
                    draft.close()


def require_folder(folder: str | os.PathLike[str], name: str) -> Path:
    """Where it is; refuses a file, or a home of nobody's, with a ValueError that names ``name``."""
    try:
        path = Path(folder).expanduser().absolute()
    except RuntimeError as error:
        raise ValueError(
            f"{name}: got {str(folder)!r}, where ~ is nobody's; want a path"
        ) from error
    if os.path.isfile(path):  # Path's own raises where it may not look
        raise ValueError(f"{name}: got {str(folder)!r}, which is a file; want a folder")
    return path


def require_bytes(value: int | None, name: str) -> None:
    """Refuses what is no bound of a cache with an error that names ``name``."""
    want = "a number of bytes, or None"
    require_instance(value, (int, type(None)), name, want)
    if isinstance(value, bool):
        raise TypeError(f"{name}: got {value}; want {want}")
    if value is not None and value < 1:
        raise ValueError(f"{name}: got {value}, want at least 1, or None")


def key_of(spec: service_pb2.TensorSpec) -> str:
    """What a request is filed under."""
    return hashlib.sha256(_KEY_PREFIX + spec.SerializeToString(deterministic=True)).hexdigest()


def names_a_table(message: Message) -> bool:
    """Whether a request means a table by its name, under which a server may have another one."""
    if isinstance(message, tensor_pb2.TableRef):
        source: str | None = message.WhichOneof("source")
        return source == "name"
    for field, value in message.ListFields():
        if field.message_type is not None:
            inner = [value] if isinstance(value, Message) else value
            if any(names_a_table(each) for each in inner):
                return True
    return False


class Draft:
    """A file in the making, whose lock is the right to make it. The kernel frees it at a death."""

    def __init__(self, key: str, path: Path, file: BufferedRandom) -> None:
        self.key = key
        self.path = path
        self._file = file
        _forks.watch(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def write(self, head: bytes, memory: Any) -> _Stamp:
        """Writes a whole file, in place of what was begun, down to the disk."""
        self._file.truncate(0)
        self._file.write(head)
        self._file.write(memory)
        self._file.flush()
        os.fsync(self._file.fileno())
        return _Stamp.of(os.fstat(self._file.fileno()))

    def close(self) -> None:
        """Ends the right, and removes what did not become a tensor."""
        import fcntl  # noqa: PLC0415  # not on every system

        if self._file.closed:  # in a child of the one who has the right
            return
        with contextlib.suppress(OSError), self._file:
            if _is_at(self._file, self.path):
                self.path.unlink()
            # A child that has just been forked may still have the file open.
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def rest(self) -> bool:
        """See Forkable. There is no channel."""
        return False

    def leave(self) -> bool:
        """See Forkable. A lock lasts while any process has the file open."""
        self._file.raw.close()  # not what is buffered, which the parent writes
        return False


def _try_lock(folder: Path, name: str) -> Draft | None:
    try:
        import fcntl  # noqa: PLC0415  # not on every system
    except ImportError as error:
        raise OSError("this system has no flock") from error
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    file = open(path, "r+b", opener=_create)  # noqa: SIM115  # the draft closes it
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(file, path):
            return Draft(name, path, file)
    except BlockingIOError:
        pass
    except BaseException:
        file.close()
        raise
    file.close()
    return None


def _create(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT, 0o666)


def _is_at(file: BufferedRandom, path: Path) -> bool:
    """Whether a file still has the name that it was opened by."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


class _Stamp(NamedTuple):
    """What changes where a file is changed by ordinary means."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> _Stamp:
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)


class _Known(NamedTuple):
    """What is filed under a request: its tensor, and that tensor's file when it was checked."""

    fingerprint: str
    stamp: _Stamp

    @classmethod
    def parse(cls, line: bytes) -> _Known | None:
        """What a line says; None where it is no such line."""
        match = re.fullmatch(rb"([0-9a-f]{64}) (\d{1,19}) (\d{1,19}) (\d{1,20})\n", line)
        if match is None:
            return None
        return cls(match[1].decode(), _Stamp(int(match[2]), int(match[3]), int(match[4])))

    def line(self) -> bytes:
        return " ".join(map(str, (self.fingerprint, *self.stamp))).encode() + b"\n"


class _DamagedError(Exception):
    """A file is not what was written; says which, and how that is seen."""


@dataclass(frozen=True)
class _File:
    """A tensor's file, as its header has it."""

    name: str
    payload: Payload
    crc32c: str

    def check(self) -> None:
        """Reads the payload."""
        _require(self.name, "checksum", _checksum(self.payload.memory), self.crc32c)


def _require(name: str, what: str, got: object, want: object) -> None:
    if got != want:
        raise _DamagedError(f"{name}{_SUFFIX} is damaged: {what} is {got}, want {want}")


def _map(path: Path) -> tuple[mmap.mmap, _Stamp]:
    with path.open("rb") as file:
        stamp = _Stamp.of(os.fstat(file.fileno()))
        if stamp.size < _LENGTH_BYTES:
            raise _DamagedError(f"{path.name} is damaged: it has {stamp.size} bytes")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), stamp


def _parse(mapped: mmap.mmap, fingerprint: str) -> _File:
    """Finds header and payload; raises _DamagedError where they are not all there."""
    begin = _LENGTH_BYTES + int.from_bytes(mapped[:_LENGTH_BYTES], "little")
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
    """What stands before the payload in its file.

    safetensors' own writer would sort the tensors; so the payload is what came, in one piece.
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


def _listed(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _named(folder: Path) -> Iterator[Path]:
    return (path for path in _listed(folder) if _NAME.fullmatch(path.name.partition(".")[0]))


def _is_tensor(path: Path) -> bool:
    return path.suffix == _SUFFIX and _NAME.fullmatch(path.stem) is not None
