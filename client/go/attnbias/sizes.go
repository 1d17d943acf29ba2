// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"sync"

	"google.golang.org/protobuf/proto"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

const (
	// A larger spec is better asked for as a stream than remembered.
	mostSpecBytes = 64 << 10
	// The largest payload of GetTensor: 4 MiB less room for its header (docs/protocol.md).
	messageBytes = 4<<20 - 64<<10
)

// sizes are those of payloads that a client learnt of last. Any number of goroutines may use
// it.
type sizes struct {
	mutex sync.Mutex
	known map[string]int64 // by the key of the spec
	keys  [1024]string     // of what is known, in a ring
	next  int              // the oldest key's place

	none bool // see fitNone
}

func newSizes() *sizes { return &sizes{known: map[string]int64{}} }

// learn hears how large a payload is.
func (s *sizes) learn(spec *pb.TensorSpec, bytes int64) {
	key := sizeKey(spec)
	if key == "" {
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if _, known := s.known[key]; !known {
		delete(s.known, s.keys[s.next])
		s.keys[s.next] = key
		s.next = (s.next + 1) % len(s.keys)
	}
	s.known[key] = bytes
}

// fitMessage says whether a payload is known to fit one message.
func (s *sizes) fitMessage(spec *pb.TensorSpec) bool {
	key := sizeKey(spec)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	bytes, known := s.known[key]
	return known && bytes <= messageBytes && !s.none
}

// fitNone hears that this client gets nothing in one message.
func (s *sizes) fitNone() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.none = true
}

// sizeKey is empty for what is not remembered.
func sizeKey(spec *pb.TensorSpec) string {
	if proto.Size(spec) > mostSpecBytes {
		return ""
	}
	key, _ := proto.MarshalOptions{Deterministic: true}.Marshal(spec)
	return string(key) // empty for text that is not UTF-8
}
