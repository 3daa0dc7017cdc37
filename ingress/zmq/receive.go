package zmq

/*
#cgo pkg-config: libzmq
#include <stdint.h>
#include <string.h>
#include <zmq.h>

enum { MESSAGES = 16, FRAMES = 5 };

// Some messages. Of each, frames are its first frames, FRAMES of them at most.
typedef struct {
	zmq_msg_t frames[MESSAGES][FRAMES];
	uint32_t counts[MESSAGES];
	uint32_t sizes[MESSAGES][FRAMES];
	uint32_t messages;
	uint64_t bytes;
} batch;

// Takes what has come, until there are MESSAGES, or most bytes or more.
static void take(void *socket, uint64_t most, batch *b) {
	b->messages = 0;
	b->bytes = 0;
	while (b->messages < MESSAGES && b->bytes < most) {
		uint32_t m = b->messages, n = 0;
		int more = 1;
		while (more) {
			zmq_msg_t beyond, *frame = n < FRAMES ? &b->frames[m][n] : &beyond;
			zmq_msg_init(frame);
			int size = zmq_msg_recv(frame, socket, ZMQ_DONTWAIT);
			if (size < 0) {
				zmq_msg_close(frame);
				while (n-- > 0) {
					b->bytes -= b->sizes[m][n];
					zmq_msg_close(&b->frames[m][n]);
				}
				return;
			}
			more = zmq_msg_more(frame);
			if (n == FRAMES) {
				zmq_msg_close(frame);
				continue;
			}
			b->sizes[m][n++] = (uint32_t)size;
			b->bytes += (uint64_t)size;
		}
		b->counts[m] = n;
		b->messages++;
	}
}

// Copies all frames, one behind the other, and lets go of them.
static void hand(batch *b, char *to) {
	for (uint32_t m = 0; m < b->messages; m++)
		for (uint32_t f = 0; f < b->counts[m]; f++) {
			memcpy(to, zmq_msg_data(&b->frames[m][f]), b->sizes[m][f]);
			to += b->sizes[m][f];
			zmq_msg_close(&b->frames[m][f]);
		}
}
*/
import "C"

import (
	"reflect"
	"runtime"
	"slices"
	"unsafe"

	zmq4 "github.com/pebbe/zmq4"
)

const (
	// perReceive is how many messages are received at once, unless they have perReceiveBytes or more before.
	perReceive      = C.MESSAGES
	perReceiveBytes = 1 << 20
)

// receiver takes messages from sockets, many by a call: zmq4 calls into C six times for each frame, which for KV events
// is more work than to decode them.
type receiver struct {
	batch  C.batch
	buf    []byte // what the frames are copied to
	frames [perReceive * C.FRAMES][]byte
	some   [perReceive][][]byte
}

// receive takes some of the messages that have come to a socket, none when none is there. They are valid until the next
// call. Of a message's frames there are the first five: engines send four at most.
func (r *receiver) receive(s *zmq4.Socket) [][][]byte {
	b := &r.batch
	C.take(handle(s), perReceiveBytes, b)
	runtime.KeepAlive(s)
	buf := r.room(int(b.bytes))
	C.hand(b, (*C.char)(unsafe.Pointer(unsafe.SliceData(buf))))
	clear(r.frames[:])
	n := 0
	for m := range b.messages {
		first := n
		for _, size := range b.sizes[m][:b.counts[m]] {
			r.frames[n] = buf[:size:size]
			buf = buf[size:]
			n++
		}
		r.some[m] = r.frames[first:n:n]
	}
	return r.some[:b.messages]
}

// room returns memory for the frames, which is kept unless it is much.
func (r *receiver) room(size int) []byte {
	if size > perReceiveBytes {
		return make([]byte, size)
	}
	r.buf = slices.Grow(r.buf[:0], size)
	return r.buf[:size]
}

// handle is ZeroMQ's own handle of a socket, which zmq4 keeps to itself.
func handle(s *zmq4.Socket) unsafe.Pointer {
	return reflect.ValueOf(s).Elem().FieldByIndex(handleField).UnsafePointer()
}

var handleField = func() []int {
	f, ok := reflect.TypeFor[zmq4.Socket]().FieldByName("soc")
	if !ok {
		panic("zmq: zmq4.Socket keeps ZeroMQ's handle elsewhere")
	}
	return f.Index
}()
