package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

type decision struct {
	ID        string    `json:"id"`
	At        time.Time `json:"at"`
	Kind      string    `json:"kind"`
	Surface   string    `json:"surface"`
	Partition struct {
		Model string `json:"model"`
		Group string `json:"group"`
	} `json:"partition"`
	Policy struct {
		Name     string `json:"name"`
		Revision int    `json:"revision"`
	} `json:"policy"`
	Request struct {
		Tokens  int    `json:"tokens"`
		Blocks  int    `json:"blocks"`
		Adapter string `json:"adapter"`
	} `json:"request"`
	Rows []candidate `json:"rows"`
	Tie  struct {
		Rows int     `json:"rows"`
		Draw float64 `json:"draw"`
	} `json:"tie"`
	Pick struct {
		Worker uint64 `json:"worker"`
		Name   string `json:"name"`
		Rank   uint32 `json:"rank"`
		By     string `json:"by"`
	} `json:"pick"`
	Fault *struct {
		Stage  string `json:"stage"`
		Code   string `json:"code"`
		Reason string `json:"reason"`
		Detail string `json:"detail"`
	} `json:"fault"`
	Fuel   uint64 `json:"fuel"`
	Micros int64  `json:"us"`
}

type candidate struct {
	Worker      uint64             `json:"worker"`
	Rank        uint32             `json:"rank"`
	Columns     map[string]float64 `json:"columns"`
	Mask        int                `json:"mask"`
	By          string             `json:"by"`
	StageScores []*float64         `json:"stage_scores"`
	Total       float64            `json:"total"`
}

func decisionsCommand() *cobra.Command {
	t := &target{}
	var limit int
	var partition, picked string
	c := &cobra.Command{
		Use: "decisions [ID]", Short: "List the last decisions, or explain one", Args: cobra.MaximumNArgs(1),
		Example: "  routerd decisions --limit 5",
		RunE: t.run(func(ctx context.Context, c *call) error {
			if len(c.args) == 1 {
				return explain(ctx, c)
			}
			query := url.Values{"limit": {strconv.Itoa(limit)}}
			if partition != "" {
				query.Set("partition", partition)
			}
			if picked != "" {
				query.Set("worker", picked)
			}
			return show(ctx, c, "/v1/decisions?"+query.Encode(), printDecisions)
		}),
	}
	c.Flags().IntVar(&limit, "limit", 20, "at most so many, 1 to 1024")
	c.Flags().StringVar(&partition, "partition", "", "only of this partition, MODEL or MODEL:GROUP")
	c.Flags().StringVar(&picked, "worker", "", "only those that picked this worker, by id or name")
	t.flags(c)
	return c
}

func printDecisions(w io.Writer, got struct {
	Decisions []decision `json:"decisions"`
},
) {
	row(w, "ID", "AT", "PARTITION", "POLICY", "TOKENS", "PICK", "BY", "FAULT", "US")
	for _, d := range got.Decisions {
		row(w, d.ID, d.At.Format(time.RFC3339), d.Partition.Model+":"+d.Partition.Group, d.policy(), d.Request.Tokens, d.pick(), d.Pick.By, d.fault(), d.Micros)
	}
}

func (d *decision) policy() string { return fmt.Sprintf("%s@%d", d.Policy.Name, d.Policy.Revision) }

func (d *decision) pick() string { return fmt.Sprintf("%s/%d", d.Pick.Name, d.Pick.Rank) }

func (d *decision) fault() string {
	if d.Fault == nil {
		return ""
	}
	return d.Fault.Code + " " + d.Fault.Reason
}

// explain prints one decision with its candidates, best first.
func explain(ctx context.Context, c *call) error {
	names := map[uint64]string{}
	if !c.json {
		names = c.workerNames(ctx)
	}
	return show(ctx, c, "/v1/decisions/"+url.PathEscape(c.args[0]), func(w io.Writer, d decision) {
		fmt.Fprintf(w, "decision %s at %s: %s %s for partition %s:%s\n", cell(d.ID), d.At.Format(time.RFC3339Nano), cell(d.Surface), cell(d.Kind), cell(d.Partition.Model), cell(d.Partition.Group))
		fmt.Fprintf(w, "request: %d tokens, %d blocks, adapter %s\n", d.Request.Tokens, d.Request.Blocks, cell(d.Request.Adapter))
		fmt.Fprintf(w, "policy %s picked %s: %s\n\n", cell(d.policy()), cell(d.pick()), d.why())
		d.table(w, names)
	})
}

// workerNames maps ids to names. A worker that has gone is shown by its id.
func (c *call) workerNames(ctx context.Context) map[uint64]string {
	names := map[uint64]string{}
	var got struct {
		Workers []struct {
			ID   uint64 `json:"id"`
			Name string `json:"name"`
		} `json:"workers"`
	}
	if c.client.Do(ctx, "GET", "/v1/workers", nil, &got) == nil {
		for _, w := range got.Workers {
			names[w.ID] = w.Name
		}
	}
	return names
}

// why says in words who chose and how close it was.
func (d *decision) why() string {
	var parts []string
	switch d.Pick.By {
	case "pin":
		parts = append(parts, "the request pinned it")
	case "session":
		parts = append(parts, "its session is bound there")
	case "fallback":
		parts = append(parts, "the fallback chose, the policy did not")
	default:
		parts = append(parts, "best total")
	}
	if d.Tie.Rows > 1 {
		parts = append(parts, fmt.Sprintf("%d rows were equal, draw %.6f", d.Tie.Rows, d.Tie.Draw))
	}
	if d.Fault != nil {
		parts = append(parts, fmt.Sprintf("stage %s faulted: %s %s %s", cell(d.Fault.Stage), d.Fault.Code, d.Fault.Reason, cell(d.Fault.Detail)))
	}
	return strings.Join(append(parts, fmt.Sprintf("fuel %d", d.Fuel), fmt.Sprintf("%d us", d.Micros)), "; ")
}

func (d *decision) table(w io.Writer, names map[uint64]string) {
	columns := map[string]bool{}
	stages := 0
	for _, r := range d.Rows {
		for name := range r.Columns {
			columns[name] = true
		}
		stages = max(stages, len(r.StageScores))
	}
	order := slices.Sorted(maps.Keys(columns))
	head := []any{"", "WORKER", "TOTAL"}
	for i := range stages {
		head = append(head, fmt.Sprintf("SCORER %d", i))
	}
	for _, name := range order {
		head = append(head, name)
	}
	row(w, head...)
	rows := slices.Clone(d.Rows)
	slices.SortStableFunc(rows, func(a, b candidate) int {
		switch {
		case a.Total > b.Total:
			return -1
		case a.Total < b.Total:
			return 1
		}
		return 0
	})
	for _, r := range rows {
		row(w, d.cells(r, names, order, stages)...)
	}
}

func (d *decision) cells(r candidate, names map[uint64]string, order []string, stages int) []any {
	mark := " "
	if r.Worker == d.Pick.Worker && r.Rank == d.Pick.Rank {
		mark = "*"
	}
	name := names[r.Worker]
	if name == "" {
		name = strconv.FormatUint(r.Worker, 10)
	}
	cells := []any{mark, fmt.Sprintf("%s/%d", name, r.Rank), float(r.Total)}
	for i := range stages {
		score := ""
		if i < len(r.StageScores) && r.StageScores[i] != nil {
			score = float(*r.StageScores[i])
		}
		cells = append(cells, score)
	}
	for _, column := range order {
		v, ok := r.Columns[column]
		if !ok {
			cells = append(cells, "")
			continue
		}
		cells = append(cells, float(v))
	}
	return cells
}

func float(v float64) string { return strconv.FormatFloat(v, 'g', 7, 64) }
