// Package scrape asks engines for their load. Each worker's metrics are read about
// once a second, line by line, for the few names that matter; what they say of a
// rank becomes a load.Report. Reports that an engine pushes over a socket of its own
// count too: of two the newer one wins. Every half minute the engine is asked which
// adapters it has loaded.
//
// Invariants: a value that is no number, negative or absurd is unknown, never a
// number that somebody could believe. A worker that does not answer, or slowly,
// loses its own report and no other's: it is asked in a lane of its own and more
// rarely. One that has left the list is not asked again, and what is asked then is
// cut off. No report is handed out that is older than Config.MaxAge.
//
// Run owns the state of all workers and at most maxAsked goroutines, one for each
// answer that is waited for; an idle connection has none. Report, AgeOf, Pushed and
// Adapters read an immutable table and take no lock.
//
//	s := scrape.New(cfg, reconciler, log)
//	s.UseSockets(sockets, endpointsOf)
//	go s.Run(ctx)
//	report, ok := s.Report(worker)
package scrape
