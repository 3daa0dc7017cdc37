package bench_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/upstream"
)

// serveRelay is the least that a proxy of this make can be: fasthttp's server,
// the router's own client to workers, round robin, and nothing else. It watches
// no client, strips no header, reads no body.
func serveRelay(urls []string) ([]string, func() error, error) {
	var endpoints []upstream.Endpoint
	for _, u := range urls {
		ep, err := upstream.ParseEndpoint("http://" + u)
		if err != nil {
			return nil, nil, err
		}
		endpoints = append(endpoints, ep)
	}
	client := upstream.New(upstream.DefaultConfig())
	var next atomic.Uint64
	addrs, stop, err := serveHTTP(1, func(ctx *fasthttp.RequestCtx) {
		ep := endpoints[next.Add(1)%uint64(len(endpoints))]
		relay(ctx, client, ep)
	})
	if err != nil {
		return nil, nil, err
	}
	background, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var runErr error
	running.Go(func() { runErr = client.Run(background) })
	return addrs, func() error {
		err := stop()
		cancel()
		running.Wait()
		client.Close()
		return errors.Join(err, runErr)
	}, nil
}

func relay(ctx *fasthttp.RequestCtx, client *upstream.Client, ep upstream.Endpoint) {
	body, err := client.Do(&upstream.Call{}, ep, &ctx.Request, &ctx.Response.Header)
	if err != nil {
		ctx.Error("bad gateway", fasthttp.StatusBadGateway)
		return
	}
	if body.Size() < 0 {
		ctx.Response.SetBodyStream(body, -1)
		return
	}
	whole, err := body.AppendTo(make([]byte, 0, body.Size()+1), 64<<20)
	if err = errors.Join(err, body.Close()); err != nil {
		ctx.Error("bad gateway", fasthttp.StatusBadGateway)
		return
	}
	ctx.Response.SetBodyRaw(whole)
}
