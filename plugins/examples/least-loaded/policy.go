package main

import "github.com/routerd/routerd/plugins/sdk/go/scorer"

// colActiveRequests is the place of the only column.
const colActiveRequests = 0

func columns() []string { return []string{colActiveRequests: "load.active_requests"} }

// score writes −active requests for every row.
func score(b *scorer.Batch) error {
	active, out := b.Column(colActiveRequests), b.Scores()
	for i := range b.Len() {
		out.Set(i, -active.At(i))
	}
	return nil
}
