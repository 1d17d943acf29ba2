// SPDX-License-Identifier: Apache-2.0

package attnbias

import "math"

// Float16 holds an IEEE 754 binary16: 1 sign bit, 5 exponent bits and 10 fraction bits.
type Float16 uint16

// BFloat16 holds the upper half of a float32: 1 sign bit, 8 exponent bits and 7 fraction bits.
type BFloat16 uint16

// Float32 converts the value exactly.
func (f Float16) Float32() float32 {
	sign := uint32(f>>15) << 31
	exponent, fraction := uint32(f>>10&0x1f), uint32(f&0x3ff)
	switch exponent {
	case 0: // zero, or fraction * 2^-24
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)*0x1p-24))
	case 0x1f: // infinity or NaN
		return math.Float32frombits(sign | 0xff<<23 | fraction<<13)
	default:
		return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
	}
}

// Float32 converts the value exactly.
func (f BFloat16) Float32() float32 { return math.Float32frombits(uint32(f) << 16) }

// ToFloat16 rounds to nearest, ties to even.
func ToFloat16(value float32) Float16 {
	bits := math.Float32bits(value)
	sign, magnitude := Float16(bits>>16&0x8000), bits&^(1<<31)
	switch {
	case magnitude > 0xff<<23: // NaN keeps its upper bits
		return sign | 0x7e00 | Float16(magnitude>>13&0x3ff)
	case magnitude >= (127+16)<<23: // at least 2^16, or infinity
		return sign | 0x7c00
	case magnitude < (127-14)<<23:
		// Adding 0.5 rounds to a multiple of 2^-24, the last bit of the sum.
		sum := math.Float32frombits(magnitude) + 0.5
		return sign | Float16(math.Float32bits(sum)-math.Float32bits(0.5))
	default:
		return sign | Float16(roundHalfEven(magnitude, 13)-(127-15)<<10)
	}
}

// ToBFloat16 rounds to nearest, ties to even.
func ToBFloat16(value float32) BFloat16 {
	bits := math.Float32bits(value)
	if value != value { // NaN: its lower bits must not carry
		return BFloat16(bits>>16 | 0x40)
	}
	return BFloat16(roundHalfEven(bits, 16))
}

// roundHalfEven drops the given number of low bits and rounds to nearest, ties to even.
func roundHalfEven(bits uint32, drop int) uint32 {
	return (bits + 1<<(drop-1) - 1 + bits>>drop&1) >> drop
}
