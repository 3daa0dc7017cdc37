package host

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// overcommitFile tells how this machine overcommits memory.
const overcommitFile = "/proc/sys/vm/overcommit_memory"

// canReserve tells whether address space may be reserved without being counted:
// not under strict overcommit (vm.overcommit_memory = 2).
func canReserve(overcommit string) bool {
	b, err := os.ReadFile(overcommit)
	return err == nil && strings.TrimSpace(string(b)) != "2"
}

func reserveMemory(n uint64) ([]byte, error) {
	return unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
}

// releaseMemory unmaps a region of reserveMemory. It fails only for a region
// that is none.
func releaseMemory(b []byte) { _ = unix.Munmap(b) }
