// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"math"
	"testing"
)

func TestHalfConversionsRoundTrip(t *testing.T) {
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

// Checks the midpoint between every two neighboring values, and the float32 values on both sides of
// it.
func TestRoundsTiesToEven(t *testing.T) {
	for low := range Float16(0x7c00) {
		next := (low + 1).Float32()
		if low == 0x7bff { // the neighbor is infinity instead of 2^16
			next = 65536
		}
		middle := (low.Float32() + next) / 2
		expectRounds(t, ToFloat16, math.Nextafter32(middle, 0), low)
		expectRounds(t, ToFloat16, middle, low+low%2)
		expectRounds(t, ToFloat16, math.Nextafter32(middle, next), low+1)
	}
	for low := range BFloat16(0x7f80) {
		middle := uint32(low)<<16 | 0x8000
		expectRounds(t, ToBFloat16, math.Float32frombits(middle-1), low)
		expectRounds(t, ToBFloat16, math.Float32frombits(middle), low+low%2)
		expectRounds(t, ToBFloat16, math.Float32frombits(middle+1), low+1)
	}
	for _, bits := range []uint32{0x7fc00000, 0x7f800001, 0xffffffff} {
		nan := math.Float32frombits(bits)
		if half, brain := ToFloat16(nan).Float32(), ToBFloat16(nan).Float32(); half == half ||
			brain == brain {
			t.Errorf("%08x: got %v and %v, want NaN", bits, half, brain)
		}
	}
}

func expectRounds[H Float16 | BFloat16](t *testing.T, to func(float32) H, value float32, want H) {
	t.Helper()
	if got, negative := to(value), to(-value); got != want || negative != want|0x8000 {
		t.Errorf("%v: got %04x and %04x, want %04x", value, uint16(got), uint16(negative),
			uint16(want))
	}
}
