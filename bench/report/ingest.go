package main

import (
	"errors"
	"fmt"
	"strings"
)

// ingestReport is ingest.md.
func ingestReport(file string) (string, error) {
	all, err := read(file)
	if err != nil {
		return "", err
	}
	for _, l := range all {
		if l.Benchmark == "BenchmarkIngest" {
			return ingestPage(l), nil
		}
	}
	return "", errors.New("read figures: none of BenchmarkIngest")
}

// ingestBudget is what a message may cost when they come as fast as they can be sent, in microseconds.
const ingestBudget = 12

func ingestPage(l line) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<!-- Written by make bench-ingest. -->
# KV events from the socket to the index

    make bench-ingest

%s

%s
| form of the events | bytes a message | flat out, µs a message | budget of %d µs | flat out, ns a block | 5,000 a second, µs a message |
|---|---|---|---|---|---|
`, measured([]line{l}), ingestMethod, ingestBudget)
	for _, form := range []struct{ key, label string }{{"array", "arrays, vLLM up to 0.23"}, {"map", "maps, vLLM 0.33"}} {
		f := l.Figures[form.key]
		budget := "met"
		if f["cpu-us/message"] > ingestBudget {
			budget = "not met"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", form.label, digits(f["bytes/message"]),
			spanned(f, "cpu-us/message"), budget, spanned(f, "cpu-ns/block"), spanned(f, "paced-cpu-us/message"))
	}
	return b.String()
}

const ingestMethod = `CPU time, user and system, of a process that does nothing but take events in: ` + "`zmq.DirectIngress`" + ` with its default
configuration, from four publishers, into one ` + "`indexer/exact`" + `; ZeroMQ's own threads, decoding, hashing of the tokens and
collections are in it. The publishers are real PUB sockets (libzmq) in another process, whose time does not count. A message
is one ` + "`BlockStored`" + ` of 16 blocks of 16 tokens, in chains of 512 blocks, nothing stored twice. Flat out are 20,000 messages
as fast as they can be sent; at 5,000 a second nearly each message is waited for, so that waking up is in its time. A round
in which a message is missing, or in which the index does not have all blocks at the end, ends the benchmark. Medians of
five rounds [least–most].
`
