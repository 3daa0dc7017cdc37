package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/routerd/routerd/plugins/abi"
)

// Checked says how far Check took a module.
type Checked string

// The stages of Check.
const (
	// CheckedConfigured is the whole load pipeline, with the configuration {}.
	CheckedConfigured Checked = "configured"
	// CheckedLoad leaves out what depends on a configuration, since the module
	// has none by default: setting it up and the self-test.
	CheckedLoad Checked = "load"
)

// Check takes a module through the load pipeline with the configuration {} and
// lets go of it: size, sections, manifest, metering, compiling, setting up and
// the self-test. A module whose schema, or which itself, does not accept {} is
// started and no more. An error is a *LoadError where the module is at fault.
// The compiled form stays in the cache; Forget drops it.
func (r *Runtime) Check(ctx context.Context, wasm []byte) (how Checked, err error) {
	digest := Digest(wasm)
	m, err := r.modules.get(ctx, digest, func(ctx context.Context) (*module, error) { return r.load(ctx, wasm, digest) })
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, r.modules.release(digest)) }()
	c, err := contained("read configuration", func() (*configuration, error) { return m.configure(nil) })
	if m.schema != nil && refusedAt(err, StepConfig, abi.EConfigure) {
		_, err := contained("start", func() (struct{}, error) { return struct{}{}, r.start(m) })
		return CheckedLoad, err
	}
	if err != nil {
		return "", err
	}
	key := poolKey{module: digest, config: c.digest}
	_, err = r.pools.get(ctx, key, func(ctx context.Context) (*pool, error) { return r.openPool(ctx, m, c) })
	if m.schema != nil && refusedAt(err, StepConfigure, abi.EConfigure) {
		return CheckedLoad, nil
	}
	if err != nil {
		return "", err
	}
	return CheckedConfigured, r.pools.release(key)
}

// start makes an instance and throws it away. It must get as far as being
// configured; what it makes of {} is not looked at.
func (r *Runtime) start(m *module) error {
	empty := &configuration{canonical: []byte("{}"), value: map[string]any{}, digest: Digest([]byte("{}"))}
	in, err := r.newInstance(m, empty, &guestLog{mute: true})
	var refused *LoadError
	switch {
	case err == nil:
		in.close()
	case errors.Is(err, errMemory):
		return refuse(StepStart, abi.EPool, fmt.Sprintf("%d pages of memory for one more instance", m.minPages),
			fmt.Sprintf("plugins.memory_limit of %d bytes for all instances together", r.cfg.MemoryLimit))
	case errors.As(err, &refused) && refused.Step != StepConfigure && refused.Step != StepBind:
		return err
	}
	return nil
}

// refusedAt tells whether err is a refusal at a step with a code.
func refusedAt(err error, step string, code abi.HostCode) bool {
	var e *LoadError
	return errors.As(err, &e) && e.Step == step && e.Code == code
}
