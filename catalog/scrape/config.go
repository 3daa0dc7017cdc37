package scrape

import (
	"time"

	"github.com/routerd/routerd/fleet"
)

// Bounds of the configuration.
const (
	MinInterval = 100 * time.Millisecond
	MaxInterval = time.Minute
	MinTimeout  = 10 * time.Millisecond
	MaxTimeout  = 30 * time.Second
	MaxMaxAge   = 10 * time.Minute
)

// Config says how often engines are asked for their load.
type Config struct {
	Interval time.Duration `koanf:"interval" reload:"live" min:"100ms" max:"1m" off:"true" doc:"How often each engine is asked for its load, a fifth more or less; 0s asks none."`
	Timeout  time.Duration `koanf:"timeout" reload:"live" min:"10ms" max:"30s" doc:"How long an engine may take to answer."`
	MaxAge   time.Duration `koanf:"max_age" reload:"live" min:"100ms" max:"10m" doc:"Older reports are not used; those older than 10 s never override the projected load."`
}

// DefaultConfig asks once a second.
func DefaultConfig() Config {
	return Config{Interval: time.Second, Timeout: time.Second, MaxAge: 10 * time.Second}
}

// Validate reports the first field that is out of range as a *fleet.FieldError.
func (c Config) Validate() error {
	for _, f := range []struct {
		field       string
		value       time.Duration
		least, most time.Duration
		off         bool
		allowed     string
	}{
		{"interval", c.Interval, MinInterval, MaxInterval, true, "100ms to 1m, or 0s for never"},
		{"timeout", c.Timeout, MinTimeout, MaxTimeout, false, "10ms to 30s"},
		{"max_age", c.MaxAge, MinInterval, MaxMaxAge, false, "100ms to 10m"},
	} {
		if (f.value < f.least || f.value > f.most) && !(f.off && f.value == 0) {
			return &fleet.FieldError{Field: f.field, Value: f.value.String(), Allowed: f.allowed}
		}
	}
	return nil
}
