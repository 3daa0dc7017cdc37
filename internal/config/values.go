package config

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Duration is a length of time, written as a number with a unit ("30s",
// "1.5m", "1h30m"). Numbers without unit, signs, exponents and days are
// refused.
type Duration time.Duration

var durationForm = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`)

var errDuration = errors.New(`a length of time: a number with ms, s, m or h, or several, as 1h30m`)

// ParseDuration reads a duration.
func ParseDuration(s string) (Duration, error) {
	if !durationForm.MatchString(s) {
		return 0, errDuration
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, errDuration
	}
	return Duration(d), nil
}

// Std is the duration as the standard library has it.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String writes the duration so that ParseDuration reads it back.
func (d Duration) String() string {
	s := time.Duration(d).String()
	s = strings.TrimSuffix(s, "m0s")
	if len(s) > 0 && s[len(s)-1] >= '0' && s[len(s)-1] <= '9' {
		s += "m"
	}
	if t, ok := strings.CutSuffix(s, "h0m"); ok {
		return t + "h"
	}
	return s
}

// MarshalYAML writes the duration as text.
func (d Duration) MarshalYAML() (any, error) { return d.String(), nil }

// Limit is a whole number that something may reach, or unlimited, which is
// below 0.
type Limit int64

// Unlimited is a Limit that nothing reaches.
const Unlimited Limit = -1

const (
	unlimited = "unlimited"
	maxLimit  = 1 << 40
)

var errLimit = fmt.Errorf("a whole number from 0 to %d, or %s", int64(maxLimit), unlimited)

// ParseLimit reads a limit.
func ParseLimit(s string) (Limit, error) {
	if s == unlimited {
		return Unlimited, nil
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || n > maxLimit || strconv.FormatUint(n, 10) != s {
		return 0, errLimit
	}
	return Limit(n), nil
}

// String writes the limit so that ParseLimit reads it back.
func (l Limit) String() string {
	if l < 0 {
		return unlimited
	}
	return strconv.FormatInt(int64(l), 10)
}

// Bytes is a size in bytes, written as a whole number or with a unit ("16MiB",
// "512KiB", "1GiB", "64B").
type Bytes int64

var errBytes = errors.New(`a size such as "16MiB", "512KiB" or a whole number of bytes`)

var byteUnits = []struct {
	name string
	size int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// ParseBytes reads a size.
func ParseBytes(s string) (Bytes, error) {
	size := int64(1)
	for _, u := range byteUnits {
		if t, ok := strings.CutSuffix(s, u.name); ok {
			s, size = t, u.size
			break
		}
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || n > uint64(math.MaxInt64/size) || strconv.FormatUint(n, 10) != s {
		return 0, errBytes
	}
	return Bytes(int64(n) * size), nil
}

// String writes the size with the largest unit that keeps it whole.
func (b Bytes) String() string {
	for _, u := range byteUnits {
		if b != 0 && int64(b)%u.size == 0 {
			return fmt.Sprintf("%d%s", int64(b)/u.size, u.name)
		}
	}
	return "0B"
}

// MarshalYAML writes the size as text.
func (b Bytes) MarshalYAML() (any, error) { return b.String(), nil }
