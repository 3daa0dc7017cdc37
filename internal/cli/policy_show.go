package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

type stats struct {
	Calls     uint64            `json:"calls"`
	Fallbacks uint64            `json:"fallbacks"`
	Faults    map[string]uint64 `json:"faults"`
}

type report struct {
	Seen    uint64 `json:"seen"`
	Sampled uint64 `json:"sampled"`
	Shed    uint64 `json:"shed"`
	Decided uint64 `json:"decided"`
	Agreed  uint64 `json:"agreed"`
	Masked  uint64 `json:"masked"`
	Regret  struct {
		Mean float64 `json:"mean"`
		Max  float64 `json:"max"`
	} `json:"regret"`
	LoadSpread struct {
		Active float64 `json:"active"`
		Shadow float64 `json:"shadow"`
	} `json:"load_spread"`
	Fuel   uint64            `json:"fuel"`
	Micros int64             `json:"us"`
	Faults map[string]uint64 `json:"faults"`
}

type limits struct {
	Modules []struct {
		Digest      string `json:"digest"`
		Title       string `json:"manifest_name"`
		MemoryPages uint32 `json:"memory_pages"`
		FuelBase    uint64 `json:"fuel_base"`
		FuelPerRow  uint64 `json:"fuel_per_row"`
		MaxRows     int    `json:"max_rows"`
	} `json:"modules"`
	Runtime *struct {
		CallDeadline string `json:"call_deadline"`
		PoolWait     string `json:"pool_wait"`
		MemoryLimit  int64  `json:"memory_limit"`
		FuelCap      uint64 `json:"fuel_cap"`
	} `json:"runtime"`
}

// change is an entry of a policy's history.
type change struct {
	At       time.Time `json:"at"`
	Who      string    `json:"who"`
	What     string    `json:"what"`
	Revision int       `json:"revision"`
	Previous int       `json:"previous"`
	Why      string    `json:"why"`
}

// shownChanges is how many changes a table shows; JSON has all.
const shownChanges = 20

func showPolicy(ctx context.Context, c *call) error {
	return show(ctx, c, policyPath(c.args[0]), func(w io.Writer, p policyInfo) {
		fmt.Fprintf(w, "policy %s, active %s, previous %s", cell(p.Name), cell(number(p.Active)), cell(number(p.Previous)))
		if n := p.note(); n != "" {
			fmt.Fprintf(w, " (%s)", cell(n))
		}
		fmt.Fprintln(w)
		row(w, "REVISION", "STATE", "MADE BY", "AT", "CALLS", "FALLBACKS", "FAULTS", "SPEC")
		for _, r := range p.Revisions {
			calls, fallbacks, faults := "", "", ""
			if r.Stats != nil {
				calls, fallbacks, faults = fmt.Sprint(r.Stats.Calls), fmt.Sprint(r.Stats.Fallbacks), tally(r.Stats.Faults)
			}
			row(w, r.Revision, r.State, r.By, r.At.Format(time.RFC3339), calls, fallbacks, faults, string(r.Spec))
		}
		p.printRollout(w)
		p.Limits.table(w)
		p.printHistory(w)
	})
}

// tally is counts by name, such as "nan 1, trap 3".
func tally[N uint64 | int](counts map[string]N) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(parts, ", ")
}

func (p *policyInfo) printRollout(w io.Writer) {
	if c := p.Canary; c != nil {
		fmt.Fprintf(w, "\ncanary %s, since %s by %s: %d calls\n", cell(c.withValue()), c.Since.Format(time.RFC3339), cell(c.Who), c.Stats.Calls)
	}
	s := p.Shadow
	if s == nil {
		return
	}
	r := &s.Report
	fmt.Fprintf(w, "\nshadow %s, since %s by %s\n", cell(s.String()), s.Since.Format(time.RFC3339), cell(s.Who))
	row(w, "SEEN", "SAMPLED", "SHED", "DECIDED", "AGREED", "MASKED", "REGRET MEAN", "MAX", "LOAD ACTIVE", "SHADOW", "FUEL", "US", "FAULTS")
	row(w, r.Seen, r.Sampled, r.Shed, r.Decided, r.Agreed, r.Masked, mean(r.Regret.Mean), mean(r.Regret.Max),
		mean(r.LoadSpread.Active), mean(r.LoadSpread.Shadow), r.Fuel, r.Micros, tally(r.Faults))
}

// mean is a sum of many numbers for a reader: what their rounding left is no figure.
func mean(v float64) string { return float(math.Round(v*1e6)/1e6 + 0) } // + 0: no sign of a zero

func (l *limits) table(w io.Writer) {
	if len(l.Modules) == 0 {
		return
	}
	fmt.Fprintln(w)
	row(w, "MODULE", "DIGEST", "PAGES", "FUEL", "FUEL A ROW", "ROWS")
	for _, m := range l.Modules {
		row(w, m.Title, short(m.Digest), m.MemoryPages, m.FuelBase, m.FuelPerRow, m.MaxRows)
	}
	if r := l.Runtime; r != nil {
		fmt.Fprintf(w, "each call: %s, fuel %d; an instance is waited for %s; all instances: %d bytes\n", cell(r.CallDeadline), r.FuelCap, cell(r.PoolWait), r.MemoryLimit)
	}
}

func (p *policyInfo) printHistory(w io.Writer) {
	changes := p.History
	if len(changes) == 0 {
		return
	}
	fmt.Fprintln(w)
	row(w, "AT", "WHO", "WHAT", "REVISION", "PREVIOUS", "WHY")
	for _, c := range changes[max(len(changes)-shownChanges, 0):] {
		row(w, c.At.Format(time.RFC3339), c.Who, c.What, c.Revision, number(c.Previous), c.Why)
	}
}
