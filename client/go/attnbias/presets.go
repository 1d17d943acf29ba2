// SPDX-License-Identifier: Apache-2.0
// Code generated from proto/presets by ./dev generate. DO NOT EDIT.

package attnbias

import "github.com/attnbias/attnbias/client/go/attnbiaspb"

// Tensor2Tensor is a preset of [attnbiaspb.Sinusoidal]. tensor2tensor's timing signal: sinusoids
// that end at the longest timescale.
type Tensor2Tensor struct {
	// Number of columns in the table.
	Dim int32
	// First frequency.
	MinTimescale *float64
	// Longest timescale, if min is 1. To make f the last frequency, use min^2 / f.
	MaxTimescale *float64
}

// Encoding returns the preset's encoding, for an attnbiaspb.TensorSpec.
func (p Tensor2Tensor) Encoding() *attnbiaspb.TensorSpec_Sinusoidal {
	encoding := &attnbiaspb.Sinusoidal{
		Dim: p.Dim,
		Ladder: &attnbiaspb.Ladder{
			Kind: &attnbiaspb.Ladder_Timescales{Timescales: &attnbiaspb.Timescales{}},
		},
		Columns: attnbiaspb.Columns_COLUMNS_SINES_COSINES,
		Odd:     attnbiaspb.OddColumn_ODD_COLUMN_ZERO,
	}
	encoding.Ladder.GetTimescales().Min = p.MinTimescale
	encoding.Ladder.GetTimescales().Max = p.MaxTimescale
	return &attnbiaspb.TensorSpec_Sinusoidal{Sinusoidal: encoding}
}

// DetrSinusoidal is a preset of [attnbiaspb.Sinusoidal]. DETR's sinusoids (Carion et al. 2020):
// positions normalized by the image size.
type DetrSinusoidal struct {
	// Number of columns in the table.
	Dim int32
	// Number of rows in the feature map, excluding padding.
	Height float64
	// Number of columns, excluding padding.
	Width float64
	// Base of the progression on both axes: 20 in DAB-DETR and Grounding DINO.
	Temperature *float64
	// Added to every position: -1/2 in Deformable DETR.
	Offset *float64
}

// Encoding returns the preset's encoding, for an attnbiaspb.TensorSpec.
func (p DetrSinusoidal) Encoding() *attnbiaspb.TensorSpec_Sinusoidal {
	encoding := &attnbiaspb.Sinusoidal{
		Dim: p.Dim,
		Axes: []*attnbiaspb.Axis{
			{
				Scale:  new(6.283185307179586),
				Eps:    new(1e-06),
				Ladder: &attnbiaspb.Ladder{},
			},
			{
				Scale:  new(6.283185307179586),
				Eps:    new(1e-06),
				Ladder: &attnbiaspb.Ladder{},
			},
		},
	}
	encoding.Axes[0].Length = &p.Height
	encoding.Axes[1].Length = &p.Width
	encoding.Axes[0].Offset = p.Offset
	encoding.Axes[1].Offset = p.Offset
	if p.Temperature != nil {
		encoding.Axes[0].Ladder.Kind = &attnbiaspb.Ladder_Base{Base: *p.Temperature}
		encoding.Axes[1].Ladder.Kind = &attnbiaspb.Ladder_Base{Base: *p.Temperature}
	}
	return &attnbiaspb.TensorSpec_Sinusoidal{Sinusoidal: encoding}
}

// MaeSinusoidal is a preset of [attnbiaspb.Sinusoidal]. Sinusoids of row and column (He et al.
// 2021), each with half of the table's columns.
type MaeSinusoidal struct {
	// Number of columns in the table.
	Dim int32
	// Base of the progression on both axes.
	Temperature *float64
	// Factor applied to positions on both axes: in DiT, the base size divided by both the side and
	// the interpolation scale.
	Scale *float64
}

// Encoding returns the preset's encoding, for an attnbiaspb.TensorSpec.
func (p MaeSinusoidal) Encoding() *attnbiaspb.TensorSpec_Sinusoidal {
	encoding := &attnbiaspb.Sinusoidal{
		Dim: p.Dim,
		Axes: []*attnbiaspb.Axis{
			{
				Ladder: &attnbiaspb.Ladder{},
			},
			{
				Ladder: &attnbiaspb.Ladder{},
			},
		},
		Columns: attnbiaspb.Columns_COLUMNS_SINES_COSINES,
	}
	encoding.Axes[0].Scale = p.Scale
	encoding.Axes[1].Scale = p.Scale
	if p.Temperature != nil {
		encoding.Axes[0].Ladder.Kind = &attnbiaspb.Ladder_Base{Base: *p.Temperature}
		encoding.Axes[1].Ladder.Kind = &attnbiaspb.Ladder_Base{Base: *p.Temperature}
	}
	return &attnbiaspb.TensorSpec_Sinusoidal{Sinusoidal: encoding}
}

// TransformerXL is a preset of [attnbiaspb.RelativeSinusoidal]. Transformer-XL's R (Dai et al.
// 2019): sinusoids of the distance i - j.
type TransformerXL struct {
	// Number of columns in a vector: the model's d_model.
	Dim int32
	// Base of a geometric progression: base^(-k/n), where a sine without a cosine counts as half a
	// pair.
	Base *float64
	// Largest distance; larger distances are clamped to it. Unset: no clamping.
	ClampLen *int64
}

// Encoding returns the preset's encoding, for an attnbiaspb.TensorSpec.
func (p TransformerXL) Encoding() *attnbiaspb.TensorSpec_RelativeSinusoidal {
	encoding := &attnbiaspb.RelativeSinusoidal{
		Dim:     p.Dim,
		Left:    p.ClampLen,
		Columns: attnbiaspb.Columns_COLUMNS_SINES_COSINES,
		Causal:  true,
	}
	if p.Base != nil {
		encoding.Ladder = &attnbiaspb.Ladder{Kind: &attnbiaspb.Ladder_Base{Base: *p.Base}}
	}
	return &attnbiaspb.TensorSpec_RelativeSinusoidal{RelativeSinusoidal: encoding}
}

// XLNet is a preset of [attnbiaspb.RelativeSinusoidal]. XLNet's relative positions (Yang et al.
// 2019): sinusoids of the distance i - j.
type XLNet struct {
	// Number of columns in a vector: the model's d_model.
	Dim int32
	// Base of a geometric progression: base^(-k/n), where a sine without a cosine counts as half a
	// pair.
	Base *float64
	// Distances are clamped to [-clamp_len, clamp_len]. Unset: no clamping.
	ClampLen *int64
	// Zeroes the vectors for keys to the right of the query, which a decoder masks.
	Causal bool
	// Sign of the relative position that selects the vector for a pair.
	Sign attnbiaspb.RelativeSign
}

// Encoding returns the preset's encoding, for an attnbiaspb.TensorSpec.
func (p XLNet) Encoding() *attnbiaspb.TensorSpec_RelativeSinusoidal {
	encoding := &attnbiaspb.RelativeSinusoidal{
		Dim:     p.Dim,
		Left:    p.ClampLen,
		Causal:  p.Causal,
		Sign:    p.Sign,
		Columns: attnbiaspb.Columns_COLUMNS_SINES_COSINES,
	}
	if p.Base != nil {
		encoding.Ladder = &attnbiaspb.Ladder{Kind: &attnbiaspb.Ladder_Base{Base: *p.Base}}
	}
	if !p.Causal {
		encoding.Right = p.ClampLen
	}
	return &attnbiaspb.TensorSpec_RelativeSinusoidal{RelativeSinusoidal: encoding}
}

// Conformer is a preset of [attnbiaspb.RelativeSinusoidal]. Conformer's relative positions
// (Gulati et al. 2020): sinusoids of the distance i - j.
type Conformer struct {
	// Number of columns in a vector: the model's d_model.
	Dim int32
	// Base of a geometric progression: base^(-k/n), where a sine without a cosine counts as half a
	// pair.
	Base *float64
}

// Encoding returns the preset's encoding, for an attnbiaspb.TensorSpec.
func (p Conformer) Encoding() *attnbiaspb.TensorSpec_RelativeSinusoidal {
	encoding := &attnbiaspb.RelativeSinusoidal{
		Dim:     p.Dim,
		Columns: attnbiaspb.Columns_COLUMNS_INTERLEAVED,
	}
	if p.Base != nil {
		encoding.Ladder = &attnbiaspb.Ladder{Kind: &attnbiaspb.Ladder_Base{Base: *p.Base}}
	}
	return &attnbiaspb.TensorSpec_RelativeSinusoidal{RelativeSinusoidal: encoding}
}

// SymmetricSinusoidal is a preset of [attnbiaspb.RelativeSinusoidal]. Sinusoids of |i - j|,
// ignoring direction.
type SymmetricSinusoidal struct {
	// Number of columns in a vector: the model's d_model.
	Dim int32
	// Order of sines and cosines in a vector.
	Columns attnbiaspb.Columns
	// Base of a geometric progression: base^(-k/n), where a sine without a cosine counts as half a
	// pair.
	Base *float64
}

// Encoding returns the preset's encoding, for an attnbiaspb.TensorSpec.
func (p SymmetricSinusoidal) Encoding() *attnbiaspb.TensorSpec_RelativeSinusoidal {
	encoding := &attnbiaspb.RelativeSinusoidal{
		Dim:       p.Dim,
		Columns:   p.Columns,
		Symmetric: true,
	}
	if p.Base != nil {
		encoding.Ladder = &attnbiaspb.Ladder{Kind: &attnbiaspb.Ladder_Base{Base: *p.Base}}
	}
	return &attnbiaspb.TensorSpec_RelativeSinusoidal{RelativeSinusoidal: encoding}
}

// Shaw is a preset of [attnbiaspb.LearnedRelative]. Relative position representations (Shaw et
// al. 2018): learned vectors.
type Shaw struct {
	// Farthest relative position to the right that has its own row.
	Right *int64
	// Farthest relative position to the left that has its own row. Required.
	Left *int64
	// Learned vectors, with a leading axis of at most 65536 heads if they differ between heads.
	// Required with values BIAS.
	Table *attnbiaspb.TableRef
	// Direction in which the table is indexed: its first row is for a j - i of -left, or for an i -
	// j of -right.
	Sign attnbiaspb.RelativeSign
	// Result for relative positions beyond left or right.
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
	// Sides of the window, which has at most 65536 tokens: frames Wt if any, rows Wh, columns Ww.
	// With one side, the tokens form a sequence.
	Window []int32
	// Number of heads in the table.
	NumHeads int32
	// Learned bias, with (2 Wh - 1)(2 Ww - 1) rows. Required with values BIAS.
	Table *attnbiaspb.TableRef
	// Resamples a table made for another window. source holds the sides of that table's grid: 2 Wh
	// - 1 and 2 Ww - 1 for that window, or Wh and Ww if symmetric. The class token's rows are
	// copied. The window has at most two axes.
	Resample *attnbiaspb.Resample
}

// Encoding returns the preset's encoding, for an attnbiaspb.TensorSpec.
func (p Swin) Encoding() *attnbiaspb.TensorSpec_GridRelative {
	encoding := &attnbiaspb.GridRelative{
		Window:   p.Window,
		NumHeads: p.NumHeads,
		Table:    p.Table,
		Resample: p.Resample,
	}
	return &attnbiaspb.TensorSpec_GridRelative{GridRelative: encoding}
}

// Swin3D is a preset of [attnbiaspb.GridRelative]. Video Swin's relative position bias (Liu et
// al. 2022): a window of frames.
type Swin3D struct {
	// Sides of the window in tokens: frames Wt, rows Wh, columns Ww.
	Window []int32
	// Number of heads in the table.
	NumHeads int32
	// Learned bias, with (2 Wt - 1)(2 Wh - 1)(2 Ww - 1) rows. Required with values BIAS.
	Table *attnbiaspb.TableRef
}

// Encoding returns the preset's encoding, for an attnbiaspb.TensorSpec.
func (p Swin3D) Encoding() *attnbiaspb.TensorSpec_GridRelative {
	encoding := &attnbiaspb.GridRelative{
		Window:   p.Window,
		NumHeads: p.NumHeads,
		Table:    p.Table,
	}
	return &attnbiaspb.TensorSpec_GridRelative{GridRelative: encoding}
}

// Beit is a preset of [attnbiaspb.GridRelative]. BEiT's relative position bias (Bao et al.
// 2021): Swin's plus a class token.
type Beit struct {
	// Sides of the window, which has at most 65536 tokens: frames Wt if any, rows Wh, columns Ww.
	// With one side, the tokens form a sequence.
	Window []int32
	// Number of heads in the table.
	NumHeads int32
	// Learned bias, with (2 Wh - 1)(2 Ww - 1) + 3 rows. Required with values BIAS.
	Table *attnbiaspb.TableRef
	// Resamples a table made for another window. source holds the sides of that table's grid: 2 Wh
	// - 1 and 2 Ww - 1 for that window, or Wh and Ww if symmetric. The class token's rows are
	// copied. The window has at most two axes.
	Resample *attnbiaspb.Resample
}

// Encoding returns the preset's encoding, for an attnbiaspb.TensorSpec.
func (p Beit) Encoding() *attnbiaspb.TensorSpec_GridRelative {
	encoding := &attnbiaspb.GridRelative{
		Window:     p.Window,
		NumHeads:   p.NumHeads,
		Table:      p.Table,
		Resample:   p.Resample,
		ClassToken: true,
	}
	return &attnbiaspb.TensorSpec_GridRelative{GridRelative: encoding}
}

// LeViT is a preset of [attnbiaspb.GridRelative]. LeViT's attention bias (Graham et al. 2021):
// unsigned displacements.
type LeViT struct {
	// Sides of the window, which has at most 65536 tokens: frames Wt if any, rows Wh, columns Ww.
	// With one side, the tokens form a sequence.
	Window []int32
	// Number of heads in the table.
	NumHeads int32
	// Learned bias, with Wh Ww rows. Required with values BIAS.
	Table *attnbiaspb.TableRef
	// Resamples a table made for another window. source holds the sides of that table's grid: 2 Wh
	// - 1 and 2 Ww - 1 for that window, or Wh and Ww if symmetric. The class token's rows are
	// copied. The window has at most two axes.
	Resample *attnbiaspb.Resample
}

// Encoding returns the preset's encoding, for an attnbiaspb.TensorSpec.
func (p LeViT) Encoding() *attnbiaspb.TensorSpec_GridRelative {
	encoding := &attnbiaspb.GridRelative{
		Window:    p.Window,
		NumHeads:  p.NumHeads,
		Table:     p.Table,
		Resample:  p.Resample,
		Symmetric: true,
	}
	return &attnbiaspb.TensorSpec_GridRelative{GridRelative: encoding}
}

// Xpos is a preset of [attnbiaspb.Rotary]. Rotary positions with a decay: xPos (Sun et al.
// 2022).
type Xpos struct {
	// Dimension of each head.
	HeadDim int32
	// Position at which scale is 1. For a length L, floor(L / 2) in x-transformers and flash-
	// attention, and ceil(L / 2) in torchscale. Products of rows are consistent only if the rows
	// have the same center.
	Center *int64
	// Number of positions over which scale is multiplied by its base.
	ScaleBase *float64
	// Determines the base of scale: (m / n + gamma) / (1 + gamma) for pair m.
	Gamma *float64
	// Base of the progression: inv_m = rope_theta^(-2m/dim).
	RopeTheta *float64
	// Column layout of the tables.
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
	encoding.Decay.Center = p.Center
	encoding.Decay.ScaleBase = p.ScaleBase
	encoding.Decay.Gamma = p.Gamma
	return &attnbiaspb.TensorSpec_Rotary{Rotary: encoding}
}

// SwinV2 is a preset of [attnbiaspb.MlpBias]. Swin-V2's continuous position bias (Liu et al.
// 2022): an MLP over logarithmic coordinates.
type SwinV2 struct {
	// Hidden layer with a bias, and output layer without one.
	Layers []*attnbiaspb.MlpLayer
	// Sides of the window in tokens: rows, then columns.
	Window []int32
	// Sides of the window that the model was trained with. A side may be 1 only if the same side of
	// window is 1. Empty: window.
	PretrainedWindow []int32
	// Number of heads in the bias.
	NumHeads int32
	// Adds a class token as token 0, before the window, with a bias of 0 (timm's prefix_tokens of
	// 1).
	ClassToken bool
}

// Encoding returns the preset's encoding, for an attnbiaspb.TensorSpec.
func (p SwinV2) Encoding() *attnbiaspb.TensorSpec_MlpBias {
	encoding := &attnbiaspb.MlpBias{
		Layers:           p.Layers,
		Window:           p.Window,
		PretrainedWindow: p.PretrainedWindow,
		NumHeads:         p.NumHeads,
		ClassToken:       p.ClassToken,
		Activation:       attnbiaspb.Activation_ACTIVATION_RELU,
		Coordinates:      attnbiaspb.Coordinates_COORDINATES_LOG2_NORMALIZED,
		Output:           attnbiaspb.MlpOutput_MLP_OUTPUT_SIGMOID_16,
	}
	return &attnbiaspb.TensorSpec_MlpBias{MlpBias: encoding}
}

// RelPosMlp is a preset of [attnbiaspb.MlpBias]. An MLP over logarithmic coordinates: RelPosMlp
// in timm, mode "cr" (Swin-V2-CR, MaxxViT).
type RelPosMlp struct {
	// Hidden layer and output layer, each with a bias.
	Layers []*attnbiaspb.MlpLayer
	// Sides of the window in tokens: rows, then columns.
	Window []int32
	// Number of heads in the bias.
	NumHeads int32
	// Adds a class token as token 0, before the window, with a bias of 0 (timm's prefix_tokens of
	// 1).
	ClassToken bool
}

// Encoding returns the preset's encoding, for an attnbiaspb.TensorSpec.
func (p RelPosMlp) Encoding() *attnbiaspb.TensorSpec_MlpBias {
	encoding := &attnbiaspb.MlpBias{
		Layers:      p.Layers,
		Window:      p.Window,
		NumHeads:    p.NumHeads,
		ClassToken:  p.ClassToken,
		Activation:  attnbiaspb.Activation_ACTIVATION_RELU,
		Coordinates: attnbiaspb.Coordinates_COORDINATES_SIGNED_LOG,
	}
	return &attnbiaspb.TensorSpec_MlpBias{MlpBias: encoding}
}

// DynamicPositionBias is a preset of [attnbiaspb.MlpBias]. x-transformers' dynamic position
// bias: an MLP applied to the distance i - j, with SiLU.
type DynamicPositionBias struct {
	// Layers, first to last. The first has one input per coordinate; the last has num_heads outputs
	// and no LayerNorm. All weights together have at most 2^22 values.
	Layers []*attnbiaspb.MlpLayer
	// Number of heads in the bias.
	NumHeads int32
	// Function of the distance: SIGNED_LOG is x-transformers' log_distance.
	Coordinates attnbiaspb.Coordinates
}

// Encoding returns the preset's encoding, for an attnbiaspb.TensorSpec.
func (p DynamicPositionBias) Encoding() *attnbiaspb.TensorSpec_MlpBias {
	encoding := &attnbiaspb.MlpBias{
		Layers:      p.Layers,
		NumHeads:    p.NumHeads,
		Coordinates: p.Coordinates,
		Activation:  attnbiaspb.Activation_ACTIVATION_SILU,
	}
	return &attnbiaspb.TensorSpec_MlpBias{MlpBias: encoding}
}
