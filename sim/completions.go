package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
)

// defaultTextTokens is the length of a text completion that asks for none.
const defaultTextTokens = 16

// chat serves POST /v1/chat/completions.
func (e *Engine) chat(x *exchange) {
	var req chatRequest
	if err := json.Unmarshal(x.PostBody(), &req); err != nil {
		x.fail(decodeError(err))
		return
	}
	maxTokens := req.MaxTokens
	if req.MaxCompletionTokens != nil {
		maxTokens = req.MaxCompletionTokens
	}
	j, err := e.newJob(x, "chatcmpl-", req.Model)
	if err != nil {
		x.fail(err)
		return
	}
	text, err := req.render()
	if err != nil {
		x.fail(err)
		return
	}
	e.pieces.learn(text)
	j.prompts = []prompt{{tokens: Tokenize(text)}}
	e.serve(x, j, &req.generationFields, maxTokens, e.cfg.MaxModelLen, chatFormat{})
}

// text serves POST /v1/completions.
func (e *Engine) text(x *exchange) {
	var req textRequest
	if err := json.Unmarshal(x.PostBody(), &req); err != nil {
		x.fail(decodeError(err))
		return
	}
	j, err := e.newJob(x, "cmpl-", req.Model)
	if err != nil {
		x.fail(err)
		return
	}
	if req.Suffix != nil && *req.Suffix != "" {
		x.fail(badRequest("suffix", "suffix is not currently supported"))
		return
	}
	if j.prompts, err = e.textPrompts(&req); err != nil {
		x.fail(err)
		return
	}
	e.serve(x, j, &req.generationFields, req.MaxTokens, defaultTextTokens, textFormat{})
}

func (e *Engine) textPrompts(req *textRequest) ([]prompt, error) {
	texts, ids, err := readPrompts(req.Prompt)
	if err != nil {
		return nil, err
	}
	var prompts []prompt
	for _, t := range texts {
		e.pieces.learn(t)
		prompts = append(prompts, prompt{tokens: Tokenize(t), echo: t})
	}
	for _, list := range ids {
		p := prompt{tokens: list}
		if req.Echo {
			p.echo = e.pieces.text(list)
		}
		prompts = append(prompts, p)
	}
	if !req.Echo {
		for i := range prompts {
			prompts[i].echo = ""
		}
	}
	return prompts, nil
}

// newJob resolves the model and gives the request its id.
func (e *Engine) newJob(x *exchange, prefix, model string) (*job, error) {
	j := &job{created: time.Now().Unix(), model: model}
	if model == "" {
		j.model = e.cfg.Model
	}
	if j.model != e.cfg.Model {
		if !e.adapters.has(j.model) {
			return nil, unknownModel(model, e.cfg.Model)
		}
		j.adapter = j.model
	}
	id := string(x.Request.Header.Peek("X-Request-Id"))
	if id == "" {
		id = fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
	}
	j.id = prefix + id
	return j, nil
}

// serve checks the rest of the request and answers it whole or as a stream.
func (e *Engine) serve(x *exchange, j *job, f *generationFields, maxTokens *int, unlimited int, form format) {
	longest := 0
	for _, p := range j.prompts {
		if err := checkLength(len(p.tokens), maxTokens, e.cfg.MaxModelLen); err != nil {
			x.fail(err)
			return
		}
		longest = max(longest, len(p.tokens))
	}
	var err error
	if j.sampling, err = f.read(maxTokens, unlimited, e.cfg.MaxModelLen-longest); err != nil {
		x.fail(err)
		return
	}
	r, err := e.chooseRank(x)
	if err != nil {
		x.fail(err)
		return
	}
	x.begin()
	if f.Stream {
		e.stream(x, j, r, f.StreamOptions, form)
		return
	}
	e.unary(x, j, r, form)
}

// chooseRank takes the rank that the request names, else the least loaded one.
func (e *Engine) chooseRank(x *exchange) (*rank, error) {
	const header = "X-data-parallel-rank"
	if raw := x.Request.Header.Peek(header); raw != nil {
		n, err := strconv.Atoi(string(raw))
		if err != nil || n < 0 || n >= len(e.ranks) {
			return nil, badRequest(header, "%s must be an integer from 0 to %d, got %q.", header, len(e.ranks)-1, cut(string(raw)))
		}
		return e.ranks[n], nil
	}
	best, least := e.ranks[0], e.ranks[0].load()
	for _, r := range e.ranks[1:] {
		if n := r.load(); n < least {
			best, least = r, n
		}
	}
	return best, nil
}

// unary answers when everything has been said.
func (e *Engine) unary(x *exchange, j *job, r *rank, form format) {
	defer x.finish()
	if x.fault != nil && !e.applyBeforeAnswer(x, x.fault) {
		return
	}
	choices := make([]choiceText, len(j.prompts)*j.sampling.n)
	texts := make([][]byte, len(choices))
	for out, err := range e.generate(x.ctx, j, r) {
		if err != nil {
			e.countEnd(x, j, r)
			x.hangUp()
			return
		}
		texts[out.choice] = append(texts[out.choice], out.text...)
		if out.finish != "" {
			choices[out.choice] = choiceText{text: string(texts[out.choice]), finish: out.finish, stop: out.stop}
		}
	}
	x.reply(fasthttp.StatusOK, form.whole(j, choices, e.fingerprint()))
}

// countEnd notes a request that did not get to its end, if the client left it.
func (e *Engine) countEnd(x *exchange, j *job, r *rank) {
	if x.clientGone() {
		// In this order: whoever reads that one more was cancelled finds it listed.
		e.cancellations.add(j.id, r.id, j.usage.CompletionTokens)
		r.countCancelled()
	}
}

func (e *Engine) fingerprint() string { return "sim-" + e.cfg.Name }

// era is the context that a restart ends.
func (e *Engine) era() context.Context {
	e.eraMu.Lock()
	defer e.eraMu.Unlock()
	return e.eraCtx
}
