// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"math"
	"math/rand/v2"
	"testing"
)

// All 65536 of each, there and back.
func TestHalvesAreExact(t *testing.T) {
	for bits := range 1 << 16 {
		half, brain := Float16(bits), BFloat16(bits)
		if value := half.Float32(); value == value && ToFloat16(value) != half {
			t.Errorf("%04x: got %04x back from %v", bits, ToFloat16(value), value)
		}
		if value := brain.Float32(); value == value && ToBFloat16(value) != brain {
			t.Errorf("%04x: got %04x back from %v", bits, ToBFloat16(value), value)
		}
	}
	for bits, want := range map[Float16]float64{
		0: 0, 1: 0x1p-24, 0x3ff: 0x1.ff8p-15, 0x400: 0x1p-14, 0x3c00: 1, 0xc000: -2, 0x7bff: 65504,
		0x7c00: math.Inf(1), 0xfc00: math.Inf(-1),
	} {
		if got := float64(bits.Float32()); got != want {
			t.Errorf("%04x: got %v, want %v", uint16(bits), got, want)
		}
	}
}

// Random float32, against the nearest of the numbers on both sides.
func TestRoundingIsToTheNearest(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		bits := random.Uint32()
		if random.IntN(2) == 0 { // so that there are many ties, and numbers in Float16's range
			bits = bits&0x8fffe000 | uint32(random.IntN(3))<<12 | 0x30000000&random.Uint32()
		}
		value := math.Float32frombits(bits)
		if value != value {
			continue
		}
		half := ToFloat16(value)
		expectNearest(t, value, uint16(half), 0x7c00, 65536,
			func(bits uint16) float32 { return Float16(bits).Float32() })
		expectNearest(t, value, uint16(ToBFloat16(value)), 0x7f80, 0x1p128,
			func(bits uint16) float32 { return BFloat16(bits).Float32() })
	}
	nan := float32(math.NaN())
	if got := ToFloat16(nan).Float32(); got == got {
		t.Errorf("got %v, want NaN", got)
	}
	low := math.Float32frombits(0x7f800001)
	if half, brain := ToFloat16(low).Float32(), ToBFloat16(low).Float32(); half == half ||
		brain == brain {
		t.Errorf("got %v and %v, want NaN", half, brain)
	}
}

// expectNearest takes infinity for the number that would follow the greatest.
func expectNearest(
	t *testing.T, value float32, got, infinity uint16, beyond float64, of func(uint16) float32,
) {
	t.Helper()
	number := func(bits uint16) float64 {
		if bits == infinity {
			return beyond
		}
		return float64(of(bits))
	}
	magnitude := got & 0x7fff
	size := math.Abs(float64(value))
	if math.Signbit(float64(value)) != (got>>15 == 1) {
		t.Fatalf("%v: got %04x, of another sign", value, got)
	}
	if math.IsInf(size, 1) || size >= beyond {
		if magnitude != infinity {
			t.Fatalf("%v: got %04x, want infinity", value, got)
		}
		return
	}
	off := math.Abs(number(magnitude) - size)
	for _, other := range []uint16{magnitude - 1, magnitude + 1} {
		if other > infinity {
			continue
		}
		distance := math.Abs(number(other) - size)
		if distance < off || distance == off && magnitude%2 == 1 {
			t.Fatalf("%v: got %04x, but %04x is nearer, or even", value, got, other)
		}
	}
}
