package selection

import (
	"errors"
	"math"
	"strconv"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/httpapi"
	"github.com/routerd/routerd/internal/jsonscan"
)

// What is wrong with a body: a text that is no JSON and unknown fields are 400, a
// value of another type than the field has, or a field that is missing, 422, and a
// value that is out of range 400 again.

// wrongType refuses a value of another type. value is as it is written; empty where it
// may be of a prompt.
func wrongType(field, value, allowed string) error {
	f := httpapi.Invalid(httpapi.Clip(field), refused(value)+"not allowed", allowed)
	f.Status = 422
	return f
}

// outOfRange refuses a value of the right type.
func outOfRange(field, value, allowed string) error {
	return httpapi.Invalid(httpapi.Clip(field), refused(value)+"out of range", allowed)
}

func refused(value string) string {
	if value == "" {
		return "this is "
	}
	return httpapi.Clip(value) + " is "
}

func unknownField(field, allowed string) error {
	return httpapi.Invalid(httpapi.Clip(field), "there is no such field", allowed)
}

func repeated(field string) error {
	return httpapi.Invalid(httpapi.Clip(field), "the field is given more than once", "each field once")
}

func missing(field string) error {
	f := httpapi.Invalid(field, "the field is missing", "a value")
	f.Status = 422
	return f
}

// broken turns what a reader says of a text that is no JSON into a refusal; all else
// stays as it is.
func broken(err error) error {
	if errors.Is(err, jsonscan.ErrNotJSON) || errors.Is(err, jsonscan.ErrTooDeep) {
		return httpapi.Invalid("body", "it is "+err.Error(), "a JSON object")
	}
	return err
}

// opens checks that r stands before an array or an object.
func opens(r *jsonscan.Reader, bracket byte, name, allowed string) error {
	if r.Peek() == bracket {
		return nil
	}
	if _, err := r.Value(); err != nil {
		return err
	}
	return wrongType(name, "", allowed)
}

// null skips null, if it is next.
func null(r *jsonscan.Reader) bool {
	const word = "null"
	if rest := r.Data[r.Pos:]; len(rest) < len(word) || string(rest[:len(word)]) != word {
		return false
	}
	r.Pos += len(word)
	return true
}

// tokensOf appends an array of token ids. No error repeats one: they are a prompt.
func tokensOf(r *jsonscan.Reader, name string, dst []uint32) ([]uint32, error) {
	if err := opens(r, '[', name, "an array of token ids"); err != nil {
		return dst, err
	}
	dst, err := r.Uint32s(dst)
	return dst, ofElement(name, err, "0 to 4294967295")
}

// hashesOf appends an array of hashes, signed or not.
func hashesOf[T ~uint64](r *jsonscan.Reader, name string, dst []T) ([]T, error) {
	if err := opens(r, '[', name, "an array of hashes"); err != nil {
		return dst, err
	}
	dst, err := jsonscan.Hashes(r, dst)
	return dst, ofElement(name, err, "64-bit numbers, signed or not")
}

func ofElement(name string, err error, allowed string) error {
	bad, ok := errors.AsType[*jsonscan.ElementError](err)
	if !ok {
		return err
	}
	at := name + "[" + strconv.Itoa(bad.Index) + "]"
	if bad.Whole {
		return outOfRange(at, "", allowed)
	}
	return wrongType(at, "", allowed)
}

func textOf(raw []byte, name string) (string, error) {
	if raw[0] != '"' {
		return "", wrongType(name, string(raw), "a text")
	}
	return string(jsonscan.Unquote(raw)), nil
}

func isTrue(raw []byte, name string) (bool, error) {
	switch string(raw) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, wrongType(name, string(raw), "true or false")
}

func truthOf(raw []byte, name string) (*bool, error) {
	v, err := isTrue(raw, name)
	return &v, err
}

// countOf reads a whole number from 0 to most.
func countOf(raw []byte, name string, most uint64) (int, error) {
	allowed := "0 to " + strconv.FormatUint(most, 10)
	if !isWhole(raw) {
		return 0, wrongType(name, string(raw), "a whole number, "+allowed)
	}
	n, err := strconv.ParseUint(string(raw), 10, 64)
	if err != nil || n > most {
		return 0, outOfRange(name, string(raw), allowed)
	}
	return int(n), nil
}

// isWhole tells whether a JSON value is a whole number.
func isWhole(raw []byte) bool {
	if !isNumber(raw) {
		return false
	}
	for _, c := range raw {
		if c == '.' || c == 'e' || c == 'E' {
			return false
		}
	}
	return true
}

func isNumber(raw []byte) bool { return raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9' }

// numberOf reads a number from low to high.
func numberOf(raw []byte, name string, low, high float64, allowed string) (float64, error) {
	if !isNumber(raw) {
		return 0, wrongType(name, string(raw), "a number, "+allowed)
	}
	v, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || v < low || v > high || math.IsNaN(v) {
		return 0, outOfRange(name, string(raw), allowed)
	}
	return v, nil
}

// workerOf reads a worker id: a number, or a text with its digits.
func workerOf(raw []byte, name string) (fleet.WorkerID, error) {
	const allowed = "0 to 18446744073709551615"
	digits, quoted := raw, raw[0] == '"'
	if quoted {
		digits = jsonscan.Unquote(raw)
	}
	n, err := strconv.ParseUint(string(digits), 10, 64)
	switch {
	case err == nil:
		return fleet.WorkerID(n), nil
	case !quoted && isWhole(raw):
		return 0, outOfRange(name, string(raw), allowed)
	}
	return 0, wrongType(name, string(raw), "a worker's id, "+allowed)
}
