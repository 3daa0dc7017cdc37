package core_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

// selectBy makes one selection and waits for it.
func (s *story) selectBy(kind core.Kind) func(*datadriven.TestData) string {
	return func(d *datadriven.TestData) string {
		req, limit := s.request(d, kind)
		ctx := s.t.Context()
		if limit > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, limit)
			defer cancel()
		}
		if d.HasArg("cancelled") {
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			cancel()
		}
		sel, err := s.world.Select(ctx, req)
		if err != nil {
			return failure(err)
		}
		if sel.Reservation != nil {
			s.held[sel.ID] = sel
		}
		return chosen(sel)
	}
}

func chosen(sel *core.Selection) string {
	return fmt.Sprintf("%s/%d by %s overlap %d", sel.Name, sel.Worker.Rank, sel.By, sel.Overlap.Device)
}

// request reads a selection's arguments; limit is its deadline, 0 for none.
func (s *story) request(d *datadriven.TestData, kind core.Kind) (req *core.Request, limit time.Duration) {
	req = &core.Request{
		Kind: kind, SelectionID: arg(d, "id", ""), Surface: "test", Adapter: arg(d, "adapter", ""),
		Partition: fleet.PartitionKey{Model: arg(d, "model", "m1"), Group: arg(d, "group", "")},
		Session:   arg(d, "session", ""), RequestID: arg(d, "request", ""), Class: arg(d, "class", ""),
		Prompt: promptArg(d), Pin: pinOf(arg(d, "pin", "")), Target: pinOf(arg(d, "target", "")), Leased: d.HasArg("leased"),
		Priority: number(arg(d, "priority", "0")), Attempt: uint32(number(arg(d, "attempt", "0"))),
	}
	if c := arg(d, "context", ""); c != "" {
		req.SessionContext = &core.SessionContext{ID: c}
	}
	if d.HasArg("allow") {
		req.Allow = strings.FieldsFunc(arg(d, "allow", ""), func(r rune) bool { return r == ',' })
		if req.Allow == nil {
			req.Allow = []string{}
		}
	}
	if x := arg(d, "exclude", ""); x != "" {
		for name := range strings.SplitSeq(x, ",") {
			req.Exclude = append(req.Exclude, fleet.Worker{ID: fleet.IDFromName(name)})
		}
	}
	if o := arg(d, "override", ""); o != "" {
		name, value, _ := strings.Cut(o, ":")
		req.Overrides = map[string]json.RawMessage{name: json.RawMessage(value)}
	}
	if t := arg(d, "require", ""); t != "" {
		req.Constraints.RequiredTaints = strings.Split(t, ",")
	}
	if l := arg(d, "label", ""); l != "" {
		req.Constraints.RequiredLabels = pairs([]string{l})
	}
	if p := arg(d, "prefer", ""); p != "" {
		req.Constraints.PreferredTaints = map[string]float64{}
		for name, weight := range pairs([]string{p}) {
			req.Constraints.PreferredTaints[name] = float64(number(weight))
		}
	}
	req.PriorityJump = s.duration(d, "jump")
	return req, s.duration(d, "limit")
}

func (s *story) duration(d *datadriven.TestData, key string) time.Duration {
	v, err := time.ParseDuration(arg(d, key, "0s"))
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

// promptArg reads prompt=A:160+B:40, hashes=4 (of text H), count= or more=.
func promptArg(d *datadriven.TestData) (p core.Prompt) {
	if text := arg(d, "prompt", ""); text != "" {
		p.Tokens = tokens(text)
	}
	p.Blocks = hashes(number(arg(d, "hashes", "0")))
	p.Count, p.More = number(arg(d, "count", "0")), number(arg(d, "more", "0"))
	return p
}

// pinOf reads w1 or w1/3.
func pinOf(text string) *core.Pin {
	if text == "" {
		return nil
	}
	name, rank, ranked := strings.Cut(text, "/")
	pin := &core.Pin{Name: name}
	if ranked {
		r := uint32(number(rank))
		pin.Rank = &r
	}
	return pin
}

// reserve books what a query has chosen, or the worker that it names.
func (s *story) reserve(d *datadriven.TestData) string {
	b := &core.Booking{
		SelectionID: names(d)[0], Partition: fleet.PartitionKey{Model: arg(d, "model", "m1")}, Prompt: promptArg(d),
		Session: arg(d, "session", ""), Adapter: arg(d, "adapter", ""), Leased: d.HasArg("leased"),
	}
	if name := arg(d, "worker", ""); name != "" {
		pin := pinOf(name)
		id := fleet.IDFromName(pin.Name)
		b.Worker, b.Rank = &id, pin.Rank
	}
	if u := arg(d, "uncached", ""); u != "" {
		n := number(u)
		b.Uncached = &n
	}
	sel, err := s.world.Reserve(s.t.Context(), b)
	if err != nil {
		return failure(err)
	}
	s.held[sel.ID] = sel
	return chosen(sel)
}

func outcomeOf(err error) string {
	if err != nil {
		return failure(err)
	}
	return "ok"
}

func (s *story) prefillCompleteID(d *datadriven.TestData) string {
	return outcomeOf(s.world.PrefillComplete(names(d)[0]))
}

func (s *story) outputBlock(d *datadriven.TestData) string {
	var fraction *float64
	if f := arg(d, "fraction", ""); f != "" {
		v, err := strconv.ParseFloat(f, 64)
		if err != nil {
			s.t.Fatal(err)
		}
		fraction = &v
	}
	return outcomeOf(s.world.OutputBlock(names(d)[0], number(arg(d, "blocks", "1")), fraction))
}

func (s *story) freeID(d *datadriven.TestData) string {
	return outcomeOf(s.world.Free(names(d)[0], endOf(arg(d, "kind", "completed"))))
}

// bindings tells what sessions are bound to, by what a query follows.
func (s *story) bindings(d *datadriven.TestData) string {
	var b strings.Builder
	for _, id := range names(d) {
		key := fleet.PartitionKey{Model: arg(d, "model", "m1")}
		bound := "nobody"
		if w, ok := s.world.BoundTo(key, id); ok {
			bound = fmt.Sprintf("%s/%d", nameOf(w.ID), w.Rank)
		}
		fmt.Fprintf(&b, "%s: %s\n", id, bound)
	}
	return b.String()
}

// sessions counts what is in the table of sessions.
func (s *story) sessions(d *datadriven.TestData) string {
	st := s.world.stats(fleet.PartitionKey{Model: arg(d, "model", "m1")}).Sessions
	return fmt.Sprintf("bound %d initialising %d leases %d full %d expired %d", st.Bound, st.Initialising, st.Leases, st.Full, st.Expired)
}

func (s *story) models(d *datadriven.TestData) string {
	var b strings.Builder
	for _, m := range s.world.Models(arg(d, "group", "")) {
		fmt.Fprintf(&b, "%s %s\n", m.ID, cmp.Or(m.Parent, "-"))
	}
	return cmp.Or(b.String(), "none")
}
