// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

func TestPresetsBuildTheirEncodings(t *testing.T) {
	const axis = "axes { scale: 6.283185307179586 eps: 1e-6 ladder { base: 20 } length: "
	for want, got := range map[string]*pb.TensorSpec{
		"relative_sinusoidal { dim: 8 columns: COLUMNS_SINES_COSINES left: 4 causal: true }": {
			Encoding: TransformerXL{Dim: 8, ClampLen: new(int64(4))}.Encoding()},
		// An argument that sets two fields, one of which has no meaning in the second of these
		// requests.
		"relative_sinusoidal { dim: 8 columns: COLUMNS_SINES_COSINES left: 4 right: 4 }": {
			Encoding: XLNet{Dim: 8, ClampLen: new(int64(4))}.Encoding()},
		"relative_sinusoidal { dim: 8 columns: COLUMNS_SINES_COSINES causal: true left: 4 }": {
			Encoding: XLNet{Dim: 8, ClampLen: new(int64(4)), Causal: true}.Encoding()},
		"relative_sinusoidal { dim: 8 columns: COLUMNS_INTERLEAVED ladder { base: 500 } }": {
			Encoding: Conformer{Dim: 8, Base: new(500.0)}.Encoding()},
		"relative_sinusoidal { dim: 8 columns: COLUMNS_SINES_COSINES symmetric: true }": {
			Encoding: SymmetricSinusoidal{Dim: 8,
				Columns: pb.Columns_COLUMNS_SINES_COSINES}.Encoding()},
		"rotary { head_dim: 8 decay { center: 3 } }": {
			Encoding: Xpos{HeadDim: 8, Center: new(int64(3))}.Encoding()},
		"rotary { head_dim: 8 decay {} }": {Encoding: Xpos{HeadDim: 8}.Encoding()},
		"sinusoidal { dim: 8 " + axis + "3 } " + axis + "2 } }": {
			Encoding: DetrSinusoidal{
				Dim: 8, Height: 3, Width: 2, Temperature: new(20.0)}.Encoding()},
		"sinusoidal { dim: 8 columns: COLUMNS_SINES_COSINES odd: ODD_COLUMN_ZERO " +
			"ladder { timescales { max: 500 } } }": {
			Encoding: Tensor2Tensor{Dim: 8, MaxTimescale: new(500.0)}.Encoding()},
		"learned_relative { right: 4 vectors { name: 'w' } }": {
			Encoding: Shaw{Right: new(int64(4)), Table: &pb.TableRef{
				Source: &pb.TableRef_Name{Name: "w"}}}.Encoding()},
		"learned_relative {}": {Encoding: Shaw{}.Encoding()},
	} {
		if !proto.Equal(got, specOf(t, want)) {
			t.Errorf("got %v, want %s", got, want)
		}
	}
}
