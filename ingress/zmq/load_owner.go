package zmq

import (
	"context"
	"fmt"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/routerd/routerd/ingress/wire"
)

const (
	// loadTopic is the topic of load messages.
	loadTopic = "load"
	// loadPace is how often the load sockets are looked at. An engine tells its load
	// once a second or when it changed, and only the newest counts: so a look for all
	// sockets at once costs less than one for each message.
	loadPace = 50 * time.Millisecond
	// loadHWM is how many messages of a socket wait to be read; engines keep as few.
	loadHWM = 8
	// loadPerTurn is how many messages of one socket are read at a look.
	loadPerTurn = 64
	// maxLoadBytes is the largest load message.
	maxLoadBytes = 4 << 10
	// loadSilence is how long a socket may be silent before it is opened anew; doubled
	// each time in a row up to loadSilenceMax. ZeroMQ does not connect again after a
	// message that is too large or no message at all, and tells nobody.
	loadSilence    = 10 * time.Second
	loadSilenceMax = 5 * time.Minute
	// loadRetry is how long a socket that could not be opened is left alone.
	loadRetry = time.Second
)

// loadOwner is what Run's goroutine owns.
type loadOwner struct {
	*LoadListener
	zctx   *zmq4.Context // nil until the first socket
	poller *zmq4.Poller
	open   map[*loadSource]struct{} // those that Run knows of, with or without a socket
	ready  map[*zmq4.Socket]*loadSource
	looks  *time.Ticker // nil while there is nothing to look at
}

func (o *loadOwner) run(ctx context.Context) error {
	for {
		var due <-chan time.Time
		if o.looks != nil {
			due = o.looks.C
		}
		select {
		case <-ctx.Done():
			return nil
		case <-o.wake:
			if err := o.follow(); err != nil {
				return err
			}
		case now := <-due:
			if err := o.look(now); err != nil {
				return err
			}
		}
	}
}

// follow opens and closes sockets as they are wanted.
func (o *loadOwner) follow() error {
	o.mu.Lock()
	gone := o.gone
	o.gone = nil
	var fresh []*loadSource
	for _, s := range o.sources {
		if _, ok := o.open[s]; !ok {
			fresh = append(fresh, s)
		}
	}
	o.mu.Unlock()
	for _, s := range gone {
		o.drop(s)
	}
	if o.zctx == nil && len(fresh) > 0 {
		zctx, err := zmq4.NewContext()
		if err != nil {
			return fmt.Errorf("run load listener: %w", err)
		}
		o.zctx, o.poller = zctx, zmq4.NewPoller()
		if err := zctx.SetMaxSockets(maxSockets); err != nil {
			return fmt.Errorf("run load listener: set the number of sockets: %w", err)
		}
	}
	for _, s := range fresh {
		o.open[s] = struct{}{}
		s.patience = o.silence
		o.start(s)
	}
	o.pace()
	return nil
}

// pace has the sockets looked at while there are any: without, Run sleeps.
func (o *loadOwner) pace() {
	switch {
	case len(o.open) > 0 && o.looks == nil:
		o.looks = time.NewTicker(loadPace)
	case len(o.open) == 0 && o.looks != nil:
		o.looks.Stop()
		o.looks = nil
	}
}

// start opens a source's socket, or sees to another try.
func (o *loadOwner) start(s *loadSource) {
	sub, err := o.connect(s.endpoint)
	if err != nil {
		s.retryAt = time.Now().Add(loadRetry)
		if err.Error() != s.refused {
			s.refused = err.Error()
			o.log.Error("cannot listen to load", "worker", s.name, "rank", s.worker.Rank, "err", err)
		}
		return
	}
	s.sub, s.refused, s.since = sub, "", time.Now()
	o.ready[sub] = s
	o.poller.Add(sub, zmq4.POLLIN)
	o.metrics.sockets.Inc()
}

func (o *loadOwner) connect(endpoint string) (*zmq4.Socket, error) {
	sub, err := o.zctx.NewSocket(zmq4.SUB)
	if err != nil {
		return nil, fmt.Errorf("make socket: %w", err)
	}
	for _, err := range []error{prepareSocket(sub, &o.cfg, &o.keys, maxLoadBytes, endpoint), sub.SetRcvhwm(loadHWM), sub.SetSubscribe(loadTopic)} {
		if err != nil {
			closeSocket(sub)
			return nil, fmt.Errorf("set up socket: %w", err)
		}
	}
	if err := sub.Connect(endpoint); err != nil {
		closeSocket(sub)
		return nil, fmt.Errorf("connect to %q: %w", endpoint, err)
	}
	return sub, nil
}

// look reads what has come.
func (o *loadOwner) look(now time.Time) error {
	for s := range o.open {
		switch {
		case s.sub == nil && !now.Before(s.retryAt):
			o.start(s)
		case s.sub != nil && now.Sub(s.since) > s.patience:
			s.patience = min(2*s.patience, loadSilenceMax)
			o.stop(s)
			o.start(s)
		}
	}
	if len(o.ready) == 0 {
		return nil
	}
	polled, err := o.poller.Poll(0)
	if err != nil && !interrupted(err) {
		return fmt.Errorf("run load listener: poll sockets: %w", err)
	}
	for _, p := range polled {
		if s := o.ready[p.Socket]; s != nil {
			o.read(s)
		}
	}
	return nil
}

// read hands on the newest of a source's messages.
func (o *loadOwner) read(s *loadSource) {
	var newest Load
	some := false
	for range loadPerTurn {
		frames, err := s.sub.RecvMessageBytes(zmq4.DONTWAIT)
		if err != nil {
			break
		}
		o.metrics.messages.Inc()
		l, err := parseLoad(frames)
		if err != nil {
			o.metrics.dropped.Inc()
			continue
		}
		newest, some = l, true
	}
	if some {
		newest.At = time.Now()
		s.since, s.patience = newest.At, o.silence
		o.sink(s.worker, newest)
	}
}

// parseLoad reads the frames of a load message.
func parseLoad(frames [][]byte) (Load, error) {
	_, payload, err := wire.ParseLive(frames)
	if err != nil {
		return Load{}, err
	}
	if string(frames[0]) != loadTopic {
		return Load{}, fmt.Errorf("read load message: %w: another topic", wire.ErrCorrupt)
	}
	l, err := wire.DecodeLoad(payload)
	return Load{Load: l}, err
}

// drop closes a source.
func (o *loadOwner) drop(s *loadSource) {
	delete(o.open, s)
	o.stop(s)
	close(s.closed)
}

// stop closes a source's socket, if it has one.
func (o *loadOwner) stop(s *loadSource) {
	if s.sub == nil {
		return
	}
	delete(o.ready, s.sub)
	_ = o.poller.RemoveBySocket(s.sub) // it was added by start
	closeSocket(s.sub)
	s.sub = nil
	o.metrics.sockets.Dec()
}

// close ends everything: nobody waits for it in vain.
func (o *loadOwner) close() error {
	o.mu.Lock()
	o.running, o.ended = false, true
	gone := o.gone
	o.gone = nil
	o.mu.Unlock()
	for _, s := range gone {
		o.drop(s)
	}
	for s := range o.open {
		o.drop(s)
	}
	o.pace()
	if o.zctx == nil {
		return nil
	}
	return terminate(o.zctx)
}
