// SPDX-License-Identifier: Apache-2.0
// Code generated from proto/presets by ./dev generate. DO NOT EDIT.

package attnbias

import "github.com/attnbias/attnbias/client/go/attnbiaspb"

// TransformerXL is a preset of [attnbiaspb.RelativeSinusoidal]. Transformer-XL's R (Dai et al.
// 2019): sinusoids of the distance i - j.
type TransformerXL struct {
	// Columns of a vector: the model's d_model.
	Dim int32
	// Base of the progression, as in Sinusoidal.
	Base *float64
	// Larger distances become this one. Unset: no clamping.
	ClampLen *int64
}

// Encoding returns the preset's encoding, for an attnbiaspb.TensorSpec.
func (p TransformerXL) Encoding() *attnbiaspb.TensorSpec_RelativeSinusoidal {
	encoding := &attnbiaspb.RelativeSinusoidal{
		Dim:    p.Dim,
		Base:   p.Base,
		Left:   p.ClampLen,
		Layout: attnbiaspb.SinusoidalLayout_SINUSOIDAL_LAYOUT_CONCATENATED,
		Causal: true,
	}
	return &attnbiaspb.TensorSpec_RelativeSinusoidal{RelativeSinusoidal: encoding}
}

// XLNet is a preset of [attnbiaspb.RelativeSinusoidal]. XLNet's relative positions (Yang et al.
// 2019): sinusoids of the distance i - j.
type XLNet struct {
	// Columns of a vector: the model's d_model.
	Dim int32
	// Base of the progression, as in Sinusoidal.
	Base *float64
	// Distances are clamped to [-clamp_len, clamp_len]. Unset: no clamping.
	ClampLen *int64
	// Sets the vectors of keys to the right of the query, which a decoder masks, to zero.
	Causal bool
	// Sign of the position whose row a pair has.
	Sign attnbiaspb.RelativeSign
}

// Encoding returns the preset's encoding, for an attnbiaspb.TensorSpec.
func (p XLNet) Encoding() *attnbiaspb.TensorSpec_RelativeSinusoidal {
	encoding := &attnbiaspb.RelativeSinusoidal{
		Dim:    p.Dim,
		Base:   p.Base,
		Left:   p.ClampLen,
		Causal: p.Causal,
		Sign:   p.Sign,
		Layout: attnbiaspb.SinusoidalLayout_SINUSOIDAL_LAYOUT_CONCATENATED,
	}
	if !p.Causal {
		encoding.Right = p.ClampLen
	}
	return &attnbiaspb.TensorSpec_RelativeSinusoidal{RelativeSinusoidal: encoding}
}

// Conformer is a preset of [attnbiaspb.RelativeSinusoidal]. Relative positions of Conformer
// (Gulati et al. 2020): sinusoids of the distance i - j.
type Conformer struct {
	// Columns of a vector: the model's d_model.
	Dim int32
	// Base of the progression, as in Sinusoidal.
	Base *float64
}

// Encoding returns the preset's encoding, for an attnbiaspb.TensorSpec.
func (p Conformer) Encoding() *attnbiaspb.TensorSpec_RelativeSinusoidal {
	encoding := &attnbiaspb.RelativeSinusoidal{
		Dim:    p.Dim,
		Base:   p.Base,
		Layout: attnbiaspb.SinusoidalLayout_SINUSOIDAL_LAYOUT_INTERLEAVED,
	}
	return &attnbiaspb.TensorSpec_RelativeSinusoidal{RelativeSinusoidal: encoding}
}

// SymmetricSinusoidal is a preset of [attnbiaspb.RelativeSinusoidal]. Sinusoids of |i - j|,
// without direction.
type SymmetricSinusoidal struct {
	// Columns of a vector: the model's d_model.
	Dim int32
	// Order of sines and cosines in a vector, as in Sinusoidal.
	Layout attnbiaspb.SinusoidalLayout
	// Base of the progression, as in Sinusoidal.
	Base *float64
	// Factor in front of the progression of inverse timescales, as in Sinusoidal.
	MinTimescale *float64
	// Longest timescale, not less than min_timescale.
	MaxTimescale *float64
}

// Encoding returns the preset's encoding, for an attnbiaspb.TensorSpec.
func (p SymmetricSinusoidal) Encoding() *attnbiaspb.TensorSpec_RelativeSinusoidal {
	encoding := &attnbiaspb.RelativeSinusoidal{
		Dim:          p.Dim,
		Layout:       p.Layout,
		Base:         p.Base,
		MinTimescale: p.MinTimescale,
		MaxTimescale: p.MaxTimescale,
		Symmetric:    true,
	}
	return &attnbiaspb.TensorSpec_RelativeSinusoidal{RelativeSinusoidal: encoding}
}

// Shaw is a preset of [attnbiaspb.LearnedRelative]. Relative position representations (Shaw et
// al. 2018): learned vectors.
type Shaw struct {
	// Farthest relative position to the right with a row of its own.
	Right *int64
	// Farthest relative position to the left with a row of its own. Required.
	Left *int64
	// Learned vectors; if heads differ, with a first axis of at most 65536 heads. Required with
	// values BIAS.
	Table *attnbiaspb.TableRef
	// Direction in which the table counts: its first row is j - i = -left, or i - j = -right.
	Sign attnbiaspb.RelativeSign
	// Answer beyond left and right.
	Beyond attnbiaspb.BeyondReach
}

// Encoding returns the preset's encoding, for an attnbiaspb.TensorSpec.
func (p Shaw) Encoding() *attnbiaspb.TensorSpec_LearnedRelative {
	encoding := &attnbiaspb.LearnedRelative{
		Right:  p.Right,
		Left:   p.Left,
		Sign:   p.Sign,
		Beyond: p.Beyond,
	}
	if p.Table != nil {
		encoding.Rows = &attnbiaspb.LearnedRelative_Vectors{Vectors: p.Table}
	}
	return &attnbiaspb.TensorSpec_LearnedRelative{LearnedRelative: encoding}
}

// Swin is a preset of [attnbiaspb.GridRelative]. Swin's relative position bias (Liu et al. 2021)
// inside a window.
type Swin struct {
	// Sides of the window in tokens: rows Wh, columns Ww.
	Window []int32
	// Heads of the table.
	NumHeads int32
	// Learned bias, with (2 Wh - 1)(2 Ww - 1) rows. Required with values BIAS.
	Table *attnbiaspb.TableRef
}

// Encoding returns the preset's encoding, for an attnbiaspb.TensorSpec.
func (p Swin) Encoding() *attnbiaspb.TensorSpec_GridRelative {
	encoding := &attnbiaspb.GridRelative{
		Window:   p.Window,
		NumHeads: p.NumHeads,
		Table:    p.Table,
	}
	return &attnbiaspb.TensorSpec_GridRelative{GridRelative: encoding}
}

// Beit is a preset of [attnbiaspb.GridRelative]. BEiT's relative position bias (Bao et al.
// 2021): Swin's, and a class token.
type Beit struct {
	// Sides of the window in tokens: rows Wh, columns Ww.
	Window []int32
	// Heads of the table.
	NumHeads int32
	// Learned bias, with (2 Wh - 1)(2 Ww - 1) + 3 rows. Required with values BIAS.
	Table *attnbiaspb.TableRef
}

// Encoding returns the preset's encoding, for an attnbiaspb.TensorSpec.
func (p Beit) Encoding() *attnbiaspb.TensorSpec_GridRelative {
	encoding := &attnbiaspb.GridRelative{
		Window:     p.Window,
		NumHeads:   p.NumHeads,
		Table:      p.Table,
		ClassToken: true,
	}
	return &attnbiaspb.TensorSpec_GridRelative{GridRelative: encoding}
}

// LeViT is a preset of [attnbiaspb.GridRelative]. LeViT's attention bias (Graham et al. 2021):
// displacements without sign.
type LeViT struct {
	// Sides of the window in tokens: rows Wh, columns Ww.
	Window []int32
	// Heads of the table.
	NumHeads int32
	// Learned bias, with Wh Ww rows. Required with values BIAS.
	Table *attnbiaspb.TableRef
}

// Encoding returns the preset's encoding, for an attnbiaspb.TensorSpec.
func (p LeViT) Encoding() *attnbiaspb.TensorSpec_GridRelative {
	encoding := &attnbiaspb.GridRelative{
		Window:    p.Window,
		NumHeads:  p.NumHeads,
		Table:     p.Table,
		Symmetric: true,
	}
	return &attnbiaspb.TensorSpec_GridRelative{GridRelative: encoding}
}

// Xpos is a preset of [attnbiaspb.Rotary]. Rotary positions with a decay: xPos (Sun et al.
// 2022).
type Xpos struct {
	// Dimension of a head.
	HeadDim int32
	// Position at which scale is 1. For a length L that is floor(L / 2) in x-transformers and flash-
	// attention, ceil(L / 2) in torchscale. Only products of rows with one center are consistent.
	Center *int64
	// Positions over which scale changes by its base.
	ScaleBase *float64
	// Determines the base of scale: (m / n + gamma) / (1 + gamma) for pair m.
	Gamma *float64
	// Base of the progression: inv_m = rope_theta^(-2m/dim).
	RopeTheta *float64
	// Columns of the tables.
	Layout attnbiaspb.RotaryLayout
}

// Encoding returns the preset's encoding, for an attnbiaspb.TensorSpec.
func (p Xpos) Encoding() *attnbiaspb.TensorSpec_Rotary {
	encoding := &attnbiaspb.Rotary{
		HeadDim:   p.HeadDim,
		RopeTheta: p.RopeTheta,
		Layout:    p.Layout,
		Decay:     &attnbiaspb.Decay{},
	}
	if p.Center != nil {
		encoding.Decay.Center = p.Center
	}
	if p.ScaleBase != nil {
		encoding.Decay.ScaleBase = p.ScaleBase
	}
	if p.Gamma != nil {
		encoding.Decay.Gamma = p.Gamma
	}
	return &attnbiaspb.TensorSpec_Rotary{Rotary: encoding}
}
