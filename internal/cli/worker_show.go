package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

func showWorker(ctx context.Context, c *call) error {
	return show(ctx, c, workerPath(c.args[0]), func(w io.Writer, v worker) {
		printWorkers(w, v)
		fmt.Fprintln(w)
		row(w, "RANK", "REQUESTS", "PREFILL", "DECODE", "RUNNING", "QUEUED", "KV", "CACHED", "EVENTS", "DROPPED")
		for _, r := range v.Ranks {
			running, queued, usage := "-", "-", "-"
			if p := r.Report; p != nil {
				running, queued, usage = count(p.Running), count(p.Queued), share(p.KVUsage)
			}
			row(w, r.Rank, r.Load.ActiveRequests, r.Load.PrefillTokens, r.Load.DecodeBlocks, running, queued, usage, tiers(r.CachedBlocks), events(v, r), drops(r.Dropped))
		}
		printUntold(w, v)
	})
}

func printWorkers(w io.Writer, workers ...worker) {
	row(w, "ID", "NAME", "URL", "MODEL", "GROUP", "ENGINE", "RANKS", "SOURCE", "STATE", "REQUESTS", "CACHED", "EVENTS", "DROPPED", "REASONS")
	for _, v := range workers {
		active, cached, dropped := int64(0), map[string]int{}, map[string]uint64{}
		for _, r := range v.Ranks {
			active += r.Load.ActiveRequests
			for tier, n := range r.CachedBlocks {
				cached[tier] += n
			}
			for reason, n := range r.Dropped {
				dropped[reason] += n
			}
		}
		engine := strings.TrimSpace(v.Engine + " " + v.Version)
		row(w, v.ID, v.Name, v.URL, v.Model, v.Group, engine, v.DPSize, v.Source, v.Lifecycle, active, tiers(cached), worst(v), drops(dropped), strings.Join(reasons(v), "; "))
	}
}

// reasons are those of the worker and, while it drains, until when.
func reasons(v worker) []string {
	if v.DrainUntil == nil {
		return v.Reasons
	}
	return append([]string{"drains until " + v.DrainUntil.UTC().Format(time.RFC3339)}, v.Reasons...)
}

// printUntold says what the engine does not tell, if it was asked.
func printUntold(w io.Writer, v worker) {
	for _, u := range v.Untold {
		fmt.Fprintf(w, "the engine does not tell %s\n", u)
	}
}

// worst is how the event streams of a worker are: that of the rank that is worst off.
func worst(v worker) string {
	out := "-"
	for _, r := range v.Ranks {
		switch e := events(v, r); {
		case e == "none", r.Unconnected:
			return e
		case !r.Trusted, out == "-":
			out = e
		}
	}
	return out
}

// events is how a rank's event stream is: none where nobody publishes any, unconnected
// where the publisher cannot be reached, else trusted or not; and how long ago the last
// one came. Where another router listens, it is what that said.
func events(v worker, r workerRank) string {
	switch r.Source {
	case "decisions":
		return "decisions"
	case "remote":
		if r.Trusted {
			return "remote trusted"
		}
		return "remote untrusted"
	}
	if v.KVEvents[int(r.Rank)] == "" {
		return "none"
	}
	state := "untrusted"
	switch {
	case r.Unconnected:
		state = "unconnected"
	case r.Trusted:
		state = "trusted"
	case r.Untrusted != "":
		state += "(" + r.Untrusted + ")"
	}
	if r.EventAgeMs == nil {
		return state
	}
	return state + " " + (time.Duration(*r.EventAgeMs) * time.Millisecond).Round(100*time.Millisecond).String()
}

// tiers are numbers of blocks by tier, those above 0.
func tiers(blocks map[string]int) string {
	var parts []string
	for _, tier := range []string{"device", "host", "disk"} {
		if n := blocks[tier]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s=%d", tier, n))
		}
	}
	if len(parts) == 0 {
		return "0"
	}
	return strings.Join(parts, " ")
}

func drops(by map[string]uint64) string {
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(by)) {
		if n := by[reason]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s=%d", reason, n))
		}
	}
	if len(parts) == 0 {
		return "0"
	}
	return strings.Join(parts, " ")
}

func count(n *int64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatInt(*n, 10)
}

func share(f *float64) string {
	if f == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", *f*100)
}
