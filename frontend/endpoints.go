package frontend

import (
	"sync"

	"github.com/routerd/routerd/upstream"
)

// endpoints remembers parsed worker addresses. Safe for concurrent use.
type endpoints struct {
	mu     sync.RWMutex // guards parsed
	parsed map[string]upstream.Endpoint
}

// mostEndpoints bounds the memory of workers that have come and gone.
const mostEndpoints = 8192

func (e *endpoints) of(raw string) (upstream.Endpoint, error) {
	e.mu.RLock()
	ep, ok := e.parsed[raw]
	e.mu.RUnlock()
	if ok {
		return ep, nil
	}
	ep, err := upstream.ParseEndpoint(raw)
	if err != nil {
		return ep, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.parsed == nil || len(e.parsed) >= mostEndpoints {
		e.parsed = map[string]upstream.Endpoint{}
	}
	e.parsed[raw] = ep
	return ep, nil
}
