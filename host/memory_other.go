//go:build !linux

package host

import "errors"

// overcommitFile has no meaning here.
const overcommitFile = ""

// canReserve is false here: guest memory is ordinary memory.
func canReserve(string) bool { return false }

func reserveMemory(uint64) ([]byte, error) { return nil, errors.New("not supported") }

func releaseMemory([]byte) {}
