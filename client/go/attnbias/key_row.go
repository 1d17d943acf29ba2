// SPDX-License-Identifier: Apache-2.0

package attnbias

import pb "github.com/attnbias/attnbias/client/go/attnbiaspb"

// KeyRow is a tensor [heads, queries, keys] whose values are the same for every query:
//
//	At(h, i, j) = Row(h, i)[j]
type KeyRow[T Element] struct {
	pairs
	stride int // from the row of one head to that of the next
	data   []T
}

// AsKeyRow views a tensor of form KEY_ROW. It returns the same errors as [AsToeplitz].
func AsKeyRow[T Element](tensor *Tensor) (*KeyRow[T], error) {
	array, err := arrayOfForm[T](tensor, pb.Form_FORM_KEY_ROW, 1)
	if err != nil {
		return nil, err
	}
	counts, axes := splitHeads(tensor.header, array.Shape)
	if len(axes) != 1 || counts.queries < 1 || counts.keys != axes[0] {
		return nil, contradicts(tensor.header.Parts[0])
	}
	return &KeyRow[T]{counts, counts.keys, array.Data}, nil
}

// At returns the element for query i and key j in head h.
func (k *KeyRow[T]) At(h, i, j int) T {
	k.check(h, i, j)
	return k.data[h*k.stride+j]
}

// Row returns the Keys() elements for query i in head h, without copying them.
func (k *KeyRow[T]) Row(h, i int) []T {
	k.checkRow(h, i)
	begin := h * k.stride
	return k.data[begin : begin+k.keys : begin+k.keys]
}

// Window returns a view of part of the tensor, like [Toeplitz.Window].
func (k *KeyRow[T]) Window(window Window) (*KeyRow[T], error) {
	part := *k
	in, err := part.cut(window)
	if err != nil {
		return nil, err
	}
	part.data = k.data[in.Heads.Begin*k.stride+in.Keys.Begin:]
	return &part, nil
}
