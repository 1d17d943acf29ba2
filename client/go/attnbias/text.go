// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The most bytes of what a server names that stand in a message.
const mostBrief = 400

// escaped is a server's text for messages and logs: a terminal that shows it does nothing else.
func escaped(text string) string {
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

// brief is escaped, cut where it is long.
func brief(text string) string {
	if len(text) > mostBrief {
		text = text[:mostBrief] + "..."
	}
	return escaped(text)
}
