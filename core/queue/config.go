package queue

import (
	"fmt"
	"slices"
	"time"

	"github.com/routerd/routerd/fleet"
)

// DefaultClass is the name of the class of all requests that name none, or none
// that there is.
const DefaultClass = "default"

const (
	maxClasses = 64
	maxName    = 64
	maxWeight  = 10_000
	maxWait    = time.Hour
)

// Order says who is first among equals of priority and due time.
type Order string

const (
	// FCFS serves who came first; Waiter.Jump moves a request ahead by that time.
	FCFS Order = "fcfs"
	// WSPT serves the shortest prompt, cached tokens not counted, divided by one
	// plus the seconds of Waiter.Jump.
	WSPT Order = "wspt"
)

// Class is a kind of requests that wait together.
type Class struct {
	// Name is 1 to 64 of a-z, 0-9, "_" and "-".
	Name string
	// Weight is the class's part of the prompt tokens that go while several
	// classes wait, 1 to 10000.
	Weight int
	// Order is FCFS or WSPT.
	Order Order
	// Busy says when a rank takes no request of this class.
	Busy Busy
	// Limits bound what waits in this class.
	Limits Limits
	// Timeout is how long a request may wait, above 0 and at most an hour. The
	// caller keeps it.
	Timeout time.Duration
}

// Config sets a Queue up.
type Config struct {
	// Classes are 1 to 64; one is named "default".
	Classes []Class
	// RefreshAfter is the wait after which the caller looks a request's cached
	// tokens up again when it goes; 0 never does. At most an hour.
	RefreshAfter time.Duration
}

// DefaultConfig is the class "default" alone, never busy, in order of arrival;
// if a bound of Busy is set, at most 256 requests a ready worker wait for at
// most a minute. What was cached is looked up again after 10 s.
func DefaultConfig() Config {
	return Config{
		Classes: []Class{{
			Name:    DefaultClass,
			Weight:  1,
			Order:   FCFS,
			Limits:  Limits{Requests: 256, Tokens: Unlimited, CachedTokens: Unlimited},
			Timeout: time.Minute,
		}},
		RefreshAfter: 10 * time.Second,
	}
}

// Enabled tells whether a rank can be busy for any class, so that requests can
// wait.
func (c Config) Enabled() bool {
	return slices.ContainsFunc(c.Classes, func(cl Class) bool { return cl.Busy.Enabled() })
}

// Validate reports the first field that is out of range, as a
// *fleet.FieldError with a name like queue.classes[1].weight.
func (c Config) Validate() error {
	if n := len(c.Classes); n < 1 || n > maxClasses {
		return refuse("queue.classes", fmt.Sprintf("%d classes", n), "1 to 64 classes")
	}
	seen := make(map[string]bool, len(c.Classes))
	for i, cl := range c.Classes {
		at := fmt.Sprintf("queue.classes[%d]", i)
		if err := cl.validate(at); err != nil {
			return err
		}
		if seen[cl.Name] {
			return refuse(at+".name", cl.Name, "each name once")
		}
		seen[cl.Name] = true
	}
	if !seen[DefaultClass] {
		return refuse("queue.classes", "no class default", "one class named default")
	}
	if c.RefreshAfter < 0 || c.RefreshAfter > maxWait {
		return refuse("queue.refresh_after", c.RefreshAfter.String(), "0s to 1h")
	}
	return nil
}

func (cl Class) validate(at string) error {
	switch {
	case !validName(cl.Name):
		return refuse(at+".name", cl.Name, "1 to 64 of a-z, 0-9, _ and -")
	case cl.Weight < 1 || cl.Weight > maxWeight:
		return refuse(at+".weight", fmt.Sprint(cl.Weight), "1 to 10000")
	case cl.Order != FCFS && cl.Order != WSPT:
		return refuse(at+".order", string(cl.Order), "fcfs or wspt")
	case cl.Timeout <= 0 || cl.Timeout > maxWait:
		return refuse(at+".timeout", cl.Timeout.String(), "above 0s, at most 1h")
	}
	if err := cl.Busy.validate(at + ".busy"); err != nil {
		return err
	}
	return cl.Limits.validate(at + ".limits")
}

func validName(name string) bool {
	if name == "" || len(name) > maxName {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

func refuse(field, value, allowed string) error {
	return &fleet.FieldError{Field: field, Value: value, Allowed: allowed}
}
