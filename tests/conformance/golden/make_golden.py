# SPDX-License-Identifier: Apache-2.0
"""Writes golden.inc: elements as mpmath has them, rounded in Python's integers.

python3 -m venv .venv && .venv/bin/pip install mpmath
.venv/bin/python tests/conformance/golden/make_golden.py
"""

import random
from fractions import Fraction
from pathlib import Path

import mpmath

mpmath.mp.prec = 800

# Mantissa bits without the hidden one, exponent bits.
TYPES = {"kF64": (52, 11), "kF32": (23, 8), "kF16": (10, 5), "kBF16": (7, 8)}


def rounded_bits(value: mpmath.mpf, mantissa_bits: int, exponent_bits: int) -> int:
    """The bits of the format's number nearest to `value`, ties to even."""
    sign, mantissa, exponent, _ = mpmath.mpf(value)._mpf_
    exact = Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
    bias = (1 << (exponent_bits - 1)) - 1
    sign_bit = sign << (mantissa_bits + exponent_bits)
    if exact == 0:
        return 0
    binade = max(int(mantissa).bit_length() + int(exponent) - 1, 1 - bias)
    units = round(exact / Fraction(2) ** (binade - mantissa_bits))  # round() ties to even
    bits = units if binade == 1 - bias else units + ((binade + bias - 1) << mantissa_bits)
    infinity = ((1 << exponent_bits) - 1) << mantissa_bits
    return sign_bit | min(bits, infinity)


NAMES = {
    "INTERLEAVED": "kInterleaved",
    "SINES_COSINES": "kSinesCosines",
    "TENSOR2TENSOR": "kTensor2Tensor",
}


def sinusoid(layout: str, dim: int, base: int, position: int, column: int) -> mpmath.mpf:
    if layout == "TENSOR2TENSOR":
        half = dim // 2
        if column >= 2 * half:
            return mpmath.mpf(0)
        pair, is_sine = column % half, column < half
        frequency = mpmath.mpf(10000) ** (-mpmath.mpf(pair) / max(half - 1, 1))
    else:
        sines = (dim + 1) // 2
        interleaved = layout == "INTERLEAVED"
        pair = column // 2 if interleaved else column % sines
        is_sine = column % 2 == 0 if interleaved else column < sines
        frequency = mpmath.mpf(base) ** (-mpmath.mpf(2 * pair) / dim)
    angle = position * frequency
    return mpmath.sin(angle) if is_sine else mpmath.cos(angle)


def sinusoid_cases() -> list[tuple[str, int, int, int, int]]:
    # The known worst cases of two fused multiplications in doubles, then samples.
    cases = [
        ("INTERLEAVED", 128, 10000, 4524508, 11),
        ("INTERLEAVED", 128, 10000, 7086789, 33),
        ("TENSOR2TENSOR", 7, 10000, 3, 6),
        ("TENSOR2TENSOR", 2, 10000, 3, 1),
    ]
    choose = random.Random(1)
    for dim, rows in ((512, 131072), (64, 1048576), (5, 1 << 40), (127, 1 << 40)):
        for layout in ("INTERLEAVED", "SINES_COSINES", "TENSOR2TENSOR"):
            for _ in range(10):
                base = 10000 if layout == "TENSOR2TENSOR" else choose.choice((10000, 500000))
                position = choose.randrange(-rows, rows)
                cases.append((layout, dim, base, position, choose.randrange(dim)))
    return cases


def slope(num_heads: int, head: int) -> mpmath.mpf:
    power = 1 << (num_heads.bit_length() - 1)
    if head < power:
        return mpmath.mpf(2) ** (mpmath.mpf(-8 * (head + 1)) / power)
    return mpmath.mpf(2) ** (mpmath.mpf(-8 * (2 * (head - power) + 1)) / (2 * power))


def alibi_cases() -> list[tuple[int, int, int]]:
    choose = random.Random(2)
    cases = [(8, head, -3) for head in range(8)]
    for num_heads in (1, 3, 12, 71, 112, 128):
        for _ in range(8):
            distance = -choose.randrange(1, 1 << choose.randrange(1, 40))
            cases.append((num_heads, choose.randrange(num_heads), distance))
    return cases


def main() -> None:
    lines = ["// SPDX-License-Identifier: Apache-2.0"]
    lines += ["// Made by make_golden.py with mpmath. Do not edit.", "// clang-format off"]
    lines.append("constexpr GoldenSinusoid kGoldenSinusoids[] = {")
    for layout, dim, base, position, column in sinusoid_cases():
        value = sinusoid(layout, dim, base, position, column)
        for name, format_bits in TYPES.items():
            lines.append(
                f"    {{{dim}, {base}, {position}, {column}, "
                f"0x{rounded_bits(value, *format_bits):X}, DataType::{name}, "
                f"SinusoidLayout::{NAMES[layout]}}},"
            )
    lines += ["};", "constexpr GoldenAlibi kGoldenAlibis[] = {"]
    for num_heads, head, distance in alibi_cases():
        value = slope(num_heads, head) * distance
        for name, format_bits in TYPES.items():
            lines.append(
                f"    {{{num_heads}, {head}, {distance}, "
                f"0x{rounded_bits(value, *format_bits):X}, DataType::{name}}},"
            )
    lines += ["};", "// clang-format on"]
    Path(__file__).with_name("golden.inc").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
