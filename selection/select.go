package selection

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"strings"
	"time"

	"github.com/routerd/routerd/core"
)

// surface is what records call this service.
const surface = "selection"

func (s *Server) doSelect(ctx context.Context, x *exchange) error {
	b, err := s.bodies.read(x.rc.PostBody(), selectSet)
	if err != nil {
		return err
	}
	defer s.bodies.done(b)
	kind := core.Query
	if b.advisory {
		kind = core.Advisory
	}
	sel, err := s.selectBy(ctx, x, b, kind)
	if err != nil {
		return err
	}
	x.write(200, appendSelected(make([]byte, 0, 512), sel, b.id, b.advisory))
	return nil
}

func (s *Server) doSelectAndReserve(ctx context.Context, x *exchange) error {
	b, err := s.bodies.read(x.rc.PostBody(), bookSet)
	if err != nil {
		return err
	}
	defer s.bodies.done(b)
	sel, err := s.selectBy(ctx, x, b, core.Book)
	if err != nil {
		return err
	}
	x.booked(sel)
	x.write(200, appendBooked(make([]byte, 0, 512+21*len(sel.Detail.Sequences)), sel, b.tracked()))
	return nil
}

// selectBy asks the core.
func (s *Server) selectBy(ctx context.Context, x *exchange, b *body, kind core.Kind) (*core.Selection, error) {
	req, err := b.selection(kind)
	if err != nil {
		return nil, err
	}
	req.Arrival = x.at
	req.Adapter, req.Prompt.Scope = s.scope(b)
	header := &x.rc.Request.Header
	for _, name := range [...]string{"x-dynamo-meta-policy-class", "x-routerd-class"} {
		if v := header.Peek(name); len(v) > 0 {
			req.Class = string(v)
			break
		}
	}
	for _, name := range x.cfg.PolicyHeaders {
		// As in the frontend: one that is empty or too long counts as not sent.
		if v := joined(header.PeekAll(name)); v != "" && len(v) <= core.MaxHeaderBytes {
			if req.Headers == nil {
				req.Headers = map[string]string{}
			}
			req.Headers[name] = v
		}
	}
	sel, err := s.parts.Core.Select(ctx, req)
	if err != nil {
		return nil, s.inDynamosWords(err, b)
	}
	return sel, nil
}

// scope is the adapter that the workers must have, where any of the partition lists
// it: workers that are put here list none, and for those an adapter only scopes the
// hashes, as in Dynamo's service.
func (s *Server) scope(b *body) (adapter, scope string) {
	if b.adapter == "" {
		return "", ""
	}
	key := b.partition.Normalised()
	if base, name, ok := s.parts.Core.ResolveModel(b.adapter, key.Group); ok && name != "" && base == key {
		return b.adapter, ""
	}
	return "", b.adapter
}

// joined are the values of a header, joined as in HTTP.
func joined(values [][]byte) string {
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = string(bytes.TrimSpace(v))
	}
	return strings.Join(all, ", ")
}

// selection is what the body asks the core for. It belongs to the body.
func (b *body) selection(kind core.Kind) (*core.Request, error) {
	prompt, err := b.prompt()
	if err != nil {
		return nil, err
	}
	b.request = core.Request{
		Kind: kind, SelectionID: b.id, Surface: surface, Partition: b.partition, Prompt: prompt,
		Pin: b.pin, Allow: b.allow, Target: b.target, Constraints: b.constraint,
		Priority: b.strict, PriorityJump: time.Duration(b.jump * float64(time.Second)), ExpectedOutput: b.expected, Detail: true,
	}
	if b.context != nil { // it counts even where it names no session
		b.request.SessionContext = b.context
	} else {
		b.request.Session = b.session
	}
	b.override.apply(&b.request)
	if kind == core.Book && b.id == "" {
		b.request.SelectionID = newID()
	}
	return &b.request, nil
}

// newID makes the id of a booking whose caller has none: a random UUID.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it cannot fail
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	text := hex.EncodeToString(b[:])
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}

// tracked tells whether the prompt of a booking counts as load.
func (b *body) tracked() bool { return b.override.trackPrefill == nil || *b.override.trackPrefill }
