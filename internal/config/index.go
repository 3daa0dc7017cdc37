package config

import (
	"net/url"
	"strings"
	"time"
)

// Index configures the index of the engines' caches.
type Index struct {
	Peers         []string `koanf:"peers" reload:"restart" doc:"Selection services of other routers, http://HOST:PORT or unix:PATH, whose index a start takes over: of the first that answers."`
	PeerTokenFile string   `koanf:"peer_token_file" reload:"restart" doc:"File that holds the bearer token which they ask for; empty for none."`
	PeerTimeout   Duration `koanf:"peer_timeout" reload:"restart" min:"10ms" max:"10m" doc:"How long one of them may take to hand its index over."`
	Dump          bool     `koanf:"dump" reload:"restart" doc:"Whether the index is written to data_dir at each stop, and a start takes it over."`
	DumpInterval  Duration `koanf:"dump_interval" reload:"restart" min:"1s" max:"24h" off:"true" doc:"How often it is written while the router runs, for a start after a crash; 0s writes it at a stop alone."`
}

func defaultIndex() Index {
	return Index{PeerTimeout: Duration(10 * time.Second), Dump: true, DumpInterval: Duration(5 * time.Minute)}
}

// checkPeer is what a peer's address may be; empty when it may.
func checkPeer(address string) (allowed string) {
	if path, unix := SocketPath(address); unix {
		if err := checkListen(unixPrefix + path); err != nil {
			return err.Error()
		}
		return ""
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return "http://HOST:PORT, https://HOST:PORT or unix:PATH"
	}
	return ""
}

// withoutUser leaves out what a URL says of a user, perhaps a password.
func withoutUser(address string) string {
	i := strings.LastIndexByte(address, '@')
	if i < 0 {
		return address
	}
	return "…" + address[i:]
}
