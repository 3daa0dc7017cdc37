package upstream

import (
	"context"
	"fmt"
	"io"

	"github.com/valyala/fasthttp"
)

// maxAnswer bounds the answer that Post reads, in bytes.
const maxAnswer = 64 << 20

// Post sends a JSON body to a path of the worker whose base URL is endpoint and
// returns the answer's status and whole body, which the caller owns. It ends
// when ctx does. It neither asks nor tells the worker's breaker, which is about
// the requests of clients: what a worker says to another path is no sign of how
// it serves those.
func (c *Client) Post(ctx context.Context, endpoint, path string, body []byte) (status int, answer []byte, err error) {
	ep, err := ParseEndpoint(endpoint)
	if err != nil {
		return 0, nil, err
	}
	return c.post(ctx, ep, path, "application/json", "", body)
}

// PostBytes is Post of a body of no text to any endpoint, with a bearer token where that
// is not empty.
func (c *Client) PostBytes(ctx context.Context, ep Endpoint, path, token string, body []byte) (status int, answer []byte, err error) {
	return c.post(ctx, ep, path, "application/octet-stream", token, body)
}

func (c *Client) post(ctx context.Context, ep Endpoint, path, kind, token string, body []byte) (status int, answer []byte, err error) {
	req := fasthttp.AcquireRequest()
	defer fasthttp.ReleaseRequest(req)
	req.Header.SetMethod(fasthttp.MethodPost)
	req.Header.SetContentType(kind)
	if token != "" {
		req.Header.Set(fasthttp.HeaderAuthorization, "Bearer "+token)
	}
	req.SetRequestURI(path)
	req.SetBodyRaw(body)
	var hdr fasthttp.ResponseHeader
	var call Call
	stop := context.AfterFunc(ctx, call.Cancel)
	defer stop()
	if err := c.prepare(&call, ep, req); err != nil {
		return 0, nil, err
	}
	if err := c.do(&call, ep, req, &hdr); err != nil {
		return 0, nil, err
	}
	read := &call.body
	defer func() { _ = read.Close() }() // what was not read to its end is closed with the connection
	answer, err = io.ReadAll(io.LimitReader(read, maxAnswer+1))
	if err != nil {
		return 0, nil, fmt.Errorf("post to %s: %w", path, err)
	}
	if len(answer) > maxAnswer {
		return 0, nil, fmt.Errorf("post to %s: answer over %d bytes", path, maxAnswer)
	}
	return hdr.StatusCode(), answer, nil
}
