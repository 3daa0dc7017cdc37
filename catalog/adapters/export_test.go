package adapters

import "time"

// Hurry makes a manager that is not running yet fast enough for a test.
func Hurry(m *Manager) {
	m.pace = pace{
		step: 20 * time.Millisecond, patience: 50 * time.Millisecond, poll: 2 * time.Millisecond,
		firstWait: 10 * time.Millisecond, lastWait: 40 * time.Millisecond,
	}
}

// Message reads an engine's refusal.
var Message = message
