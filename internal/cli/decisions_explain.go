package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/routerd/routerd/plugins/abi"
)

// explain prints one decision with its candidates, best first; with other,
// beside what that revision would have made of it.
func explain(ctx context.Context, c *call, other string) error {
	path := "/v1/decisions/" + url.PathEscape(c.args[0])
	if c.json {
		if other != "" {
			path += "?policy=" + url.QueryEscape(other)
		}
		return show(ctx, c, path, func(io.Writer, decision) {})
	}
	names := c.workerNames(ctx)
	var instead *decision
	if other != "" {
		// By the decision's own id: a request's may soon be of another.
		var d decision
		if err := c.client.Do(ctx, "GET", path, nil, &d); err != nil {
			return err
		}
		path = "/v1/decisions/" + url.PathEscape(d.ID)
		instead = &decision{}
		if err := c.client.Do(ctx, "GET", path+"?policy="+url.QueryEscape(other), nil, instead); err != nil {
			return err
		}
	}
	return show(ctx, c, path, func(w io.Writer, d decision) { d.explain(w, instead, names, c.width) })
}

func (d *decision) explain(w io.Writer, instead *decision, names map[uint64]string, width int) {
	fmt.Fprintf(w, "decision %s at %s: %s %s for partition %s:%s\n", cell(d.ID), d.At.Format(time.RFC3339Nano), cell(d.Surface), cell(d.Kind), cell(d.Partition.Model), cell(d.Partition.Group))
	fmt.Fprintf(w, "request: %d tokens, %d blocks, class %s, adapter %s, seed %s\n", d.Request.Tokens, d.Request.Blocks, cell(d.Request.Class), cell(d.Request.Adapter), cell(d.Request.Seed))
	canary := ""
	if d.Policy.Canary {
		canary = " as canary"
	}
	fmt.Fprintf(w, "policy %s%s picked %s: %s\n", cell(d.policy()), canary, cell(d.pick()), d.why())
	d.notes(w)
	if instead != nil {
		verdict := "another"
		if instead.Same {
			verdict = "the same"
		}
		fmt.Fprintf(w, "policy %s would pick %s, %s: %s\n", cell(instead.policy()), cell(instead.pick()), verdict, instead.why())
		instead.notes(w)
	}
	fmt.Fprintln(w)
	d.table(w, instead, names, width)
}

// notes prints the stages and what they put down.
func (d *decision) notes(w io.Writer) {
	var stages []string
	for _, s := range d.Policy.Stages {
		stages = append(stages, s.Kind+" "+s.short())
	}
	if len(stages) > 0 {
		fmt.Fprintf(w, "  stages: %s\n", cell(strings.Join(stages, ", ")))
	}
	for _, t := range d.Traces {
		fmt.Fprintf(w, "  trace of %s: %s = %s\n", cell(shortUse(t.Stage)), cell(t.Name), float(t.Value))
	}
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
	parts := []string{d.who()}
	if d.Tie.Rows > 1 {
		parts = append(parts, fmt.Sprintf("a draw among %d rows, %.6f", d.Tie.Rows, d.Tie.Draw))
	}
	if f := d.Fault; f != nil {
		text := "fault:"
		if f.Stage != "" {
			text = "stage " + cell(shortUse(f.Stage)) + " faulted:"
		}
		for _, part := range []string{f.Code, f.Reason, f.Detail} {
			if part != "" {
				text += " " + cell(part)
			}
		}
		parts = append(parts, text)
	}
	parts = append(parts, fmt.Sprintf("fuel %d", d.Fuel))
	if d.Micros > 0 {
		parts = append(parts, fmt.Sprintf("%d us", d.Micros))
	}
	if d.Waited > 0 {
		parts = append(parts, fmt.Sprintf("waited %d us before", d.Waited))
	}
	return strings.Join(parts, "; ")
}

func (d *decision) who() string {
	switch d.by() {
	case "pin":
		return "the request pinned it"
	case "session":
		return "its session is bound there"
	case "fallback":
		return "the fallback chose, the policy did not"
	case "":
		if f := d.Fault; f != nil && f.Code != "" { // that filters leave nothing has no code
			return "it fails the request"
		}
		return "its filters leave nothing"
	}
	for _, s := range d.Policy.Stages {
		if s.Kind == "policy" || s.Kind == "picker" && s.Use != "builtin:best" {
			return cell(s.short()) + " chose"
		}
	}
	return "best total"
}

// scoring are the stages whose scores the rows have, in their order.
func (d *decision) scoring() (names []string) {
	for _, kind := range []string{"scorer", "lora-scorer", "policy"} {
		for _, s := range d.Policy.Stages {
			if s.Kind == kind {
				names = append(names, s.short())
			}
		}
	}
	return names
}

// table prints the candidates: who picked them, scores, and what the stages saw.
func (d *decision) table(w io.Writer, instead *decision, names map[uint64]string, width int) {
	rows := slices.Clone(d.Rows)
	slices.SortStableFunc(rows, func(a, b candidate) int {
		switch {
		case a.Mask != b.Mask:
			return b.Mask - a.Mask
		case a.Total > b.Total:
			return -1
		case a.Total < b.Total:
			return 1
		}
		return 0
	})
	g := grid{fixed: []column{d.marks(rows, instead), workers(rows, names)}}
	if instead == nil {
		g.rest = d.verdicts(rows, "")
	} else {
		g.rest = append(d.verdicts(rows, d.policy()+" "), instead.verdicts(matching(rows, instead.Rows), instead.policy()+" ")...)
	}
	seen, unknown, ids := signals(rows)
	g.rest = append(g.rest, seen...)
	g.print(w, width)
	legend := "\n* picked"
	if instead != nil {
		legend += fmt.Sprintf(", + picked by %s", cell(instead.policy()))
	}
	if unknown {
		legend += ", ? no signal: the default"
	}
	if len(ids) > 0 {
		legend += ". Text is recorded as its id, the number that policies see: " + cell(strings.Join(ids, ", "))
	}
	fmt.Fprintln(w, legend)
}

func (d *decision) marks(rows []candidate, instead *decision) column {
	c := column{head: " "}
	for i := range rows {
		mark := ""
		if d.picked(&rows[i]) {
			mark = "*"
		}
		if instead != nil && instead.picked(&rows[i]) {
			mark += "+"
		}
		if mark == "" {
			mark = " "
		}
		c.cells = append(c.cells, mark)
	}
	return c
}

func (d *decision) picked(r *candidate) bool {
	return d.Pick != nil && r.Worker == d.Pick.Worker && r.Rank == d.Pick.Rank
}

func workers(rows []candidate, names map[uint64]string) column {
	c := column{head: "WORKER"}
	for i := range rows {
		c.cells = append(c.cells, rankName(names, rows[i].Worker, rows[i].Rank))
	}
	return c
}

// rankName is a rank by its worker's name, or id where the worker has gone.
func rankName(names map[uint64]string, worker uint64, rank uint32) string {
	name := names[worker]
	if name == "" {
		name = strconv.FormatUint(worker, 10)
	}
	return fmt.Sprintf("%s/%d", name, rank)
}

// matching are those of from in the order of rows; where there is none, a row
// that nothing is known of.
func matching(rows, from []candidate) []candidate {
	out := make([]candidate, len(rows))
	for i := range rows {
		at := slices.IndexFunc(from, func(c candidate) bool { return c.Worker == rows[i].Worker && c.Rank == rows[i].Rank })
		if at >= 0 {
			out[i] = from[at]
		}
	}
	return out
}

// verdicts are total, scores and who dropped a row.
func (d *decision) verdicts(rows []candidate, prefix string) []column {
	total, dropped := column{head: prefix + "TOTAL"}, column{head: prefix + "DROPPED BY"}
	masked := false
	for i := range rows {
		text := ""
		if r := &rows[i]; r.Mask == 1 {
			text = float(r.Total)
		} else {
			masked = true
		}
		total.cells = append(total.cells, text)
		dropped.cells = append(dropped.cells, shortUse(rows[i].By))
	}
	out := []column{total}
	for at, name := range d.scoring() {
		c := column{head: prefix + name}
		for i := range rows {
			text := ""
			if scores := rows[i].StageScores; at < len(scores) && scores[at] != nil {
				text = float(*scores[at])
			}
			c.cells = append(c.cells, text)
		}
		out = append(out, c)
	}
	if masked {
		out = append(out, dropped)
	}
	return out
}

// signals are the recorded columns; unknown tells whether a signal was missing,
// ids are the columns that stand for text, of which no record has more.
func signals(rows []candidate) (out []column, unknown bool, ids []string) {
	known := map[string]bool{}
	for i := range rows {
		for name := range rows[i].Columns {
			known[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		c := column{head: name}
		for i := range rows {
			text := ""
			if v, ok := rows[i].Columns[name]; ok {
				text = float(v)
			}
			if slices.Contains(rows[i].Missing, name) {
				text, unknown = text+"?", true
			}
			c.cells = append(c.cells, text)
		}
		out = append(out, c)
		if strings.HasPrefix(name, abi.LabelPrefix) {
			ids = append(ids, name)
		}
	}
	return out, unknown, ids
}

// float is a number in at most 7 digits, or whole: ids and counts are exact.
func float(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', 7, 64)
}
