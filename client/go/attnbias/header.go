// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"fmt"
	"math"
	"regexp"
	"strings"

	"google.golang.org/grpc/codes"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

// mostAxes is NumPy's limit; no encoding comes close.
const mostAxes = 64

var (
	fingerprintForm = regexp.MustCompile(`^[0-9a-f]{64}$`)
	partName        = regexp.MustCompile(`^[a-z0-9._]{1,64}$`)
)

// checkHeader rejects a header that contradicts itself.
func checkHeader(header *pb.TensorHeader) error {
	for _, field := range []struct{ name, value string }{
		{"fingerprint", header.Fingerprint},
		{"encoding_fingerprint", header.EncodingFingerprint},
	} {
		if !fingerprintForm.MatchString(field.value) {
			return corrupt(`header.%s: got "%s", want 64 lowercase hex digits`, field.name,
				brief(field.value))
		}
	}
	if len(header.Parts) == 0 {
		return corrupt("header: has no parts")
	}
	var names []string
	end, known := int64(0), map[string]bool{}
	for _, part := range header.Parts {
		if err := checkPart(part, end); err != nil {
			return err
		}
		end += part.SizeBytes
		names, known[part.Name] = append(names, part.Name), true
	}
	if len(known) < len(names) {
		return corrupt("header.parts: got [%s], want distinct names",
			brief(strings.Join(names, ", ")))
	}
	if header.TotalBytes != end {
		return corrupt("header.total_bytes: got %d, want %d, the sum of its parts",
			header.TotalBytes, end)
	}
	if err := checkRows(header); err != nil {
		return err
	}
	return checkColumns(header)
}

// checkPart rejects a part that does not begin at offset or that contradicts itself.
func checkPart(part *pb.TensorPart, offset int64) error {
	if !partName.MatchString(part.Name) {
		return corrupt(`header.parts: got the name "%s", want 1 to 64 characters from a-z, 0-9, `+
			`. and _`, brief(part.Name))
	}
	unknown := func(field string, value any) error {
		return failed(codes.Unimplemented, "header: part %s has %s %d, which this client does "+
			"not recognize", part.Name, field, value)
	}
	element, known := elementSizes[part.DataType]
	if !known {
		return unknown("data_type", part.DataType)
	}
	if _, known := pb.Form_name[int32(part.Form)]; !known || part.Form == 0 {
		return unknown("form", part.Form)
	}
	if axes := len(part.Shape); axes > mostAxes {
		return corrupt("header: part %s has %d axes, want at most %d", part.Name, axes, mostAxes)
	}
	size, fits := product(append([]int64{element}, part.Shape...)...)
	if !fits || size < 1 || len(part.Shape) == 0 || part.Offset != offset ||
		part.SizeBytes != size || size > math.MaxInt64-offset {
		return corrupt("header: part %s at byte %d has shape %v of %v in %d bytes, which does "+
			"not add up", part.Name, part.Offset, part.Shape, part.DataType, part.SizeBytes)
	}
	if first := part.FirstRelativePosition; first != 0 && part.Form != pb.Form_FORM_TOEPLITZ {
		return corrupt("header: part %s has first_relative_position %d, want 0", part.Name, first)
	}
	return nil
}

// checkRows rejects masked rows that are not ascending ranges of queries in the window.
func checkRows(header *pb.TensorHeader) error {
	queries, _ := axesOf(header.ResolvedSpec)
	end := int64(0)
	for _, rows := range header.FullyMaskedRows {
		if rows.Begin < end || rows.Begin >= rows.End || rows.End > queries.length {
			return corrupt("header.fully_masked_rows: got [%d, %d), want ascending ranges in "+
				"[0, %d)", rows.Begin, rows.End, queries.length)
		}
		end = rows.End
	}
	return nil
}

// checkColumns rejects column axes that do not match the parts for the grid's axes.
func checkColumns(header *pb.TensorHeader) error {
	if len(header.ColumnAxes) == 0 {
		return nil
	}
	axes := len(header.ResolvedSpec.GetTable().GetGrid())
	columns := make([]int64, axes)
	fits := axes > 0 && len(header.Parts)%axes == 0
	for _, axis := range header.ColumnAxes {
		if fits = fits && axis >= 0 && int(axis) < axes; fits {
			columns[axis]++
		}
	}
	for i, part := range header.Parts {
		fits = fits && len(part.Shape) == 2 && part.Shape[1] == columns[i%axes]
	}
	if !fits {
		return corrupt("header.column_axes: got columns that differ from those of the parts")
	}
	return nil
}

// axis holds the first position and the number of queries or keys.
type axis struct{ first, length int64 }

// axesOf returns the query and key axes of a resolved spec.
func axesOf(spec *pb.TensorSpec) (queries, keys axis) {
	if grid := spec.GetGrid(); grid != nil {
		return axisOf(nil, grid.Queries), axisOf(nil, grid.Keys)
	}
	pair := spec.GetPair()
	queries = axisOf(pair.GetQueryPositions(), pair.GetQueries())
	if pair.GetQueryPositions() == nil {
		queries.first += pair.GetQueryOffset()
	}
	return queries, axisOf(pair.GetKeyPositions(), pair.GetKeys())
}

func axisOf(list *pb.PositionList, window *pb.Range) axis {
	if positions := list.GetPositions(); len(positions) > 0 {
		return axis{positions[0], int64(len(positions))}
	}
	return axis{window.GetBegin(), max(window.GetEnd()-window.GetBegin(), 0)}
}

// product returns the product of the factors, or the largest int64 and false if it overflows or a
// factor is negative.
func product[T int | int64](factors ...T) (int64, bool) {
	all := int64(1)
	for _, factor := range factors {
		if factor < 0 || factor > 0 && all > math.MaxInt64/int64(factor) {
			return math.MaxInt64, false
		}
		all *= int64(factor)
	}
	return all, true
}

// checkSize rejects a payload that is too large, before its memory is allocated.
func checkSize(bytes, most int64) error {
	if bytes > most {
		return failed(codes.ResourceExhausted, "WithMaxTensorBytes: the tensor has %d bytes, but "+
			"this client accepts at most %d", bytes, most)
	}
	return nil
}

// contradicts returns the error for a part whose shape does not match the resolved request.
func contradicts(part *pb.TensorPart) error {
	return corrupt("header: part %s has shape %s, want that of resolved_spec", part.Name,
		strings.ReplaceAll(fmt.Sprint(part.Shape), " ", ", "))
}
