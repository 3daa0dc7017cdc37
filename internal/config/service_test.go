package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/selection"
)

// Without a word in the file, the service is off and the core's and the service's
// own defaults hold.
func TestTheSelectionServiceIsOffWithTheDefaultsOfItsPackages(t *testing.T) {
	s := mustLoad(t, "", nil).Config.Selection
	own, c := selection.DefaultConfig(), core.DefaultConfig()
	if s.Listen != "" || s.TokenFile != "" || int64(s.MaxBody) != own.MaxBody || s.HalfClose != own.HalfClose || s.Expiry.Std() != c.Expiry {
		t.Errorf("got %+v", s)
	}
	if diff := cmp.Diff(c.Pending, s.Pending()); diff != "" {
		t.Errorf("pending (-want +got)\n%s", diff)
	}
}

func TestTheSelectionServiceListensAtAnAddressOrASocket(t *testing.T) {
	for _, good := range []string{"127.0.0.1:8092", "[::1]:0", "unix:/run/routerd/selection.sock"} {
		if got := mustLoad(t, "selection: {listen: '"+good+"'}\n", nil).Config.Selection.Listen; got != good {
			t.Errorf("got %q", got)
		}
	}
	for _, bad := range []string{"8092", ":8092", "unix:", "unix:relative.sock", "unix:/" + strings.Repeat("x", 107), "127.0.0.1:70000"} {
		refused(t, "selection: {listen: '"+bad+"'}\n", nil, `selection.listen: "`+bad[:min(len(bad), 40)])
	}
	refused(t, "selection: {listen: '127.0.0.1:8081'}\n", nil, `selection.listen: "127.0.0.1:8081" is not allowed; allowed: an address that admin.listen does not have`)
}

// R7: out of range, not a duration, not a number: named with the field and the range.
func TestR7_BadReservationExpiriesAreRefusedWithFieldValueAndRange(t *testing.T) {
	for _, key := range []string{"expiry", "pending_ttl"} {
		for _, bad := range []string{"0s", "-1s", "1e19s", "NaN", "Infinity", "abc", "31536001s"} {
			refused(t, "selection: {"+key+": '"+bad+"'}\n", nil, "selection."+key, bad)
		}
	}
	if got := mustLoad(t, "selection: {expiry: 31536000s}\n", nil).Config.Selection.Expiry.Std(); got != 31_536_000*time.Second {
		t.Errorf("got %s", got)
	}
}

func TestASelectionServiceThatAnybodyReachesIsWarnedOf(t *testing.T) {
	for listen, want := range map[string]int{"127.0.0.1:8092": 0, "[::1]:8092": 0, "localhost:8092": 0, "unix:/run/s.sock": 0, "0.0.0.0:8092": 1, "example.com:8092": 1} {
		got := mustLoad(t, "selection: {listen: '"+listen+"'}\n", nil).Config.Warnings()
		if len(got) != want || want == 1 && (got[0].Code != config.WarnOpenSelection || got[0].Key != "selection.token_file") {
			t.Errorf("%s: got %+v", listen, got)
		}
	}
	want := []config.Warning{{config.WarnUnusedToken, "selection.listen", "selection.token_file is given and selection.listen is not: the selection service is off"}}
	if diff := cmp.Diff(want, mustLoad(t, "selection: {token_file: /etc/token}\n", nil).Config.Warnings()); diff != "" {
		t.Errorf("a token for nothing (-want +got)\n%s", diff)
	}
	if got := mustLoad(t, "selection: {listen: '0.0.0.0:8092', token_file: /etc/token}\n", nil).Config.Warnings(); len(got) != 0 {
		t.Errorf("with a token: got %+v", got)
	}
}
