package host

import (
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// limitSelf limits this process: CPU time (soft = hard, so that the kernel
// kills it) and private writable memory. RLIMIT_AS would not do: the Go runtime
// reserves far more address space than it uses.
func limitSelf(cpu time.Duration, data uint64) error {
	seconds := uint64(cpu / time.Second)
	if err := unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: seconds, Max: seconds}); err != nil {
		return err
	}
	return unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: data, Max: data})
}

// dieWithParent has the kernel kill the child when this process ends, however it
// ends.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL} }

// watchMemory does nothing here: the kernel enforces the child's limit.
func watchMemory(*os.Process, uint64) (stop func()) { return func() {} }
