package core

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/routerd/routerd/core/affinity"
)

// lane names those who wait for the same workers: what is pinned or bound
// elsewhere does not hold them up. Those of one worker that need different things are
// apart, for only the head of a lane learns that nobody may serve it any more. needs
// must be there.
func (a *attempt) lane() string {
	req := a.req
	switch {
	case a.exclusive:
		return "@" + a.bound.Worker.String() + "\x00" + a.needs
	case req.Pin != nil && req.Pin.Rank != nil:
		return "=" + req.Pin.String() + "/" + strconv.FormatUint(uint64(*req.Pin.Rank), 10) + "\x00" + a.needs
	case req.Pin != nil:
		return "=" + req.Pin.String() + "\x00" + a.needs
	}
	return a.needs
}

// needs names what narrows the workers of a request, but its pin and its session, where
// there is something; then it is not empty.
func (r *Request) needs() string {
	var b strings.Builder
	part := func(kind byte, text string) { fmt.Fprintf(&b, "%c%d:%s", kind, len(text), text) }
	part('m', r.Adapter)
	if r.Allow != nil {
		part('A', strconv.Itoa(len(r.Allow)))
	}
	for _, name := range slices.Sorted(slices.Values(r.Allow)) {
		part('a', name)
	}
	for _, taint := range slices.Sorted(slices.Values(r.Constraints.RequiredTaints)) {
		part('t', taint)
	}
	for _, key := range slices.Sorted(maps.Keys(r.Constraints.RequiredLabels)) {
		part('l', key)
		part('v', r.Constraints.RequiredLabels[key])
	}
	if b.Len() > longNeeds {
		sum := sha256.Sum256([]byte(b.String()))
		return "#" + string(sum[:])
	}
	return b.String()
}

// longNeeds is how long the text of a request's needs may be before its digest stands
// for it: each who waits keeps it.
const longNeeds = 256

// ahead is the number of grants that go before a request of a lane: those of its
// own lane, for the lane without constraints those of all, for that of a session's
// rank or of a pin those of all sessions there or all with that pin. mu must be held.
func (p *Partition) ahead(lane string) (n int) {
	prefix := ""
	if lane != "" {
		if lane[0] != '@' && lane[0] != '=' {
			return p.grants[lane]
		}
		where, _, _ := strings.Cut(lane, "\x00")
		prefix = where + "\x00"
	}
	for l, g := range p.grants {
		if strings.HasPrefix(l, prefix) {
			n += g
		}
	}
	return n
}

// follow notes who waits for the worker of its session. mu must be held.
func (p *Partition) follow(a *attempt) {
	if !a.exclusive {
		return
	}
	id := a.req.boundSession()
	if p.followers[id] == nil {
		p.followers[id] = map[*attempt]struct{}{}
	}
	p.followers[id][a] = struct{}{}
}

// unfollow forgets who waits no more. mu must be held.
func (p *Partition) unfollow(a *attempt) {
	id := a.req.boundSession()
	delete(p.followers[id], a)
	if len(p.followers[id]) == 0 {
		delete(p.followers, id)
	}
}

// recall takes those out of the queue who wait for another worker than the one that
// their session is bound to now: they take the session again, and their arrival is
// their place. mu must be held.
func (p *Partition) recall(id string, now affinity.Target) {
	for a := range p.followers[id] {
		if *a.bound == now {
			continue
		}
		p.unfollow(a)
		p.queue.Remove(&a.waiting.place)
		a.waiting.state = notWaiting
		p.sendBack(a)
		close(a.waiting.wake)
	}
}
