package policy_test

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/kvcache"
	"github.com/routerd/routerd/plugins/abi"
)

// TestPagesAnswer asks each page's specification for the answers that the page
// says it gives.
func TestPagesAnswer(t *testing.T) {
	for _, name := range everyPage() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := readPage(t, name)
			rev := policy.NewRevision(name, 1, p.spec, p.pipeline, nil)
			rows := p.rows("Answers")
			if len(rows) == 0 {
				t.Fatal("the page has no answers")
			}
			for i, cells := range rows {
				if len(cells) != 5 {
					t.Fatalf("row %d has %d cells", i+1, len(cells))
				}
				for j := range cells {
					cells[j] = strings.Trim(cells[j], "`")
				}
				a := answer{t: t, row: i + 1, rev: rev}
				a.ask(cells[0], cells[1], cells[2])
				a.scored(cells[3])
				a.picked(cells[4])
			}
		})
	}
}

// answer is one row of a page's table.
type answer struct {
	t     *testing.T
	row   int
	rev   *policy.Revision
	table *policy.Table
	d     policy.Decision
}

// ask fills the table as the row says.
func (a *answer) ask(override, request, candidates string) {
	columns := strings.Split(candidates, ";")
	n := len(strings.Split(columns[0], ","))
	a.table = table(n, a.rev.Columns())
	for i := range n {
		if c := a.table.Fill(abi.ColWorkerID); c != nil {
			c[i] = float64(i + 1)
		}
	}
	a.table.Fill(abi.ColWorkerDPRank)
	a.table.SetField(abi.FieldBlockSize, 16)
	for _, text := range columns {
		a.column(strings.TrimSpace(text), n)
	}
	for text := range strings.SplitSeq(request, ";") {
		if text = strings.TrimSpace(text); text != "" {
			a.field(text)
		}
	}
	if override == "" {
		return
	}
	if err := json.Unmarshal([]byte(override), &a.table.Overrides); err != nil {
		a.t.Fatalf("row %d: override: %v", a.row, err)
	}
	if err := a.rev.CheckOverrides(a.table.Overrides); err != nil {
		a.t.Fatalf("row %d: override: %v", a.row, err)
	}
}

// column fills a column from its name and values; a dash is a missing one.
func (a *answer) column(text string, n int) {
	name, list, _ := strings.Cut(text, " ")
	values := strings.Split(list, ",")
	cells := a.table.NamedCells(name)
	if cells == nil || len(values) != n {
		a.t.Fatalf("row %d: %q: no such column, or not %d values", a.row, text, n)
	}
	to := cells.Fill()
	for i, v := range values {
		if v = strings.TrimSpace(v); v == "–" {
			cells.Miss(i)
			continue
		}
		to[i] = a.number(v)
	}
}

// field sets a request field; a text in quotes stands for its id.
func (a *answer) field(text string) {
	name, value, _ := strings.Cut(text, " ")
	quoted := strings.Trim(value, `"`)
	switch f, ok := abi.FieldByName(name); {
	case name == "sequence":
		a.table.Sequence = uint64(a.number(value))
	case name == "prefix":
		a.table.SetPrefix(16, beginning(quoted, 64))
	case !ok:
		a.t.Fatalf("row %d: no field %s", a.row, name)
	case quoted != value:
		a.table.SetField(f, abi.ID(quoted))
	default:
		a.table.SetField(f, a.number(value))
	}
}

// beginning makes up the hashes of a prompt that begins in a way of its own.
func beginning(name string, blocks int) (hashes []kvcache.SequenceHash) {
	for i := range blocks {
		hashes = append(hashes, kvcache.SequenceHash(policy.SplitMix64(uint64(abi.ID(name))+uint64(i))))
	}
	return hashes
}

func (a *answer) number(text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		a.t.Fatalf("row %d: %v", a.row, err)
	}
	return v
}

func (a *answer) decide(seed uint64) int {
	a.table.Seed = policy.SplitMix64(seed)
	if err := a.rev.Decide(a.t.Context(), a.table, &a.d); err != nil {
		a.t.Fatalf("row %d: %v", a.row, err)
	}
	if a.d.By != policy.ByPolicy || a.d.Fault != nil {
		a.t.Fatalf("row %d: by %s, %v", a.row, a.d.By, a.d.Fault)
	}
	return a.d.Row
}

// scored compares the sums with as many digits as the page shows; x is a
// candidate that the policy dropped.
func (a *answer) scored(want string) {
	a.decide(0)
	wanted := strings.Split(want, ",")
	if len(wanted) != a.table.Len() {
		a.t.Errorf("row %d: %d scores for %d candidates", a.row, len(wanted), a.table.Len())
		return
	}
	var got []string
	for i, w := range wanted {
		wanted[i] = strings.TrimSpace(w)
		_, digits, _ := strings.Cut(wanted[i], ".")
		text := strconv.FormatFloat(a.d.Totals[i], 'f', len(digits), 64)
		if len(a.d.Mask) > 0 && a.d.Mask[i] == 0 {
			text = "x"
		}
		got = append(got, text)
	}
	if !slices.Equal(wanted, got) {
		a.t.Errorf("row %d: got scores %v; want %v", a.row, got, wanted)
	}
}

// picked compares how often each candidate is picked.
func (a *answer) picked(want string) {
	shares := make([]float64, a.table.Len())
	wanted, equally := strings.CutSuffix(want, " equally")
	parts := strings.Split(wanted, ",")
	for _, part := range parts {
		who, percent, given := strings.Cut(part, ":")
		share := 1.0
		switch {
		case given:
			share = a.number(strings.TrimSpace(strings.TrimSuffix(percent, "%"))) / 100
		case equally:
			share = 1 / float64(len(parts))
		case len(parts) > 1:
			a.t.Fatalf("row %d: %q is neither one candidate nor shares", a.row, want)
		}
		shares[int(a.number(strings.TrimSpace(who)))-1] = share
	}
	draws := 20_000
	if slices.Contains(shares, 1) {
		draws = 50
	}
	counts := make([]int, len(shares))
	for seed := range uint64(draws) {
		counts[a.decide(seed)]++
	}
	for i, share := range shares {
		got := float64(counts[i]) / float64(draws)
		if share == 0 && !strings.Contains(want, "%") && got != 0 || share == 1 && got != 1 || math.Abs(got-share) > 0.015 {
			a.t.Errorf("row %d: candidate %d was picked in %.3f of the draws; want %.3f", a.row, i+1, got, share)
		}
	}
}
