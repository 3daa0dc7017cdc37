package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

const (
	maxBody = 8 << 20 // bytes of an answer that are read
	maxLine = 1 << 20 // bytes of one line of metrics
)

// errTooLong is an answer that is longer than what is read of one.
var errTooLong = fmt.Errorf("more than %d MiB", maxBody>>20)

// NewClient makes a client for engines with connections of its own: to connect takes
// at most so long, and an idle connection is kept so long; 0 keeps none.
func NewClient(dial, keep time.Duration) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: dial}).DialContext,
			DisableKeepAlives:   keep == 0,
			MaxIdleConnsPerHost: 1,
			IdleConnTimeout:     keep,
		},
		// A redirect is an answer that is not understood, not a wish to follow.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// get asks for a path below the worker's URL and has read take a 200's body, of
// which it sees at most one byte more than maxBody. answered is whether anybody
// spoke HTTP there; the error leaves the worker's URL out.
func (a *Asker) get(ctx context.Context, base, path string, read func(io.Reader) error) (answered bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, http.NoBody)
	if err != nil {
		return false, bare(err)
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return false, bare(err)
	}
	defer func() { _ = resp.Body.Close() }() // nothing is lost when closing a read body fails
	if resp.StatusCode != http.StatusOK {
		return true, fmt.Errorf("status %d", resp.StatusCode)
	}
	return true, bare(read(io.LimitReader(resp.Body, maxBody+1)))
}

// bare takes the method and the URL off an error of net/http, and this end's port,
// by which one that comes again would look like another.
func bare(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		err = &net.OpError{Op: e.Op, Net: e.Net, Addr: e.Addr, Err: e.Err}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("no answer in time")
	}
	return err
}

// whole reads all of a body.
func whole(body io.Reader) ([]byte, error) {
	text, err := io.ReadAll(body)
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxBody:
		return nil, errTooLong
	}
	return text, nil
}
