package health

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"
)

const (
	maxHead = 64 << 10 // bytes of an answer that are read at most
	// farewell is how long a probe waits for the engine to end the connection, which
	// it does at once: to cut it would look like a fault in the engine's log.
	farewell = 100 * time.Millisecond
)

// asker asks a worker for its health.
type asker interface {
	// ask returns the answer of base+path, or what came instead, by ctx's end.
	ask(ctx context.Context, base, path string) (answer, error)
}

// dialler asks over HTTP, each time on a new connection: an engine that takes no
// connections is not well, and an idle one to each of thousands of engines would be
// a burden for all.
type dialler struct{ net.Dialer }

// ask sends one GET. The error is the cause of a failure, for a log; it may name the
// address.
func (d *dialler) ask(ctx context.Context, base, path string) (answer, error) {
	at, err := url.Parse(base)
	if err != nil {
		return answer{result: resultUnreachable}, err
	}
	conn, err := d.DialContext(ctx, "tcp", at.Host)
	if err != nil {
		return answer{result: classify(err, resultUnreachable)}, err
	}
	defer func() { _ = conn.Close() }() // nothing is lost when closing fails
	cut := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer cut()
	host := at.Host
	if zone := strings.IndexByte(host, '%'); zone >= 0 { // means nothing to the other side
		host = host[:zone] + host[strings.IndexByte(host, ']'):]
	}
	_, err = io.WriteString(conn, "GET "+at.EscapedPath()+path+" HTTP/1.1\r\nHost: "+host+
		"\r\nUser-Agent: routerd\r\nAccept: */*\r\nConnection: close\r\n\r\n")
	if err != nil {
		return answer{result: classify(err, resultBroken)}, err
	}
	limited := &io.LimitedReader{R: conn, N: maxHead}
	in := bufio.NewReaderSize(limited, 1<<10)
	status, err := readStatus(in)
	if err != nil {
		return answer{result: classify(err, resultBroken)}, err
	}
	if status < 200 || status > 299 {
		return answer{result: resultStatus, status: status}, nil
	}
	if cut() {
		_ = conn.SetReadDeadline(time.Now().Add(farewell)) // the answer is known whatever comes
		_, _ = io.Copy(io.Discard, in)
	}
	return answer{}, nil
}

var errNoHTTP = errors.New("the answer is no HTTP/1")

// readStatus reads the final status of an answer; interim ones are passed over. What
// follows the head stays in in.
func readStatus(in *bufio.Reader) (int, error) {
	for {
		resp, err := http.ReadResponse(in, nil) //nolint:bodyclose // whoever closes the connection ends the body
		switch {
		case err != nil:
			return 0, err
		case resp.ProtoMajor != 1 || resp.StatusCode < 100:
			return 0, errNoHTTP
		case resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols:
			return resp.StatusCode, nil
		}
	}
}

// classify names the kind of an error; otherwise is what it is when it is nothing
// special.
func classify(err error, otherwise result) result {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return resultRefused
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		return resultTimeout
	}
	return otherwise
}
