package zmq

import "time"

// DecodeLoad is decodeLoad for tests.
var DecodeLoad = decodeLoad

// ParseLoad is parseLoad for tests.
var ParseLoad = parseLoad

// SetSilence sets how long a load socket may be silent; before Run.
func (l *LoadListener) SetSilence(d time.Duration) { l.silence = d }
