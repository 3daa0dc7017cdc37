package admin

import (
	"slices"

	"github.com/routerd/routerd/host"
)

// policyLimits are what bounds the modules of a policy's kept revisions.
type policyLimits struct {
	Modules []moduleLimits `json:"modules"` // by digest
	Runtime *runtimeLimits `json:"runtime,omitempty"`
}

// moduleLimits are what a module's manifest asks for.
type moduleLimits struct {
	Digest string `json:"digest"`
	Title  string `json:"manifest_name"`
	limitsView
}

// runtimeLimits hold for every module, whatever its manifest asks for.
type runtimeLimits struct {
	CallDeadline string `json:"call_deadline"` // of one call
	PoolWait     string `json:"pool_wait"`     // for an instance
	MemoryLimit  int64  `json:"memory_limit"`  // of all instances together, in bytes
	FuelCap      uint64 `json:"fuel_cap"`      // of one call
}

// limitsOf reads the manifests of a policy's modules. One whose bytes are gone
// is left out: its revision says so.
func (s *Server) limitsOf(p *host.PolicyInfo) *policyLimits {
	var digests []string
	for i := range p.Revisions {
		digests = append(digests, p.Revisions[i].Digests...)
	}
	slices.Sort(digests)
	out := &policyLimits{Modules: []moduleLimits{}}
	for _, d := range slices.Compact(digests) {
		info, err := s.inspect(d)
		if err != nil {
			continue
		}
		out.Modules = append(out.Modules, moduleLimits{d, info.Manifest.Name, viewLimits(info)})
	}
	if s.parts.Limits != nil {
		l := s.parts.Limits()
		out.Runtime = &runtimeLimits{l.CallDeadline.String(), l.PoolWait.String(), l.MemoryLimit, l.FuelCap}
	}
	return out
}

// inspect reads a stored module's manifest.
func (s *Server) inspect(digest string) (*host.Info, error) {
	wasm, err := s.parts.Modules.Bytes(digest)
	if err != nil {
		return nil, err
	}
	return host.Inspect(wasm)
}
