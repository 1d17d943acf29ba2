// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/prototext"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

const (
	// Between two looks at a lock that another has.
	firstPause   = 2 * time.Millisecond
	largestPause = 50 * time.Millisecond
	mostBrief    = 400 // characters of a request in an error
)

// cached gets one payload by way of the cache: what it has is mapped, what it has not is fetched by
// one.
type cached struct {
	client *Client
	cache  *cache
	spec   *pb.TensorSpec
	// What a name means is the server's to say; only an offline client takes what it meant.
	mayDiffer bool
}

func (c *Client) newCached(spec *pb.TensorSpec) *cached {
	return &cached{c, c.cache, spec, !c.offline && namesATable(spec.ProtoReflect())}
}

// describe is what the cache has, else what the server would send, which is kept.
func (c *cached) describe(ctx context.Context) (*pb.TensorHeader, error) {
	key, err := cacheKey(c.spec)
	if err != nil {
		return nil, err
	}
	if !c.mayDiffer {
		if found := c.cache.findDescription(key); found != nil {
			return found, nil
		}
	}
	if c.client.offline {
		return nil, c.missing()
	}
	header, answer, err := c.client.askForDescription(ctx, c.spec)
	if err == nil {
		c.cache.storeDescription(key, answer)
	}
	return header, err
}

// get is what the cache has, else what fetch gives, which is kept.
func (c *cached) get(ctx context.Context, fetch func() (*Tensor, error)) (*Tensor, error) {
	key, err := cacheKey(c.spec)
	if err != nil {
		return nil, err
	}
	tensor, err := c.find(key)
	if tensor == nil && err == nil {
		tensor, err = c.fetch(ctx, key, fetch)
	}
	if err != nil {
		return nil, err
	}
	if err := checkSize(int64(len(tensor.bytes)), c.client.maxTensorBytes); err != nil {
		return nil, err
	}
	return tensor, nil
}

// find is what the cache has, without a call; nil where a server has to be asked.
func (c *cached) find(key string) (*Tensor, error) {
	if c.mayDiffer {
		return nil, nil
	}
	found := c.cache.find(key, "")
	if found == nil && c.client.offline {
		return nil, c.missing()
	}
	return found, nil
}

// fetch fetches it, or waits for who does; and keeps it.
func (c *cached) fetch(
	ctx context.Context, key string, fetch func() (*Tensor, error),
) (*Tensor, error) {
	draft, err := c.lock(ctx, key)
	if err != nil {
		return nil, err
	}
	if draft != nil {
		defer draft.close()
	}
	if found, err := c.find(key); found != nil || err != nil {
		return found, err
	}
	header, _, err := c.client.askForDescription(ctx, c.spec)
	if err != nil {
		return nil, err
	}
	if found := c.cache.find(key, header.Fingerprint); found != nil {
		return found, nil
	}
	tensor, err := fetch()
	if err != nil || draft == nil {
		return tensor, err
	}
	if kept := c.cache.store(draft, tensor, c.spec.GetOutput().GetMask()); kept != nil {
		return kept, nil
	}
	return tensor, nil
}

// lock is the right to fetch it; nil where the folder cannot be written.
func (c *cached) lock(ctx context.Context, key string) (*draft, error) {
	for pause := firstPause; ; pause = min(2*pause, largestPause) {
		draft, err := c.cache.tryLock(key)
		if err != nil {
			c.cache.warn("cannot be written", err)
			return nil, nil
		}
		if draft != nil {
			return draft, nil
		}
		select {
		case <-ctx.Done():
			ended := errorOf(ctx.Err(), nil)
			ended.Message += ", while another process fetches the same"
			return nil, ended
		case <-time.After(pause):
		}
	}
}

func (c *cached) missing() error {
	brief := prototext.MarshalOptions{}.Format(c.spec)
	if len(brief) > mostBrief {
		brief = brief[:mostBrief] + "..."
	}
	return failed(codes.NotFound, "WithOffline: %s does not have { %s }: get it once, in these "+
		"words, with a client that has this cache and is not offline", c.cache.folder, brief)
}
