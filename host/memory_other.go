//go:build !linux

package host

import "errors"

// canReserve is false here: guest memory is ordinary memory.
func canReserve() bool { return false }

func reserveMemory(uint64) ([]byte, error) { return nil, errors.New("not supported") }

func releaseMemory([]byte) {}
