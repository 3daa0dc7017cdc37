//go:build !linux

package host_test

const (
	burnCommand = "burn-cpu"
	eatCommand  = "eat-memory"
)

func runIntoLimit(string) {}
