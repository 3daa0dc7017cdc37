package core

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// reasons are why a rank gets no request, or none of some classes, for operators:
// those of its worker's standing first. To look changes nothing. mu must be held.
func (p *Partition) reasons(r *viewRow, now time.Time) []string {
	out := p.core.inhibited.Load().reasons(r.member, now)
	out = append(out, p.core.directory.Load().lostReasons(r.member, p.key)...)
	if r.member.lifecycle != Ready {
		return out
	}
	if text := p.refusalReason(r, now); text != "" {
		out = append(out, text)
	}
	if text := p.overloadReason(r, now); text != "" {
		out = append(out, text)
	}
	var busy []string
	for i := range p.core.queueing.Load().Classes {
		if class := &p.core.queueing.Load().Classes[i]; p.busy(r, class, now) {
			busy = append(busy, class.Name)
		}
	}
	if len(busy) > 0 {
		slices.Sort(busy)
		out = append(out, "busy: for "+strings.Join(busy, ", "))
	}
	return out
}

// refusalReason says that a rank's worker refuses, and until when; empty where it
// does not.
func (p *Partition) refusalReason(r *viewRow, now time.Time) string {
	t := p.core.refusals.Load()
	if t == nil || !p.refusing(t, r, now) {
		return ""
	}
	f, _ := t.of(r.member)
	if p.reports[r.slot].known {
		return "refusing: it answered that it takes no more, until its engine's next report"
	}
	return "refusing: it answered that it takes no more, until " + f.until.UTC().Format(time.RFC3339)
}

// overloadReason says which bound of queue.overload a rank is above; empty where it
// is not overloaded.
func (p *Partition) overloadReason(r *viewRow, now time.Time) string {
	limit, s := p.core.overload.Load(), &p.reports[r.slot]
	was := s.latch
	over := p.overloaded(r, now)
	s.latch = was
	if !over {
		return ""
	}
	l, _ := p.tracker.Load(r.slot, now)
	rec := &r.member.record
	var above []string
	add := func(bound string, format string, args ...any) {
		above = append(above, fmt.Sprintf(format, args...)+" (queue.overload."+bound+")")
	}
	if limit.PrefillTokens > 0 && l.PrefillTokens > limit.PrefillTokens {
		add("prefill_tokens", "%d tokens to prefill, at most %d", l.PrefillTokens, limit.PrefillTokens)
	}
	if most := limit.PrefillFraction * float64(rec.MaxBatchedTokens); most > 0 && float64(l.PrefillTokens) > most {
		add("prefill_fraction", "%d tokens to prefill, at most %s", l.PrefillTokens, short(most))
	}
	if most := limit.KVFraction * float64(rec.TotalKVBlocks); most > 0 {
		if used := s.UsedBlocks(l.DecodeBlocks, int64(rec.TotalKVBlocks), now, reportMaxAge); used > most {
			add("kv_fraction", "%s KV blocks in use, at most %s", short(used), short(most))
		}
	}
	if len(above) == 0 {
		return "overloaded: until it was below the bounds of queue.overload for " + overloadInterval.String()
	}
	return "overloaded: " + strings.Join(above, "; ")
}

// short is a number for a reader, with one decimal at most.
func short(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }
