// SPDX-License-Identifier: Apache-2.0

//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package attnbias

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Each file is mapped once, and until the program ends: nobody knows who still reads the numbers.
var (
	mappedMutex sync.Mutex
	mapped      = map[mappedFile][]byte{}
)

// mappedFile is a file as it is now. While it is mapped no other has its inode.
type mappedFile struct {
	device uint64
	stamp  stamp
}

// mapFile gives what a file holds, read-only.
func mapFile(path string) ([]byte, stamp, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, stamp{}, err
	}
	defer file.Close()
	var status unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &status); err != nil {
		return nil, stamp{}, err
	}
	is := mappedFile{uint64(status.Dev), stampIn(&status)}
	if status.Size == 0 { // which cannot be mapped
		return nil, is.stamp, nil
	}
	mappedMutex.Lock()
	defer mappedMutex.Unlock()
	if known, ok := mapped[is]; ok {
		return known, is.stamp, nil
	}
	memory, err := unix.Mmap(int(file.Fd()), 0, int(status.Size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, stamp{}, &os.PathError{Op: "mmap", Path: path, Err: err}
	}
	mapped[is] = memory
	return memory, is.stamp, nil
}

func stampOf(file *os.File) (stamp, error) {
	var status unix.Stat_t
	err := unix.Fstat(int(file.Fd()), &status)
	return stampIn(&status), err
}

func stampIn(status *unix.Stat_t) stamp {
	return stamp{status.Size, status.Mtim.Nano(), uint64(status.Ino)}
}

// tryLockFile is false while somebody else has the lock.
func tryLockFile(file *os.File) (bool, error) {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
