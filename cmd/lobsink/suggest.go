package main

// nearest returns the word that was probably meant: the one with the fewest
// letters to change, at most a third of them. "" is none.
func nearest(typed string, words []string) string {
	best, at := "", len(typed)/3+1
	for _, w := range words {
		if d := distance(typed, w); d < at {
			best, at = w, d
		}
	}
	return best
}

// distance is the Levenshtein distance: how many bytes have to be put in, taken
// out or changed.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
