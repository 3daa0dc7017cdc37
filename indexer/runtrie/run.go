//go:build !shortruns

package runtrie

// Run is how many blocks a node has at most. The build tag shortruns makes it 4, so that
// tests meet every boundary often.
const (
	Run     = 128
	classes = 8 // sizes of areas: 1, 2, 4, … Run
)
