package admin

import (
	"context"
	"errors"
	"strings"
	"syscall"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/api"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/store"
	"github.com/routerd/routerd/internal/httpapi"
	"github.com/routerd/routerd/plugins/abi"
)

// Code says what kind of error an answer is.
type Code = httpapi.Code

// The codes of the closed list that others use.
const (
	CodeUnauthorized = httpapi.CodeUnauthorized
	CodeForbidden    = httpapi.CodeForbidden
	CodeNotFound     = httpapi.CodeNotFound
	CodeConflict     = httpapi.CodeConflict
	CodeInvalid      = httpapi.CodeInvalid
	CodeUnsupported  = httpapi.CodeUnsupported
	CodeTooLarge     = httpapi.CodeTooLarge
	CodeRateLimited  = httpapi.CodeRateLimited
	CodeUnavailable  = httpapi.CodeUnavailable
	CodeOverloaded   = httpapi.CodeOverloaded
	CodeInternal     = httpapi.CodeInternal
)

// Details place an error.
type Details = httpapi.Details

type failure = httpapi.Failure

// classify is the one place where errors become answers.
func classify(err error) *failure {
	f := classified(err)
	f.Message = httpapi.Redact(f.Message)
	f.Details.Item = httpapi.Redact(f.Details.Item)
	return f
}

func classified(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if e, ok := errors.AsType[*ReloadError](err); ok {
		return e.failure()
	}
	if why := unwritable(err); why != "" && !errors.Is(err, host.ErrCompiledCache) { // which says more below
		return &failure{
			Code: CodeUnavailable, Message: "the data folder cannot be written: " + why, Logged: true,
			Details: Details{Step: "write", Item: "data_dir", Allowed: "a data folder with room, on a file system that takes writes"},
		}
	}
	if e, ok := errors.AsType[*host.LoadError](err); ok {
		return &failure{Code: Code(e.Code), Message: err.Error(), Details: Details{Step: e.Step, Item: e.Item, Allowed: e.Allowed}}
	}
	if e, ok := errors.AsType[*fleet.FieldError](err); ok {
		return &failure{Code: CodeInvalid, Message: err.Error(), Details: Details{Step: "check", Item: e.Field, Allowed: e.Allowed}}
	}
	if e, ok := errors.AsType[*catalog.ConflictError](err); ok {
		return &failure{Code: CodeConflict, Message: err.Error(), Details: Details{Step: "check", Item: e.Field}}
	}
	if e, ok := errors.AsType[*catalog.ForeignError](err); ok {
		return &failure{Code: CodeConflict, Message: err.Error(), Details: Details{Item: e.Worker}}
	}
	if e, ok := errors.AsType[*core.Error](err); ok && e.Code == core.CodeInvalid {
		return &failure{Code: CodeInvalid, Message: err.Error(), Details: Details{Step: "check", Item: e.Field}}
	}
	if e, ok := errors.AsType[*host.LackingError](err); ok {
		return &failure{Code: CodeConflict, Message: err.Error(), Details: Details{
			Step: "columns", Item: strings.Join(e.Columns, ", "), Allowed: "a revision that reads only what was recorded",
		}}
	}
	if e, ok := errors.AsType[*host.OverrideError](err); ok {
		return &failure{Code: CodeConflict, Message: err.Error(), Details: Details{Step: "overrides", Item: httpapi.Clip(e.Override), Allowed: e.Allowed}}
	}
	for _, known := range []struct {
		is   error
		code Code
		step string
	}{
		{store.ErrNotFound, CodeNotFound, ""},
		{store.ErrTooLarge, CodeTooLarge, host.StepSize},
		{store.ErrDigest, Code(abi.EDigest), host.StepDigest},
		{store.ErrInUse, CodeConflict, "in_use"},
		{store.ErrOwned, CodeConflict, "source"},
		{host.ErrCompiledCache, CodeUnavailable, host.StepCompile},
		{host.ErrNoPolicy, CodeNotFound, ""},
		{host.ErrNoRevision, CodeNotFound, ""},
		{host.ErrNoHistory, CodeConflict, "no_history"},
		{host.ErrPolicyInUse, CodeConflict, "in_use"},
		{host.ErrNoRollout, CodeConflict, "no_rollout"},
		{host.ErrNoActive, CodeConflict, "no_active"},
		{api.ErrNotFound, CodeNotFound, ""},
		{context.Canceled, CodeUnavailable, ""},
		{context.DeadlineExceeded, CodeUnavailable, ""},
	} {
		if errors.Is(err, known.is) {
			return &failure{Code: known.code, Message: err.Error(), Details: Details{Step: known.step}}
		}
	}
	return httpapi.Internal()
}

// unwritable tells why nothing can be written, in the operating system's words;
// empty where the error is another. Only its data folder does the router write.
func unwritable(err error) string {
	for _, full := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS} {
		if errors.Is(err, full) {
			return full.Error()
		}
	}
	return ""
}
