package upstream

import (
	"bufio"
	"io"
	"net"

	"github.com/valyala/fasthttp"
)

// NewChunkedReader returns the reader of chunked bodies over r.
func NewChunkedReader(r io.Reader, buffer int) io.Reader {
	return &chunkedReader{r: bufio.NewReaderSize(r, buffer)}
}

// Socket returns the connection that b is read from.
func Socket(b *Body) net.Conn { return b.conn.nc }

// ReadHead reads the head of an answer from r.
func ReadHead(r io.Reader, hdr *fasthttp.ResponseHeader) error {
	c := &conn{}
	c.br = bufio.NewReaderSize(r, 1024)
	return c.readHead(hdr)
}
