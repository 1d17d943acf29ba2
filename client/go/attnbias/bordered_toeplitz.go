// SPDX-License-Identifier: Apache-2.0

package attnbias

// BorderedToeplitz is a Toeplitz tensor in which position 0 is a class token with its own values.
type BorderedToeplitz[T Element] struct {
	pairs
	inner                *Toeplitz[T]
	border               []T // [heads, 3]
	classQuery, classKey int // index of position 0, which may lie outside the window
}

// AsBorderedToeplitz views a tensor of form TOEPLITZ with a border. It returns the same errors as
// [AsToeplitz].
func AsBorderedToeplitz[T Element](tensor *Tensor) (*BorderedToeplitz[T], error) {
	inner, err := toeplitzOf[T](tensor, 2)
	if err != nil {
		return nil, err
	}
	border, err := borderOf[T](tensor, inner.heads)
	if err != nil {
		return nil, err
	}
	queries, keys := axesOf(tensor.header.ResolvedSpec)
	return &BorderedToeplitz[T]{
		pairs: inner.pairs, inner: inner, border: border,
		classQuery: -int(queries.first), classKey: -int(keys.first),
	}, nil
}

// At returns the element for query i and key j in head h.
func (b *BorderedToeplitz[T]) At(h, i, j int) T {
	number := b.inner.At(h, i, j)
	if i == b.classQuery || j == b.classKey {
		return b.border[3*h+borderPlace(i == b.classQuery, j == b.classKey)]
	}
	return number
}

// Window returns a view of part of the tensor, like [Toeplitz.Window].
func (b *BorderedToeplitz[T]) Window(window Window) (*BorderedToeplitz[T], error) {
	inner, err := b.inner.Window(window)
	if err != nil {
		return nil, err
	}
	return &BorderedToeplitz[T]{
		pairs: inner.pairs, inner: inner, border: b.border[3*window.Heads.Begin:],
		classQuery: b.classQuery - window.Queries.Begin, classKey: b.classKey - window.Keys.Begin,
	}, nil
}
