package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/indexer/remote"
	"github.com/routerd/routerd/internal/config"
)

func TestPeersAreAddressesOfSelectionServices(t *testing.T) {
	got := mustLoad(t, "index: {peers: ['http://10.0.0.7:8092', 'https://peer/', 'unix:/run/s.sock']}\n", nil).Config.Index.Peers
	if len(got) != 3 {
		t.Errorf("got %v", got)
	}
	for _, bad := range []string{"10.0.0.7:8092", "ftp://h", "http://", "http://h/dump", "http://h?x=1", "https://:8092", "https://h:99999", "unix:relative", ""} {
		refused(t, "index: {peers: ['http://ok', '"+bad+"']}\n", nil, `index.peers[1]: "`+bad+`" is not allowed`)
	}
	_, err := load(t, "index: {peers: ['http://user:CANARY@h']}\n", nil)
	if err == nil || strings.Contains(err.Error(), "CANARY") {
		t.Errorf("got %v", err)
	}
}

func TestAnIndexIsTheRoutersOwnUnlessAPrimaryIsNamed(t *testing.T) {
	if x := mustLoad(t, "", nil).Config.Index; x.Kind != config.IndexExact || x.Serve.Listen != "" || x.Remote.Deadline.Std() != remote.DefaultConfig().Deadline {
		t.Errorf("got %+v", x)
	}
	for _, good := range []string{"http://10.0.0.7:8093", "http://primary/", "unix:/run/i.sock"} {
		if x := mustLoad(t, "index: {kind: remote, remote: {url: '"+good+"', deadline: 5ms}}\n", nil).Config.Index; x.Remote.URL != good || x.Remote.Deadline.Std() != 5*time.Millisecond {
			t.Errorf("got %+v", x)
		}
	}
	for _, bad := range []string{"", "10.0.0.7:8093", "https://h", "http://", "http://h/index", "http://:8093", "http://h:99999", "http://h:0", "unix:relative"} {
		refused(t, "index: {kind: remote, remote: {url: '"+bad+"'}}\n", nil, `index.remote.url: "`+bad+`" is not allowed; allowed: http://HOST:PORT or unix:PATH`)
	}
	refused(t, "index: {remote: {url: 'ftp://h'}}\n", nil, `index.remote.url: "ftp://h" is not allowed`)
	refused(t, "index: {kind: radix}\n", nil, `index.kind: "radix" is not allowed`)
	refused(t, "index: {remote: {deadline: 2s}}\n", nil, "index.remote.deadline", "2s")
	beside := "index: {kind: remote, remote: {url: 'unix:/p'}, "
	refused(t, beside+"peers: ['http://h']}\n", nil, `index.peers: "http://h" is not allowed; allowed: none beside index.kind: remote`)
	refused(t, beside+"serve: {listen: 'unix:/q'}}\n", nil, `index.serve.listen: "unix:/q" is not allowed; allowed: none beside index.kind: remote`)
	refused(t, beside+"predicted_ttl: 2s}\n", nil, `index.predicted_ttl: "2s" is not allowed; allowed: none beside index.kind: remote`)
	_, err := load(t, "index: {kind: remote, remote: {url: 'http://user:CANARY@h'}}\n", nil)
	if err == nil || strings.Contains(err.Error(), "CANARY") {
		t.Errorf("got %v", err)
	}
}

func TestAnIndexOfDecisionsIsBounded(t *testing.T) {
	x := mustLoad(t, "index: {kind: approx, decisions: {ttl: 30s, max_blocks: 100000, max_bytes: 8MiB}, serve: {listen: 'unix:/s'}}\n", nil).Config.Index
	if x.Kind != config.IndexApprox || x.Decisions != (config.IndexOwn{TTL: config.Duration(30 * time.Second), MaxBlocks: 100_000, MaxBytes: 8 << 20}) {
		t.Errorf("got %+v", x)
	}
	if x := mustLoad(t, "index: {predicted_ttl: 2s}\n", nil).Config.Index; x.PredictedTTL.Std() != 2*time.Second {
		t.Errorf("got %+v", x)
	}
	refused(t, "index: {kind: approx, peers: ['http://h']}\n", nil, `index.peers: "http://h" is not allowed; allowed: none beside index.kind: approx`)
	refused(t, "index: {kind: approx, predicted_ttl: 2s}\n", nil, `index.predicted_ttl: "2s" is not allowed`)
	refused(t, "index: {predicted_ttl: 1ms}\n", nil, "index.predicted_ttl", "1ms")
	refused(t, "index: {decisions: {ttl: 0s}}\n", nil, "index.decisions.ttl")
	refused(t, "index: {decisions: {max_bytes: 1KiB}}\n", nil, "index.decisions.max_bytes", "1KiB")
	refused(t, "index: {decisions: {max_blocks: -1}}\n", nil, "index.decisions.max_blocks", "-1")
}

func TestAServedIndexListensAtAnAddressOfItsOwn(t *testing.T) {
	for _, good := range []string{"127.0.0.1:8093", "unix:/run/i.sock"} {
		if got := mustLoad(t, "index: {serve: {listen: '"+good+"'}}\n", nil).Config.Index.Serve.Listen; got != good {
			t.Errorf("got %q", got)
		}
	}
	refused(t, "index: {serve: {listen: ':8093'}}\n", nil, `index.serve.listen: ":8093"`)
	refused(t, "index: {serve: {listen: '127.0.0.1:8081'}}\n", nil, `index.serve.listen: "127.0.0.1:8081" is not allowed; allowed: an address that admin.listen does not have`)
	refused(t, "selection: {listen: 'unix:/s'}\nindex: {serve: {listen: 'unix:/s'}}\n", nil, "an address that selection.listen does not have")
	refused(t, "index: {kind: remote}\n", nil, `index.remote.url: "" is not allowed; allowed: http://HOST:PORT or unix:PATH`, "the primary of index.kind: remote")
}

func TestWhatIsProbablyNotMeantOfTheIndexIsWarnedOf(t *testing.T) {
	for text, want := range map[string]string{
		"serve: {listen: '127.0.0.1:8093'}":                            "",
		"serve: {listen: 'unix:/s'}":                                   "",
		"serve: {listen: '0.0.0.0:8093'}":                              config.WarnOpenIndex + " index.serve.token_file",
		"serve: {listen: '0.0.0.0:8093', token_file: /t}":              "",
		"serve: {token_file: /t}":                                      config.WarnUnusedToken + " index.serve.listen",
		"remote: {url: 'unix:/s'}":                                     config.WarnUnusedPrimary + " index.kind",
		"kind: approx, max_bytes: 1GiB":                                config.WarnUnusedIndex + " index.max_bytes",
		"kind: approx, dump_interval: 10s":                             config.WarnUnusedIndex + " index.dump_interval",
		"kind: approx, decisions: {ttl: 1h}":                           "",
		"kind: remote, remote: {url: 'unix:/s'}, decisions: {ttl: 1h}": config.WarnUnusedIndex + " index.decisions",
		"kind: remote, remote: {url: 'unix:/s', token_file: /t}":       "",
	} {
		got := ""
		for _, w := range mustLoad(t, "index: {"+text+"}\n", nil).Config.Warnings() {
			got += w.Code + " " + w.Key
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// Where less than 1 MiB is left for an index it can hardly hold anything, and says so with each store.
func TestAnIndexHasRoomOrNoBound(t *testing.T) {
	for text, want := range map[string]config.Bytes{"0": 0, "1MiB": 1 << 20} {
		if x := mustLoad(t, "index: {max_bytes: "+text+"}\n", nil).Config.Index; x.MaxBytes != want {
			t.Errorf("%s: got %v", text, x.MaxBytes)
		}
	}
	for _, bad := range []string{"1KiB", "1048575", "1025GiB"} {
		refused(t, "index: {max_bytes: "+bad+"}\n", nil, `index.max_bytes: "`+bad+`" is not allowed; allowed: a size`, "1MiB to 1024GiB, or 0 for off")
	}
}
