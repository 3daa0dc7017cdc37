package selection

import (
	"context"
	"fmt"
	"strconv"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/core/reserve"
	"github.com/routerd/routerd/internal/jsonscan"
)

func (s *Server) reserve(ctx context.Context, x *exchange) error {
	b, err := s.bodies.read(x.rc.PostBody(), reserveSet)
	if err != nil {
		return err
	}
	defer s.bodies.done(b)
	if !b.given.has(fieldSelectionID) {
		return missing(fieldSelectionID.name())
	}
	booking, err := b.booking()
	if err != nil {
		return err
	}
	booking.Adapter, booking.Prompt.Scope = s.scope(b)
	sel, err := s.parts.Core.Reserve(ctx, booking)
	if err != nil {
		return s.inDynamosWords(err, b)
	}
	x.booked(sel)
	return x.reply(201, reservedAnswer{
		SelectionID: sel.ID, ModelName: sel.Partition.Model, RoutingGroup: sel.Partition.Group, WorkerID: sel.Worker.ID, DpRank: sel.Worker.Rank,
		Endpoint: sel.Endpoint,
	})
}

// booking is what the body asks to book. Without a worker that is a selection as it
// was made, and all other fields count for nothing.
func (b *body) booking() (*core.Booking, error) {
	out := &core.Booking{SelectionID: b.id, Partition: b.partition}
	if !b.given.has(fieldWorkerID) {
		return out, nil
	}
	prompt, err := b.bookedPrompt()
	if err != nil {
		return nil, err
	}
	out.Worker, out.Prompt = &b.worker, prompt
	out.AssumeReuse, out.TrackPrefill = b.override.assumeReuse, b.override.trackPrefill
	if b.given.has(fieldDpRank) {
		out.Rank = &b.rank
	}
	// Without a word about it nothing counts as left to prefill: b.effective is 0.
	if b.given.has(fieldEffective) {
		out.TrackPrefill = nil
		isl := prompt.Count
		if prompt.Tokens != nil {
			isl = len(prompt.Tokens)
		}
		if b.effective > isl {
			return nil, inWords(fieldEffective, fmt.Sprintf("effective_prefill_tokens (%d) must not exceed isl_tokens (%d)", b.effective, isl), "0 to "+strconv.Itoa(isl))
		}
	}
	out.Uncached = &b.effective
	if b.given.has(fieldTrackPrefill) {
		out.TrackPrefill = &b.track
	}
	return out, nil
}

func (s *Server) prefillComplete(_ context.Context, x *exchange) error {
	if raw := x.rc.PostBody(); len(raw) > 0 {
		if err := readObject(raw, nil, nil); err != nil {
			return err
		}
	}
	if err := s.parts.Core.PrefillComplete(x.id); err != nil {
		return notReserved(x.id, err)
	}
	return x.done()
}

func (s *Server) outputBlock(_ context.Context, x *exchange) error {
	var fraction *float64
	err := readObject(x.rc.PostBody(), []string{"decay_fraction"}, func(_ int, raw []byte, name string) error {
		v, err := numberOf(raw, name, 0, 1, "between 0.0 and 1.0")
		fraction = &v
		return err
	})
	if err != nil {
		return err
	}
	if err := s.parts.Core.OutputBlock(x.id, 1, fraction); err != nil {
		return notReserved(x.id, err)
	}
	return x.done()
}

func (s *Server) free(_ context.Context, x *exchange) error {
	if err := s.parts.Core.Free(x.id, reserve.Outcome{Kind: reserve.Completed}); err != nil {
		return notReserved(x.id, err)
	}
	return x.done()
}

// done answers that it is done.
func (x *exchange) done() error {
	x.write(200, []byte(`{"status":"ok"}`))
	return nil
}

// readObject reads a body with these fields, none of which is an array or an object.
func readObject(raw []byte, fields []string, f func(i int, raw []byte, name string) error) error {
	r := &jsonscan.Reader{Data: raw}
	o := object{r: r, path: "", fields: fields}
	r.Space()
	err := o.scalars(f)
	if err == nil {
		err = r.End()
	}
	return broken(err)
}
