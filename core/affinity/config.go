package affinity

import (
	"strconv"
	"time"

	"github.com/routerd/routerd/fleet"
)

// Bounds of a configuration and of a session's id.
const (
	MinTTL     = time.Second
	MaxTTL     = 31_536_000 * time.Second // a year
	MaxEntries = 65_536
	MaxIDBytes = 256
)

// Config says how sessions are bound.
type Config struct {
	// TTL is how long a binding outlives its last lease: MinTTL to MaxTTL, or 0
	// for no bindings at all.
	TTL time.Duration
	// Entries bounds the sessions of a table: 1 to MaxEntries.
	Entries int
	// Soft makes a binding advice to the policy; otherwise the bound worker is
	// the pick. The table keeps it for those who decide.
	Soft bool
	// Writer names this router among those that share bindings; 0 where it
	// shares them with nobody.
	Writer uint64
}

// DefaultConfig binds no sessions: nothing but the TTL is missing.
func DefaultConfig() Config { return Config{Entries: MaxEntries} }

// Validate refuses what is out of range with a *fleet.FieldError that names
// affinity.ttl or affinity.entries.
func (c Config) Validate() error {
	if c.TTL != 0 {
		if err := CheckTTL("affinity.ttl", c.TTL); err != nil {
			return err
		}
	}
	if c.Entries < 1 || c.Entries > MaxEntries {
		return &fleet.FieldError{Field: "affinity.entries", Value: strconv.Itoa(c.Entries), Allowed: "1 to 65536"}
	}
	return nil
}

// CheckTTL refuses a TTL that is out of range, 0 too: what somebody gave and did
// not leave out. The *fleet.FieldError names field.
func CheckTTL(field string, ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return &fleet.FieldError{Field: field, Value: ttl.String(), Allowed: "1s to 31536000s"}
	}
	return nil
}

// CheckID refuses a session id that is too long with a *fleet.FieldError that
// names field and not the id. The empty id is none, and allowed.
func CheckID(field, id string) error {
	if len(id) > MaxIDBytes {
		return &fleet.FieldError{Field: field, Value: strconv.Itoa(len(id)) + " bytes", Allowed: "at most 256 bytes"}
	}
	return nil
}
