package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host/store"
	"github.com/routerd/routerd/plugins/abi"
)

// modulePrefix starts the name of a stage that is a stored module.
const modulePrefix = "module:"

// Stages makes pipeline stages from stored modules. Safe for concurrent use.
type Stages struct {
	rt    *Runtime
	store *store.Store
}

var _ policy.StageSource = (*Stages)(nil)

// NewStages makes a Stages over a store.
func NewStages(rt *Runtime, s *store.Store) *Stages { return &Stages{rt: rt, store: s} }

// Stage loads "module:NAME" as the name stands now, or "module:NAME@sha256:HEX"
// whatever the name stands for. An error is a *LoadError, a *fleet.FieldError or
// store.ErrNotFound.
func (s *Stages) Stage(ctx context.Context, kind abi.Kind, use string, config json.RawMessage) (policy.Stage, string, error) {
	digest, err := s.resolve(use)
	if err != nil {
		return nil, "", err
	}
	wasm, err := s.store.Bytes(digest)
	if errors.Is(err, store.ErrDigest) {
		return nil, "", refuse(StepDigest, abi.EDigest, "stored bytes of "+use, digest)
	}
	if err != nil {
		return nil, "", fmt.Errorf("load %q: %w", use, err)
	}
	stage, err := s.rt.Stage(ctx, kind, use, wasm, digest, config)
	if err != nil {
		return nil, "", err
	}
	return stage, digest, nil
}

// scopeKey carries the scope of pools to Runtime.Stage.
type scopeKey struct{}

// scoped makes the stages made under ctx use pools of their own: a shadow must
// not take instances that requests wait for.
func scoped(ctx context.Context, scope string) context.Context {
	return context.WithValue(ctx, scopeKey{}, scope+" ")
}

// scopeOf is empty for the pools that requests use.
func scopeOf(ctx context.Context) string {
	scope, _ := ctx.Value(scopeKey{}).(string)
	return scope
}

// resolve finds the digest that use means.
func (s *Stages) resolve(use string) (digest string, err error) {
	name, digest, pinned := strings.Cut(strings.TrimPrefix(use, modulePrefix), "@")
	if !strings.HasPrefix(use, modulePrefix) || store.CheckName(name) != nil {
		return "", &fleet.FieldError{Field: "use", Value: use, Allowed: "builtin:NAME, module:NAME or module:NAME@sha256:HEX; a name is " + store.NameAllowed}
	}
	if pinned {
		return digest, nil
	}
	m, err := s.store.Get(name)
	if err != nil {
		return "", fmt.Errorf("load %q: %w", use, err)
	}
	return m.Digest, nil
}

// pin returns spec with every module pinned by digest, and the digests, each
// once. The bytes stay in the store until unpin.
func (s *Stages) pin(spec policy.Spec, who string) (policy.Spec, []string, error) {
	var digests []string
	var failed error
	pinned := spec.Clone()
	pinned.EachStage(func(field string, _ abi.Kind, st *policy.StageSpec) {
		if failed != nil || !strings.HasPrefix(st.Use, modulePrefix) {
			return
		}
		digest, err := s.resolve(st.Use)
		if err == nil {
			err = s.store.Pin(digest, who)
		}
		if err != nil {
			failed = fmt.Errorf("%s: %w", field, err)
			return
		}
		digests = append(digests, digest)
		name, _, _ := strings.Cut(st.Use, "@")
		st.Use = name + "@" + digest
	})
	if failed != nil {
		s.unpin(digests, who)
		return spec, nil, failed
	}
	return pinned, digests, nil
}

func (s *Stages) unpin(digests []string, who string) {
	for _, d := range digests {
		s.store.Unpin(d, who)
	}
}
