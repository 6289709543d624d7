package lobtest

import "fmt"

// difference says where two texts differ, in a line that can be read however
// long they are.
func difference(got, want string) string {
	n := 0
	for n < len(got) && n < len(want) && got[n] == want[n] {
		n++
	}
	around := func(s string) string { return s[max(0, n-8):min(len(s), n+24)] }
	return fmt.Sprintf("%d bytes, want %d; from byte %d on %q, want %q", len(got), len(want), n, around(got), around(want))
}
