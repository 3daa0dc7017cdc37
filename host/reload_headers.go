package host

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/routerd/routerd/fleet"
)

// CheckHeaders refuses a list of the headers that policies may see under which a
// running canary would choose by a header that no request shows any more: it
// would end without a word. A *fleet.FieldError names the policy.
func (s *PolicySource) CheckHeaders(headers []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.policies)) {
		c := s.policies[name].history.Canary
		if c == nil || c.Header == "" || slices.Contains(headers, c.Header) {
			continue
		}
		return &fleet.FieldError{
			Field: "plugins.headers", Value: strings.Join(headers, ", "),
			Allowed: fmt.Sprintf("a list with %s, by which the canary of policy %s chooses", c.Header, name),
		}
	}
	return nil
}
