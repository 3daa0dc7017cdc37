package frontend

import (
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/kvcache"
	"github.com/routerd/routerd/prompt"
	"github.com/routerd/routerd/upstream"
)

// chatCompletions serves POST /v1/chat/completions.
func (s *Server) chatCompletions(x *exchange) error { return s.complete(x, s.chat) }

// completions serves POST /v1/completions.
func (s *Server) completions(x *exchange) error { return s.complete(x, s.text) }

// complete reads the request, routes it and has its answer relayed.
func (s *Server) complete(x *exchange, sc *scanner) error {
	h := &x.ctx.Request.Header
	if err := x.readBody(); err != nil {
		return err
	}
	// Right after the trailers were read, so that no routing header can come as one.
	upstream.StripRequest(h)
	if err := sc.scan(x.ctx.Request.Body(), &x.scan); err != nil {
		return err
	}
	if err := x.cfg.steer(h, &x.req); err != nil {
		return err
	}
	if c := x.req.SessionContext; c != nil && sc.route == prompt.Chat {
		c.Trigger = triggerOf(x.scan.prompt)
	}
	key, adapter, ok := s.core.ResolveModel(x.scan.model, defaultGroup)
	if !ok {
		return &modelError{x.scan.model}
	}
	x.model = key.Model
	r := &x.req
	r.Kind, r.Surface, r.Partition, r.Adapter = core.Book, surfaceName, key, adapter
	r.MaxTokens, r.Temperature, r.Streaming = x.scan.maxTokens, x.scan.temperature, x.scan.streaming
	r.Arrival, r.RequestID, r.Leased = x.started, x.id, true
	if err := x.begin(); err != nil {
		return err
	}
	x.outbound()
	s.readPrompt(x, sc.route)
	return s.routeRequest(x)
}

// readPrompt finds what the prompt is known by: ids in the request, else, as the
// model has it, the engine's or blocks of its text, else an estimate of its length. Of a
// batch that is the first one; the others count as load.
func (s *Server) readPrompt(x *exchange, route prompt.Route) {
	p := &x.req.Prompt
	p.Salt = x.scan.salt
	shape := promptShape{first: x.scan.prompt}
	if route == prompt.Completions {
		shape = shapeOf(x.scan.prompt)
	}
	p.Tokens, p.More = shape.tokens, shape.rest
	p.Count = len(shape.first) / kvcache.BytesPerToken
	if p.Tokens != nil || shape.first == nil {
		return
	}
	in := prompt.Input{Route: route, Model: x.scan.model, Fields: x.scan.inputs}
	if shape.batch {
		in.Fields = firstOnly(in.Fields, shape.first)
	}
	switch s.modeOf(x.model) {
	case prompt.ModeEngine:
		if p.Tokens = x.tokenize(in); p.Tokens != nil && route == prompt.Chat && in.HasItems() {
			p.Text = []kvcache.BlockHash{} // not even a short one is known by its tokens alone
			if h := x.hashText(in); h != nil && len(h.Blocks()) > 0 {
				p.Text = h.Blocks()
			}
		}
	case prompt.ModeText:
		if h := x.hashText(in); h != nil {
			p.Blocks, p.Count = h.Blocks(), h.Tokens()
		}
	case prompt.ModeOff:
	}
}

// hashText makes blocks of the prompt's text; nil in a partition that is not known any
// more: the core will say so.
func (x *exchange) hashText(in prompt.Input) *kvcache.TextHasher {
	h, err := kvcache.NewTextHasher(x.s.core.BlockSize(x.req.Partition), x.req.Adapter, x.req.Prompt.Salt)
	if err != nil {
		return nil
	}
	in.WriteText(h)
	return h
}

// tokenize asks the engine. A call that was not waited for still reads the
// body: its buffer must not serve another request then.
func (x *exchange) tokenize(in prompt.Input) []uint32 {
	small := x.small
	x.small = nil
	tokens, outcome := x.s.tokenizer.Tokenize(x.life, x.req.Partition, in)
	if outcome != prompt.Slow && outcome != prompt.Cancelled {
		x.small = small
	}
	return tokens
}
