//go:build !linux

package host_test

const (
	burnCommand   = "burn-cpu"
	eatCommand    = "eat-memory"
	orphanCommand = "compile-bomb"
)

func runIntoLimit(_, _ string) {}
