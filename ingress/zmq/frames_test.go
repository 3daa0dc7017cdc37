package zmq_test

import (
	"runtime"
	"testing"

	"github.com/routerd/routerd/internal/testkit"
	"github.com/routerd/routerd/kvcache"
)

// A message of very many frames is nothing that an engine sends; what it took is given back.
func TestAMessageOfVeryManyFramesLeavesNothing(t *testing.T) {
	p, s := newPublisher(t, false), newSink()
	in := start(t, quick())
	listen(t, in, p, s)
	frames := make([][]byte, 20_000)
	const messages = 16
	before := testkit.Heap()
	for range messages {
		p.frames(frames...)
	}
	testkit.Until(t, "all are dropped", func() bool {
		return status(t, in).Dropped[kvcache.DropCorruptMessage.String()] == messages
	})
	if left := testkit.Heap() - before; left > 1<<20 {
		t.Errorf("%d bytes are left", left)
	}
	runtime.KeepAlive(frames)
}
