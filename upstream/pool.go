package upstream

import (
	"slices"
	"sync"
	"time"
)

// pool keeps unused connections, the latest used on top, by address.
type pool struct {
	maxPerHost int
	timeout    time.Duration
	counters   *counters

	mu     sync.RWMutex // guards hosts, closed
	hosts  map[string]*host
	closed bool
}

type host struct {
	mu   sync.Mutex // guards idle, dead
	idle []*conn
	dead bool // removed from the pool; takes no connection
}

// get returns the connection to addr that was used last and is still usable,
// or nil.
func (p *pool) get(addr string) *conn {
	p.mu.RLock()
	h := p.hosts[addr]
	p.mu.RUnlock()
	if h == nil {
		return nil
	}
	oldest := time.Now().Add(-p.timeout)
	for {
		c := h.pop()
		if c == nil {
			return nil
		}
		p.counters.idle.Add(-1)
		// Bytes that nobody asked for would be taken for the next answer.
		if c.idleSince.After(oldest) && c.probe.isQuiet() {
			return c
		}
		p.drop(c)
	}
}

// put keeps a connection or closes it.
func (p *pool) put(c *conn) {
	c.rest(time.Now())
	p.counters.idle.Add(1)
	for range 2 { // a second time if the host was removed meanwhile
		h := p.hostOf(c.addr)
		if h == nil {
			break
		}
		kept, dead := h.push(c, p.maxPerHost)
		if kept {
			return
		}
		if !dead {
			break
		}
	}
	p.counters.idle.Add(-1)
	p.drop(c)
}

// hostOf returns the host entry, made if need be, or nil of a closed pool.
func (p *pool) hostOf(addr string) *host {
	p.mu.RLock()
	h, closed := p.hosts[addr], p.closed
	p.mu.RUnlock()
	if h != nil || closed {
		return h
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	if h = p.hosts[addr]; h == nil {
		h = &host{}
		p.hosts[addr] = h
	}
	return h
}

// sweep closes connections that have been unused since before oldest and
// forgets hosts that have none left.
func (p *pool) sweep(oldest time.Time) {
	var expired []*conn
	p.mu.Lock()
	for addr, h := range p.hosts {
		h.mu.Lock()
		n := 0
		for n < len(h.idle) && !h.idle[n].idleSince.After(oldest) { // the oldest are at the bottom
			n++
		}
		expired = append(expired, h.idle[:n]...)
		h.idle = slices.Delete(h.idle, 0, n)
		if len(h.idle) == 0 {
			h.dead = true
			delete(p.hosts, addr)
		}
		h.mu.Unlock()
	}
	p.mu.Unlock()
	for _, c := range expired {
		p.counters.idle.Add(-1)
		p.drop(c)
	}
}

// close closes all unused connections; later ones are closed when put.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.sweep(time.Now().Add(time.Hour))
}

func (p *pool) isClosed() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.closed
}

func (p *pool) drop(c *conn) {
	_ = c.nc.Close()
	p.counters.open.Add(-1)
}

func (h *host) pop() *conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.idle)
	if n == 0 {
		return nil
	}
	c := h.idle[n-1]
	h.idle[n-1] = nil
	h.idle = h.idle[:n-1]
	return c
}

func (h *host) push(c *conn, limit int) (kept, dead bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead || len(h.idle) >= limit {
		return false, h.dead
	}
	h.idle = append(h.idle, c)
	return true, false
}
