// SPDX-License-Identifier: Apache-2.0

package attnbias

import "fmt"

// GridTable is a table [tokens, columns] over the tokens of a grid in row-major order. Each column
// depends only on the position along one axis:
//
//	At(token, column) = Axes[a].At(token's index on axis a, column's index among a's columns)
type GridTable[T Element] struct {
	// Axes holds a table [length, columns] for each axis. The tables are not copies.
	Axes    []Array[T]
	columns []gridColumn
}

// gridColumn holds the axis of a column, and its index among the columns of that axis.
type gridColumn struct{ axis, place int }

// AsGridTable views the table with the given name, such as "positions", "cos" or "sin", in a tensor
// over a grid. The error is ErrInvalidArgument if the tensor has no such table in form TABLE over a
// grid, or if its elements have a different type.
func AsGridTable[T Element](tensor *Tensor, name string) (*GridTable[T], error) {
	axes := len(tensor.header.ResolvedSpec.GetTable().GetGrid())
	if axes == 0 || len(tensor.header.ColumnAxes) == 0 {
		return nil, invalid("tensor: got a tensor without a part for each axis, want form " +
			"TABLE over a grid")
	}
	t := &GridTable[T]{}
	for axis := range axes {
		array, err := AsArray[T](tensor, fmt.Sprintf("%s.axis%d", name, axis))
		if err != nil {
			return nil, err
		}
		t.Axes = append(t.Axes, array)
	}
	next := make([]int, axes)
	for _, axis := range tensor.header.ColumnAxes {
		t.columns = append(t.columns, gridColumn{int(axis), next[axis]})
		next[axis]++
	}
	return t, nil
}

// Tokens returns the number of rows.
func (t *GridTable[T]) Tokens() int {
	tokens := 1
	for _, table := range t.Axes {
		tokens *= table.Shape[0]
	}
	return tokens
}

// Columns returns the number of columns.
func (t *GridTable[T]) Columns() int { return len(t.columns) }

// At returns the element for a token and a column.
func (t *GridTable[T]) At(token, column int) T {
	if tokens := t.Tokens(); uint(token) >= uint(tokens) {
		panic(outOfRange("token", token, tokens))
	}
	if uint(column) >= uint(len(t.columns)) {
		panic(outOfRange("column", column, len(t.columns)))
	}
	at := t.columns[column]
	for later := len(t.Axes) - 1; later > at.axis; later-- {
		token /= t.Axes[later].Shape[0]
	}
	table := t.Axes[at.axis]
	return table.At(token%table.Shape[0], at.place)
}
