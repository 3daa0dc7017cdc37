package policy

import "fmt"

// EmptiedError names the filter that has left a decision without a candidate. It
// wraps ErrEmptied.
type EmptiedError struct {
	Filter int    // its number among the filters
	Use    string // its "use"
}

// Error names the filter.
func (e *EmptiedError) Error() string {
	return fmt.Sprintf("filters[%d] %q: %v", e.Filter, e.Use, ErrEmptied)
}

// Unwrap is ErrEmptied.
func (e *EmptiedError) Unwrap() error { return ErrEmptied }
