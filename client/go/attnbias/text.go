// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The most bytes of a server's text that stand in a message: of one that is a message itself, and
// of a name in one of this package.
const (
	mostText  = 8 << 10
	mostBrief = 400
)

// escaped is a server's text for messages and logs, cut where it is long. A terminal shows it, and
// does nothing else.
func escaped(text string, most int) string {
	if len(text) > most {
		text = text[:most] + "..."
	}
	var safe strings.Builder
	for i, letter := range text {
		switch {
		case letter == utf8.RuneError && !strings.HasPrefix(text[i:], "\uFFFD"):
			fmt.Fprintf(&safe, `\x%02x`, text[i])
		case strconv.IsPrint(letter):
			safe.WriteRune(letter)
		default:
			safe.WriteString(strings.Trim(strconv.QuoteRune(letter), "'"))
		}
	}
	return safe.String()
}

// brief is what a server calls something.
func brief(text string) string { return escaped(text, mostBrief) }
