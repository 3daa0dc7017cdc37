package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/internal/httpapi"
)

// settings is a configuration in force with what follows from it.
type settings struct {
	Config
	routes []route
}

// Configure puts another configuration in force for the calls that begin
// afterwards; an error names the field that is out of range, and nothing has
// changed then. ReadTimeout stays as it was.
func (s *Server) Configure(cfg Config) error {
	cfg.ReadTimeout = s.now.Load().ReadTimeout
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("admin configuration: %w", err)
	}
	s.now.Store(&settings{cfg, routes(cfg.MetricsPublic)})
	return nil
}

// Reloader reads the router's configuration again.
type Reloader interface {
	// Reload puts the configuration in force as it is now, or leaves the old one
	// in force as a whole. Where the configuration is at fault, the error is a
	// *ReloadError, or wraps that of the part that refused it.
	Reload(ctx context.Context) (Reloaded, error)
	// LastReload is how the last reload ended, whoever asked for it; ok is false when
	// there was none.
	LastReload() (last LastReload, ok bool)
}

// LastReload is how a reload ended.
type LastReload struct {
	At      time.Time `json:"at"`
	Trigger string    `json:"trigger"` // api, signal or file
	Result  string    `json:"result"`  // ok or refused
	// Changed are the keys that got other values, Problems what stood against it; both
	// are empty where there are none.
	Changed  []string `json:"changed"`
	Problems []string `json:"problems"`
}

type lastReloadAnswer struct {
	Last *LastReload `json:"last"`
}

func (s *Server) showReload(_ context.Context, x *exchange) error {
	var out lastReloadAnswer
	if last, ok := s.parts.Config.LastReload(); ok {
		out.Last = &last
	}
	return x.reply(fasthttp.StatusOK, out)
}

// Reloaded is what a reload did.
type Reloaded struct {
	// Changed are the keys that have other values now, by name; empty for none.
	Changed []string `json:"changed"`
	// At is when it was in force.
	At time.Time `json:"at"`
	// Warnings tell what of the configuration is not in force all the same, or
	// probably does not do what was meant.
	Warnings []ReloadWarning `json:"warnings,omitempty"`
}

// ReloadWarning is a thing of the configuration that a reload left alone, or that
// is in force and probably not meant. Item is a key. Code is drifted, where the API
// activated another specification of a policy than the one that Item has, or one of
// those that the configuration has for its own warnings.
type ReloadWarning struct {
	Code    string `json:"code"`
	Item    string `json:"item"`
	Message string `json:"message"`
}

// The steps of a reload that can refuse it.
const (
	ReloadRead    = "read"    // file, environment and flags as text
	ReloadCheck   = "check"   // keys and values
	ReloadRestart = "restart" // what only a restart can change
	ReloadPrepare = "prepare" // modules, policies, workers
)

// ReloadError refuses a reload.
type ReloadError struct {
	Code     Code
	Step     string // one of the steps above; empty where none was reached
	Problems []ReloadProblem
}

// ReloadProblem is one thing that stands against a reload.
type ReloadProblem struct {
	Key     string // dotted path; empty where it is not one key
	Allowed string // empty where that is not known
	Text    string // names place, key and value
}

// Error has a part for each problem.
func (e *ReloadError) Error() string {
	texts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		texts[i] = strings.Join(strings.Fields(p.Text), " ")
	}
	return strings.Join(texts, "; ")
}

// failure has all keys as its item.
func (e *ReloadError) failure() *failure {
	var keys, allowed []string
	for _, p := range e.Problems {
		if p.Key != "" {
			keys = append(keys, httpapi.Clip(p.Key))
		}
		if p.Allowed != "" && !slices.Contains(allowed, p.Allowed) {
			allowed = append(allowed, p.Allowed)
		}
	}
	return &failure{
		Code: e.Code, Message: e.Error(),
		Details: Details{Step: e.Step, Item: strings.Join(keys, ", "), Allowed: strings.Join(allowed, "; ")},
	}
}

func (s *Server) reloadConfig(ctx context.Context, x *exchange) error {
	done, err := s.parts.Config.Reload(ctx)
	if err != nil {
		return err
	}
	done.Changed = append([]string{}, done.Changed...)
	return x.reply(fasthttp.StatusOK, done)
}
