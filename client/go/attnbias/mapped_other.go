// SPDX-License-Identifier: Apache-2.0

//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package attnbias

import (
	"errors"
	"os"
)

// A system without flock and mmap: the cache does nothing, and says so once.
var errNoCache = errors.New("this system has no flock")

func mapFile(string) ([]byte, stamp, error) { return nil, stamp{}, errNoCache }

func stampOf(*os.File) (stamp, error) { return stamp{}, errNoCache }

func tryLockFile(*os.File) (bool, error) { return false, errNoCache }
