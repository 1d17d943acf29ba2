// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"sort"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

// anyLength is the length of an axis that the request does not determine.
const anyLength = -1

// The length of a border's last axis.
const borderLength = 3

// mostAxes is NumPy's limit, which no encoding approaches.
const mostAxes = 64

var partNames = map[pb.Form]string{
	pb.Form_FORM_TOEPLITZ:       "diagonals",
	pb.Form_FORM_KEY_ROW:        "row",
	pb.Form_FORM_DENSE:          "dense",
	pb.Form_FORM_BLOCK_TOEPLITZ: "block",
}

var fingerprintForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// expected is the answer that a request determines. The contract's own options (options.proto)
// describe each encoding, so this file names none.
type expected struct {
	encoding   protoreflect.Name
	parts      []expectedPart
	dataType   pb.DataType
	window     extent
	maskedRows [][2]int64 // half-open ranges of queries that see no key, counted inside the window
	areVectors bool       // each pair has a vector
	axes       int        // parts of a table, one for each axis of a grid; 0 if a table is one part
	columns    int64      // of such a table
}

// extent is the queries and keys of pairs, and their first head; or the positions of a table, as
// queries.
type extent struct {
	queries, keys axis
	others        []axis  // of a table whose axes differ, or of a grid: those after the first
	strides       []int64 // of the queries of a grid, one for each axis
	firstHead     int64
}

type expectedPart struct {
	name         string
	form         pb.Form
	shape        []int64 // without the axis of heads if mayHaveHeads
	mayHaveHeads bool    // of vectors only the table tells
	first        int64   // relative position of diagonal 0; 0 in other forms
}

func (e extent) equal(other extent) bool {
	return e.queries.equal(other.queries) && e.keys.equal(other.keys) &&
		slices.EqualFunc(e.others, other.others, axis.equal) &&
		slices.Equal(e.strides, other.strides) && e.firstHead == other.firstHead
}

// axis is the positions of queries or keys.
type axis struct {
	first, last, length int64
	list                []int64   // nil if they are consecutive
	doubles             []float64 // these instead, if not all are integers
}

func (a axis) equal(b axis) bool {
	return a.first == b.first && a.length == b.length && slices.Equal(a.list, b.list) &&
		slices.Equal(a.doubles, b.doubles)
}

func (a axis) moved(by int64) axis {
	a.first += by
	a.last += by
	return a
}

// checkHeader checks that a header's sizes add up, and compares the header with the request.
func checkHeader(header *pb.TensorHeader, want *expected) error {
	if len(header.Parts) == 0 {
		return corrupt("header: it has no parts")
	}
	end := int64(0)
	for _, part := range header.Parts {
		if _, known := elementSizes[part.DataType]; !known {
			return failed(codes.Unimplemented, "header: part %s has data_type %d, which this "+
				"client does not know", brief(part.Name), part.DataType)
		}
		if axes := len(part.Shape); axes > mostAxes {
			return corrupt("header: part %s has %d axes, want at most %d", brief(part.Name),
				axes, mostAxes)
		}
		size, ok := product(append([]int64{elementSizes[part.DataType]}, part.Shape...)...)
		if !ok || part.Offset != end || part.SizeBytes != size || size > math.MaxInt64-end {
			return corrupt("header: part %s at byte %d has shape %v of %v in %d bytes, which does "+
				"not add up", brief(part.Name), part.Offset, part.Shape, part.DataType,
				part.SizeBytes)
		}
		end += size
	}
	if header.TotalBytes != end {
		return corrupt("header.total_bytes: got %d, want %d, the sum of its parts",
			header.TotalBytes, end)
	}
	return want.check(header)
}

// product returns false if the product overflows int64 or a factor is negative.
func product[T int | int64](factors ...T) (int64, bool) {
	all := int64(1)
	for _, factor := range factors {
		if factor < 0 || factor > 0 && all > math.MaxInt64/int64(factor) {
			return 0, false
		}
		all *= int64(factor)
	}
	return all, true
}

// checkSize refuses a payload before its memory is allocated.
func checkSize(bytes, most int64) error {
	if bytes > most {
		return failed(codes.ResourceExhausted, "WithMaxTensorBytes: the tensor has %d bytes, this "+
			"client takes at most %d", bytes, most)
	}
	return nil
}

// check compares a header with the request.
func (e *expected) check(header *pb.TensorHeader) error {
	for _, field := range []struct{ name, value string }{
		{"fingerprint", header.Fingerprint},
		{"encoding_fingerprint", header.EncodingFingerprint},
	} {
		if !fingerprintForm.MatchString(field.value) {
			return corrupt(`header.%s: got "%s", want 64 lowercase hex digits`, field.name,
				brief(field.value))
		}
	}
	var got, want []string
	for _, part := range header.Parts {
		got = append(got, part.Name)
	}
	for _, part := range e.parts {
		want = append(want, part.name)
	}
	if !slices.Equal(got, want) {
		return corrupt("header.parts: got [%s], want [%s]", brief(strings.Join(got, ", ")),
			strings.Join(want, ", "))
	}
	if err := e.checkParts(header.Parts); err != nil {
		return err
	}
	if !e.hasColumns(header) {
		return corrupt("header.column_axes: got other columns, want those of the parts")
	}
	understood := expectedOf(header.ResolvedSpec)
	if understood.encoding != e.encoding || !understood.window.equal(e.window) ||
		len(understood.parts) != len(e.parts) || understood.checkParts(header.Parts) != nil {
		return corrupt("header.resolved_spec: got another request, want the one that was made")
	}
	var rows [][2]int64
	for _, each := range header.FullyMaskedRows {
		rows = append(rows, [2]int64{each.Begin, each.End})
	}
	if !slices.Equal(rows, e.maskedRows) {
		return corrupt("header.fully_masked_rows: got %s, want %s", brief(commaSeparated(rows)),
			brief(commaSeparated(e.maskedRows)))
	}
	return nil
}

// checkParts compares parts, whose number is the expected one.
func (e *expected) checkParts(parts []*pb.TensorPart) error {
	for i, part := range parts {
		want := e.parts[i]
		if i > 0 && want.shape[0] == anyLength { // as many heads as the first part has
			want.shape = append([]int64{parts[0].Shape[0]}, want.shape[1:]...)
		}
		if err := want.check(part, e.dataType); err != nil {
			return err
		}
	}
	return nil
}

// hasColumns reports whether the axes of columns fit the parts of a grid's axes.
func (e *expected) hasColumns(header *pb.TensorHeader) bool {
	if e.axes == 0 {
		return len(header.ColumnAxes) == 0
	}
	columns := make([]int64, e.axes)
	for _, axis := range header.ColumnAxes {
		if axis < 0 || int(axis) >= e.axes {
			return false
		}
		columns[axis]++
	}
	for i, part := range header.Parts {
		if part.Shape[1] != columns[i%e.axes] {
			return false
		}
	}
	return int64(len(header.ColumnAxes)) == e.columns
}

// check compares all but the name.
func (e *expectedPart) check(part *pb.TensorPart, dataType pb.DataType) error {
	differs := func(field string, got, want any) error {
		return corrupt("header: part %s has %s %v, want %v", e.name, field, got, want)
	}
	switch {
	case part.DataType != dataType:
		return differs("data_type", valueName(part.DataType), valueName(dataType))
	case part.Form != e.form:
		return differs("form", valueName(part.Form), valueName(e.form))
	case !e.hasShape(part.Shape):
		return differs("shape", commaSeparated(part.Shape), e.shapeText())
	case part.FirstRelativePosition != e.first:
		return differs("first_relative_position", part.FirstRelativePosition, e.first)
	}
	return nil
}

func (e *expectedPart) hasShape(shape []int64) bool {
	if e.mayHaveHeads && len(shape) == len(e.shape)+1 && shape[0] > 0 {
		shape = shape[1:]
	}
	if len(shape) != len(e.shape) {
		return false
	}
	for i, length := range shape {
		if length < 1 || e.shape[i] != anyLength && length != e.shape[i] {
			return false
		}
	}
	return true
}

func (e *expectedPart) shapeText() string {
	text := strings.ReplaceAll(commaSeparated(e.shape), fmt.Sprint(anyLength), "any")
	if e.mayHaveHeads {
		text += ", perhaps after an axis of heads"
	}
	return text
}

func commaSeparated[T any](items []T) string {
	return strings.ReplaceAll(fmt.Sprint(items), " ", ", ")
}

// valueName returns "F32" for DATA_TYPE_F32, and the number of an unknown value.
func valueName(value protoreflect.Enum) string {
	values := value.Descriptor().Values()
	found := values.ByNumber(value.Number())
	if found == nil {
		return fmt.Sprint(value.Number())
	}
	prefix := strings.TrimSuffix(string(values.ByNumber(0).Name()), "UNSPECIFIED")
	return strings.TrimPrefix(string(found.Name()), prefix)
}

// expectedOf derives the answer to a request. The result for a request that servers refuse is
// unspecified.
func expectedOf(spec *pb.TensorSpec) *expected {
	r, ok := newRequest(spec)
	if !ok {
		return &expected{}
	}
	e := &expected{encoding: r.encoding.Descriptor().Name(),
		dataType: spec.GetOutput().GetDataType()}
	if e.dataType == pb.DataType_DATA_TYPE_UNSPECIFIED {
		e.dataType = pb.DataType_DATA_TYPE_F32
		if r.hasIndices {
			e.dataType = pb.DataType_DATA_TYPE_I32
		}
	}
	columns := r.columns()
	if r.structure == pb.Structure_STRUCTURE_TABLE {
		e.window.queries, e.window.others = r.positions()
		grid := spec.GetTable().GetGrid()
		form, rows := pb.Form_FORM_TABLE, e.window.queries.length
		if len(grid) > 0 && spec.GetOutput().GetForm() == pb.Form_FORM_DENSE {
			form = pb.Form_FORM_DENSE
			for _, other := range e.window.others {
				rows *= other.length
			}
		} else if len(grid) > 0 && len(columns) > 0 {
			e.axes, e.columns = len(grid), columns[0]
		}
		for _, name := range r.tableParts() {
			for i := range e.axes {
				e.parts = append(e.parts, expectedPart{name: axisPart(name, i), form: form,
					shape: []int64{grid[i], anyLength}})
			}
			if e.axes == 0 {
				e.parts = append(e.parts, expectedPart{name: name, form: form,
					shape: append([]int64{rows}, columns...)})
			}
		}
		return e
	}
	e.areVectors = len(columns) > 0
	queries, keys := r.axes()
	e.window = extent{queries: queries, keys: keys, strides: r.strides(),
		firstHead: r.headWindow().GetBegin()}
	if mask := spec.GetOutput().GetMask(); mask != nil {
		e.maskedRows = rowsWithoutKeys(mask, queries, keys)
	}
	form := spec.GetOutput().GetForm()
	if form == pb.Form_FORM_UNSPECIFIED {
		form = r.compactForm(queries, keys)
	}
	heads, mayHaveHeads := r.heads()
	first := expectedPart{name: partNames[form], form: form, mayHaveHeads: mayHaveHeads}
	first.shape = append(append(first.shape, heads...), r.inner(form, queries, keys)...)
	first.shape = append(first.shape, columns...)
	if form == pb.Form_FORM_TOEPLITZ {
		first.first = keys.first - queries.last
	}
	e.parts = append(e.parts, first)
	if r.hasBorder && form != pb.Form_FORM_DENSE {
		e.parts = append(e.parts, expectedPart{name: "border", form: pb.Form_FORM_TABLE,
			shape: append(append([]int64{}, heads...), borderLength)})
	}
	return e
}

// request is a spec with the properties that its encoding's options give it.
type request struct {
	spec       *pb.TensorSpec
	encoding   protoreflect.Message
	fields     protoreflect.FieldDescriptors
	structure  pb.Structure
	hasBorder  bool
	hasIndices bool
}

// newRequest returns false for a spec without an encoding.
func newRequest(spec *pb.TensorSpec) (*request, bool) {
	message := spec.ProtoReflect()
	chosen := message.WhichOneof(message.Descriptor().Oneofs().ByName("encoding"))
	if chosen == nil {
		return nil, false
	}
	encoding := message.Get(chosen).Message()
	options := encoding.Descriptor().Options()
	r := &request{
		spec: spec, encoding: encoding, fields: encoding.Descriptor().Fields(),
		structure: proto.GetExtension(options, pb.E_Structure).(pb.Structure),
		hasIndices: spec.GetOutput().GetValues() == pb.Values_VALUES_BUCKETS ||
			proto.GetExtension(options, pb.E_BucketsOnly).(bool),
	}
	encoding.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		rule := ruleOf(field)
		r.hasBorder = r.hasBorder || rule.GetBorderIfSet()
		r.override(rule.GetStructureIfSet())
		if field.Enum() != nil && !field.IsList() {
			if named := field.Enum().Values().ByNumber(value.Enum()); named != nil {
				structure := proto.GetExtension(named.Options(), pb.E_StructureOfValue)
				r.override(structure.(pb.Structure))
			}
		}
		return true
	})
	return r, true
}

func (r *request) override(other pb.Structure) {
	if other != 0 {
		r.structure = other
	}
}

func ruleOf(field protoreflect.FieldDescriptor) *pb.FieldRule {
	return proto.GetExtension(field.Options(), pb.E_Rule).(*pb.FieldRule)
}

func (r *request) tableParts() []string {
	names := proto.GetExtension(r.encoding.Descriptor().Options(), pb.E_Parts).([]string)
	if len(names) == 0 {
		names = []string{"positions"}
	}
	for i := range r.fields.Len() {
		field := r.fields.Get(i)
		if part := ruleOf(field).GetAddsPart(); part != "" && r.encoding.Has(field) {
			names = append(slices.Clip(names), part)
		}
	}
	return names
}

func (r *request) compactForm(queries, keys axis) pb.Form {
	switch r.structure {
	case pb.Structure_STRUCTURE_TOEPLITZ:
		if queries.list == nil && keys.list == nil {
			return pb.Form_FORM_TOEPLITZ
		}
	case pb.Structure_STRUCTURE_KEY_ROW:
		return pb.Form_FORM_KEY_ROW
	case pb.Structure_STRUCTURE_BLOCK_TOEPLITZ:
		if queries.equal(rangeOr(nil, r.tokens(r.strides()))) &&
			keys.equal(rangeOr(nil, r.tokens(nil))) {
			return pb.Form_FORM_BLOCK_TOEPLITZ
		}
	}
	return pb.Form_FORM_DENSE
}

// inner returns the axes between heads and columns.
func (r *request) inner(form pb.Form, queries, keys axis) []int64 {
	switch form {
	case pb.Form_FORM_TOEPLITZ:
		return []int64{max(queries.length+keys.length-1, 0)}
	case pb.Form_FORM_KEY_ROW:
		return []int64{keys.length}
	case pb.Form_FORM_BLOCK_TOEPLITZ:
		sides := r.sides()
		for i, side := range sides {
			sides[i] = max(2*side-1, 0)
		}
		return sides
	default:
		return []int64{queries.length, keys.length}
	}
}

// number returns the value of a field; 0 if the encoding has no such field.
func (r *request) number(name protoreflect.Name) int64 {
	field := r.fields.ByName(name)
	if field == nil {
		return 0
	}
	return r.encoding.Get(field).Int()
}

// positions returns the positions of the first axis, and of the others unless all lists are equal.
func (r *request) positions() (first axis, others []axis) {
	extent := r.spec.GetTable()
	for i, length := range extent.GetGrid() {
		along := rangeOf(&pb.Range{End: length})
		if i < len(extent.GridOffset) {
			along = along.moved(extent.GridOffset[i])
		}
		others = append(others, along)
	}
	if len(others) > 0 {
		return others[0], others[1:]
	}
	if extent.GetPositions() != nil || len(extent.GetPositionIds()) == 0 {
		return rangeOf(extent.GetPositions()), nil
	}
	first = listOf(extent.PositionIds[0])
	for _, list := range extent.PositionIds[1:] {
		others = append(others, listOf(list))
	}
	if !slices.ContainsFunc(others, func(a axis) bool { return !a.equal(first) }) {
		others = nil
	}
	return first, others
}

// sides returns the sides of a grid.
func (r *request) sides() []int64 {
	window := r.fields.ByName("window")
	if window == nil {
		return nil
	}
	list := r.encoding.Get(window).List()
	sides := make([]int64, list.Len())
	for i := range sides {
		sides[i] = list.Get(i).Int()
	}
	return sides
}

// strides returns the stride of a grid's queries on each axis.
func (r *request) strides() []int64 {
	if strides := r.spec.GetGrid().GetQueryStride(); len(strides) > 0 {
		return strides
	}
	return slices.Repeat([]int64{1}, len(r.sides()))
}

// tokens returns the number of tokens at a stride on each axis, with the class token.
func (r *request) tokens(strides []int64) int64 {
	tokens := int64(1)
	for axis, side := range r.sides() {
		if axis < len(strides) {
			side = (side-1)/max(strides[axis], 1) + 1
		}
		tokens *= side
	}
	if r.hasBorder {
		tokens++
	}
	return tokens
}

func (r *request) axes() (queries, keys axis) {
	if r.structure == pb.Structure_STRUCTURE_BLOCK_TOEPLITZ {
		extent := r.spec.GetGrid()
		return rangeOr(extent.GetQueries(), r.tokens(r.strides())),
			rangeOr(extent.GetKeys(), r.tokens(nil))
	}
	extent := r.spec.GetPair()
	offset := extent.GetQueryOffset()
	if extent.GetAlignment() == pb.Alignment_ALIGNMENT_END {
		offset = extent.KeyLength - extent.QueryLength
	}
	queries, keys = listOf(extent.GetQueryPositions()), listOf(extent.GetKeyPositions())
	if extent.GetQueryPositions() == nil {
		queries = rangeOr(extent.GetQueries(), extent.GetQueryLength()).moved(offset)
	}
	if extent.GetKeyPositions() == nil {
		keys = rangeOr(extent.GetKeys(), extent.GetKeyLength())
	}
	return queries, keys
}

func rangeOf(span *pb.Range) axis {
	length := max(span.GetEnd()-span.GetBegin(), 0)
	return axis{first: span.GetBegin(), last: span.GetEnd() - 1, length: length}
}

// rangeOr returns a window, or all positions if there is none.
func rangeOr(span *pb.Range, length int64) axis {
	if span == nil {
		span = &pb.Range{End: length}
	}
	return rangeOf(span)
}

func listOf(list *pb.PositionList) axis {
	positions := list.GetPositions()
	// Doubles that are all integers are the same request as integers.
	for _, position := range list.GetDoubles() {
		if position != math.Trunc(position) || math.Abs(position) > 1<<40 {
			return axis{length: int64(len(list.Doubles)), doubles: list.Doubles}
		}
		positions = append(positions, int64(position))
	}
	if len(positions) == 0 {
		return axis{}
	}
	last := len(positions) - 1
	a := axis{first: positions[0], last: positions[last], length: int64(len(positions))}
	for i, position := range positions {
		if position != a.first+int64(i) {
			a.list = positions
		}
	}
	return a
}

// columnsField returns the field, a number or a table, that determines the columns of numbers; nil
// if they have none.
func (r *request) columnsField() protoreflect.FieldDescriptor {
	for i := range r.fields.Len() {
		field := r.fields.Get(i)
		isGiven := field.Message() == nil || r.encoding.Has(field)
		if isGiven && ruleOf(field).GetColumns() {
			return field
		}
	}
	return nil
}

// columns returns the last axis of an answer whose numbers have columns; else nothing.
func (r *request) columns() []int64 {
	field := r.columnsField()
	if r.hasIndices || field == nil {
		return nil
	}
	if field.Message() == nil {
		return []int64{r.rotated(r.encoding.Get(field).Int())}
	}
	if shape := shapeOf(r.encoding.Get(field).Message()); len(shape) > 0 {
		return shape[len(shape)-1:]
	}
	return []int64{anyLength}
}

// rotated returns the columns of a rotary table; of other tables, all columns.
func (r *request) rotated(columns int64) int64 {
	rotary := r.spec.GetRotary()
	if rotary == nil {
		return columns
	}
	if rotary.PartialRotaryFactor != nil && rotary.GetProportional() == nil {
		columns = int64(float64(columns) * rotary.GetPartialRotaryFactor())
	}
	columns -= columns % 2
	if rotary.GetLayout() == pb.RotaryLayout_ROTARY_LAYOUT_COMPACT {
		columns /= 2
	}
	return columns
}

// headWindow returns the window of heads; nil for all heads.
func (r *request) headWindow() *pb.Range {
	if window := r.spec.GetPair().GetHeads(); window != nil {
		return window
	}
	return r.spec.GetGrid().GetHeads()
}

// heads returns the first axis of an answer that has heads, and whether only the server knows if
// there is one.
func (r *request) heads() ([]int64, bool) {
	if r.hasIndices {
		return nil, false
	}
	if window := r.headWindow(); window != nil {
		return []int64{rangeOf(window).length}, false
	}
	if field := r.columnsField(); field != nil && field.Message() != nil {
		shape := shapeOf(r.encoding.Get(field).Message())
		return shape[:max(len(shape)-2, 0)], len(shape) == 0
	}
	field := r.fields.ByName("num_heads")
	if field == nil {
		return nil, false
	}
	heads := r.number("num_heads")
	if heads == 0 {
		heads = r.givenHeads(field)
	}
	if heads == 0 {
		heads = anyLength
	}
	return []int64{heads}, false
}

// givenHeads returns the heads of the fields that replace num_heads; 0 for a table on the server.
func (r *request) givenHeads(numHeads protoreflect.FieldDescriptor) int64 {
	heads := int64(0)
	for name := range strings.SplitSeq(ruleOf(numHeads).GetGivenBy(), "|") {
		if field := r.fields.ByName(protoreflect.Name(name)); field != nil {
			heads = max(heads, r.headsOf(field))
		}
	}
	return heads
}

// headsOf returns the length of a list, the columns of a table, or the outputs of a weight or of
// the last layer.
func (r *request) headsOf(field protoreflect.FieldDescriptor) int64 {
	value := r.encoding.Get(field)
	var table *pb.TableRef
	switch {
	case !field.IsList():
		table = value.Message().Interface().(*pb.TableRef)
	case field.Message() == nil || value.List().Len() == 0:
		return int64(value.List().Len())
	default:
		last := value.List().Get(value.List().Len() - 1).Message()
		table = last.Interface().(*pb.MlpLayer).GetWeight()
	}
	shape := table.GetInlineTable().GetShape()
	if len(shape) != 2 {
		return 0
	}
	isWeight := field.IsList() || strings.HasSuffix(string(field.Name()), "weight")
	isTurned := table.GetLayout() == pb.TableLayout_TABLE_LAYOUT_HEADS_BUCKETS
	if isWeight != isTurned {
		return shape[0]
	}
	return shape[1]
}

// shapeOf returns the shape of a table in the request; empty for one on the server.
func shapeOf(table protoreflect.Message) []int64 {
	return table.Interface().(*pb.TableRef).GetInlineTable().GetShape()
}

// noWindow is more than any distance between positions, and overflows no sum of them.
const noWindow = 1 << 62

// rowsWithoutKeys returns half-open ranges of queries, by their indices, that see none of the keys.
func rowsWithoutKeys(mask *pb.Mask, queries, keys axis) (rows [][2]int64) {
	seeing := seeingPositions(mask, keys)
	if queries.list == nil {
		// A loop over the queries could take far longer than the answer is large.
		blind, end := queries.first, queries.first+queries.length
		for _, each := range seeing {
			if next := min(each[0], end); blind < next {
				rows = append(rows, [2]int64{blind - queries.first, next - queries.first})
			}
			blind = max(blind, each[1])
		}
		if blind < end {
			rows = append(rows, [2]int64{blind - queries.first, queries.length})
		}
		return rows
	}
	for i, query := range queries.list {
		at := sort.Search(len(seeing), func(k int) bool { return seeing[k][1] > query })
		if at < len(seeing) && seeing[at][0] <= query {
			continue
		}
		if last := len(rows) - 1; last >= 0 && rows[last][1] == int64(i) {
			rows[last][1]++
		} else {
			rows = append(rows, [2]int64{int64(i), int64(i) + 1})
		}
	}
	return rows
}

// seeingPositions returns half-open ranges of positions that see a key: disjoint, ascending.
func seeingPositions(mask *pb.Mask, keys axis) (seeing [][2]int64) {
	left, right := int64(noWindow), int64(noWindow)
	if mask.WindowLeft != nil {
		left = min(*mask.WindowLeft, noWindow)
	}
	if mask.WindowRight != nil {
		right = min(*mask.WindowRight, noWindow)
	}
	if mask.Causal {
		right = 0
	}
	if keys.list == nil {
		return [][2]int64{{keys.first - right, keys.last + left + 1}}
	}
	for _, key := range slices.Sorted(slices.Values(keys.list)) {
		begin, end := key-right, key+left+1
		if last := len(seeing) - 1; last >= 0 && begin <= seeing[last][1] {
			seeing[last][1] = end
		} else {
			seeing = append(seeing, [2]int64{begin, end})
		}
	}
	return seeing
}
