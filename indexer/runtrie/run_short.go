//go:build shortruns

package runtrie

// Run is how many blocks a node has at most.
const (
	Run     = 4
	classes = 3 // sizes of areas: 1, 2, 4
)
