package frontend

import (
	"github.com/routerd/routerd/core"
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

// readPrompt finds the tokens of the prompt: ids in the request, else the
// engine's, else an estimate of their number. Of a batch that is the first one;
// the others count as load.
func (s *Server) readPrompt(x *exchange, route prompt.Route) {
	p := &x.req.Prompt
	p.Salt = x.scan.salt
	shape := promptShape{first: x.scan.prompt}
	if route == prompt.Completions {
		shape = shapeOf(x.scan.prompt)
	}
	if shape.tokens == nil && s.tokenizes(x.model) && shape.first != nil {
		fields := x.scan.inputs
		if shape.batch {
			fields = firstOnly(fields, shape.first)
		}
		shape.tokens = x.tokenize(prompt.Input{Route: route, Model: x.scan.model, Fields: fields})
	}
	p.Tokens, p.More = shape.tokens, shape.rest
	if p.Tokens == nil {
		p.Count = len(shape.first) / bytesPerToken
	}
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
