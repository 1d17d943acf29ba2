// SPDX-License-Identifier: Apache-2.0

package attnbias

import pb "github.com/attnbias/attnbias/client/go/attnbiaspb"

// Span is the half-open index range [Begin, End); Span{} selects all indices.
type Span struct{ Begin, End int }

// Window selects heads, queries and keys in a tensor. A zero Span selects the whole axis.
type Window struct{ Heads, Queries, Keys Span }

// within returns the bounds of a span on an axis of the given length.
func (s Span) within(length int, name string) (Span, error) {
	if s == (Span{}) {
		return Span{0, length}, nil
	}
	if s.Begin < 0 || s.End > length || s.Begin >= s.End {
		return Span{}, invalid("%s: got [%d, %d), want a nonempty part of [0, %d)", name,
			s.Begin, s.End, length)
	}
	return s, nil
}

// pairs holds the head, query and key counts of a tensor.
type pairs struct{ heads, queries, keys int }

// cut reduces the counts to those of a window, and returns the window with explicit bounds.
func (p *pairs) cut(window Window) (Window, error) {
	for _, axis := range []struct {
		span  *Span
		count *int
		name  string
	}{
		{&window.Heads, &p.heads, "Window.Heads"},
		{&window.Queries, &p.queries, "Window.Queries"},
		{&window.Keys, &p.keys, "Window.Keys"},
	} {
		var err error
		if *axis.span, err = axis.span.within(*axis.count, axis.name); err != nil {
			return window, err
		}
		*axis.count = axis.span.End - axis.span.Begin
	}
	return window, nil
}

// splitHeads returns the counts for a tensor's window, and the shape of its first part without the
// head axis. The resolved request determines whether the part has a head axis.
func splitHeads(header *pb.TensorHeader, shape []int) (pairs, []int) {
	spec := header.ResolvedSpec
	queries, keys := axesOf(spec)
	counts := pairs{1, int(queries.length), int(keys.length)}
	if len(shape) > 0 && (spec.GetPair().GetHeads() != nil || spec.GetGrid().GetHeads() != nil) {
		counts.heads, shape = shape[0], shape[1:]
	}
	return counts, shape
}

// Heads returns the number of heads, or 1 if all heads share the values.
func (p *pairs) Heads() int { return p.heads }

// Queries returns the number of queries: the rows of each head.
func (p *pairs) Queries() int { return p.queries }

// Keys returns the number of keys: the columns of each head.
func (p *pairs) Keys() int { return p.keys }

func (p *pairs) check(h, i, j int) {
	p.checkRow(h, i)
	if uint(j) >= uint(p.keys) {
		panic(outOfRange("key", j, p.keys))
	}
}

func (p *pairs) checkRow(h, i int) {
	if uint(h) >= uint(p.heads) {
		panic(outOfRange("head", h, p.heads))
	}
	if uint(i) >= uint(p.queries) {
		panic(outOfRange("query", i, p.queries))
	}
}

// Toeplitz is a tensor [heads, queries, keys] whose values depend only on key minus query:
//
//	At(h, i, j) = Diagonals(h)[j - i + Queries() - 1]
//
// For encodings with relative vectors, each element is a vector of length Dim().
type Toeplitz[T Element] struct {
	pairs
	dim    int
	first  int64 // key position minus query position of diagonal 0
	stride int   // from the diagonals of one head to those of the next
	data   []T
}

// AsToeplitz views a tensor of form TOEPLITZ without a border. The error is ErrInvalidArgument if
// the tensor has a different form or element type, and ErrCorrupt if its shape contradicts its
// resolved request.
func AsToeplitz[T Element](tensor *Tensor) (*Toeplitz[T], error) {
	return toeplitzOf[T](tensor, 1)
}

// toeplitzOf reads the diagonals of a tensor with the given number of parts: 1, or 2 if it has a
// border.
func toeplitzOf[T Element](tensor *Tensor, parts int) (*Toeplitz[T], error) {
	array, err := arrayOfForm[T](tensor, pb.Form_FORM_TOEPLITZ, parts)
	if err != nil {
		return nil, err
	}
	part := tensor.header.Parts[0]
	counts, axes := splitHeads(tensor.header, array.Shape)
	t := &Toeplitz[T]{pairs: counts, dim: 1, first: part.FirstRelativePosition, data: array.Data}
	if len(axes) == 2 { // the elements are vectors
		t.dim, axes = axes[1], axes[:1]
	}
	if len(axes) != 1 || t.queries < 1 || t.keys < 1 || axes[0]-t.queries != t.keys-1 {
		return nil, contradicts(part)
	}
	t.stride = axes[0] * t.dim
	return t, nil
}

// Dim returns the length of each vector, or 1 for scalars.
func (t *Toeplitz[T]) Dim() int { return t.dim }

// FirstRelativePosition returns the position of key 0 minus that of the last query: the relative
// position of diagonal 0.
func (t *Toeplitz[T]) FirstRelativePosition() int64 { return t.first }

// At returns the element for query i and key j in head h. It panics if the elements are vectors.
func (t *Toeplitz[T]) At(h, i, j int) T {
	if t.dim != 1 {
		panic("attnbias: got At on a Toeplitz of vectors, want Vector")
	}
	t.check(h, i, j)
	return t.data[h*t.stride+j-i+t.queries-1]
}

// Vector returns the Dim() values for query i and key j in head h, without copying them.
func (t *Toeplitz[T]) Vector(h, i, j int) []T {
	t.check(h, i, j)
	begin := h*t.stride + (j-i+t.queries-1)*t.dim
	return t.data[begin : begin+t.dim : begin+t.dim]
}

// Row returns the Keys() * Dim() values for query i in head h, key by key, without copying them.
// Rows share memory: row i is row i - 1 shifted by one key.
func (t *Toeplitz[T]) Row(h, i int) []T {
	t.checkRow(h, i)
	begin := h*t.stride + (t.queries-1-i)*t.dim
	end := begin + t.keys*t.dim
	return t.data[begin:end:end]
}

// Diagonals returns the (Queries() + Keys() - 1) * Dim() values for head h, in ascending order of
// key minus query, without copying them.
func (t *Toeplitz[T]) Diagonals(h int) []T {
	t.checkRow(h, 0)
	begin := h * t.stride
	end := begin + (t.queries+t.keys-1)*t.dim
	return t.data[begin:end:end]
}

// Window returns a view of part of the tensor. The error is ErrInvalidArgument if the part is empty
// or out of range.
func (t *Toeplitz[T]) Window(window Window) (*Toeplitz[T], error) {
	part := *t
	in, err := part.cut(window)
	if err != nil {
		return nil, err
	}
	begin := in.Keys.Begin - (in.Queries.End - 1) + t.queries - 1
	part.first += int64(begin)
	part.data = t.data[in.Heads.Begin*t.stride+begin*t.dim:]
	return &part, nil
}

// arrayOfForm reads the first part of a tensor. It rejects a tensor whose first part has a
// different form, or that has a different number of parts.
func arrayOfForm[T Element](tensor *Tensor, form pb.Form, parts int) (Array[T], error) {
	got := tensor.header.Parts
	if len(got) == parts && got[0].Form == form {
		return arrayOf[T](tensor, got[0])
	}
	var is []string
	for _, part := range got {
		is = append(is, part.Name+" of "+part.Form.String())
	}
	border := ""
	if parts == 2 {
		border = " with a border"
	}
	return Array[T]{}, invalid("tensor: got parts %v, want %v%s", is, form, border)
}
