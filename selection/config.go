package selection

import (
	"fmt"

	"github.com/routerd/routerd/clientwatch"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/httpapi"
	"github.com/routerd/routerd/plugins/abi"
)

// Config says how the service treats its callers.
type Config struct {
	// MaxBody is the largest request body in bytes.
	MaxBody int64
	// HalfClose is "abort" or "ignore": what a caller means that shuts its sending
	// side.
	HalfClose string
	// Token is the bearer token of every route but /health; empty for none.
	Token string
	// PolicyHeaders are the request headers that routing policies may see, in lower
	// case.
	PolicyHeaders []string
}

// DefaultConfig is 8 MiB, abort, no token.
func DefaultConfig() Config {
	return Config{MaxBody: 8 << 20, HalfClose: string(clientwatch.HalfCloseAbort)}
}

// Validate refuses what is out of range, naming the field.
func (c Config) Validate() error {
	switch {
	case c.MaxBody < 1<<10 || c.MaxBody > 1<<30:
		return &fleet.FieldError{Field: "max_body", Value: fmt.Sprint(c.MaxBody), Allowed: "1024 to 1073741824 bytes"}
	case c.HalfClose != string(clientwatch.HalfCloseAbort) && c.HalfClose != string(clientwatch.HalfCloseIgnore):
		return &fleet.FieldError{Field: "half_close", Value: c.HalfClose, Allowed: "abort, ignore"}
	}
	for i, name := range c.PolicyHeaders {
		if allowed := abi.HeaderRefused(c.PolicyHeaders, i); allowed != "" {
			return &fleet.FieldError{Field: fmt.Sprintf("policy_headers[%d]", i), Value: name, Allowed: allowed}
		}
	}
	if c.Token != "" {
		return httpapi.CheckToken("token", c.Token)
	}
	return nil
}
