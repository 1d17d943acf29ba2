// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"slices"
	"sort"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

// noWindow is more than any distance between positions, and overflows no sum of them.
const noWindow = 1 << 62

// rowsWithoutKeys returns half-open ranges of queries, by their indices, that see none of the keys.
func rowsWithoutKeys(mask *pb.Mask, queries, keys axis) (rows [][2]int64) {
	seeing := seeingPositions(mask, keys)
	if queries.list == nil {
		// Needs no loop over the queries: they may be far more than the answer has numbers.
		blind, end := queries.first, queries.first+queries.length
		for _, each := range seeing {
			if next := min(each[0], end); blind < next {
				rows = append(rows, [2]int64{blind - queries.first, next - queries.first})
			}
			blind = max(blind, each[1])
		}
		if blind < end {
			rows = append(rows, [2]int64{blind - queries.first, queries.length})
		}
		return rows
	}
	for i, query := range queries.list {
		at := sort.Search(len(seeing), func(k int) bool { return seeing[k][1] > query })
		if at < len(seeing) && seeing[at][0] <= query {
			continue
		}
		if last := len(rows) - 1; last >= 0 && rows[last][1] == int64(i) {
			rows[last][1]++
		} else {
			rows = append(rows, [2]int64{int64(i), int64(i) + 1})
		}
	}
	return rows
}

// seeingPositions returns half-open ranges of positions that see a key: disjoint, ascending.
func seeingPositions(mask *pb.Mask, keys axis) (seeing [][2]int64) {
	left, right := int64(noWindow), int64(noWindow)
	if mask.WindowLeft != nil {
		left = min(*mask.WindowLeft, noWindow)
	}
	if mask.WindowRight != nil {
		right = min(*mask.WindowRight, noWindow)
	}
	if mask.Causal {
		right = 0
	}
	if keys.list == nil {
		return [][2]int64{{keys.first - right, keys.last + left + 1}}
	}
	for _, key := range slices.Sorted(slices.Values(keys.list)) {
		begin, end := key-right, key+left+1
		if last := len(seeing) - 1; last >= 0 && begin <= seeing[last][1] {
			seeing[last][1] = end
		} else {
			seeing = append(seeing, [2]int64{begin, end})
		}
	}
	return seeing
}
