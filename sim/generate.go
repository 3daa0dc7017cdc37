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
	first  bool
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
			if !e.runPrompt(ctx, p, j, r, i, yield) {
				return
			}
		}
	}
}

// choiceRun is one answer in the making.
type choiceRun struct {
	answer   answer
	sequence sequence // prompt and answer
	chain    *chain   // nil until it is opened
}

// runPrompt computes prompt i and its answers; false ends the job.
func (e *Engine) runPrompt(ctx context.Context, p *pacer, j *job, r *rank, i int, yield func(output, error) bool) bool {
	tokens := j.prompts[i].tokens
	runs := e.plan(j, tokens)
	defer func() {
		for _, c := range runs {
			if c.chain != nil {
				r.release(c.chain)
			}
		}
	}()
	first := &runs[0]
	first.chain = r.openPrompt(first.sequence, len(tokens))
	cached := len(first.chain.held) * e.cfg.BlockSize
	j.usage.addPrompt(len(tokens), cached)
	if err := e.prefill(ctx, p, r, first.chain, cached, len(tokens)); err != nil {
		return yieldError(yield, err)
	}
	for k := range runs[1:] {
		c := &runs[k+1]
		c.chain = r.openAnswer(c.sequence, len(tokens))
	}
	return e.decode(ctx, p, j, r, i, cached, runs, yield)
}

// plan composes the answers and lays out the token paths that they will take.
func (e *Engine) plan(j *job, tokens []uint32) []choiceRun {
	runs := make([]choiceRun, j.sampling.n)
	seq := newSequence(j.adapter, tokens)
	for k := range runs {
		a := e.lexicon.compose(seq, len(tokens), j.sampling, e.cfg, k)
		runs[k] = choiceRun{answer: a, sequence: newSequence(j.adapter, tokens, a.tokens)}
	}
	return runs
}

func (e *Engine) prefill(ctx context.Context, p *pacer, r *rank, ch *chain, done, total int) error {
	for done < total {
		next := min(done+prefillChunk, total)
		if err := p.wait(ctx, time.Duration(next-done)*e.cfg.PrefillPerToken); err != nil {
			return err
		}
		r.fill(ch, next)
		done = next
	}
	return nil
}

// decode steps all answers of prompt i together, one token each per step.
func (e *Engine) decode(ctx context.Context, p *pacer, j *job, r *rank, i, cached int, runs []choiceRun, yield func(output, error) bool) bool {
	n := len(j.prompts[i].tokens)
	for step, live := 1, len(runs); live > 0; step++ {
		if err := p.wait(ctx, e.cfg.DecodePerToken); err != nil {
			return yieldError(yield, err)
		}
		for k, c := range runs {
			if step > len(c.answer.tokens) {
				continue
			}
			// The newest token's own KV entry is computed by the next step.
			if computed := n + step - 1; computed%e.cfg.BlockSize == 0 {
				r.fill(c.chain, computed)
			}
			j.usage.addToken()
			out := output{choice: i*len(runs) + k, first: step == 1, text: c.answer.texts[step-1]}
			out.usage.addPrompt(n, cached)
			out.usage.addTokens(step)
			if step == 1 {
				out.text = j.prompts[i].echo + out.text
			}
			if step == len(c.answer.tokens) {
				out.finish, out.stop = c.answer.finish, c.answer.stop
				live--
			}
			if !yield(out, nil) {
				return false
			}
		}
	}
	return true
}

func yieldError(yield func(output, error) bool, err error) bool {
	yield(output{}, err)
	return false
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
