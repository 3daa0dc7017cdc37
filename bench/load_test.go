package bench_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// request is a chat completion of size bytes, as it goes over the wire.
func request(size int, stream bool, tokens int) []byte {
	head := fmt.Sprintf(`{"model":"m","stream":%t,"max_tokens":%d,"messages":[{"role":"user","content":"`, stream, tokens)
	const tail = `"}]}`
	content := strings.Repeat("lorem ipsum ", size/12+1)[:size-len(head)-len(tail)]
	return fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s%s%s",
		size, head, content, tail)
}

// caller is one keep-alive connection. It speaks as much HTTP as is needed and
// costs the same whatever answers.
type caller struct {
	conn net.Conn
	r    *bufio.Reader
	body []byte // of the latest answer
}

func dial(addr string) (*caller, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &caller{conn: conn, r: bufio.NewReaderSize(conn, 16<<10)}, nil
}

// do sends a request and reads the answer whole. It returns the time until the
// first byte of the answer's body. Any status but 200 is an error.
func (c *caller) do(request []byte) (first time.Duration, err error) {
	begun := time.Now()
	if err := c.conn.SetDeadline(begun.Add(30 * time.Second)); err != nil {
		return 0, err
	}
	if _, err := c.conn.Write(request); err != nil {
		return 0, err
	}
	size, err := c.readHead()
	if err != nil {
		return 0, err
	}
	if _, err := c.r.Peek(1); err != nil {
		return 0, err
	}
	first = time.Since(begun)
	c.body = c.body[:0]
	if size >= 0 {
		return first, c.take(size)
	}
	return first, c.readChunks()
}

// readHead returns the length of the body, -1 for chunks.
func (c *caller) readHead() (int, error) {
	size := -2
	for lines := 0; ; lines++ {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimSpace(line)
		if lines == 0 && !bytes.HasPrefix(line, []byte("HTTP/1.1 200")) {
			return 0, fmt.Errorf("answer begins %q", line)
		}
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case bytes.EqualFold(name, []byte("content-length")):
			if size, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, err
			}
		case bytes.EqualFold(name, []byte("transfer-encoding")):
			size = -1
		}
	}
	if size == -2 {
		return 0, errors.New("the answer has neither a length nor chunks")
	}
	return size, nil
}

func (c *caller) readChunks() error {
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return err
		}
		n, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 31)
		if err != nil {
			return err
		}
		if err := c.take(int(n)); err != nil {
			return err
		}
		if _, err := c.r.Discard(2); err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
	}
}

func (c *caller) take(n int) error {
	at := len(c.body)
	c.body = slices.Grow(c.body, n)[:at+n]
	_, err := io.ReadFull(c.r, c.body[at:])
	return err
}

// crowd is a fixed number of callers, in turns over the addresses.
type crowd []*caller

func assemble(callers int, addrs []string) (crowd, error) {
	var c crowd
	for i := range callers {
		one, err := dial(addrs[i%len(addrs)])
		if err != nil {
			return c, errors.Join(err, c.close())
		}
		c = append(c, one)
	}
	return c, nil
}

func (c crowd) close() error {
	var errs []error
	for _, one := range c {
		errs = append(errs, one.conn.Close())
	}
	return errors.Join(errs...)
}

// run lets each caller send count requests, one after the other, all callers at
// once. It returns the time that took and each request's time to the first
// byte, sorted.
func (c crowd) run(request []byte, count int) (took time.Duration, first []time.Duration, err error) {
	first = make([]time.Duration, len(c)*count)
	errs := make([]error, len(c))
	var all sync.WaitGroup
	begun := time.Now()
	for i, one := range c {
		all.Go(func() {
			for k := range count {
				if first[i*count+k], errs[i] = one.do(request); errs[i] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	took = time.Since(begun)
	slices.Sort(first)
	return took, first, errors.Join(errs...)
}
