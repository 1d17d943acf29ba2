// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"testing"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
	"google.golang.org/protobuf/proto"
)

func TestPresetsAreTheirEncodings(t *testing.T) {
	const concatenated = pb.SinusoidalLayout_SINUSOIDAL_LAYOUT_CONCATENATED
	for name, test := range map[string]struct {
		preset *pb.TensorSpec_RelativeSinusoidal
		want   *pb.RelativeSinusoidal
	}{
		"constants": {
			TransformerXL{Dim: 8, ClampLen: new(int64(4))}.Encoding(),
			&pb.RelativeSinusoidal{Dim: 8, Layout: concatenated, Left: new(int64(4)), Causal: true},
		},
		"an argument of two fields": {
			XLNet{Dim: 8, ClampLen: new(int64(4))}.Encoding(),
			&pb.RelativeSinusoidal{
				Dim: 8, Layout: concatenated, Left: new(int64(4)), Right: new(int64(4)),
			},
		},
		"a constant that is an enum": {
			Conformer{Dim: 8, Base: new(500.0)}.Encoding(),
			&pb.RelativeSinusoidal{
				Dim: 8, Layout: pb.SinusoidalLayout_SINUSOIDAL_LAYOUT_INTERLEAVED, Base: new(500.0),
			},
		},
		"a constant that is a bool": {
			SymmetricSinusoidal{Dim: 8, Layout: concatenated}.Encoding(),
			&pb.RelativeSinusoidal{Dim: 8, Layout: concatenated, Symmetric: true},
		},
		"a field without a meaning": {
			XLNet{Dim: 8, ClampLen: new(int64(4)), Causal: true}.Encoding(),
			&pb.RelativeSinusoidal{Dim: 8, Layout: concatenated, Left: new(int64(4)), Causal: true},
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
