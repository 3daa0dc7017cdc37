package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"
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
		Name     string  `json:"name"`
		Revision int     `json:"revision"`
		Stages   []stage `json:"stages"`
		Canary   bool    `json:"canary"`
	} `json:"policy"`
	Request struct {
		Tokens  int    `json:"tokens"`
		Blocks  int    `json:"blocks"`
		Adapter string `json:"adapter"`
		Class   string `json:"class"`
		Seed    string `json:"seed"`
	} `json:"request"`
	Rows []candidate `json:"rows"`
	Tie  struct {
		Rows int     `json:"rows"`
		Draw float64 `json:"draw"`
	} `json:"tie"`
	Pick  *picked `json:"pick"`
	Fault *struct {
		Stage  string `json:"stage"`
		Code   string `json:"code"`
		Reason string `json:"reason"`
		Detail string `json:"detail"`
	} `json:"fault"`
	Traces []struct {
		Stage string  `json:"stage"`
		Name  string  `json:"name"`
		Value float64 `json:"value"`
	} `json:"traces"`
	Fuel   uint64 `json:"fuel"`
	Micros int64  `json:"us"`
	Waited int64  `json:"waited_us"`
	Same   bool   `json:"same"` // of a replay
}

type stage struct {
	Kind string `json:"kind"`
	Use  string `json:"use"`
}

// short is the stage without its digest.
func (s stage) short() string { return shortUse(s.Use) }

func shortUse(use string) string {
	use, _, _ = strings.Cut(use, "@")
	return use
}

type picked struct {
	Worker uint64 `json:"worker"`
	Name   string `json:"name"`
	Rank   uint32 `json:"rank"`
	By     string `json:"by"`
}

type candidate struct {
	Worker      uint64             `json:"worker"`
	Rank        uint32             `json:"rank"`
	Columns     map[string]float64 `json:"columns"`
	Missing     []string           `json:"missing"`
	Mask        int                `json:"mask"`
	By          string             `json:"by"`
	StageScores []*float64         `json:"stage_scores"`
	Total       float64            `json:"total"`
}

func decisionsCommand() *cobra.Command {
	t := &target{}
	var limit int
	var partition, worker, other string
	c := &cobra.Command{
		Use: "decisions [ID]", Short: "List the last decisions, those first that were decided last, or explain one", Args: cobra.MaximumNArgs(1),
		Example: "  routerd decisions --limit 5",
		RunE: t.run(func(ctx context.Context, c *call) error {
			if len(c.args) == 1 {
				return explain(ctx, c, other)
			}
			if other != "" {
				return usage("--policy goes with an ID")
			}
			query := url.Values{"limit": {strconv.Itoa(limit)}}
			if partition != "" {
				query.Set("partition", partition)
			}
			if worker != "" {
				query.Set("worker", worker)
			}
			return show(ctx, c, "/v1/decisions?"+query.Encode(), func(w io.Writer, got decisionList) {
				if len(got.Decisions) > 0 {
					printDecisions(w, got)
					return
				}
				fmt.Fprintln(w, c.noDecisions(ctx, partition))
			})
		}),
	}
	c.Flags().IntVar(&limit, "limit", 20, "at most so many, 1 to 1024")
	c.Flags().StringVar(&partition, "partition", "", "only of this partition, MODEL or MODEL:GROUP")
	c.Flags().StringVar(&other, "policy", "", "with an ID: also what this kept revision would have chosen, NAME@REVISION or NAME for the active one")
	c.Flags().StringVar(&worker, "worker", "", "only those that picked this worker, by id or name")
	t.flags(c)
	return c
}

type decisionList struct {
	Decisions []decision `json:"decisions"`
}

// noDecisions says why a list is empty, as far as that can be told.
func (c *call) noDecisions(ctx context.Context, partition string) string {
	const none = "no decisions match"
	if partition == "" {
		return none
	}
	model, group := partition, ""
	if i := strings.LastIndexByte(partition, ':'); i >= 0 { // a model's name may hold colons
		model, group = partition[:i], partition[i+1:]
	}
	var got struct {
		Partitions []struct{} `json:"partitions"`
	}
	query := url.Values{"model": {model}, "group": {group}}
	if err := c.client.Do(ctx, "GET", "/v1/partitions?"+query.Encode(), nil, &got); err != nil || len(got.Partitions) > 0 {
		return none
	}
	return fmt.Sprintf("%s: there is no partition %s (worker list has the models and groups)", none, cell(partition))
}

func printDecisions(w io.Writer, got decisionList) {
	row(w, "ID", "AT", "PARTITION", "POLICY", "TOKENS", "CLASS", "PICK", "BY", "FAULT", "US", "WAITED US")
	for _, d := range got.Decisions {
		row(w, d.ID, d.At.Format(time.RFC3339), d.Partition.Model+":"+d.Partition.Group, d.policy(), d.Request.Tokens, d.Request.Class, d.pick(), d.by(), d.fault(), d.Micros, d.Waited)
	}
}

func (d *decision) policy() string { return fmt.Sprintf("%s@%d", d.Policy.Name, d.Policy.Revision) }

func (d *decision) pick() string {
	if d.Pick == nil {
		return "nobody"
	}
	name := d.Pick.Name
	if name == "" { // it has gone
		name = strconv.FormatUint(d.Pick.Worker, 10)
	}
	return fmt.Sprintf("%s/%d", name, d.Pick.Rank)
}

func (d *decision) by() string {
	if d.Pick == nil {
		return ""
	}
	return d.Pick.By
}

func (d *decision) fault() string {
	if d.Fault == nil {
		return ""
	}
	return strings.TrimSpace(d.Fault.Code + " " + d.Fault.Reason)
}
