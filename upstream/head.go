package upstream

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	"github.com/valyala/fasthttp"
)

const (
	// maxHead bounds the head of an answer in bytes.
	maxHead = 64 << 10
	// maxInterim bounds the 1xx answers before the final one.
	maxInterim = 16
)

// framingFields are removed from a request before its length is set.
var framingFields = [...]string{fasthttp.HeaderTransferEncoding}

// writeHead serialises the head of req into c.head, with the endpoint's host
// and path prefix and the framing of body.
func (c *conn) writeHead(ep Endpoint, req *fasthttp.Request, body []byte) {
	h := &req.Header
	h.SetProtocol("HTTP/1.1")
	h.SetNoDefaultContentType(true)
	h.SetHost(ep.host)
	remove(h, framingFields[:], nil) // SetContentLength would do it, but reorder repeated fields
	h.SetContentLength(len(body))
	if len(body) == 0 && (h.IsGet() || h.IsHead()) {
		h.Del(fasthttp.HeaderContentLength)
	}
	c.head = h.AppendBytes(c.head[:0])
	if n := len(ep.prefix); n > 0 {
		at := len(h.Method()) + 1
		c.head = append(c.head, ep.prefix...)
		copy(c.head[at+n:], c.head[at:len(c.head)-n])
		copy(c.head[at:], ep.prefix)
	}
}

// checkRequest refuses what cannot be sent as one self-contained message.
func checkRequest(req *fasthttp.Request) error {
	h := &req.Header
	switch {
	case req.IsBodyStream():
		return fmt.Errorf("%w: the body is a stream", ErrBadRequest)
	case h.IsConnect():
		return fmt.Errorf("%w: method CONNECT", ErrBadRequest)
	case len(h.Method()) == 0:
		return fmt.Errorf("%w: no method", ErrBadRequest)
	}
	uri := h.RequestURI()
	if len(uri) == 0 || uri[0] != '/' {
		return fmt.Errorf("%w: the request target must be a path", ErrBadRequest)
	}
	for _, b := range uri {
		if b <= ' ' || b == 0x7f {
			return fmt.Errorf("%w: control byte or space in the request target", ErrBadRequest)
		}
	}
	return nil
}

// readHead reads the head of the final answer into hdr and skips interim
// ones. It leaves the first byte of the body next.
func (c *conn) readHead(hdr *fasthttp.ResponseHeader) error {
	for range maxInterim {
		head, err := c.peekHead()
		if err != nil {
			return err
		}
		if err := checkHead(head); err != nil {
			return err
		}
		if err := hdr.Read(c.reader()); err != nil {
			// The parser's text quotes the answer: only the fact goes on.
			return fmt.Errorf("%w: status line or a header", ErrMalformed)
		}
		switch status := hdr.StatusCode(); {
		case status == fasthttp.StatusSwitchingProtocols:
			return fmt.Errorf("%w: switches protocols unasked", ErrMalformed)
		case status >= 200:
			return nil
		case status < 100:
			return fmt.Errorf("%w: status %d", ErrMalformed, status)
		}
	}
	return fmt.Errorf("%w: more than %d interim answers", ErrMalformed, maxInterim)
}

// peekHead waits for a complete head and returns it, still buffered. The
// buffer is valid until the next read.
func (c *conn) peekHead() ([]byte, error) {
	r, searched := c.reader(), 0
	for {
		buf, _ := r.Peek(r.Buffered())
		if !beginsLikeHTTP(buf) {
			return nil, fmt.Errorf("%w: not HTTP/1", ErrMalformed)
		}
		from := max(0, searched-3)
		if i := bytes.Index(buf[from:], []byte("\r\n\r\n")); i >= 0 {
			return buf[:from+i+4], nil
		}
		searched = len(buf)
		if len(buf) == r.Size() {
			if len(buf) >= maxHead {
				return nil, ErrHeadTooLarge
			}
			c.big = bufio.NewReaderSize(c.br, maxHead)
			r, searched = c.big, 0
			continue
		}
		if _, err := r.Peek(len(buf) + 1); err != nil {
			if err == io.EOF && c.got > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
}

func beginsLikeHTTP(buf []byte) bool {
	const proto = "HTTP/1."
	n := min(len(buf), len(proto))
	return string(buf[:n]) == proto[:n]
}

// checkHead refuses what the parser lets pass although two readers could
// disagree on where the body ends: both framing headers, chunks in HTTP/1.0,
// line ends without CR.
func checkHead(head []byte) error {
	if len(head) < 9 || (head[7] != '0' && head[7] != '1') || head[8] != ' ' {
		return fmt.Errorf("%w: not HTTP/1.0 or 1.1", ErrMalformed)
	}
	var length, encoding bool
	for rest := head; len(rest) > 0; {
		i := bytes.IndexByte(rest, '\n')
		if i < 1 || rest[i-1] != '\r' {
			return fmt.Errorf("%w: line end without CR", ErrMalformed)
		}
		line := rest[:i-1]
		rest = rest[i+1:]
		if len(line) == 0 {
			continue
		}
		switch line[0] | 0x20 {
		case 'c':
			length = length || isField(line, "content-length")
		case 't':
			encoding = encoding || isField(line, "transfer-encoding")
		}
	}
	if length && encoding {
		return fmt.Errorf("%w: both Content-Length and Transfer-Encoding", ErrMalformed)
	}
	if encoding && head[7] == '0' {
		return fmt.Errorf("%w: Transfer-Encoding in HTTP/1.0", ErrMalformed)
	}
	return nil
}

// isField reports whether a header line has the given lower-case name,
// blanks before the colon included.
func isField(line []byte, name string) bool {
	if len(line) <= len(name) || !bytes.EqualFold(line[:len(name)], []byte(name)) {
		return false
	}
	rest := bytes.TrimLeft(line[len(name):], " \t")
	return len(rest) > 0 && rest[0] == ':'
}
