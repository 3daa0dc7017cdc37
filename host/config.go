package host

import (
	"runtime"
	"strconv"
	"time"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// Config sets a Runtime's limits.
type Config struct {
	// Compiler compiles modules; InProcess when nil.
	Compiler Compiler
	// CacheDir keeps compiled modules, mode 0700; empty keeps none, which a Child
	// compiler cannot do.
	CacheDir string
	// CallDeadline bounds one call on the wall clock; looked at between slices.
	CallDeadline time.Duration
	// PoolWait bounds how long a call waits for an instance.
	PoolWait time.Duration
	// MemoryLimit bounds the guest memory of all instances together, in bytes.
	MemoryLimit int64
	// MemoryPages bounds one instance's memory in pages of 64 KiB, whatever its
	// manifest asks for.
	MemoryPages uint32
	// FuelCap bounds the fuel of one call, whatever the manifest asks for.
	FuelCap uint64
	// Instances bounds the instances of one pool; GOMAXPROCS when 0.
	Instances int
	// Headers are the request headers that modules may read, in lower case.
	Headers []string
}

// maxInstances bounds a pool on any machine.
const maxInstances = 64

// DefaultConfig is what the ABI and the design say.
func DefaultConfig() Config {
	return Config{
		CallDeadline: 10 * time.Millisecond,
		PoolWait:     20 * time.Millisecond,
		MemoryLimit:  512 << 20,
		MemoryPages:  abi.MaxPages,
		FuelCap:      abi.DefaultFuelCap,
	}
}

// Validate refuses what is out of range, naming the key below plugins.
func (c Config) Validate() error {
	if err := c.limits().Validate(); err != nil {
		return err
	}
	switch {
	case c.MemoryPages < 1 || c.MemoryPages > abi.MaxPages:
		return &fleet.FieldError{Field: "plugins.limits.memory_pages", Value: strconv.FormatUint(uint64(c.MemoryPages), 10), Allowed: "1 to 1024"}
	case c.Instances < 0 || c.Instances > maxInstances:
		return &fleet.FieldError{Field: "plugins.limits.instances", Value: strconv.Itoa(c.Instances), Allowed: "0 (one for each processor) to 64"}
	}
	if _, child := c.Compiler.(*Child); child && c.CacheDir == "" {
		return &fleet.FieldError{Field: "data_dir", Value: "", Allowed: "a folder: the compile child hands its result over there"}
	}
	return nil
}

// limits are those that may change while a Runtime runs.
func (c Config) limits() Limits {
	return Limits{c.CallDeadline, c.PoolWait, c.MemoryLimit, c.FuelCap, c.Headers}
}

// instances is how many instances a pool may hold.
func (c Config) instances() int {
	if c.Instances > 0 {
		return c.Instances
	}
	return min(runtime.GOMAXPROCS(0), maxInstances)
}
