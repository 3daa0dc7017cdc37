package config

import (
	"errors"
	"strconv"
	"strings"

	"github.com/routerd/routerd/fleet"
)

// Problem is one thing that is wrong with the configuration.
type Problem struct {
	Source string // "routerd.yaml:3:5", an environment variable or a flag; "" for a default
	Key    string // dotted path
	Value  string // as given, cut to 80 bytes; "" for an unknown key
	Reason string // what is allowed, or what is wrong

	Allowed string // what is allowed, alone; "" where Reason does not tell it
}

// Error is the problem on one line.
func (p Problem) Error() string {
	var b strings.Builder
	if p.Source != "" {
		b.WriteString(p.Source + ": ")
	}
	b.WriteString(p.Key + ": " + p.Reason)
	return b.String()
}

func badValue(source, key, value, allowed string) Problem {
	fe := &fleet.FieldError{Field: key, Value: value, Allowed: allowed}
	return Problem{Source: source, Key: key, Value: value, Reason: strings.TrimPrefix(fe.Error(), key+": "), Allowed: allowed}
}

func unknownKey(source, key, near string) Problem {
	reason := "unknown key"
	if near != "" {
		reason += "; the nearest known one is " + near
	}
	return Problem{Source: source, Key: printable(key), Reason: reason, Allowed: near}
}

// printable quotes a key that a terminal would not show as it is.
func printable(key string) string {
	if strings.ContainsFunc(key, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(key)
	}
	return key
}

// Error is every problem of a configuration; it is what Load returns for a bad
// one.
type Error struct{ Problems []Problem }

// Error has a line for each problem.
func (e *Error) Error() string {
	errs := make([]error, len(e.Problems))
	for i, p := range e.Problems {
		errs[i] = p
	}
	return errors.Join(errs...).Error()
}
