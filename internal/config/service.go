package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/selection"
)

// Selection configures the selection service.
type Selection struct {
	Listen         string   `koanf:"listen" reload:"restart" doc:"Address, HOST:PORT (the usual one is 127.0.0.1:8092) or unix:PATH with an absolute path of at most 107 bytes, which gets mode 0660; empty is off."`
	TokenFile      string   `koanf:"token_file" reload:"live" doc:"File that holds the bearer token which every route but /health asks for, 16 or more visible ASCII characters; empty asks for none. A reload reads it again, also when the key has not changed."`
	MaxBody        Bytes    `koanf:"max_body" reload:"live" min:"1KiB" max:"1GiB" doc:"Largest request body."`
	HalfClose      string   `koanf:"half_close" reload:"live" oneof:"abort ignore" doc:"Whether a caller that closes its sending side has gone. A connection keeps what it was accepted under."`
	Expiry         Duration `koanf:"expiry" reload:"restart" min:"1s" max:"31536000s" doc:"How long a reservation lives that its caller does not free."`
	PendingTTL     Duration `koanf:"pending_ttl" reload:"restart" min:"1s" max:"31536000s" doc:"How long a selection waits for its booking."`
	PendingEntries int      `koanf:"pending_entries" reload:"restart" min:"1" max:"1000000" doc:"Selections that wait for their booking at a time; the oldest goes first."`
	PendingBytes   Bytes    `koanf:"pending_bytes" reload:"restart" min:"1KiB" max:"64GiB" doc:"What they hold in memory, about."`
}

func defaultSelection() Selection {
	s, c := selection.DefaultConfig(), core.DefaultConfig()
	return Selection{
		MaxBody: Bytes(s.MaxBody), HalfClose: s.HalfClose, Expiry: Duration(c.Expiry),
		PendingTTL: Duration(c.Pending.TTL), PendingEntries: c.Pending.Entries, PendingBytes: Bytes(c.Pending.Bytes),
	}
}

// Pending is how long selections wait for their booking, in the core's words.
func (s Selection) Pending() reserve.PendingConfig {
	return reserve.PendingConfig{TTL: s.PendingTTL.Std(), Entries: s.PendingEntries, Bytes: int64(s.PendingBytes)}
}

// unixPrefix is what an address of a Unix socket begins with.
const unixPrefix = "unix:"

// SocketPath is the path of an address that names a Unix socket.
func SocketPath(address string) (path string, ok bool) { return strings.CutPrefix(address, unixPrefix) }

// maxSocketPath is what the address of a Unix socket holds (unix(7)), without its
// final zero.
const maxSocketPath = 107

// checkListen is checkAddress where a Unix socket will do.
func checkListen(address string) error {
	path, unix := SocketPath(address)
	if !unix {
		if err := checkAddress(address); err != nil {
			return fmt.Errorf("%w, or unix:PATH", err)
		}
		return nil
	}
	if !filepath.IsAbs(path) || len(path) > maxSocketPath || strings.ContainsRune(path, 0) {
		return errors.New("unix: and an absolute path of at most 107 bytes")
	}
	return nil
}

// listeners refuses addresses that cannot be, and two listeners at one.
func (l *loader) listeners(cfg *Config) {
	taken := map[string]string{}
	for _, at := range []struct {
		key, address string
		check        func(string) error
	}{
		{"frontend", cfg.Frontend.Listen, checkAddress},
		{"admin", cfg.Admin.Listen, checkAddress},
		{"selection", cfg.Selection.Listen, checkListen},
		{"index.serve", cfg.Index.Serve.Listen, checkListen},
	} {
		path := append(strings.Split(at.key, "."), "listen")
		switch err := at.check(at.address); {
		case (at.key == "selection" || at.key == "index.serve") && at.address == "": // off
		case err != nil:
			l.problems = append(l.problems, badValue(l.origin(path), dotted(path), at.address, err.Error()))
		case taken[at.address] != "" && !strings.HasSuffix(at.address, ":0"):
			l.problems = append(l.problems, badValue(l.origin(path), dotted(path), at.address, "an address that "+taken[at.address]+".listen does not have"))
		default:
			taken[at.address] = at.key
		}
	}
}

// openSelection warns of a selection service that other machines can reach and
// that asks for no token: it books, and changes the workers.
func (c Config) openSelection() []Warning {
	if !reachable(c.Selection.Listen) || c.Selection.TokenFile != "" {
		return nil
	}
	return []Warning{{
		WarnOpenSelection, "selection.token_file",
		fmt.Sprintf("selection.listen %q is not on loopback and no token is asked for: whoever reaches it can book and change the workers", c.Selection.Listen),
	}}
}

// unusedToken warns of a token for a selection service that is off.
func (c Config) unusedToken() []Warning {
	if c.Selection.Listen != "" || c.Selection.TokenFile == "" {
		return nil
	}
	return []Warning{{WarnUnusedToken, "selection.listen", "selection.token_file is given and selection.listen is not: the selection service is off"}}
}

// reachable tells whether other machines reach an address; empty is off.
func reachable(address string) bool {
	_, unix := SocketPath(address)
	return address != "" && !unix && !loopback(address)
}

// loopback tells whether an address is this machine's own.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip, ipErr := netip.ParseAddr(host)
	return err == nil && (host == "localhost" || ipErr == nil && ip.IsLoopback())
}
