package health

import (
	"strconv"
	"strings"
	"time"

	"github.com/routerd/routerd/fleet"
)

// Config says how workers' health is found and what follows from it.
type Config struct {
	Interval     time.Duration `koanf:"interval" reload:"live" min:"100ms" max:"1h" off:"true" doc:"Time between two probes of a worker, more or less a fifth; 0s probes nobody, and every worker counts as healthy until requests fail."`
	Timeout      time.Duration `koanf:"timeout" reload:"live" min:"10ms" max:"1m" doc:"How long a probe waits for the answer, connecting included."`
	Path         string        `koanf:"path" reload:"live" doc:"Path below the worker's URL that is asked; an answer of 2xx is a success."`
	Failures     int           `koanf:"failures" reload:"live" min:"1" max:"100" doc:"Failed probes in a row that take a worker out."`
	Successes    int           `koanf:"successes" reload:"live" min:"1" max:"100" doc:"Successful probes in a row that bring it back; a new worker needs one."`
	Grace        time.Duration `koanf:"grace" reload:"live" max:"24h" off:"true" doc:"How long a new worker may take to its first answer before it counts as ejected rather than starting."`
	MaxEjected   int           `koanf:"max_ejected" reload:"live" min:"0" max:"100" doc:"Most workers of a partition that are out at a time, in percent of those that have ever answered; the last one is never taken out."`
	BaseEjection time.Duration `koanf:"base_ejection" reload:"live" min:"100ms" max:"1h" doc:"How long failed requests take a worker out for; doubled with each time, halved with health."`
	MaxEjection  time.Duration `koanf:"max_ejection" reload:"live" min:"100ms" max:"24h" doc:"Longest such time."`
	SlowStart    time.Duration `koanf:"slow_start" reload:"live" max:"1h" off:"true" doc:"How long a worker that returns takes from a tenth of its requests to all; 0s gives it all at once."`
	Passive      Passive       `koanf:"passive"`
}

// Passive says how failures of requests take a worker out.
type Passive struct {
	Failures int           `koanf:"failures" reload:"live" min:"0" max:"1000" doc:"Failed requests in a row that take a worker out; 0 is off."`
	Window   time.Duration `koanf:"window" reload:"live" min:"100ms" max:"1h" doc:"Time within which they have to fall."`
}

// DefaultConfig probes each 5 s and bears with engines that load for ten minutes.
func DefaultConfig() Config {
	return Config{
		Interval: 5 * time.Second, Timeout: 2 * time.Second, Path: "/health", Failures: 3, Successes: 2,
		Grace: 10 * time.Minute, MaxEjected: 50, BaseEjection: 10 * time.Second, MaxEjection: 5 * time.Minute,
		SlowStart: 10 * time.Second, Passive: Passive{Failures: 5, Window: 10 * time.Second},
	}
}

// asks tells whether workers are probed.
func (c *Config) asks() bool { return c.Interval > 0 }

// Validate reports the first field that is out of range as a *fleet.FieldError.
func (c Config) Validate() error {
	for _, f := range []struct {
		field          string
		value, low, up time.Duration
		off            bool
	}{
		{"interval", c.Interval, 100 * time.Millisecond, time.Hour, true},
		{"timeout", c.Timeout, 10 * time.Millisecond, time.Minute, false},
		{"grace", c.Grace, 0, 24 * time.Hour, true},
		{"base_ejection", c.BaseEjection, 100 * time.Millisecond, time.Hour, false},
		{"max_ejection", c.MaxEjection, 100 * time.Millisecond, 24 * time.Hour, false},
		{"slow_start", c.SlowStart, 0, time.Hour, true},
		{"passive.window", c.Passive.Window, 100 * time.Millisecond, time.Hour, false},
	} {
		if f.value == 0 && f.off || f.value >= f.low && f.value <= f.up {
			continue
		}
		allowed := f.low.String() + " to " + f.up.String()
		if f.off {
			allowed += ", or 0s for off"
		}
		return &fleet.FieldError{Field: f.field, Value: f.value.String(), Allowed: allowed}
	}
	for _, f := range []struct {
		field          string
		value, low, up int
	}{
		{"failures", c.Failures, 1, 100},
		{"successes", c.Successes, 1, 100},
		{"max_ejected", c.MaxEjected, 0, 100},
		{"passive.failures", c.Passive.Failures, 0, 1000},
	} {
		if f.value < f.low || f.value > f.up {
			return &fleet.FieldError{Field: f.field, Value: strconv.Itoa(f.value), Allowed: strconv.Itoa(f.low) + " to " + strconv.Itoa(f.up)}
		}
	}
	if c.MaxEjection < c.BaseEjection {
		return &fleet.FieldError{Field: "max_ejection", Value: c.MaxEjection.String(), Allowed: "at least base_ejection, which is " + c.BaseEjection.String()}
	}
	if !plainPath(c.Path) {
		return &fleet.FieldError{Field: "path", Value: c.Path, Allowed: "1 to 256 bytes that begin with '/', printable ASCII without blanks and '#'"}
	}
	return nil
}

// plainPath tells whether a path can stand in a request line as it is.
func plainPath(p string) bool {
	return strings.HasPrefix(p, "/") && len(p) <= 256 &&
		!strings.ContainsFunc(p, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' })
}
