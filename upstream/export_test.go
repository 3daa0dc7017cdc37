package upstream

import (
	"bufio"
	"io"
)

// NewChunkedReader returns the reader of chunked bodies over r.
func NewChunkedReader(r io.Reader, buffer int) io.Reader {
	return &chunkedReader{r: bufio.NewReaderSize(r, buffer)}
}
