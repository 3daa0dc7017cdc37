package zmq

import "time"

// ParseLoad is parseLoad for tests.
var ParseLoad = parseLoad

// SetSilence sets how long a load socket may be silent; before Run.
func (l *LoadListener) SetSilence(d time.Duration) { l.silence = d }
