package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

const (
	maxChunkDigits = 15 // of a chunk's size, so that it fits an int64
	maxTrailer     = 16 << 10
)

// chunkedReader reads the payload of a chunked body and leaves the first byte
// after it next. Trailers are skipped.
type chunkedReader struct {
	r       *bufio.Reader
	state   chunkState
	left    int64 // bytes of the current chunk
	trailer int   // bytes of the trailer section so far
}

type chunkState uint8

const (
	chunkSize chunkState = iota
	chunkData
	chunkEnd
	chunkTrailer
	chunkDone
)

// Read waits for the first payload byte, then adds what the buffer holds and
// never waits for more. After the last byte it returns io.EOF, possibly
// together with data.
func (c *chunkedReader) Read(p []byte) (n int, err error) {
	for len(p) > 0 {
		switch c.state {
		case chunkSize:
			if n > 0 && !lineBuffered(c.r) {
				return n, nil
			}
			err = c.readSize()
		case chunkData:
			if n == len(p) || (n > 0 && c.r.Buffered() == 0) {
				return n, nil
			}
			var m int
			m, err = c.r.Read(p[n:min(int64(len(p)), int64(n)+c.left)])
			n += m
			if c.left -= int64(m); c.left == 0 {
				c.state = chunkEnd
			}
		case chunkEnd:
			if n > 0 && c.r.Buffered() < 2 {
				return n, nil
			}
			err = c.readEnd()
		case chunkTrailer:
			if n > 0 && !lineBuffered(c.r) {
				return n, nil
			}
			err = c.skipTrailer()
		case chunkDone:
			return n, io.EOF
		}
		if err != nil {
			return n, cut(err)
		}
	}
	return n, nil
}

// readSize reads a chunk's head: its size in hex and extensions, which are
// ignored.
func (c *chunkedReader) readSize() error {
	line, err := readLine(c.r)
	if err != nil {
		return err
	}
	digits, size := 0, int64(0)
	for _, b := range line {
		v, ok := hexDigit(b)
		if !ok {
			break
		}
		digits++
		size = size<<4 | int64(v)
		if digits > maxChunkDigits {
			return fmt.Errorf("%w: chunk size too large", ErrMalformed)
		}
	}
	rest := bytes.TrimLeft(line[digits:], " \t")
	if digits == 0 || (len(rest) > 0 && rest[0] != ';') {
		return fmt.Errorf("%w: chunk size", ErrMalformed)
	}
	c.left, c.state = size, chunkData
	if size == 0 {
		c.state = chunkTrailer
	}
	return nil
}

func (c *chunkedReader) readEnd() error {
	crlf, err := c.r.Peek(2)
	if err != nil {
		return err
	}
	if string(crlf) != "\r\n" {
		return fmt.Errorf("%w: chunk longer than its size", ErrMalformed)
	}
	_, err = c.r.Discard(2)
	c.state = chunkSize
	return err
}

func (c *chunkedReader) skipTrailer() error {
	line, err := readLine(c.r)
	if err != nil {
		return err
	}
	if c.trailer += len(line) + 2; c.trailer > maxTrailer {
		return fmt.Errorf("%w: trailers exceed %d bytes", ErrMalformed, maxTrailer)
	}
	if len(line) == 0 {
		c.state = chunkDone
	}
	return nil
}

// readLine returns the next line without its CR LF. A bare LF, a bare CR or a
// line beyond the buffer is refused. It is valid until the next read.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, fmt.Errorf("%w: line too long", ErrMalformed)
	}
	if err != nil {
		return nil, err
	}
	if n := len(line) - 2; n >= 0 && bytes.IndexByte(line, '\r') == n {
		return line[:n], nil
	}
	return nil, fmt.Errorf("%w: line end", ErrMalformed)
}

func lineBuffered(r *bufio.Reader) bool {
	buf, _ := r.Peek(r.Buffered())
	return bytes.IndexByte(buf, '\n') >= 0
}

func hexDigit(b byte) (v byte, ok bool) {
	switch {
	case b >= '0' && b <= '9':
		return b - '0', true
	case b >= 'a' && b <= 'f':
		return b - 'a' + 10, true
	case b >= 'A' && b <= 'F':
		return b - 'A' + 10, true
	}
	return 0, false
}

// cut turns the end of the connection inside a body into an error.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
