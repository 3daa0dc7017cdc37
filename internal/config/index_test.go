package config_test

import (
	"strings"
	"testing"
)

func TestPeersAreAddressesOfSelectionServices(t *testing.T) {
	got := mustLoad(t, "index: {peers: ['http://10.0.0.7:8092', 'https://peer/', 'unix:/run/s.sock']}\n", nil).Config.Index.Peers
	if len(got) != 3 {
		t.Errorf("got %v", got)
	}
	for _, bad := range []string{"10.0.0.7:8092", "ftp://h", "http://", "http://h/dump", "http://h?x=1", "unix:relative", ""} {
		refused(t, "index: {peers: ['http://ok', '"+bad+"']}\n", nil, `index.peers[1]: "`+bad+`" is not allowed`)
	}
	_, err := load(t, "index: {peers: ['http://user:CANARY@h']}\n", nil)
	if err == nil || strings.Contains(err.Error(), "CANARY") {
		t.Errorf("got %v", err)
	}
}
