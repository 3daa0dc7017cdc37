package frontend

import (
	"bytes"

	"github.com/routerd/routerd/internal/jsonscan"
)

// meter reads along with an answer: events, token counts, errors. It never
// fails, keeps no more than a few hundred bytes however long a line is, and
// does not care where reads cut the text.
type meter struct {
	events          bool // server-sent events; else one JSON object
	count           int  // events with data, [DONE] apart
	done            bool // [DONE] was seen
	failed          bool // an error object was seen
	inputs, outputs int  // tokens, as the worker counts; 0 when unknown

	blockSize, blocks int // tokens a block; blocks that newBlocks has told

	line    lineState
	matched int  // bytes of "data:" that the line began with
	skipLF  bool // the last byte was a carriage return
	payload int  // bytes of the event's data so far
	start   [len(doneMark)]byte
	found   finder
}

type lineState uint8

const (
	lineEmpty lineState = iota // nothing yet
	lineName                   // within "data:"
	lineSpace                  // after "data:", where one space may stand
	lineData
	lineOther // a comment or another field
)

const (
	dataField = "data:"
	doneMark  = "[DONE]"
)

func (m *meter) begin(events bool, blockSize int) {
	*m = meter{events: events, blockSize: blockSize}
}

// newBlocks is how many blocks the output has filled since the last call, an
// event counted as a token.
func (m *meter) newBlocks() int {
	if m.blockSize == 0 {
		return 0
	}
	n := m.count/m.blockSize - m.blocks
	m.blocks += n
	return n
}

// broken tells whether an event stream ended as none should.
func (m *meter) broken() bool { return m.failed || m.events && m.count > 0 && !m.done }

// feed reads the next bytes.
func (m *meter) feed(p []byte) {
	if !m.events {
		m.found.write(p)
		return
	}
	for len(p) > 0 {
		if m.skipLF {
			m.skipLF = false
			if p[0] == '\n' {
				p = p[1:]
				continue
			}
		}
		end := bytes.IndexByte(p, '\n')
		if cr := bytes.IndexByte(p[:cmpEnd(end, len(p))], '\r'); cr >= 0 {
			end, m.skipLF = cr, true
		}
		if end < 0 {
			m.text(p, false)
			return
		}
		m.text(p[:end], true)
		m.endLine()
		p = p[end+1:]
	}
}

func cmpEnd(end, length int) int {
	if end < 0 {
		return length
	}
	return end
}

// text reads a part of a line; whole tells that the line ends with it.
func (m *meter) text(p []byte, whole bool) {
	for len(p) > 0 && m.line < lineData {
		switch {
		case m.line == lineSpace:
			m.line = lineData
			if p[0] == ' ' {
				p = p[1:]
			}
			continue
		case p[0] != dataField[m.matched]:
			m.line = lineOther
			return
		}
		m.line = lineName
		if m.matched++; m.matched == len(dataField) {
			m.line = lineSpace
		}
		p = p[1:]
	}
	if m.line != lineData || len(p) == 0 {
		return
	}
	if m.payload < len(m.start) {
		copy(m.start[m.payload:], p)
	}
	if m.payload > 0 || !whole || bytes.Contains(p, []byte(`"usage"`)) || bytes.Contains(p, []byte(`"error"`)) {
		m.found.write(p)
	}
	m.payload += len(p)
}

// endLine ends a line; an empty one ends the event.
func (m *meter) endLine() {
	if m.line == lineEmpty {
		m.endEvent()
	}
	m.line, m.matched = lineEmpty, 0
}

func (m *meter) endEvent() {
	switch {
	case m.payload == 0:
		return
	case m.payload == len(doneMark) && string(m.start[:]) == doneMark:
		m.done = true
	default:
		m.count++
		m.settle()
	}
	m.payload = 0
	m.found = finder{}
}

// finish ends the answer. An event without its empty line counts.
func (m *meter) finish() {
	if m.events {
		m.endEvent()
		return
	}
	m.settle()
	m.found = finder{}
}

// settle takes over what was found in one object.
func (m *meter) settle() {
	m.failed = m.failed || m.events && m.found.hasError
	usage := m.found.usage()
	if len(usage) == 0 || usage[0] != '{' {
		return
	}
	r := jsonscan.Reader{Data: usage}
	_ = r.Members(func(key, value []byte) error { // a broken object tells what it can
		switch string(key) {
		case "prompt_tokens":
			m.inputs = countOf(value)
		case "completion_tokens":
			m.outputs = countOf(value)
		}
		return nil
	})
}
