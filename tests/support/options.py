# SPDX-License-Identifier: Apache-2.0
"""Random extents and outputs for a case."""

from tests.support.cases import Case, Options, Random

DATA_TYPES = ("f64", "f32", "f16", "bf16")


def within(case: Case, random: Random, length: int, farthest: int = 100000) -> int:
    """Returns the first of `length` positions that the encoding has."""
    first, last = max(case.first, -farthest), min(case.last, farthest)
    return int(random.integers(first, last - length + 2))


def listed(case: Case, random: Random, length: int) -> list[int]:
    first = within(case, random, length)
    return (first + random.integers(0, length, length)).tolist()


def table_extent(case: Case, random: Random) -> Options:
    length = int(random.integers(1, 50))
    if case.has_grid and random.random() < 0.4:
        lengths = random.integers(1, 9, case.axes).tolist()
        offset = [within(case, random, length) for length in lengths]
        extent = {"grid": lengths} | random.choice([{}, {"grid_offset": offset}])
        return extent | random.choice([{}, {"form": "dense"}])
    if random.random() < 0.5:
        first = within(case, random, length)
        return {"positions": (first, first + length)}
    axes = [listed(case, random, length) for _ in range(case.axes)]
    return {"position_ids": axes if case.axes > 1 else axes[0]}


def pair_extent(case: Case, random: Random) -> Options:
    """Returns the whole extent or windows, with any origin; or lists, which have no lengths."""
    queries, keys = (int(random.integers(1, 50)) for _ in range(2))
    extent: Options = {"query_length": queries, "key_length": max(keys, queries)}
    kind = random.integers(4)
    if kind == 0 and not case.needs_lengths:
        extent = {
            "query_positions": listed(case, random, queries),
            "key_positions": listed(case, random, keys),
        }
    elif kind == 1:
        extent["query_offset"] = within(case, random, queries, 200)
    else:
        extent["alignment"] = str(random.choice(["start", "end"]))
    for length, window in (("query_length", "queries"), ("key_length", "keys")):
        if length in extent and random.random() < 0.3:
            extent[window] = (int(random.integers(extent[length])), extent[length])
    return extent


def grid_extent(case: Case, random: Random) -> Options:
    extent: Options = {}
    if random.random() < 0.3:
        extent["query_stride"] = random.integers(1, 4, len(case.sides)).tolist()
    lengths = {"queries": case.tokens(extent.get("query_stride", ())), "keys": case.tokens()}
    for side, length in lengths.items():
        if random.random() < 0.3:
            begin = int(random.integers(length))
            extent[side] = (begin, int(random.integers(begin, length)) + 1)
    return extent


def options_of(case: Case, random: Random) -> Options:
    extents = {"table": table_extent, "pair": pair_extent, "grid": grid_extent}
    options = extents[case.extent](case, random)
    if case.has_buckets and (not case.has_bias or random.random() < 0.3):
        return options | {"values": "buckets"}
    if case.extent != "table" and not case.vectors and random.random() < 0.3:
        begin = int(random.integers(case.heads))
        options["heads"] = (begin, int(random.integers(begin, case.heads)) + 1)
    options["data_type"] = str(random.choice(DATA_TYPES))
    if random.random() < 0.5:
        options["scale"] = float(random.uniform(-3, 3))
    if case.extent == "pair" and random.random() < 0.5:
        options["form"] = "dense"
        if not case.vectors:
            options |= mask_of(random)
    return options


def mask_of(random: Random) -> Options:
    mask: Options = {"causal": True} if random.random() < 0.3 else {}
    for side in ("window_left", "window_right"):
        if random.random() < 0.3:
            mask[side] = int(random.integers(30))
    if mask and random.random() < 0.6:
        lowest = random.random() < 0.3
        mask |= {"fill_lowest": True} if lowest else {"fill_value": random.uniform(-9, 9)}
    return mask
