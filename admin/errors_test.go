package admin_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/admin"
	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/api"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/store"
	"github.com/routerd/routerd/internal/httpapi"
	"github.com/routerd/routerd/plugins/abi"
)

func TestEachErrorHasItsCode(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("do it: %w", err) }
	unwritable := admin.Details{Step: "write", Item: "data_dir", Allowed: "a data folder with room, on a file system that takes writes"}
	for _, c := range []struct {
		err     error
		status  int
		code    admin.Code
		details admin.Details
	}{
		{&host.LoadError{Step: "exports", Code: abi.EExport, Item: "rp_score is missing", Allowed: "it"}, 422, "E_EXPORT", admin.Details{Step: "exports", Item: "rp_score is missing", Allowed: "it"}},
		{&fleet.FieldError{Field: "url", Value: "x", Allowed: "y"}, 400, admin.CodeInvalid, admin.Details{Step: "check", Item: "url", Allowed: "y"}},
		{&catalog.ConflictError{Field: "url", Value: "x", Holder: "y"}, 409, admin.CodeConflict, admin.Details{Step: "check", Item: "url"}},
		{&catalog.ForeignError{Worker: "w1", Source: "file"}, 409, admin.CodeConflict, admin.Details{Item: "w1"}},
		{&core.Error{Code: core.CodeInvalid, Message: "m", Field: "f"}, 400, admin.CodeInvalid, admin.Details{Step: "check", Item: "f"}},
		{store.ErrNotFound, 404, admin.CodeNotFound, admin.Details{}},
		{store.ErrTooLarge, 413, admin.CodeTooLarge, admin.Details{Step: "size"}},
		{store.ErrDigest, 422, "E_DIGEST", admin.Details{Step: "digest"}},
		{store.ErrInUse, 409, admin.CodeConflict, admin.Details{Step: "in_use"}},
		{host.ErrPolicyInUse, 409, admin.CodeConflict, admin.Details{Step: "in_use"}},
		{host.ErrNoPolicy, 404, admin.CodeNotFound, admin.Details{}},
		{host.ErrNoRevision, 404, admin.CodeNotFound, admin.Details{}},
		{host.ErrNoHistory, 409, admin.CodeConflict, admin.Details{Step: "no_history"}},
		{host.ErrNoRollout, 409, admin.CodeConflict, admin.Details{Step: "no_rollout"}},
		{host.ErrNoActive, 409, admin.CodeConflict, admin.Details{Step: "no_active"}},
		{&host.LackingError{Policy: "p", Revision: 2, Columns: []string{"a", "b"}}, 409, admin.CodeConflict, admin.Details{Step: "columns", Item: "a, b", Allowed: "a revision that reads only what was recorded"}},
		{api.ErrNotFound, 404, admin.CodeNotFound, admin.Details{}},
		{&fs.PathError{Op: "write", Path: "/secret/path", Err: syscall.ENOSPC}, 503, admin.CodeUnavailable, unwritable},
		{&os.SyscallError{Syscall: "rename", Err: syscall.EROFS}, 503, admin.CodeUnavailable, unwritable},
		{errors.Join(errors.New("sync"), syscall.EDQUOT), 503, admin.CodeUnavailable, unwritable},
		{fmt.Errorf("%w: %w", host.ErrCompiledCache, syscall.ENOSPC), 503, admin.CodeUnavailable, admin.Details{Step: "compile"}},
		{context.Canceled, 503, admin.CodeUnavailable, admin.Details{}},
		{context.DeadlineExceeded, 503, admin.CodeUnavailable, admin.Details{}},
		{errors.New("open /secret/path: CANARY"), 500, admin.CodeInternal, admin.Details{}},
		{&core.Error{Code: core.CodeNoWorkers, Message: "m"}, 500, admin.CodeInternal, admin.Details{}},
	} {
		got := admin.Classify(wrap(c.err))
		if got.Status != c.status || got.Code != c.code || got.Message == "" {
			t.Errorf("%v: got %+v, want %d %s", c.err, got, c.status, c.code)
		}
		if diff := cmp.Diff(c.details, got.Details); diff != "" {
			t.Errorf("%v: %s", c.err, diff)
		}
		if c.code == admin.CodeInternal && got.Message == c.err.Error() {
			t.Errorf("an internal error is shown: %s", got.Message)
		}
	}
}

func TestAFullDataFolderIsSaidWithoutItsPath(t *testing.T) {
	got := admin.Classify(fmt.Errorf("activate: %w", &fs.PathError{Op: "write", Path: "/secret/path", Err: syscall.ENOSPC}))
	if got.Message != "the data folder cannot be written: no space left on device" {
		t.Errorf("got %q", got.Message)
	}
}

func TestEachHostCodeIs422(t *testing.T) {
	codes := httpapi.Codes()
	for _, c := range abi.HostCodes() {
		got := admin.Classify(&host.LoadError{Step: "s", Code: c.Code, Item: "i"})
		if got.Status != 422 || string(got.Code) != string(c.Code) || codes[got.Code] != 422 {
			t.Errorf("%s: got %+v", c.Code, got)
		}
	}
}

func TestTheListOfCodesIsClosed(t *testing.T) {
	want := []admin.Code{"unauthorized", "forbidden", "not_found", "conflict", "invalid", "unsupported", "too_large", "rate_limited", "unavailable", "overloaded", "internal"}
	for _, c := range abi.HostCodes() {
		want = append(want, admin.Code(c.Code))
	}
	var got []admin.Code
	for c, status := range httpapi.Codes() {
		got = append(got, c)
		if status < 400 || status > 599 {
			t.Errorf("%s has status %d", c, status)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
