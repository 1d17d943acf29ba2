# SPDX-License-Identifier: Apache-2.0
"""Files below a folder that other programs can write to.

Names are looked up in open folders, and links are not followed. Folders and files are used only if
they belong to the user (or to root) and no other user can write to them. Opening never blocks, not
even on a FIFO, which is rejected.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final, Self

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_FOLDER_MODE: Final = 0o755  # minus the umask; even with a umask of 002 the group must not write
_FILE_MODE: Final = 0o644
_KINDS: Final = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO"}

# A system that lacks any of these cannot open files relative to an open folder.
_SAFE: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_UNBLOCKED: Final = _SAFE | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_FOLDER: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_DIRECTORY", 0)


class UnsafeError(OSError):
    """A file or folder that another user could have written; the message states the reason."""


class Folder:
    """An open folder, as a context manager that closes it. Create it with ``opened``.

    Its methods raise OSError, including UnsafeError.
    """

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self.path = path
        try:
            require_own(path, os.fstat(descriptor))
        except BaseException:
            self.close()
            raise

    @classmethod
    def opened(cls, path: Path, *, create: bool = False) -> Self:
        """Opens the folder at a path, which may contain links."""
        if os.open not in os.supports_dir_fd:
            raise OSError("this system cannot open files relative to an open folder")
        if create:
            path.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)
        return cls(os.open(path, _FOLDER), path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._descriptor)

    def folder(self, name: str, *, create: bool = False) -> Self:
        if create:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, _FOLDER_MODE, dir_fd=self._descriptor)
        try:
            descriptor = os.open(name, _FOLDER | _SAFE, dir_fd=self._descriptor)
        except NotADirectoryError:
            raise UnsafeError(f"{self.path / name}: got a link or a file, want a folder") from None
        return type(self)(descriptor, self.path / name)

    def names(self) -> list[str]:
        return os.listdir(self._descriptor)

    def status(self, name: str) -> os.stat_result:
        """Returns a file's status; for a link, the status of the link itself."""
        return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)

    def open(self, name: str) -> BinaryIO:
        return open(self._opened(name, os.O_RDONLY), "rb", buffering=0)

    def read(self, name: str, most: int) -> bytes:
        with self.open(name) as file:
            size = os.fstat(file.fileno()).st_size
            if size > most:
                raise UnsafeError(f"{self.path / name}: got {size} bytes, want at most {most}")
            return file.read(most)

    def lock_file(self, name: str) -> int:
        """Opens a file to lock; creates it if it is missing, but never writes to it."""
        return self._opened(name, os.O_RDWR | os.O_CREAT)  # NFS locks only files open for writing

    def create(self, name: str) -> BinaryIO:
        """Creates a file for writing; raises FileExistsError if the name exists, even as a link."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE
        return open(os.open(name, flags, _FILE_MODE, dir_fd=self._descriptor), "wb")

    def move(self, name: str, to: Folder, new_name: str) -> None:
        """Moves a file into a folder, replacing any file with that name."""
        os.replace(name, new_name, src_dir_fd=self._descriptor, dst_dir_fd=to._descriptor)

    def remove(self, name: str) -> None:
        """Removes a file, or a link itself, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)

    def remove_folder(self, name: str) -> None:
        os.rmdir(name, dir_fd=self._descriptor)

    def _opened(self, name: str, flags: int) -> int:
        """Opens a regular file that only the user can write to."""
        path = self.path / name
        try:
            descriptor = os.open(name, flags | _UNBLOCKED, _FILE_MODE, dir_fd=self._descriptor)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENXIO):
                raise
            raise UnsafeError(f"{path}: got a link or a socket, want a regular file") from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                kind = _KINDS.get(stat.S_IFMT(status.st_mode), "a device")
                raise UnsafeError(f"{path}: got {kind}, want a regular file")
            require_own(path, status)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def require_own(path: Path, status: os.stat_result) -> None:
    """Raises UnsafeError for a file that another user owns or can write to."""
    if status.st_uid not in (user := os.geteuid(), 0):
        raise UnsafeError(f"{path}: got user {status.st_uid} as the owner, want user {user}")
    if status.st_mode & _OTHERS_WRITE:
        mode = stat.S_IMODE(status.st_mode)
        wanted = 0o700 if stat.S_ISDIR(status.st_mode) else 0o600
        raise UnsafeError(
            f"{path}: got mode {mode:04o}, which lets other users write to it; want {wanted:04o}: "
            f"chmod {wanted:o} {path}"
        )
