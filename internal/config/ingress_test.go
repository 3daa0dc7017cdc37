package config_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/ingress/zmq"
	"github.com/routerd/routerd/internal/config"
)

// serverKey is the one of libzmq's manual.
const serverKey = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"

func TestTheKeysOfTheIngressAreChecked(t *testing.T) {
	for _, bad := range []string{"x", serverKey[1:], serverKey + "0", strings.Repeat("#", 40), strings.Repeat(" ", 40), strings.Repeat("~", 40)} {
		refused(t, "ingress: {curve: {server_key: '"+bad+"'}}\n", nil, fmt.Sprintf("ingress.curve.server_key: %q is not allowed; allowed: a CURVE key: 40 characters of Z85", bad))
	}
	refused(t, "ingress: {curve: {secret_key_file: /x}}\n", nil, `ingress.curve.secret_key_file: "/x" is not allowed; allowed: a file beside ingress.curve.server_key`)
}

func TestTheIngressIsThatOfThePackageUntilSet(t *testing.T) {
	if d := cmp.Diff(zmq.DefaultConfig(), config.DefaultConfig().Ingress.Sockets()); d != "" {
		t.Error(d)
	}
}

func TestEveryKeyOfTheIngressReachesTheSockets(t *testing.T) {
	was := reflect.ValueOf(zmq.DefaultConfig())
	for key, c := range map[string]struct{ value, field string }{
		"owners": {"7", "Owners"}, "rcv_hwm": {"17", "RcvHWM"}, "max_message": {"1MiB", "MaxMessage"},
		"reconnect_ivl": {"7ms", "ReconnectIvl"}, "reconnect_ivl_max": {"17s", "ReconnectIvlMax"}, "heartbeat": {"7s", "Heartbeat"},
		"unconnected_after": {"7s", "UnconnectedAfter"}, "replay_timeout": {"7s", "ReplayTimeout"}, "replay_retry_min": {"7ms", "ReplayRetryMin"},
		"replay_retry_max": {"17s", "ReplayRetryMax"}, "replay_tries": {"7", "ReplayTries"}, "buffer_messages": {"17", "BufferMessages"}, "buffer_bytes": {"1MiB", "BufferBytes"},
		"curve": {"{server_key: '" + serverKey + "'}", "Curve"},
	} {
		now := reflect.ValueOf(mustLoad(t, "ingress: {"+key+": "+c.value+"}\n", nil).Config.Ingress.Sockets())
		for i := range was.NumField() {
			field := was.Type().Field(i).Name
			if changed := !was.Field(i).Equal(now.Field(i)); changed != (field == c.field) {
				t.Errorf("%s: field %s is %v", key, field, now.Field(i))
			}
		}
	}
}

func TestTheIngressIsCheckedByKey(t *testing.T) {
	for key, bad := range map[string]string{
		"owners": "0", "rcv_hwm": "-1", "max_message": "65MiB", "reconnect_ivl": "0s", "heartbeat": "99ms", "unconnected_after": "2h",
		"replay_timeout": "9ms", "replay_retry_min": "0s", "replay_tries": "1001", "buffer_messages": "15", "buffer_bytes": "1KiB",
	} {
		refused(t, "ingress: {"+key+": "+bad+"}\n", nil, fmt.Sprintf("ingress.%s: %q is not allowed; allowed: ", key, bad))
	}
	refused(t, "ingress: {reconnect_ivl: 10s}\n", nil, `ingress.reconnect_ivl_max: "5s" is not allowed; allowed: 10s (reconnect_ivl) to 1h0m0s`)
	refused(t, "ingress: {replay_retry_max: 100ms}\n", nil, `ingress.replay_retry_max: "100ms" is not allowed; allowed: 500ms (replay_retry_min) to 1h0m0s`)
}

func TestTheRangesOfTheIngressAreThoseOfThePackage(t *testing.T) {
	var rows int
	for line := range strings.Lines(config.Reference()) {
		cells := strings.Split(line, "|")
		if !strings.HasPrefix(line, "| `ingress.") || !strings.Contains(cells[4], " to ") {
			continue
		}
		rows++
		key := strings.Trim(cells[1], " `")[len("ingress."):]
		for _, limit := range strings.Split(strings.TrimSpace(cells[4]), " to ") {
			text := "ingress: {" + key + ": " + limit + "}\n"
			switch key { // those that may not fall below another
			case "reconnect_ivl":
				text = "ingress: {reconnect_ivl: " + limit + ", reconnect_ivl_max: 1h}\n"
			case "reconnect_ivl_max":
				text = "ingress: {reconnect_ivl_max: " + limit + ", reconnect_ivl: 1ms}\n"
			case "replay_retry_min":
				text = "ingress: {replay_retry_min: " + limit + ", replay_retry_max: 1h}\n"
			case "replay_retry_max":
				text = "ingress: {replay_retry_max: " + limit + ", replay_retry_min: 1ms}\n"
			}
			if err := mustLoad(t, text, nil).Config.Ingress.Sockets().Validate(); err != nil {
				t.Error(err)
			}
		}
	}
	if rows != 13 {
		t.Errorf("%d keys have a range", rows)
	}
}
