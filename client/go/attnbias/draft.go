// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"errors"
	"os"
	"path/filepath"
)

// draft is a file in the making, whose lock is the right to make it. The kernel frees it at a
// death.
type draft struct {
	key, path string
	file      *os.File
}

// tryLock is the right to fetch the answer to a request; nil while somebody else has it.
func (c *cache) tryLock(key string) (*draft, error) {
	path := c.path("drafts", key)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	locked, err := tryLockFile(file)
	if err == nil && locked && isAt(file, path) {
		return &draft{key, path, file}, nil
	}
	return nil, errors.Join(err, file.Close())
}

// isAt says whether a file still has the name that it was opened by.
func isAt(file *os.File, path string) bool {
	own, err := file.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(own, named)
}

// write writes a whole file, in place of what was begun, down to the disk.
func (d *draft) write(head, payload []byte) (stamp, error) {
	if err := d.file.Truncate(0); err != nil {
		return stamp{}, err
	}
	for _, part := range [][]byte{head, payload} {
		if _, err := d.file.Write(part); err != nil {
			return stamp{}, err
		}
	}
	if err := d.file.Sync(); err != nil {
		return stamp{}, err
	}
	return stampOf(d.file)
}

// close ends the right, and removes what did not become a tensor.
func (d *draft) close() {
	if isAt(d.file, d.path) {
		_ = os.Remove(d.path)
	}
	_ = d.file.Close() // and so unlocks it
}
