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

func TestEndpointsThatNobodyCanSubscribeToAreRefused(t *testing.T) {
	for _, endpoint := range []string{
		"", "x", "tcp://", "ipc://", "inproc://x", "udp://127.0.0.1:1", "TCP://127.0.0.1:1", "tcp://127.0.0.1", "tcp://127.0.0.1:", "tcp://127.0.0.1:x",
		"tcp://127.0.0.1:0", "tcp://127.0.0.1:65536", "tcp://127.0.0.1:+1", "tcp://:5", "tcp://*", "tcp://*:", "tcp://*:0", "tcp://*:*", "tcp://*:65536", "tcp://*:005557", "tcp://[*]:5", "tcp://[::]:", "tcp://**:5", "ipc://*?", "tcp://::1:5", "tcp://[::1]", "tcp://[127.0.0.1]:5", "tcp://[::1:5",
		"tcp://127.0.0.1:5/", "tcp://127.0.0.1:5#x", "tcp://127.0.0.1:5?x", "tcp://127.0.0.1:6;127.0.0.1:5", "tcp://user@127.0.0.1:5",
		"ipc:///tmp/a?b", "ipc:///tmp/a;b", "ipc:///tmp/a\x00b", "ipc:///tmp/a\nb", "ipc:///" + strings.Repeat("a", 256),
	} {
		r := fleet.Record{ID: 1, URL: "http://127.0.0.1:1", KVEvents: map[int]string{0: endpoint}}
		_, err := r.Normalised()
		if fe, ok := errors.AsType[*fleet.FieldError](err); !ok || fe.Field != "kv_events.0" || !strings.HasPrefix(fe.Allowed, "tcp://HOST:PORT or ipc://PATH") {
			t.Errorf("%q: got %v", endpoint, err)
		}
		r.KVEvents, r.Replay = nil, r.KVEvents
		if _, err := r.Normalised(); err == nil {
			t.Errorf("%q was accepted for replay", endpoint)
		}
	}
}

// A worker's engine may connect to the events' endpoint, and to no other.
func TestOnlyTheEventsEndpointMayBeOneToBind(t *testing.T) {
	for _, endpoint := range []string{"tcp://*:5557", "tcp://[::]:5557"} {
		r := fleet.Record{ID: 1, URL: "http://127.0.0.1:1", KVEvents: map[int]string{0: endpoint}}
		if _, err := r.Normalised(); err != nil || !fleet.Binds(endpoint) {
			t.Errorf("%s: %v", endpoint, err)
		}
		r.KVEvents, r.Replay = nil, r.KVEvents
		_, err := r.Normalised()
		if fe, ok := errors.AsType[*fleet.FieldError](err); !ok || fe.Field != "replay.0" || fe.Value != endpoint {
			t.Errorf("%s for replay: got %v", endpoint, err)
		}
		if err := fleet.CheckEndpoint("load_reports", endpoint); err == nil {
			t.Errorf("%s was accepted to connect to", endpoint)
		}
	}
	for _, endpoint := range []string{"tcp://0.0.0.0:5557", "tcp://[::1]:5557", "tcp://h:5557", "ipc:///tmp/*"} {
		if fleet.Binds(endpoint) {
			t.Errorf("%s is bound", endpoint)
		}
	}
}

func TestEndpointsOfPublishersAreTaken(t *testing.T) {
	for _, endpoint := range []string{"tcp://127.0.0.1:5557", "tcp://[::1]:5557", "tcp://[fe80::1%eth0]:5557", "tcp://engine-0.example:5557", "ipc:///tmp/kv.sock", "ipc://@abstract"} {
		r := fleet.Record{ID: 1, URL: "http://127.0.0.1:1", KVEvents: map[int]string{0: endpoint}, Replay: map[int]string{0: endpoint}}
		if _, err := r.Normalised(); err != nil {
			t.Error(err)
		}
	}
}
