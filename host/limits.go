package host

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// Limits are those of a Runtime's limits that may change while it runs.
type Limits struct {
	// CallDeadline bounds one call on the wall clock; looked at between slices.
	CallDeadline time.Duration
	// PoolWait bounds how long a call waits for an instance.
	PoolWait time.Duration
	// MemoryLimit bounds the guest memory of all instances together, in bytes:
	// the size that guests see, which is at least what they touched.
	MemoryLimit int64
	// FuelCap bounds the fuel of one call, whatever the manifest asks for.
	FuelCap uint64
	// Headers are the request headers that modules may read, in lower case.
	// Credentials are refused.
	Headers []string
}

// Validate refuses what is out of range, naming the key below plugins.
func (l Limits) Validate() error {
	switch {
	case l.CallDeadline < time.Millisecond || l.CallDeadline > 10*time.Second:
		return &fleet.FieldError{Field: "plugins.call_deadline", Value: l.CallDeadline.String(), Allowed: "1ms to 10s"}
	case l.PoolWait < 0 || l.PoolWait > 10*time.Second:
		return &fleet.FieldError{Field: "plugins.pool_wait", Value: l.PoolWait.String(), Allowed: "0s to 10s"}
	case l.MemoryLimit < 1<<20:
		return &fleet.FieldError{Field: "plugins.memory_limit", Value: strconv.FormatInt(l.MemoryLimit, 10), Allowed: "1 MiB or more, in bytes"}
	case l.FuelCap < 10_000 || l.FuelCap > abi.MaxFuelBase:
		return &fleet.FieldError{Field: "plugins.fuel_cap", Value: strconv.FormatUint(l.FuelCap, 10), Allowed: "10000 to 1000000000"}
	}
	for i, h := range l.Headers {
		if allowed := abi.HeaderRefused(l.Headers, i); allowed != "" {
			return &fleet.FieldError{Field: "plugins.headers[" + strconv.Itoa(i) + "]", Value: clip(h, 80), Allowed: allowed}
		}
	}
	return nil
}

// SetLimits changes the limits at once for every call, wait and load that begins
// from now on; what runs keeps its own. They must be valid. A memory limit below
// what is in use takes nothing away: only growth and new instances are refused.
// A fuel cap below what a loaded module declares makes its large calls end for
// lack of fuel. A header that is no longer on the list reads 0 in modules that
// are loaded, since requests no longer bring it. Safe for concurrent use.
func (r *Runtime) SetLimits(l Limits) {
	l.Headers = slices.Clone(l.Headers)
	r.limits.Store(&l)
	r.memory.limit.Store(l.MemoryLimit)
}

// CheckLimits refuses limits that are out of range, and those under which a
// module that is loaded now could not be loaded again: it would serve until the
// next restart and not after it. A *fleet.FieldError names the key and the
// module.
func (r *Runtime) CheckLimits(l Limits) error {
	if err := l.Validate(); err != nil {
		return err
	}
	loaded := r.modules.made()
	slices.SortFunc(loaded, func(a, b *module) int { return cmp.Compare(a.manifest.Name, b.manifest.Name) })
	for _, m := range loaded {
		if err := m.fits(l); err != nil {
			return err
		}
	}
	return nil
}

// fits tells whether the module could be loaded under l.
func (m *module) fits(l Limits) error {
	for _, f := range m.manifest.RequestFields {
		if name, ok := strings.CutPrefix(f, abi.HeaderPrefix); ok && !slices.Contains(l.Headers, name) {
			return &fleet.FieldError{
				Field: "plugins.headers", Value: strings.Join(l.Headers, ", "),
				Allowed: fmt.Sprintf("a list with %s, which module %s in use reads", name, m.manifest.Name),
			}
		}
	}
	measured := m.measured.Load()
	if measured == nil {
		return nil
	}
	for i, used := range measured.Fuel {
		if tooMuch(used, m.budget(l.FuelCap, measured.Rows[i])) {
			return &fleet.FieldError{
				Field: "plugins.fuel_cap", Value: strconv.FormatUint(l.FuelCap, 10),
				Allowed: fmt.Sprintf("%d or more: module %s in use takes %d fuel for %d rows", used/4*5+5, m.manifest.Name, used, measured.Rows[i]),
			}
		}
	}
	return nil
}

// Limits are the limits that hold now. The caller must not change the list.
func (r *Runtime) Limits() Limits { return *r.limits.Load() }

// checkHeaders refuses a module that reads a header which is not on the
// operator's list.
func (r *Runtime) checkHeaders(m *abi.Manifest) error {
	allowed := r.limits.Load().Headers
	for i, f := range m.RequestFields {
		name, ok := strings.CutPrefix(f, abi.HeaderPrefix)
		if !ok || slices.Contains(allowed, name) {
			continue
		}
		what := fmt.Sprintf("request_fields[%d] %s: the header is not in plugins.headers", i, clip(f, 80))
		if abi.IsCredentialHeader(name) {
			what = fmt.Sprintf("request_fields[%d] %s: the header carries a credential", i, f)
		}
		list := "none"
		if len(allowed) > 0 {
			list = strings.Join(allowed, ", ")
		}
		return refuse(StepManifest, abi.EManifest, what, "headers of the operator's list: "+list)
	}
	return nil
}
