package scrape

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

const (
	maxHead    = 64 << 10 // bytes of an answer's head
	maxBody    = 8 << 20
	bufferSize = maxLine
)

// Why no http.Client: it keeps two goroutines for each idle connection, 10,000
// for 5,000 engines. A line keeps the connection alone and asks one thing at a
// time.

// line is the way to one engine, with at most one connection that is kept between
// questions. It belongs to whoever asks.
type line struct {
	route route
	dial  func(ctx context.Context, address string) (net.Conn, error)
	conn  net.Conn // nil when none is kept
}

// buffers are lent for the time of one question.
type buffers struct {
	sync.Pool
}

func (b *buffers) lend(r io.Reader) *bufio.Reader {
	if br, ok := b.Get().(*bufio.Reader); ok {
		br.Reset(r)
		return br
	}
	return bufio.NewReaderSize(r, bufferSize)
}

func (b *buffers) back(br *bufio.Reader) {
	br.Reset(nil)
	b.Put(br)
}

// statusError is an answer other than 200.
type statusError struct{ status int }

func (e *statusError) Error() string { return fmt.Sprintf("the engine answered %d", e.status) }

// errTooLarge is an answer above maxHead or maxBody.
var errTooLarge = errors.New("the answer is too large")

// dialError is an engine that cannot be reached.
type dialError struct{ err error }

func (e *dialError) Error() string { return "connect: " + e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// get asks for a path and has read the body of the answer, which it must not keep.
// It counts the bytes that came. A kept connection that the engine has closed is
// replaced once.
func (l *line) get(ctx context.Context, path string, b *buffers, read func(*bufio.Reader) error) (size int64, err error) {
	kept := l.conn != nil
	size, silent, err := l.once(ctx, path, b, read)
	if err != nil && kept && silent && ctx.Err() == nil {
		size, _, err = l.once(ctx, path, b, read)
	}
	return size, err
}

// once is one try. silent tells that not a byte came.
func (l *line) once(ctx context.Context, path string, b *buffers, read func(*bufio.Reader) error) (size int64, silent bool, err error) {
	conn := l.conn
	l.conn = nil
	if conn == nil {
		if conn, err = l.dial(ctx, l.route.address); err != nil {
			return 0, true, &dialError{err}
		}
	}
	if deadline, ok := ctx.Deadline(); ok {
		err = conn.SetDeadline(deadline)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	keep := false
	in := &limited{conn: conn, left: maxHead}
	if err == nil {
		keep, err = l.exchange(conn, in, path, b, read)
	}
	if !stop() || !keep || err != nil {
		_ = conn.Close() // nothing of it is needed any more
		return in.read, in.read == 0, err
	}
	l.conn = conn
	return in.read, false, nil
}

func (l *line) exchange(conn net.Conn, in *limited, path string, b *buffers, read func(*bufio.Reader) error) (keep bool, err error) {
	request := "GET " + l.route.path + path + " HTTP/1.1\r\nHost: " + l.route.host + "\r\nAccept: text/plain, application/json\r\nUser-Agent: routerd\r\n\r\n"
	if _, err := io.WriteString(conn, request); err != nil {
		return false, err
	}
	head := b.lend(in)
	defer b.back(head)
	resp, err := http.ReadResponse(head, nil)
	if err != nil {
		return false, in.cause(err)
	}
	defer func() { _ = resp.Body.Close() }() // the connection is what counts
	if resp.StatusCode != http.StatusOK {
		return false, &statusError{resp.StatusCode}
	}
	if resp.ContentLength > maxBody {
		return false, errTooLarge
	}
	in.left += maxBody
	body := b.lend(resp.Body)
	defer b.back(body)
	if err := read(body); err != nil {
		return false, in.cause(err)
	}
	if _, err := io.Copy(io.Discard, body); err != nil {
		return false, in.cause(err)
	}
	if in.left <= 0 {
		return false, errTooLarge
	}
	return !resp.Close && head.Buffered() == 0, nil
}

// close gives up the kept connection.
func (l *line) close() {
	if l.conn != nil {
		_ = l.conn.Close() // nothing of it is needed any more
		l.conn = nil
	}
}

// limited reads from a connection until so many bytes are left.
type limited struct {
	conn       net.Conn
	left, read int64
}

// Read implements io.Reader.
func (r *limited) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, errTooLarge
	}
	n, err := r.conn.Read(p[:min(int64(len(p)), r.left)])
	r.left -= int64(n)
	r.read += int64(n)
	return n, err
}

// cause is the error of reading that is to be told: that the limit was reached
// where it was, which http hides.
func (r *limited) cause(err error) error {
	if r.left <= 0 {
		return errTooLarge
	}
	return err
}

// resultOf sorts an error of a question.
func resultOf(err error) result {
	var status *statusError
	var dial *dialError
	switch {
	case err == nil:
		return answered
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return timedOut
	case errors.As(err, &dial):
		return unreachable
	case errors.As(err, &status):
		return badStatus
	case errors.Is(err, errTooLarge):
		return tooLarge
	case errors.Is(err, errNoLoad):
		return noLoad
	}
	return unreadable
}
