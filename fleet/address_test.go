package fleet_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/upstream"
)

func TestAWorkerURLHasOneSpelling(t *testing.T) {
	for raw, want := range map[string]string{
		"HTTP://LocalHost:18000/":        "http://localhost:18000",
		"http://h":                       "http://h:80",
		"http://h:80//":                  "http://h:80",
		"http://127.0.0.1:020001":        "http://127.0.0.1:20001",
		"http://h:1/a/b/":                "http://h:1/a/b",
		"http://[0:0::1]:8001":           "http://[::1]:8001",
		"http://[::1%25lo]:80":           "http://[::1%25lo]:80",
		"http://[FE80::1%25Eth0]":        "http://[fe80::1%25Eth0]:80",
		"http://h_1.example-2.org:65535": "http://h_1.example-2.org:65535",
		"http://h:1/a%2Fb":               "http://h:1/a%2Fb",
	} {
		got, err := fleet.NormaliseURL(raw)
		if got != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", raw, got, err, want)
			continue
		}
		dialled(t, got)
	}
}

func TestAWorkerURLThatCannotBeDialledIsRefused(t *testing.T) {
	for _, raw := range []string{
		"http://:1", "http://h:1/../x", "http://h:1/./x", "http://h:1/a/..", "http://h:1/%2e%2E/x", "http://127.0.0.1:1/a//b", "http://h:1//a",
		"http://h!:1", "http://h*:1", "http://hé:1", "http://h%C3%A9:1", "http://" + strings.Repeat("h", 254) + ":1",
		"http://[127.0.0.1]:1", "http://[::1%25a%20b]:1", "http://[]:1", "http://[h]:1",
		"http://h:", "http://h:00", "http://h:+1", "http://h:99999999999999999999", "http://h:1/?", "http://h:1#", "http://@h:1", "http:///x", "//h:1",
	} {
		got, err := fleet.NormaliseURL(raw)
		if fe, ok := errors.AsType[*fleet.FieldError](err); !ok || fe.Field != "url" || fe.Allowed == "" {
			t.Errorf("%s: got %q, %v", raw, got, err)
		}
	}
}

// dialled tells that the part that dials workers reads a normal form, and reads
// it as the same text.
func dialled(t *testing.T, normal string) {
	t.Helper()
	if again, err := fleet.NormaliseURL(normal); again != normal || err != nil {
		t.Errorf("normalising %q again gave %q, %v", normal, again, err)
	}
	if e, err := upstream.ParseEndpoint(normal); e.String() != normal || err != nil {
		t.Errorf("upstream reads %q as %q, %v", normal, e, err)
	}
}

func FuzzEveryNormalURLCanBeDialled(f *testing.F) {
	for _, raw := range []string{
		"http://127.0.0.1:8000", "http://h/", "http://:1", "http://h:1/../x", "http://h:1/a//b", "http://h!:1", "http://[::1%25lo]:80",
		"http://[::ffff:1.2.3.4]:1", "http://h:020001", "http://h:1/a%2fb%zz", "http://h:1/a b", "http://u:p@h:1/", "http://h:1/\x7f",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if normal, err := fleet.NormaliseURL(raw); err == nil {
			dialled(t, normal)
		}
	})
}
