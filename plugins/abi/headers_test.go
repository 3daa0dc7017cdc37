package abi_test

import (
	"strings"
	"testing"

	"github.com/routerd/routerd/plugins/abi"
)

func TestHeadersThatNoModuleMaySee(t *testing.T) {
	t.Parallel()
	many := make([]string, 17)
	for i := range many {
		many[i] = "x-" + strings.Repeat("a", i+1)
	}
	for _, c := range []struct {
		list    []string
		allowed string // of the last one; empty when it may be there
	}{
		{[]string{"x-team"}, ""},
		{many[:16], ""},
		{many, "at most 16"},
		{[]string{""}, "in lower case"},
		{[]string{"X-Team"}, "in lower case"},
		{[]string{"x team"}, "in lower case"},
		{[]string{"x-" + strings.Repeat("a", 63)}, "up to 64 bytes"},
		{[]string{"x-team", "authorization"}, "no credential"},
		{[]string{"cookie"}, "no credential"},
		{[]string{"x-api-key"}, "no credential"},
		{[]string{"x-routerd-session"}, "inputs of their own"},
		{[]string{"x-team", "x-team"}, "each name once"},
	} {
		got := abi.HeaderRefused(c.list, len(c.list)-1)
		if (got == "") != (c.allowed == "") || !strings.Contains(got, c.allowed) {
			t.Errorf("%q: allowed %q, want %q", c.list, got, c.allowed)
		}
	}
}
