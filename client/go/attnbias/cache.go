// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

const (
	cacheVariable = "ATTNBIAS_CACHE_DIR"
	tensorSuffix  = ".safetensors"
	// After so long a draft that nobody holds is nobody's.
	staleAfter = time.Minute
)

// cache is a folder that keeps payloads, shared by all processes of a machine; docs/cache.md
// describes it. A file in it is whole from the moment that it has its name, and is never written
// again.
type cache struct {
	folder   string
	maxBytes int64 // 0: any
	logger   *slog.Logger

	mutex   sync.Mutex
	checked map[stamp]bool
	warned  bool
}

// stamp is what changes where a file is changed by ordinary means.
type stamp struct {
	size, modified int64 // the time in nanoseconds since 1970
	inode          uint64
}

// known is what is filed under a request: its tensor, and that tensor's file when it was checked.
type known struct {
	fingerprint string
	stamp       stamp
}

var (
	fingerprintForm = regexp.MustCompile(`^[0-9a-f]{64}$`)
	knownForm       = regexp.MustCompile(
		`^([0-9a-f]{64}) ([0-9]{1,19}) ([0-9]{1,19}) ([0-9]{1,20})\n$`)
)

func parseKnown(line []byte) (known, bool) {
	match := knownForm.FindSubmatch(line)
	if match == nil {
		return known{}, false
	}
	size, err1 := strconv.ParseInt(string(match[2]), 10, 64)
	modified, err2 := strconv.ParseInt(string(match[3]), 10, 64)
	inode, err3 := strconv.ParseUint(string(match[4]), 10, 64)
	if errors.Join(err1, err2, err3) != nil {
		return known{}, false
	}
	return known{string(match[1]), stamp{size, modified, inode}}, true
}

func (k known) line() []byte {
	return fmt.Appendf(nil, "%s %d %d %d\n", k.fingerprint, k.stamp.size, k.stamp.modified,
		k.stamp.inode)
}

// cacheOf is nil for none.
func cacheOf(s *settings) (*cache, error) {
	if *s.cache == "" {
		return nil, nil
	}
	name := cacheVariable
	if *s.cache != os.Getenv(cacheVariable) {
		name = "WithCache"
	}
	folder, err := withHome(*s.cache)
	if err == nil {
		folder, err = filepath.Abs(folder)
	}
	if err != nil {
		return nil, invalid("%s: got %q, want a path: %v", name, *s.cache, err)
	}
	if found, err := os.Stat(folder); err == nil && !found.IsDir() {
		return nil, invalid("%s: got %q, which is a file; want a folder", name, *s.cache)
	}
	c := &cache{folder: folder, logger: s.logger, checked: map[stamp]bool{}}
	if s.cacheBytes != nil {
		c.maxBytes = *s.cacheBytes
	}
	return c, nil
}

// withHome is a path with a home in place of a ~ at its beginning.
func withHome(path string) (string, error) {
	if !strings.HasPrefix(path, "~") {
		return path, nil
	}
	name, rest, _ := strings.Cut(path[1:], "/")
	if name == "" {
		home, err := os.UserHomeDir()
		return filepath.Join(home, rest), err
	}
	found, err := user.Lookup(name)
	if err != nil {
		return "", err
	}
	return filepath.Join(found.HomeDir, rest), nil
}

func (c *cache) path(kind, name string) string { return filepath.Join(c.folder, kind, name) }

func (c *cache) tensorPath(fingerprint string) string {
	return c.path("tensors", fingerprint+tensorSuffix)
}

// find gives the tensor of a request, mapped; nil where it has to be fetched. The fingerprint is
// the tensor's; "" is that which the request had before.
func (c *cache) find(key, fingerprint string) *Tensor {
	line, err := os.ReadFile(c.path("requests", key))
	before, _ := parseKnown(line)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		if fingerprint == "" {
			fingerprint = before.fingerprint
		}
		if fingerprint == "" {
			return nil
		}
		var tensor *Tensor
		var now stamp
		if tensor, now, err = c.open(fingerprint, before.stamp); err == nil {
			c.note(key, known{fingerprint, now}, before)
			return tensor
		}
	}
	var damaged *damagedError
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case errors.As(err, &damaged):
		c.logger.Warn("attnbias: a file of the cache counts as missing", "error", err)
	default:
		c.warn("cannot be read", err)
	}
	return nil
}

// findDescription is what a request's payload is; nil where a server has to be asked.
func (c *cache) findDescription(key string) *pb.TensorHeader {
	if tensor := c.find(key, ""); tensor != nil {
		return tensor.header
	}
	answer, err := os.ReadFile(c.path("descriptions", key))
	if err != nil {
		return nil
	}
	header, err := tensorHeaderIn(answer)
	if err != nil {
		return nil
	}
	return header
}

// storeDescription keeps a DescribeTensorResponse as it came.
func (c *cache) storeDescription(key string, answer []byte) {
	_ = c.replace("descriptions", key, answer) // fails in a folder that is only read
}

// open maps a tensor, whose bytes are read only if its file is not known to have been.
func (c *cache) open(fingerprint string, trusted stamp) (*Tensor, stamp, error) {
	if !fingerprintForm.MatchString(fingerprint) {
		return nil, stamp{}, damaged(fingerprint, "want 64 hex digits for a name")
	}
	path := c.tensorPath(fingerprint)
	mapped, now, err := mapFile(path)
	if err != nil {
		return nil, stamp{}, err
	}
	c.mutex.Lock()
	isTrusted := now == trusted || c.checked[now]
	c.mutex.Unlock()
	tensor, err := readTensorFile(mapped, fingerprint, !isTrusted)
	if err != nil {
		_ = os.Remove(path) // fails in a folder that is only read
		return nil, stamp{}, err
	}
	c.mutex.Lock()
	c.checked[now] = true
	c.mutex.Unlock()
	return tensor, now, nil
}

// note has a request name its tensor, as it was when it was last checked, and be used now.
func (c *cache) note(key string, now, before known) {
	if now == before {
		moment := time.Now()
		_ = os.Chtimes(c.path("requests", key), moment, moment)
		return
	}
	_ = c.replace("requests", key, now.line()) // fails in a folder that is only read
}

// replace has a file of requests or descriptions be this, whole from the first moment.
func (c *cache) replace(kind, key string, data []byte) error {
	for _, folder := range []string{kind, "drafts"} {
		if err := os.MkdirAll(filepath.Join(c.folder, folder), 0o777); err != nil {
			return err
		}
	}
	draft, err := createDraft(c.path("drafts", key))
	if err != nil {
		return err
	}
	_, err = draft.Write(data)
	if err = errors.Join(err, draft.Close()); err == nil {
		err = os.Rename(draft.Name(), c.path(kind, key))
	}
	if err != nil {
		_ = os.Remove(draft.Name())
	}
	return err
}

// createDraft is os.CreateTemp for a file that others may read as the umask says.
func createDraft(path string) (*os.File, error) {
	name := fmt.Sprintf("%s.%016x", path, rand.Uint64())
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
}

// store keeps what was fetched, and gives it mapped; nil where it cannot be kept. The mask is what
// was asked for; the header lacks one that hides nothing.
func (c *cache) store(d *draft, tensor *Tensor, mask *pb.Mask) *Tensor {
	head, err := headOf(tensor, mask)
	size := int64(len(head) + len(tensor.bytes))
	if err == nil && c.maxBytes > 0 && size > c.maxBytes {
		err = fmt.Errorf("its file has %d bytes, WithCacheBytes is %d", size, c.maxBytes)
	}
	if err == nil && !fingerprintForm.MatchString(tensor.Fingerprint()) {
		err = damaged(tensor.Fingerprint(), "want 64 hex digits for a name")
	}
	if err == nil {
		c.sweep()
		c.makeRoom(size)
		var kept *Tensor
		if kept, err = c.write(d, head, tensor); err == nil {
			return kept
		}
	}
	c.warn("does not keep what was fetched", err)
	return nil
}

func (c *cache) write(d *draft, head []byte, tensor *Tensor) (*Tensor, error) {
	now, err := d.write(head, tensor.bytes)
	if err != nil {
		return nil, err
	}
	// Before the tensor has its name: whoever waits for the draft finds both.
	c.note(d.key, known{tensor.Fingerprint(), now}, known{})
	if err := os.MkdirAll(filepath.Join(c.folder, "tensors"), 0o777); err != nil {
		return nil, err
	}
	if err := os.Rename(d.path, c.tensorPath(tensor.Fingerprint())); err != nil {
		return nil, err
	}
	kept, _, err := c.open(tensor.Fingerprint(), now)
	return kept, err
}

// warn says once that the cache does not do what it is for.
func (c *cache) warn(what string, err error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if !c.warned {
		c.warned = true
		c.logger.Warn("attnbias: the cache "+what+"; calls go on without it", "folder", c.folder,
			"error", err)
	}
}

// makeRoom removes what was asked for longest ago, until so many bytes more are within the bound.
func (c *cache) makeRoom(size int64) {
	if c.maxBytes == 0 {
		return
	}
	sizes, excess := map[string]int64{}, size-c.maxBytes
	for _, entry := range entries(filepath.Join(c.folder, "tensors")) {
		fingerprint, isTensor := strings.CutSuffix(entry.Name(), tensorSuffix)
		if info, err := entry.Info(); err == nil && isTensor &&
			fingerprintForm.MatchString(fingerprint) {
			sizes[fingerprint] = info.Size()
			excess += info.Size()
		}
	}
	if excess <= 0 {
		return
	}
	uses, requests := c.lastUses()
	oldest := make([]string, 0, len(sizes))
	for fingerprint := range sizes {
		oldest = append(oldest, fingerprint)
	}
	slices.SortFunc(oldest, func(a, b string) int { return uses[a].Compare(uses[b]) })
	for _, fingerprint := range oldest {
		if excess <= 0 {
			return
		}
		_ = os.Remove(c.tensorPath(fingerprint))
		for _, key := range requests[fingerprint] {
			_ = os.Remove(c.path("requests", key))
		}
		excess -= sizes[fingerprint]
	}
}

// lastUses is when each tensor was last asked for, and by which requests.
func (c *cache) lastUses() (map[string]time.Time, map[string][]string) {
	uses, requests := map[string]time.Time{}, map[string][]string{}
	for _, entry := range entries(filepath.Join(c.folder, "requests")) {
		line, err := os.ReadFile(c.path("requests", entry.Name()))
		if err != nil {
			continue
		}
		info, err := entry.Info()
		filed, ok := parseKnown(line)
		if err != nil || !ok {
			continue
		}
		requests[filed.fingerprint] = append(requests[filed.fingerprint], entry.Name())
		if info.ModTime().After(uses[filed.fingerprint]) {
			uses[filed.fingerprint] = info.ModTime()
		}
	}
	return uses, requests
}

// sweep removes the drafts of those who died over them.
func (c *cache) sweep() {
	for _, entry := range entries(filepath.Join(c.folder, "drafts")) {
		info, err := entry.Info()
		if err != nil || time.Since(info.ModTime()) < staleAfter {
			continue
		}
		if d, err := c.tryLock(entry.Name()); err == nil && d != nil {
			d.close()
		}
	}
}

// entries are the files of a folder that the cache may have made.
func entries(folder string) []fs.DirEntry {
	all, _ := os.ReadDir(folder)
	return slices.DeleteFunc(all, func(entry fs.DirEntry) bool {
		name, _, _ := strings.Cut(entry.Name(), ".")
		return !fingerprintForm.MatchString(name)
	})
}
