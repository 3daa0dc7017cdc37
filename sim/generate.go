package sim

import (
	"context"
	"iter"
	"time"
)

// prefillChunk is how many prompt tokens one scheduler step computes; each step
// publishes its blocks as one batch.
const prefillChunk = 2048

// job is one generation request after parsing.
type job struct {
	id       string
	created  int64
	model    string // as the request named it
	adapter  string // "" = base model
	prompts  []prompt
	sampling sampling
	usage    usage
}

// prompt is one prompt of a job; echo is text to repeat before the answer.
type prompt struct {
	tokens []uint32
	echo   string
}

// output is one token of one choice.
type output struct {
	choice int
	text   string
	finish string // "stop" or "length" with the last token
	stop   *string
	usage  usage // the choice's own count so far
}

// generate runs a job on a rank and yields its tokens as they are made. It holds
// a slot from the first to the last token. An error (the cause of ctx's end) is
// the last value. The job's usage is right for what was yielded.
func (e *Engine) generate(ctx context.Context, j *job, r *rank) iter.Seq2[output, error] {
	return func(yield func(output, error) bool) {
		if err := r.acquire(ctx, j.adapter); err != nil {
			yield(output{}, err)
			return
		}
		defer r.leave(j.adapter)
		p := newPacer()
		defer p.stop()
		for i := range j.prompts {
			run := &promptRun{engine: e, job: j, rank: r, pacer: p, index: i, tokens: j.prompts[i].tokens}
			if !run.do(ctx, yield) {
				return
			}
		}
	}
}

// promptRun is one prompt of a job with its answers in the making.
type promptRun struct {
	engine  *Engine
	job     *job
	rank    *rank
	pacer   *pacer
	index   int
	tokens  []uint32
	cached  int // tokens of the prompt that were cached
	choices []choiceRun
}

// choiceRun is one answer in the making.
type choiceRun struct {
	answer   answer
	sequence sequence // prompt and answer
	chain    *chain   // nil until it is opened
}

// do computes the prompt and its answers; false ends the job.
func (p *promptRun) do(ctx context.Context, yield func(output, error) bool) bool {
	p.plan()
	defer p.release()
	first := &p.choices[0]
	first.chain = p.rank.openPrompt(first.sequence, len(p.tokens))
	p.cached = len(first.chain.held) * p.engine.cfg.BlockSize
	p.job.usage.addPrompt(len(p.tokens), p.cached)
	if err := p.prefill(ctx, first.chain); err != nil {
		yield(output{}, err)
		return false
	}
	for k := range p.choices[1:] {
		c := &p.choices[k+1]
		c.chain = p.rank.openAnswer(c.sequence, len(p.tokens))
	}
	return p.decode(ctx, yield)
}

// plan composes the answers and lays out the token paths that they will take.
func (p *promptRun) plan() {
	e, s := p.engine, p.job.sampling
	seq := newSequence(p.job.adapter, p.tokens)
	p.choices = make([]choiceRun, s.n)
	for k := range p.choices {
		a := e.lexicon.compose(seq, len(p.tokens), s, e.cfg, k)
		p.choices[k] = choiceRun{answer: a, sequence: newSequence(p.job.adapter, p.tokens, a.tokens)}
	}
}

func (p *promptRun) release() {
	for _, c := range p.choices {
		if c.chain != nil {
			p.rank.release(c.chain)
		}
	}
}

func (p *promptRun) prefill(ctx context.Context, ch *chain) error {
	for done := p.cached; done < len(p.tokens); {
		next := min(done+prefillChunk, len(p.tokens))
		if err := p.pacer.wait(ctx, time.Duration(next-done)*p.engine.cfg.PrefillPerToken); err != nil {
			return err
		}
		p.rank.fill(ch, next)
		done = next
	}
	return nil
}

// decode steps all answers together, one token each per step.
func (p *promptRun) decode(ctx context.Context, yield func(output, error) bool) bool {
	for step, live := 1, len(p.choices); live > 0; step++ {
		if err := p.pacer.wait(ctx, p.engine.cfg.DecodePerToken); err != nil {
			yield(output{}, err)
			return false
		}
		for k := range p.choices {
			if step > len(p.choices[k].answer.tokens) {
				continue
			}
			out := p.token(k, step)
			if out.finish != "" {
				live--
			}
			if !yield(out, nil) {
				return false
			}
		}
	}
	return true
}

// token makes token number step (from 1) of choice k.
func (p *promptRun) token(k, step int) output {
	c, n := p.choices[k], len(p.tokens)
	// The newest token's own KV entry is computed by the next step.
	if computed := n + step - 1; computed%p.engine.cfg.BlockSize == 0 {
		p.rank.fill(c.chain, computed)
	}
	p.job.usage.addToken()
	out := output{choice: p.index*len(p.choices) + k, text: c.answer.texts[step-1]}
	out.usage.addPrompt(n, p.cached)
	out.usage.addTokens(step)
	if step == 1 {
		out.text = p.job.prompts[p.index].echo + out.text
	}
	if step == len(c.answer.tokens) {
		out.finish, out.stop = c.answer.finish, c.answer.stop
	}
	return out
}

// pacer waits along one time line: a late step makes the next wait shorter.
type pacer struct {
	due   time.Time
	timer *time.Timer
}

func newPacer() *pacer {
	return &pacer{due: time.Now()}
}

// wait blocks until d after the end of the wait before, or until ctx ends.
func (p *pacer) wait(ctx context.Context, d time.Duration) error {
	if d > 0 {
		p.due = p.due.Add(d)
		if left := time.Until(p.due); left > 0 {
			return p.sleep(ctx, left)
		}
	}
	return context.Cause(ctx)
}

func (p *pacer) sleep(ctx context.Context, d time.Duration) error {
	if p.timer == nil {
		p.timer = time.NewTimer(d)
	} else {
		p.timer.Reset(d)
	}
	select {
	case <-p.timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *pacer) stop() {
	if p.timer != nil {
		p.timer.Stop()
	}
}
