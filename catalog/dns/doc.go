// Package dns is the catalog source that asks a name server who the workers are:
// SRV records give hosts and ports, A and AAAA records addresses. One Source is one
// name; all its workers are alike but for where they are.
//
// A worker is named by the host and port of the answer, so that it keeps its name
// and id as long as these stay. Answers are sorted, and what stands twice in one is
// one worker. Weights and priorities of SRV records are not used: policies weigh.
// Where a name server is given, it is asked for the addresses of the hosts too, since
// the system's may not know them, and these are called; else the names are.
//
// An answer that cannot be had or used (no answer in time, SERVFAIL, REFUSED, a name
// that is none, a host whose address is asked for and that has none) is the loss of
// the source: its last list stays. An answer that says that there is nothing
// (NXDOMAIN, no record of the kind, an SRV record with the target ".") is believed
// only after a while, since a name server that has just started says that too: see
// Config.EmptyAfter. Nothing is cached, and the time to live of an answer is not
// looked at.
//
// What a Source starts ends with the call that started it. It is safe for concurrent use.
//
//	src := dns.New(cfg, dns.NewResolver(cfg.Server))
//	err := sources.Follow(ctx, src, catalog.DefaultFollowConfig())
package dns
