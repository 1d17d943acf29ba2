// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"testing"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
	"google.golang.org/protobuf/proto"
)

func TestPresetsAreTheirEncodings(t *testing.T) {
	const sinesCosines = pb.Columns_COLUMNS_SINES_COSINES
	ladder := &pb.Ladder{Kind: &pb.Ladder_Base{Base: 500}}
	for name, test := range map[string]struct {
		preset *pb.TensorSpec_RelativeSinusoidal
		want   *pb.RelativeSinusoidal
	}{
		"constants": {
			TransformerXL{Dim: 8, ClampLen: new(int64(4))}.Encoding(),
			&pb.RelativeSinusoidal{
				Dim: 8, Columns: sinesCosines, Left: new(int64(4)), Causal: true,
			},
		},
		"an argument of two fields": {
			XLNet{Dim: 8, ClampLen: new(int64(4))}.Encoding(),
			&pb.RelativeSinusoidal{
				Dim: 8, Columns: sinesCosines, Left: new(int64(4)), Right: new(int64(4)),
			},
		},
		"a constant that is an enum": {
			Conformer{Dim: 8, Base: new(500.0)}.Encoding(),
			&pb.RelativeSinusoidal{
				Dim: 8, Columns: pb.Columns_COLUMNS_INTERLEAVED, Ladder: ladder,
			},
		},
		"a constant that is a bool": {
			SymmetricSinusoidal{Dim: 8, Columns: sinesCosines}.Encoding(),
			&pb.RelativeSinusoidal{Dim: 8, Columns: sinesCosines, Symmetric: true},
		},
		"a field without a meaning": {
			XLNet{Dim: 8, ClampLen: new(int64(4)), Causal: true}.Encoding(),
			&pb.RelativeSinusoidal{
				Dim: 8, Columns: sinesCosines, Left: new(int64(4)), Causal: true,
			},
		},
	} {
		if got := test.preset.RelativeSinusoidal; !proto.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

func TestXposHasADecay(t *testing.T) {
	want := &pb.Rotary{HeadDim: 8, Decay: &pb.Decay{Center: new(int64(3))}}
	if got := (Xpos{HeadDim: 8, Center: new(int64(3))}).Encoding().Rotary; !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	want = &pb.Rotary{HeadDim: 8, Decay: &pb.Decay{}}
	if got := (Xpos{HeadDim: 8}).Encoding().Rotary; !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestPresetsOfNestedMessagesAreTheirEncodings(t *testing.T) {
	ladder := &pb.Ladder{Kind: &pb.Ladder_Base{Base: 20}}
	axis := func(length float64) *pb.Axis {
		return &pb.Axis{
			Scale: new(6.283185307179586), Length: new(length), Eps: new(1e-6), Ladder: ladder,
		}
	}
	timescales := &pb.Timescales{Max: new(500.0)}
	for _, test := range []struct {
		got  *pb.TensorSpec_Sinusoidal
		want *pb.Sinusoidal
	}{
		{
			DetrSinusoidal{Dim: 8, Height: 3, Width: 2, Temperature: new(20.0)}.Encoding(),
			&pb.Sinusoidal{Dim: 8, Axes: []*pb.Axis{axis(3), axis(2)}},
		},
		{
			Tensor2Tensor{Dim: 8, MaxTimescale: new(500.0)}.Encoding(),
			&pb.Sinusoidal{
				Dim: 8, Columns: pb.Columns_COLUMNS_SINES_COSINES,
				Odd:    pb.OddColumn_ODD_COLUMN_ZERO,
				Ladder: &pb.Ladder{Kind: &pb.Ladder_Timescales{Timescales: timescales}},
			},
		},
	} {
		if !proto.Equal(test.got.Sinusoidal, test.want) {
			t.Errorf("got %v, want %v", test.got.Sinusoidal, test.want)
		}
	}
}

func TestShawsTableIsVectors(t *testing.T) {
	rows := &pb.LearnedRelative_Vectors{Vectors: &pb.TableRef{Source: &pb.TableRef_Name{Name: "w"}}}
	want := &pb.LearnedRelative{Right: new(int64(4)), Rows: rows}
	got := Shaw{Right: new(int64(4)), Table: rows.Vectors}.Encoding().LearnedRelative
	if !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := (Shaw{}).Encoding().LearnedRelative; got.Rows != nil {
		t.Errorf("without a table: got %v", got)
	}
}
