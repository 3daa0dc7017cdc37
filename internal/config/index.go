package config

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/remote"
)

// The kinds of index.
const (
	IndexExact  = "exact"  // from the engines' KV events
	IndexApprox = "approx" // from the router's own decisions
	IndexRemote = "remote" // that of another router
)

// Index configures the index of the engines' caches.
type Index struct {
	Kind          string      `koanf:"kind" reload:"restart" oneof:"exact approx remote" doc:"Where it comes from: the KV events of engines (exact); the router's own decisions (approx), for engines that tell nothing; or another router, which index.remote names (remote). With the latter two nobody listens to the KV events of workers."`
	MaxBytes      Bytes       `koanf:"max_bytes" reload:"restart" min:"1MiB" max:"1024GiB" off:"0" doc:"Bound of the memory of one partition's index; 0 for none. Above it, blocks give way that were neither stored nor found for longest: they are not found any more until their engine stores them anew. Below 16MiB few fit. Of the kind exact only."`
	Peers         []string    `koanf:"peers" reload:"restart" doc:"Selection services of other routers, http://HOST:PORT, https://HOST:PORT or unix:PATH, whose index a start takes over: of the first that answers. Of the kind exact only."`
	PeerTokenFile string      `koanf:"peer_token_file" reload:"restart" doc:"File that holds the bearer token which they ask for; empty for none."`
	PeerTimeout   Duration    `koanf:"peer_timeout" reload:"restart" min:"10ms" max:"10m" doc:"How long one of them may take to hand its index over."`
	Dump          bool        `koanf:"dump" reload:"restart" doc:"Whether the index is written to data_dir at each stop, and a start takes it over. Of the kind exact only."`
	DumpInterval  Duration    `koanf:"dump_interval" reload:"restart" min:"1s" max:"24h" off:"true" doc:"How often it is written while the router runs, for a start after a crash; 0s writes it at a stop alone."`
	PredictedTTL  Duration    `koanf:"predicted_ttl" reload:"restart" min:"10ms" max:"10m" off:"true" doc:"How long what was decided counts as cached before the engine's events confirm it; 0s counts only what they tell. Of the kind exact only."`
	Decisions     IndexOwn    `koanf:"decisions"`
	Remote        IndexRead   `koanf:"remote"`
	Serve         IndexServed `koanf:"serve"`
}

// IndexOwn bounds what a partition's index has of the router's own decisions: with index.kind approx of all of them, else
// of prompts that are known by their text.
type IndexOwn struct {
	TTL       Duration `koanf:"ttl" reload:"restart" min:"10ms" max:"8760h" doc:"How long a worker counts as having the blocks of a prompt after it was last given one that begins with them. With index.kind approx of all prompts, else of those that are known by their text."`
	MaxBlocks int      `koanf:"max_blocks" reload:"restart" min:"0" max:"1000000000" doc:"How many such blocks one partition's index has, each counted once for each worker; 0 for no bound. Above it those go first that were decided on the longest ago."`
	MaxBytes  Bytes    `koanf:"max_bytes" reload:"restart" min:"1MiB" max:"1024GiB" doc:"The same in memory."`
}

// IndexRead is the primary that an index of the kind remote is read from.
type IndexRead struct {
	URL       string   `koanf:"url" reload:"restart" doc:"The index.serve.listen of another router, the primary, as http://HOST:PORT or unix:PATH. It must know the workers by the same ids, and have blocks of the same size."`
	TokenFile string   `koanf:"token_file" reload:"restart" doc:"File that holds the bearer token which it asks for; empty for none."`
	Deadline  Duration `koanf:"deadline" reload:"restart" min:"1ms" max:"1s" doc:"How long a decision may wait for its answer. Where it has not answered by then, decisions go by load until it does."`
}

// IndexServed is where other routers read the index.
type IndexServed struct {
	Listen    string `koanf:"listen" reload:"restart" doc:"Address at which routers with index.kind remote read this one's index and tell it of their decisions, HOST:PORT or unix:PATH with an absolute path of at most 107 bytes, which gets mode 0660; empty is off. Not of the kind remote."`
	TokenFile string `koanf:"token_file" reload:"restart" doc:"File that holds the bearer token which they must have, 16 or more visible ASCII characters; empty asks for none."`
}

func defaultIndex() Index {
	return Index{
		Kind: IndexExact, MaxBytes: 4 << 30, PeerTimeout: Duration(10 * time.Second), Dump: true, DumpInterval: Duration(5 * time.Minute),
		Decisions: IndexOwn{TTL: Duration(2 * time.Minute), MaxBytes: 256 << 20},
		Remote:    IndexRead{Deadline: Duration(remote.DefaultConfig().Deadline)},
	}
}

// index checks what spans several keys of index.
func (l *loader) index(cfg *Config) {
	x := &cfg.Index
	refuse := func(value, allowed string, path ...string) {
		path = append([]string{"index"}, path...)
		l.problems = append(l.problems, badValue(l.origin(path), dotted(path), withoutUser(value), allowed))
	}
	if len(x.Peers) == 0 {
		x.Peers = nil
	}
	for i, p := range x.Peers {
		if allowed := checkPeer(p); allowed != "" {
			refuse(p, allowed, "peers", strconv.Itoa(i))
		}
	}
	if allowed := checkPrimary(x.Remote.URL); allowed != "" && (x.Kind == IndexRemote || x.Remote.URL != "") {
		if x.Remote.URL == "" {
			allowed += ", the primary of index.kind: remote"
		}
		refuse(x.Remote.URL, allowed, "remote", "url")
	}
	if x.Kind == IndexExact {
		return
	}
	own := "none beside index.kind: " + x.Kind + ", which has no index of KV events"
	if len(x.Peers) > 0 {
		refuse(x.Peers[0], own, "peers")
	}
	if x.PredictedTTL != 0 {
		refuse(x.PredictedTTL.Std().String(), own, "predicted_ttl")
	}
	if x.Serve.Listen != "" && x.Kind == IndexRemote {
		refuse(x.Serve.Listen, own, "serve", "listen")
	}
}

// openIndex warns of an index that other machines can read without a token: it tells which
// prompts are cached, and believes what it is told.
func (c Config) openIndex() []Warning {
	s := c.Index.Serve
	if !reachable(s.Listen) || s.TokenFile != "" {
		return nil
	}
	return []Warning{{
		WarnOpenIndex, "index.serve.token_file",
		fmt.Sprintf("index.serve.listen %q is not on loopback and no token is asked for: whoever reaches it can find out which prompts are cached, and record decisions", s.Listen),
	}}
}

// unusedIndex warns of keys of index that have no effect beside the others.
func (c Config) unusedIndex() (out []Warning) {
	if c.Index.Serve.TokenFile != "" && c.Index.Serve.Listen == "" {
		out = append(out, Warning{WarnUnusedToken, "index.serve.listen", "index.serve.token_file is given and index.serve.listen is not: the index is not served"})
	}
	if c.Index.Remote.URL != "" && c.Index.Kind != IndexRemote {
		out = append(out, Warning{WarnUnusedPrimary, "index.kind", fmt.Sprintf("index.remote.url is given and index.kind is %q: the primary is not asked", c.Index.Kind)})
	}
	x, usual := c.Index, defaultIndex()
	unused := func(is bool, key, of string) {
		if is {
			out = append(out, Warning{WarnUnusedIndex, key, fmt.Sprintf("%s is about an index of %s, and index.kind is %q", key, of, x.Kind)})
		}
	}
	unused(x.Kind != IndexExact && x.MaxBytes != usual.MaxBytes, "index.max_bytes", "KV events")
	unused(x.Kind != IndexExact && x.DumpInterval != usual.DumpInterval, "index.dump_interval", "KV events")
	unused(x.Kind == IndexRemote && x.Decisions != usual.Decisions, "index.decisions", "own decisions")
	return out
}

// checkPrimary is what a primary's address may be; empty when it may.
func checkPrimary(address string) (allowed string) {
	if checkPeer(address) == "" && !strings.HasPrefix(strings.ToLower(address), "https:") {
		return ""
	}
	return "http://HOST:PORT or unix:PATH with an absolute path of at most 107 bytes"
}

const peerForm = "http://HOST:PORT, https://HOST:PORT or unix:PATH"

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
		return peerForm
	}
	u.Scheme = "http" // host and port are as a worker's
	if _, err := fleet.NormaliseURL(u.String()); err != nil {
		return peerForm
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
