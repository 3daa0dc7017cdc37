package app

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/routerd/routerd/admin"
	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/store"
	"github.com/routerd/routerd/internal/config"
)

// refusedReading is the error of a configuration that cannot be read or is not
// right.
func refusedReading(err error) error {
	bad, ok := errors.AsType[*config.Error](err)
	if !ok {
		return &admin.ReloadError{Code: admin.CodeInvalid, Step: admin.ReloadRead, Problems: []admin.ReloadProblem{{Text: err.Error()}}}
	}
	out := &admin.ReloadError{Code: admin.CodeInvalid, Step: admin.ReloadCheck}
	for _, p := range bad.Problems {
		if p.Key == "YAML" {
			out.Step = admin.ReloadRead
		}
		out.Problems = append(out.Problems, admin.ReloadProblem{Key: p.Key, Allowed: p.Allowed, Text: p.Error()})
	}
	return out
}

// refusedChange names all that only a restart can change.
func refusedChange(was, now *config.Config, fixed []config.Fixed, parts []part) error {
	var problems []admin.ReloadProblem
	for _, f := range fixed {
		problems = append(problems, needsRestart(f.Key, f.Was, f.Now))
	}
	for _, p := range parts {
		if p.refuse != nil {
			problems = append(problems, p.refuse(was, now)...)
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return &admin.ReloadError{Code: admin.CodeConflict, Step: admin.ReloadRestart, Problems: problems}
}

// needsRestart refuses the change of one key.
func needsRestart(key, was, now string) admin.ReloadProblem {
	allowed := fmt.Sprintf("%q, or a restart", was)
	return admin.ReloadProblem{Key: key, Allowed: allowed, Text: (&fleet.FieldError{Field: key, Value: now, Allowed: allowed}).Error()}
}

// refusedPreparing is the error of what the configuration names and that cannot
// be made. The words of the part say which; some errors mean something else
// here than where a path or a body named the thing.
func refusedPreparing(err error) error {
	invalid := errors.Is(err, store.ErrNotFound) || errors.Is(err, host.ErrNoPolicy) || errors.Is(err, fs.ErrNotExist)
	code := admin.CodeInvalid
	if _, ok := errors.AsType[*catalog.ConflictError](err); ok {
		code, invalid = admin.CodeConflict, true
	}
	if _, ok := errors.AsType[*host.LoadError](err); ok || !invalid {
		return err
	}
	p := admin.ReloadProblem{Text: err.Error()}
	if key, _, ok := strings.Cut(p.Text, ": "); ok && strings.HasPrefix(key, "policies.") {
		p.Key = key
	}
	return &admin.ReloadError{Code: code, Step: admin.ReloadPrepare, Problems: []admin.ReloadProblem{p}}
}
