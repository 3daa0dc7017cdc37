package clientwatch

// Deliver hands the watcher an event of c as its poller would.
func Deliver(w *Watcher, c *Conn) { w.gone(c.id) }
