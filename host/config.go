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
	switch {
	case c.CallDeadline < time.Millisecond || c.CallDeadline > 10*time.Second:
		return &fleet.FieldError{Field: "plugins.call_deadline", Value: c.CallDeadline.String(), Allowed: "1ms to 10s"}
	case c.PoolWait < 0 || c.PoolWait > 10*time.Second:
		return &fleet.FieldError{Field: "plugins.pool_wait", Value: c.PoolWait.String(), Allowed: "0s to 10s"}
	case c.MemoryLimit < 1<<20:
		return &fleet.FieldError{Field: "plugins.memory_limit", Value: strconv.FormatInt(c.MemoryLimit, 10), Allowed: "1 MiB or more, in bytes"}
	case c.MemoryPages < 1 || c.MemoryPages > abi.MaxPages:
		return &fleet.FieldError{Field: "plugins.limits.memory_pages", Value: strconv.FormatUint(uint64(c.MemoryPages), 10), Allowed: "1 to 1024"}
	case c.FuelCap < 10_000 || c.FuelCap > abi.MaxFuelBase:
		return &fleet.FieldError{Field: "plugins.fuel_cap", Value: strconv.FormatUint(c.FuelCap, 10), Allowed: "10000 to 1000000000"}
	case c.Instances < 0 || c.Instances > maxInstances:
		return &fleet.FieldError{Field: "plugins.limits.instances", Value: strconv.Itoa(c.Instances), Allowed: "0 (one for each processor) to 64"}
	}
	if _, child := c.Compiler.(*Child); child && c.CacheDir == "" {
		return &fleet.FieldError{Field: "data_dir", Value: "", Allowed: "a folder: the compile child hands its result over there"}
	}
	return nil
}

// instances is how many instances a pool may hold.
func (c Config) instances() int {
	if c.Instances > 0 {
		return c.Instances
	}
	return min(runtime.GOMAXPROCS(0), maxInstances)
}
