package zmq

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	zmq4 "github.com/pebbe/zmq4"

	"github.com/routerd/routerd/internal/testkit"
)

// pair is a sender and a receiver whose messages are there once they are sent.
func pair(t *testing.T) (from, to *zmq4.Socket) {
	t.Helper()
	zctx, err := zmq4.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := zctx.Term(); err != nil {
			t.Error(err)
		}
	})
	open := func(use func(s *zmq4.Socket) error) *zmq4.Socket {
		s, err := zctx.NewSocket(zmq4.PAIR)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeSocket(s) })
		if err := use(s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	to = open(func(s *zmq4.Socket) error { return s.Bind("inproc://pair") })
	from = open(func(s *zmq4.Socket) error { return s.Connect("inproc://pair") })
	return from, to
}

func send(t *testing.T, s *zmq4.Socket, frames ...[]byte) {
	t.Helper()
	if _, err := s.SendMessageDontwait(frames); err != nil {
		t.Fatal(err)
	}
}

// framed returns n frames of a size that differ from each other and from those of other messages.
func framed(message, n, size int) [][]byte {
	var all [][]byte
	for f := range n {
		all = append(all, bytes.Repeat([]byte{byte(16*message + f)}, size))
	}
	return all
}

func TestReceivedMessagesAreThoseThatWereSent(t *testing.T) {
	from, to := pair(t)
	var r receiver
	if got := r.receive(to); len(got) != 0 {
		t.Fatalf("received %d messages, none was sent", len(got))
	}
	var want [][][]byte
	for i, size := range []int{0, 1, 8, 29, 30, 33, 34, 64, 1210, 8192, 70_000} { // from 34 bytes on ZeroMQ keeps them elsewhere
		for n := 1; n <= 4; n++ {
			want = append(want, framed(i, n, size))
		}
	}
	want = append(want, [][]byte{{}, {1, 2}, {}, bytes.Repeat([]byte{7}, 3000)})
	for _, frames := range want {
		send(t, from, frames...)
	}
	var got [][][]byte
	for some := r.receive(to); len(some) > 0; some = r.receive(to) {
		if len(some) > perReceive {
			t.Errorf("received %d messages at once", len(some))
		}
		for _, frames := range some {
			got = append(got, nil)
			for _, f := range frames {
				got[len(got)-1] = append(got[len(got)-1], bytes.Clone(f))
			}
		}
	}
	if len(got) != len(want) {
		t.Fatalf("received %d messages, %d were sent", len(got), len(want))
	}
	for i := range want {
		if !slices.EqualFunc(got[i], want[i], bytes.Equal) {
			t.Errorf("message %d is not what was sent: %d frames, %d were sent", i, len(got[i]), len(want[i]))
		}
	}
}

func TestAReceivedFrameCannotGrowIntoTheNext(t *testing.T) {
	from, to := pair(t)
	var r receiver
	send(t, from, []byte("abc"), []byte("def"))
	send(t, from, []byte("ghi"))
	some := r.receive(to)
	_ = append(some[0][0], "xyz"...)
	if string(some[0][1]) != "def" {
		t.Errorf("the second frame is %q", some[0][1])
	}
	_ = append(some[0], nil)
	if string(some[1][0]) != "ghi" {
		t.Errorf("the second message is %q", some[1])
	}
}

func TestWhatWasReceivedIsLetGoWithTheNext(t *testing.T) {
	from, to := pair(t)
	r := new(receiver)
	for i := range perReceive {
		send(t, from, framed(i, 3, 10)...)
	}
	send(t, from, framed(1, 5, 10)...)
	r.receive(to)
	before := testkit.Heap()
	for i := range 3 {
		send(t, from, framed(i, 3, 10)...)
	}
	send(t, from, framed(3, 1, 64<<20)...)
	r.receive(to)
	send(t, from, framed(4, 3, 10)...)
	r.receive(to)
	if left := testkit.Heap() - before; left > 4<<20 {
		t.Errorf("%d MiB are left", left>>20)
	}
	runtime.KeepAlive(r)
}

func TestFramesBeyondTheFifthAreLeftOut(t *testing.T) {
	from, to := pair(t)
	var r receiver
	send(t, from, framed(1, 40, 100)...)
	send(t, from, framed(2, 3, 100)...)
	want := [][][]byte{framed(1, 5, 100), framed(2, 3, 100)}
	if diff := cmp.Diff(want, r.receive(to)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// What is received at once is bounded, and the memory for it is kept only up to that bound.
func TestManyBytesAreReceivedInParts(t *testing.T) {
	from, to := pair(t)
	var r receiver
	const size = perReceiveBytes/4 + 1
	for i := range 6 {
		send(t, from, framed(i, 1, size)...)
	}
	send(t, from, framed(6, 1, 3*perReceiveBytes)...)
	send(t, from, framed(7, 1, 10)...)
	var parts []string
	for some := r.receive(to); len(some) > 0; some = r.receive(to) {
		part := ""
		for _, frames := range some {
			part += fmt.Sprint(frames[0][0]>>4, " ")
		}
		parts = append(parts, part)
	}
	if want := []string{"0 1 2 3 ", "4 5 6 ", "7 "}; !slices.Equal(parts, want) {
		t.Errorf("received %q, want %q", parts, want)
	}
	if cap(r.buf) > 2*perReceiveBytes {
		t.Errorf("%d bytes are kept", cap(r.buf))
	}
}

func TestReceivingLeavesNothingWithZeroMQ(t *testing.T) {
	from, to := pair(t)
	var r receiver
	round := func() {
		send(t, from, framed(1, 8, 1<<20)...) // three of them are beyond the fifth
		for len(r.receive(to)) > 0 {
		}
	}
	for range 5 {
		round()
	}
	before := testkit.Resident(t)
	for range 100 {
		round()
	}
	if grown := testkit.Resident(t) - before; grown > 100<<20 {
		t.Errorf("grew by %d MiB while 800 MiB were received", grown>>20)
	}
}
