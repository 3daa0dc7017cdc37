package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/routerd/routerd/fleet"
)

type worker struct {
	fleet.Record
	Source     string       `json:"source"`
	Lifecycle  string       `json:"lifecycle"`
	Reasons    []string     `json:"reasons"`
	Version    string       `json:"version"`
	Untold     []string     `json:"untold"`
	DrainUntil *time.Time   `json:"drain_until"`
	Ranks      []workerRank `json:"ranks"`
}

// workerRank is one rank's load and cache.
type workerRank struct {
	Rank uint32 `json:"rank"`
	Load struct {
		PrefillTokens  int64   `json:"prefill_tokens"`
		DecodeBlocks   float64 `json:"decode_blocks"`
		ActiveRequests int64   `json:"active_requests"`
	} `json:"load"`
	Report *struct {
		Running *int64   `json:"running"`
		Queued  *int64   `json:"queued"`
		KVUsage *float64 `json:"kv_usage"`
		AgeMs   int64    `json:"age_ms"`
	} `json:"report"`
	Source       string            `json:"kv_source"`
	CachedBlocks map[string]int    `json:"cached_blocks"`
	Trusted      bool              `json:"trusted"`
	Untrusted    string            `json:"untrusted"`
	Unconnected  bool              `json:"unconnected"`
	EventAgeMs   *int64            `json:"event_age_ms"`
	Dropped      map[string]uint64 `json:"dropped"`
}

func workerCommand() *cobra.Command {
	t := &target{}
	return group("worker", "Register workers in a running router", "  routerd worker add http://127.0.0.1:8000", t,
		&cobra.Command{
			Use: "list", Short: "List the workers of all sources", Example: "  routerd worker list", Args: cobra.NoArgs,
			RunE: t.run(listWorkers),
		},
		&cobra.Command{
			Use: "show ID|NAME", Short: "Show a worker with its ranks and what its engine does not tell", Example: "  routerd worker show w1", Args: cobra.ExactArgs(1),
			RunE: t.run(showWorker),
		},
		workerAdd(t),
		workerDrain(t),
		&cobra.Command{
			Use: "undrain ID|NAME", Short: "Let a worker have new requests again", Example: "  routerd worker undrain w1", Args: cobra.ExactArgs(1),
			RunE: t.run(func(ctx context.Context, c *call) error {
				return send(ctx, c, "DELETE", workerPath(c.args[0])+"/drain", nil, func(w io.Writer, v worker) { printWorkers(w, v) })
			}),
		},
		&cobra.Command{
			Use: "rm ID|NAME", Short: "Remove a worker that was added by the API", Example: "  routerd worker rm w1", Args: cobra.ExactArgs(1),
			RunE: t.run(func(ctx context.Context, c *call) error {
				if err := c.client.Do(ctx, "DELETE", workerPath(c.args[0]), nil, nil); err != nil {
					return err
				}
				return c.gone("worker " + c.args[0])
			}),
		},
	)
}

func workerPath(ref string) string { return "/v1/workers/" + url.PathEscape(ref) }

func listWorkers(ctx context.Context, c *call) error {
	return show(ctx, c, "/v1/workers", func(w io.Writer, got struct {
		Workers []worker `json:"workers"`
	},
	) {
		printWorkers(w, got.Workers...)
	})
}

// workerFlags are the fields of a worker that have a flag.
type workerFlags struct {
	record          fleet.Record
	id              uint64
	events, replays []string
	adapters        []string
}

func workerAdd(t *target) *cobra.Command {
	f := &workerFlags{}
	c := &cobra.Command{
		Use: "add URL|FILE", Short: "Add or replace a worker, from flags or from a file (JSON or YAML; - is standard input)", Args: cobra.ExactArgs(1),
		Long: "Adds or replaces a worker. A URL is enough: the engine there is asked for its model, its block size and all else\n" +
			"that it tells; a flag overrides what it says.\n\n" +
			"A FILE is one worker as PUT /v1/workers/{ref} of the admin API takes it, in JSON or YAML, with a name or an id;\n" +
			"- is standard input. It takes no flags.",
		Example: "  routerd worker add http://127.0.0.1:8000\n  routerd worker add http://127.0.0.1:8000 --name w1 --kv-events tcp://127.0.0.1:5557",
	}
	fs := c.Flags()
	fs.Uint64Var(&f.id, "id", 0, "id (default from the name)")
	fs.StringVar(&f.record.Name, "name", "", "unique name (default HOST:PORT of the URL)")
	fs.StringVar(&f.record.Model, "model", "", "base model (default asks the engine)")
	fs.StringVar(&f.record.Group, "group", "", "routing group")
	fs.StringVar(&f.record.Engine, "engine", "", "engine kind: "+strings.Join(fleet.Engines(), ", ")+" (default asks the engine)")
	fs.IntVar(&f.record.BlockSize, "block-size", 0, "tokens a KV block (default asks the engine)")
	fs.IntVar(&f.record.DPStart, "dp-start", 0, "first data-parallel rank")
	fs.IntVar(&f.record.DPSize, "dp-size", 0, "number of data-parallel ranks (default asks the engine)")
	fs.IntVar(&f.record.MaxBatchedTokens, "max-batched-tokens", 0, "batch limit of the engine")
	fs.IntVar(&f.record.TotalKVBlocks, "total-kv-blocks", 0, "KV capacity of a rank in blocks")
	fs.StringArrayVar(&f.events, "kv-events", nil, "ZMQ endpoint of the KV events, [RANK=]tcp://HOST:PORT; repeatable")
	fs.StringArrayVar(&f.replays, "replay", nil, "ZMQ endpoint of the replay socket, [RANK=]tcp://HOST:PORT; repeatable")
	fs.StringToStringVar(&f.record.Labels, "label", nil, "label KEY=VALUE; repeatable")
	fs.StringArrayVar(&f.record.Taints, "taint", nil, "taint; repeatable")
	fs.BoolVar(&f.record.NoHealthCheck, "no-health-check", false, "leave its health to others: no probes, no load, no ejection")
	fs.StringArrayVar(&f.adapters, "adapter", nil, "LoRA adapter, NAME or NAME=ID; repeatable")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		given := 0
		for _, name := range workerFlagNames() {
			if cmd.Flags().Changed(name) {
				given++
			}
		}
		return t.run(func(ctx context.Context, c *call) error { return f.add(ctx, c, given) })(cmd, args)
	}
	return c
}

func workerFlagNames() []string {
	return []string{
		"id", "name", "model", "group", "engine", "block-size", "dp-start", "dp-size", "max-batched-tokens", "total-kv-blocks",
		"kv-events", "replay", "label", "taint", "adapter", "no-health-check",
	}
}

// add puts the worker; given is how many of its flags were set.
func (f *workerFlags) add(ctx context.Context, c *call, given int) error {
	printed := func(w io.Writer, v worker) {
		printWorkers(w, v)
		printUntold(w, v)
	}
	if !strings.Contains(c.args[0], "://") {
		if given > 0 {
			return usage("worker add takes a FILE or flags, not both")
		}
		body, err := c.document(c.args[0])
		if _, _, hostPort := net.SplitHostPort(c.args[0]); err != nil && hostPort == nil {
			return usage("%s is no file; a URL begins with http://, as http://%s", c.args[0], c.args[0])
		}
		if err != nil {
			return err
		}
		ref, err := addressed(body)
		if err != nil {
			return err
		}
		return send(ctx, c, "PUT", workerPath(ref), body, printed)
	}
	rec, err := f.build(c.args[0])
	if err != nil {
		return err
	}
	ref := rec.Name
	if rec.Name == "" {
		ref = rec.ID.String()
	}
	return send(ctx, c, "PUT", workerPath(ref), rec, printed)
}

func (f *workerFlags) build(base string) (fleet.Record, error) {
	rec := f.record
	rec.URL, rec.ID = base, fleet.WorkerID(f.id)
	if rec.Name == "" && rec.ID == 0 {
		u, err := url.Parse(base)
		if err != nil || u.Host == "" {
			return rec, usage("URL: not allowed; allowed: http://HOST:PORT")
		}
		rec.Name = u.Host
	}
	var err error
	if rec.KVEvents, err = byRank("--kv-events", f.events, rec.DPStart); err != nil {
		return rec, err
	}
	if rec.Replay, err = byRank("--replay", f.replays, rec.DPStart); err != nil {
		return rec, err
	}
	for _, a := range f.adapters {
		name, id, numbered := strings.Cut(a, "=")
		adapter := fleet.Adapter{Name: name}
		if numbered {
			if adapter.ID, err = strconv.ParseInt(id, 10, 64); err != nil {
				return rec, usage("--adapter: %q is not allowed; allowed: NAME or NAME=ID with a whole number", a)
			}
		}
		rec.Adapters = append(rec.Adapters, adapter)
	}
	return rec, nil
}

// byRank reads [RANK=]URL; without a rank the first one is meant.
func byRank(flag string, values []string, first int) (map[int]string, error) {
	out := map[int]string{}
	for _, v := range values {
		rank, endpoint := first, v
		if r, rest, ok := strings.Cut(v, "="); ok && !strings.Contains(r, "://") {
			n, err := strconv.Atoi(r)
			if err != nil {
				return nil, usage("%s: %q is not allowed; allowed: [RANK=]tcp://HOST:PORT", flag, v)
			}
			rank, endpoint = n, rest
		}
		if _, twice := out[rank]; twice {
			return nil, usage("%s: rank %d is given twice", flag, rank)
		}
		out[rank] = endpoint
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, nil
}

// addressed finds the name or id of a worker's document, for the path.
func addressed(body []byte) (string, error) {
	var who struct {
		ID   fleet.WorkerID `json:"id"`
		Name string         `json:"name"`
	}
	if err := json.Unmarshal(body, &who); err != nil {
		return "", fmt.Errorf("read the worker's id and name: %w", err)
	}
	switch {
	case who.Name != "":
		return who.Name, nil
	case who.ID != 0:
		return who.ID.String(), nil
	default:
		return "", errors.New("the worker's document has neither name nor id")
	}
}
