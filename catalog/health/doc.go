// Package health tells which workers are fit to serve: it asks each one's health
// route, hears from the proxies how their requests went, takes out who fails and
// lets him back slowly.
//
// A worker's part (machine) is pure: it is told results with their times. New
// workers are in rotation from their first success on; then Config.Failures in a
// row take them out and Config.Successes in a row bring them back. Config.Passive
// failures of real requests in a row, or an open breaker, take a worker out for a
// time that doubles with each ejection and halves with health; after it it
// needs one successful probe more or, without probes, is on trial: its next failure
// ejects it again. Workers with NoHealthCheck are left out of all this.
//
// Invariants: no more than Config.MaxEjected percent of a partition's workers are
// out at a time, and never the last one that could serve; who would go beyond stays
// in, longest out first out. Workers that have never answered, that drain or that
// lack something else count on neither side. A worker that left gets no probe.
//
// The reasons begin with one of these words:
//
//	starting             it has not answered since it was added; the last result follows,
//	                     which after Config.Grace takes it out
//	health_timeout       no answer within Config.Timeout
//	health_refused       nobody listens there
//	health_unreachable   its name or network is not known
//	health_broken        the connection broke, or the answer is no HTTP
//	health_status        the answer's status, which is none of 2xx, and the path
//	outlier              that many requests in a row failed
//	breaker_open         the proxy's breaker is open
//	health               what would take it out; it is kept, by max_ejected
//
// Run owns one goroutine for all workers and one for each probe under way; it
// waits for them. At most 64 probes are waited for together; one that is not
// answered at once gives its place to the next, so that silent workers delay no
// others. Lock: Monitor.mu, never held while a worker is asked, the Reconciler is
// called or a line is logged.
//
//	m := health.New(health.DefaultConfig(), reconciler, log)
//	go m.Run(ctx)
//	lifecycle, reasons := m.Standing(ctx, record)
package health
