package frontend

import (
	"fmt"
	"time"

	"github.com/routerd/routerd/clientwatch"
	"github.com/routerd/routerd/fleet"
)

// Config says how the frontend treats its clients. The time limits towards
// workers belong to the upstream client.
type Config struct {
	// MaxBody is the largest request body in bytes.
	MaxBody int64
	// Grace is how long requests under way may go on after Drain was called; 0
	// ends them at once.
	Grace time.Duration
	// ForwardedFor is "append" or "replace": what happens to X-Forwarded-For.
	ForwardedFor string
	// Retries is how many further attempts one request has before its first
	// response byte. Over all requests, retries are held to about a tenth.
	Retries int
	// HalfClose is "abort" or "ignore": what a client means that shuts its
	// sending side.
	HalfClose string
	// TrustHeaders tells whether the x-routerd-… request headers are honoured.
	// They never reach a worker.
	TrustHeaders bool
	// PolicyHeaders are the request headers that routing policies may see, in
	// lower case, at most 16; of credentials none. A policy sees the id of a
	// value, of one of more than 256 bytes nothing.
	PolicyHeaders []string
	// LeaseScan is how often the bookings of requests that relay nothing are
	// looked for: one goes after one to two of these. 0 means 5 minutes. It should
	// not be below the pause that the upstream client allows within an answer.
	LeaseScan time.Duration
}

// DefaultConfig is 16 MiB, 30 s, append, 2 retries, abort, a scan each 5
// minutes, trusting: the default listener is on loopback.
func DefaultConfig() Config {
	return Config{
		MaxBody: 16 << 20, Grace: 30 * time.Second, ForwardedFor: forwardedAppend, Retries: 2,
		HalfClose: string(clientwatch.HalfCloseAbort), TrustHeaders: true, LeaseScan: leaseScan,
	}
}

const (
	forwardedAppend  = "append"
	forwardedReplace = "replace"
)

// Validate refuses what is out of range, naming the field.
func (c Config) Validate() error {
	switch {
	case c.MaxBody < 1<<10 || c.MaxBody > 1<<30:
		return &fleet.FieldError{Field: "max_body", Value: fmt.Sprint(c.MaxBody), Allowed: "1024 to 1073741824 bytes"}
	case c.Grace < 0 || c.Grace > time.Hour:
		return &fleet.FieldError{Field: "grace", Value: c.Grace.String(), Allowed: "0s to 1h"}
	case c.ForwardedFor != forwardedAppend && c.ForwardedFor != forwardedReplace:
		return &fleet.FieldError{Field: "forwarded_for", Value: c.ForwardedFor, Allowed: "append, replace"}
	case c.Retries < 0 || c.Retries > 10:
		return &fleet.FieldError{Field: "retries", Value: fmt.Sprint(c.Retries), Allowed: "0 to 10"}
	case c.LeaseScan != 0 && (c.LeaseScan < time.Millisecond || c.LeaseScan > time.Hour):
		return &fleet.FieldError{Field: "lease_scan", Value: c.LeaseScan.String(), Allowed: "1ms to 1h, or 0 for 5m"}
	case c.HalfClose != string(clientwatch.HalfCloseAbort) && c.HalfClose != string(clientwatch.HalfCloseIgnore):
		return &fleet.FieldError{Field: "half_close", Value: c.HalfClose, Allowed: "abort, ignore"}
	}
	return checkPolicyHeaders(c.PolicyHeaders)
}
