# SPDX-License-Identifier: Apache-2.0
"""The oracle: real numbers computed by mpmath, and their single rounding to an element type.

Nothing here except ``encoding_of`` depends on the service. 200 bits are far more than any rounding
in these tests needs: no value comes closer than 2^-120 to a border between two elements unless it
lies on it.
"""

import math
from functools import cache
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import numpy.typing as npt

import attnbias

PRECISION = 200

# Significant bits, and the exponent of the smallest normal number.
_FORMATS = {"f64": (53, -1022), "f32": (24, -126), "f16": (11, -14), "bf16": (8, -126)}

NUMPY_TYPES: dict[str, Any] = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
}


def rounded(value: mpmath.mpf, dtype: str) -> float:
    """Returns the element nearest to value, ties to even; an underflow keeps its sign.

    Overflow does not occur here.
    """
    if value == 0:
        return 0.0
    significant, least = _FORMATS[dtype]
    with mpmath.workprec(PRECISION + 64):
        _, exponent = mpmath.frexp(value)  # |value| in [2^(exponent-1), 2^exponent)
        step = max(exponent - 1, least) - significant + 1
        # nint rounds ties to even.
        magnitude = mpmath.ldexp(mpmath.nint(mpmath.ldexp(abs(value), -step)), step)
        return math.copysign(float(magnitude), mpmath.sign(value))


def rounded_array(values: list[mpmath.mpf], dtype: str) -> npt.NDArray[Any]:
    return np.array([rounded(v, dtype) for v in values], np.float64).astype(NUMPY_TYPES[dtype])


def sinusoid(
    position: int | mpmath.mpf,
    column: int,
    *,
    dim: int,
    layout: str = "INTERLEAVED",
    base: float = 10000,
) -> mpmath.mpf:
    """Follows the paper, in either column order: pair i rotates by base^(-2i/dim) per position."""
    if layout == "INTERLEAVED":
        pair, is_cosine = divmod(column, 2)
    else:
        sines = (dim + 1) // 2
        is_cosine, pair = divmod(column, sines)
    with mpmath.workprec(PRECISION):
        angle = position * _inverse_wavelength(base, pair, dim)
        return mpmath.cos(angle) if is_cosine else mpmath.sin(angle)


def encoding_of(layout: str, dim: int, **fields: Any) -> attnbias.Sinusoidal:
    """Returns the encoding for ``sinusoid``; for layout TENSOR2TENSOR, for ``timing_signal``."""
    if layout == "TENSOR2TENSOR":
        return attnbias.Tensor2Tensor(dim, **fields)
    ladder = attnbias.Ladder(**fields) if fields else None
    return attnbias.Sinusoidal(dim, columns=layout, ladder=ladder)  # type: ignore[arg-type]


def timing_signal(
    position: int | mpmath.mpf,
    column: int,
    *,
    dim: int,
    min_timescale: float = 1,
    max_timescale: float = 1e4,
) -> mpmath.mpf:
    """Follows tensor2tensor's get_timing_signal_1d literally."""
    num_timescales = dim // 2
    if column >= 2 * num_timescales:
        return mpmath.mpf(0)
    is_cosine, i = divmod(column, num_timescales)
    with mpmath.workprec(PRECISION):
        log_timescale_increment = mpmath.log(
            mpmath.mpf(max_timescale) / mpmath.mpf(min_timescale)
        ) / max(num_timescales - 1, 1)
        inverse_timescale = min_timescale * mpmath.exp(-i * log_timescale_increment)
        scaled_time = position * inverse_timescale
        return mpmath.cos(scaled_time) if is_cosine else mpmath.sin(scaled_time)


def alibi_slopes(num_heads: int, bias_max: float = 8) -> list[mpmath.mpf]:
    """Returns the slopes of Press et al. 2022, or those in their code if the number of heads is not
    a power of two.
    """
    below = 1 << (num_heads.bit_length() - 1)
    with mpmath.workprec(PRECISION):
        largest = mpmath.mpf(bias_max)
        slopes = [mpmath.power(2, -largest * (h + 1) / below) for h in range(below)]
        finer = [mpmath.power(2, -largest * (h + 1) / (2 * below)) for h in range(2 * below)]
        return slopes + finer[0::2][: num_heads - below]


@cache
def _inverse_wavelength(base: float, pair: int, dim: int) -> mpmath.mpf:
    with mpmath.workprec(PRECISION):
        return mpmath.power(base, mpmath.mpf(-2 * pair) / dim)
