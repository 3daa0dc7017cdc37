package upstream

import (
	"strconv"
	"time"

	"github.com/routerd/routerd/fleet"
)

// Bounds of BreakerConfig.
const (
	maxBreakerFailures  = 1000
	maxBreakerSuccesses = 100
	minBreakerCooldown  = 10 * time.Millisecond
	maxBreakerCooldown  = time.Hour
)

// BreakerConfig says when a worker that fails is called no more, and for how
// long.
type BreakerConfig struct {
	Failures    int           `koanf:"failures" reload:"live" min:"0" max:"1000" doc:"Failures in a row after which a worker is not called for a while: no connection, no answer in time, an answer that breaks off before its head is complete, or a 5xx but 501, 503 and 505. An answer below 400 ends the row. 0 calls it always."`
	Cooldown    time.Duration `koanf:"cooldown" reload:"live" min:"10ms" max:"1h" doc:"How long it is not called; then one call at a time is tried, each for frontend.first_byte_timeout at most. Doubled each time that the trial fails."`
	MaxCooldown time.Duration `koanf:"max_cooldown" reload:"live" min:"10ms" max:"1h" doc:"The longest that this grows to; at least cooldown."`
	Successes   int           `koanf:"successes" reload:"live" min:"1" max:"100" doc:"Trials in a row that must be answered below 400 before it is called as before."`
}

// DefaultBreakerConfig opens after 5 failures, for 2 s growing to a minute, and
// closes with the first trial that is answered below 400.
func DefaultBreakerConfig() BreakerConfig {
	return BreakerConfig{Failures: 5, Cooldown: 2 * time.Second, MaxCooldown: time.Minute, Successes: 1}
}

// Validate reports the first field that is out of range as a *fleet.FieldError.
func (c BreakerConfig) Validate() error {
	refuse := func(field, value, allowed string) error {
		return &fleet.FieldError{Field: field, Value: value, Allowed: allowed}
	}
	switch {
	case c.Failures < 0 || c.Failures > maxBreakerFailures:
		return refuse("failures", strconv.Itoa(c.Failures), "0 to "+strconv.Itoa(maxBreakerFailures))
	case c.Cooldown < minBreakerCooldown || c.Cooldown > maxBreakerCooldown:
		return refuse("cooldown", c.Cooldown.String(), "10ms to 1h")
	case c.MaxCooldown < c.Cooldown || c.MaxCooldown > maxBreakerCooldown:
		return refuse("max_cooldown", c.MaxCooldown.String(), "cooldown ("+c.Cooldown.String()+") to 1h")
	case c.Successes < 1 || c.Successes > maxBreakerSuccesses:
		return refuse("successes", strconv.Itoa(c.Successes), "1 to "+strconv.Itoa(maxBreakerSuccesses))
	}
	return nil
}
