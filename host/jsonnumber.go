package host

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Guests see f64, and the schema library works with exact fractions of which a
// few characters can make millions of digits. So a number that no f64 comes
// near is refused before that library sees it.
const (
	maxNumberText  = 64  // bytes
	maxNumberPower = 400 // of ten
	maxNumberShown = 40  // bytes in an error
	maxPlace       = 200 // bytes of its place
	numberAllowed  = "numbers of up to 64 characters whose nearest f64 is finite, and not 0 unless they are"
)

// badNumber finds the first number in v that is not allowed; it names the place
// below at and the number. Empty when there is none.
func badNumber(v any, at string) string {
	place, text := firstBad(v)
	if text == "" {
		return ""
	}
	return clip(at+place, maxPlace) + ": number " + clip(text, maxNumberShown)
}

// firstBad returns the JSON pointer of the first bad number and its text. The
// end of a long pointer is enough.
func firstBad(v any) (place, text string) {
	in := func(key string, x any) bool {
		if place, text = firstBad(x); text != "" && len(place) < maxPlace {
			place = "/" + key + place
		}
		return text != ""
	}
	switch v := v.(type) {
	case json.Number:
		if !allowedNumber(string(v)) {
			return "", string(v)
		}
	case []any:
		for i, x := range v {
			if in(strconv.Itoa(i), x) {
				return place, text
			}
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if in(k, v[k]) {
				return place, text
			}
		}
	}
	return "", ""
}

// allowedNumber judges a number's JSON text.
func allowedNumber(text string) bool {
	if len(text) > maxNumberText {
		return false
	}
	digits := text
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		digits = text[:i]
		power, err := strconv.Atoi(text[i+1:])
		if err != nil || power > maxNumberPower || power < -maxNumberPower {
			return false
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(f, 0) {
		return false
	}
	return f != 0 || !strings.ContainsAny(digits, "123456789")
}
