// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"slices"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

// BlockToeplitz is a tensor [heads, tokens, tokens] over the tokens of a grid, in row-major order.
// Its values depend only on the displacement between tokens. With token i in row r(i) and column
// c(i):
//
//	At(h, i, j) = block[h, r(j) - r(i) + height - 1, c(j) - c(i) + width - 1]
//
// A grid has one to three axes. With a border, token 0 is a class token with its own values, and
// the tokens of the grid follow it.
type BlockToeplitz[T Element] struct {
	pairs
	axes                 []gridAxis // the last varies fastest
	firstQuery, firstKey int
	block                []T // [heads, 2 height - 1, 2 width - 1]
	border               []T // [heads, 3]; nil: no class token
}

// gridAxis is an axis of a grid: its length and the stride of its queries.
type gridAxis struct {
	side, stride int
}

// AsBlockToeplitz views a tensor of form BLOCK_TOEPLITZ, with or without a border. It returns the
// same errors as [AsToeplitz].
func AsBlockToeplitz[T Element](tensor *Tensor) (*BlockToeplitz[T], error) {
	parts := min(max(len(tensor.header.Parts), 1), 2)
	block, err := arrayOfForm[T](tensor, pb.Form_FORM_BLOCK_TOEPLITZ, parts)
	if err != nil {
		return nil, err
	}
	counts, sides := splitHeads(tensor.header, block.Shape)
	strides := tensor.header.ResolvedSpec.GetGrid().GetQueryStride()
	if len(strides) == 0 {
		strides = slices.Repeat([]int64{1}, len(sides))
	}
	b := &BlockToeplitz[T]{pairs: counts, block: block.Data}
	part := tensor.header.Parts[0]
	if len(strides) != len(sides) {
		return nil, contradicts(part)
	}
	for i, side := range sides {
		if side%2 == 0 || strides[i] < 1 {
			return nil, contradicts(part)
		}
		b.axes = append(b.axes, gridAxis{(side + 1) / 2, int(strides[i])})
	}
	if parts == 2 {
		b.border, err = borderOf[T](tensor, counts.heads)
	}
	return b, err
}

// borderOf returns the values for a class token, [heads, 3]. Each head has one value for pairs in
// which only the query is the class token, one for pairs in which only the key is, and one for the
// pair in which both are.
func borderOf[T Element](tensor *Tensor, heads int) ([]T, error) {
	part := tensor.header.Parts[1]
	border, err := arrayOf[T](tensor, part)
	if err == nil && len(border.Data) != 3*heads {
		err = contradicts(part)
	}
	return border.Data, err
}

// At returns the element for query i and key j in head h.
func (b *BlockToeplitz[T]) At(h, i, j int) T {
	b.check(h, i, j)
	i, j = i+b.firstQuery, j+b.firstKey
	if b.border != nil {
		if i == 0 || j == 0 {
			return b.border[3*h+borderPlace(i == 0, j == 0)]
		}
		i, j = i-1, j-1
	}
	place, step := 0, 1
	for _, axis := range slices.Backward(b.axes) {
		queries := (axis.side-1)/axis.stride + 1
		place += (j%axis.side - i%queries*axis.stride + axis.side - 1) * step
		i, j, step = i/queries, j/axis.side, step*(2*axis.side-1)
	}
	return b.block[h*step+place]
}

// borderPlace returns the index, among a head's three border values, of the value for a pair that
// includes the class token.
func borderPlace(isQuery, isKey bool) int {
	switch {
	case !isKey:
		return 0
	case !isQuery:
		return 1
	default:
		return 2
	}
}

// Window returns a view of part of the tensor, like [Toeplitz.Window].
func (b *BlockToeplitz[T]) Window(window Window) (*BlockToeplitz[T], error) {
	part := *b
	in, err := part.cut(window)
	if err != nil {
		return nil, err
	}
	part.firstQuery += in.Queries.Begin
	part.firstKey += in.Keys.Begin
	size := 1
	for _, axis := range b.axes {
		size *= 2*axis.side - 1
	}
	part.block = b.block[in.Heads.Begin*size:]
	if b.border != nil {
		part.border = b.border[3*in.Heads.Begin:]
	}
	return &part, nil
}
