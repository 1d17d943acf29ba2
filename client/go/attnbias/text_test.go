// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"strings"
	"testing"
)

func TestServerTextIsEscapedAndTruncated(t *testing.T) {
	for text, want := range map[string]string{
		"plain text, \"quoted\", été 漢字 \\": "plain text, \"quoted\", été 漢字 \\",
		"\x1b]0;a\x07":              `\x1b]0;a\a`,
		"line\r\nline":              `line\r\nline`,
		"\u202eright to left\u2028": `\u202eright to left\u2028`,
		"\xff\x9b \uFFFD":           "\\xff\\x9b \uFFFD",
		"\U000e0041":                `\U000e0041`,
		strings.Repeat("x", 401):    strings.Repeat("x", 400) + "...",
	} {
		if got := brief(text); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
