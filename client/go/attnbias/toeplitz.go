// SPDX-License-Identifier: Apache-2.0

package attnbias

import pb "github.com/attnbias/attnbias/client/go/attnbiaspb"

// Span is the indices Begin, Begin + 1, ..., End - 1; Span{} is all.
type Span struct{ Begin, End int }

// Window is a part of a tensor over heads, queries and keys. What is not said is all.
type Window struct{ Heads, Queries, Keys Span }

// within gives the bounds of a span, if these are some of so many indices.
func (s Span) within(length int, name string) (Span, error) {
	if s == (Span{}) {
		return Span{0, length}, nil
	}
	if s.Begin < 0 || s.End > length || s.Begin >= s.End {
		return Span{}, invalid("%s: got [%d, %d), want a part of [0, %d) that is not empty", name,
			s.Begin, s.End, length)
	}
	return s, nil
}

func (w Window) within(heads, queries, keys int) (Window, error) {
	var in Window
	var err error
	if in.Heads, err = w.Heads.within(heads, "Window.Heads"); err != nil {
		return in, err
	}
	if in.Queries, err = w.Queries.within(queries, "Window.Queries"); err != nil {
		return in, err
	}
	in.Keys, err = w.Keys.within(keys, "Window.Keys")
	return in, err
}

func (s Span) length() int { return s.End - s.Begin }

// pairs is how many heads, queries and keys a tensor is over.
type pairs struct{ heads, queries, keys int }

// splitHeads takes the axis of heads, which indices lack, from the front of so many others.
func splitHeads(shape []int, others int) (heads int, rest []int) {
	if len(shape) == others {
		return 1, shape
	}
	return shape[0], shape[1:]
}

// pairs is how many there are of so many heads.
func (e *expected) pairs(heads int) pairs {
	return pairs{heads, int(e.window.queries.length), int(e.window.keys.length)}
}

// Heads returns the number of heads; 1 for numbers that all heads share.
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

// Toeplitz is a tensor [heads, queries, keys] whose numbers depend on key minus query alone:
//
//	At(h, i, j) = Diagonals(h)[j - i + Queries() - 1]
//
// Of encodings of relative vectors it is one of vectors: each of these numbers is Dim() of them.
type Toeplitz[T Element] struct {
	pairs
	dim    int
	first  int64 // key position minus query position of diagonal 0
	stride int   // from the diagonals of one head to those of the next
	data   []T
}

// AsToeplitz reads a tensor of form TOEPLITZ without a border, where it lies. It is
// ErrInvalidArgument where the tensor has another form, or its numbers are of another type.
func AsToeplitz[T Element](tensor *Tensor) (*Toeplitz[T], error) {
	return toeplitzOf[T](tensor, 1)
}

// toeplitzOf reads the diagonals of a tensor of one part, or of two if a border follows.
func toeplitzOf[T Element](tensor *Tensor, parts int) (*Toeplitz[T], error) {
	array, err := arrayOfForm[T](tensor, pb.Form_FORM_TOEPLITZ, parts)
	if err != nil {
		return nil, err
	}
	t := &Toeplitz[T]{pairs: tensor.asked.pairs(1), dim: 1,
		first: tensor.header.Parts[0].FirstRelativePosition, data: array.Data}
	axes := array.Shape
	if tensor.asked.areVectors {
		t.dim, axes = axes[len(axes)-1], axes[:len(axes)-1]
	}
	t.heads, axes = splitHeads(axes, 1)
	t.stride = axes[0] * t.dim
	return t, nil
}

// Dim returns the number of columns of each vector; 1 for numbers.
func (t *Toeplitz[T]) Dim() int { return t.dim }

// FirstRelativePosition returns the position of key 0 minus that of the last query: that of
// diagonal 0.
func (t *Toeplitz[T]) FirstRelativePosition() int64 { return t.first }

// At returns the number of query i and key j in head h. It panics for a Toeplitz of vectors.
func (t *Toeplitz[T]) At(h, i, j int) T {
	if t.dim != 1 {
		panic("attnbias: At of a Toeplitz of vectors, want Vector")
	}
	t.check(h, i, j)
	return t.data[h*t.stride+j-i+t.queries-1]
}

// Vector returns the Dim() numbers of query i and key j in head h; not a copy.
func (t *Toeplitz[T]) Vector(h, i, j int) []T {
	t.check(h, i, j)
	begin := h*t.stride + (j-i+t.queries-1)*t.dim
	return t.data[begin : begin+t.dim : begin+t.dim]
}

// Row returns the Keys() * Dim() numbers of query i in head h, key by key; not a copy. Rows share
// their memory: row i is row i - 1 moved by one key.
func (t *Toeplitz[T]) Row(h, i int) []T {
	t.checkRow(h, i)
	begin := h*t.stride + (t.queries-1-i)*t.dim
	end := begin + t.keys*t.dim
	return t.data[begin:end:end]
}

// Diagonals returns the (Queries() + Keys() - 1) * Dim() numbers of head h, by ascending key minus
// query; not a copy.
func (t *Toeplitz[T]) Diagonals(h int) []T {
	t.checkRow(h, 0)
	begin := h * t.stride
	end := begin + (t.queries+t.keys-1)*t.dim
	return t.data[begin:end:end]
}

// Window returns a part of the tensor over the same memory; not a copy. It is ErrInvalidArgument
// where the part is empty or not all inside.
func (t *Toeplitz[T]) Window(window Window) (*Toeplitz[T], error) {
	in, err := window.within(t.heads, t.queries, t.keys)
	if err != nil {
		return nil, err
	}
	begin := in.Keys.Begin - (in.Queries.End - 1) + t.queries - 1
	part := *t
	part.pairs = pairs{in.Heads.length(), in.Queries.length(), in.Keys.length()}
	part.first += int64(begin)
	part.data = t.data[in.Heads.Begin*t.stride+begin*t.dim:]
	return &part, nil
}

// arrayOfForm reads the first part of a tensor. It refuses one whose first part has another form,
// or that has another number of parts.
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
	return Array[T]{}, invalid("tensor: got one of %v, want %v%s", is, form, border)
}
