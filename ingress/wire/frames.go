package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// EndOfReplay is the number that marks the end of a replay answer. As the number of a live message it is corrupt.
const EndOfReplay = ^uint64(0)

// ParseSequence reads the frame that holds a message's number: 8 bytes, big-endian.
func ParseSequence(frame []byte) (uint64, error) {
	if len(frame) != 8 {
		return 0, fmt.Errorf("read sequence: %w: frame of %d bytes, 8 are needed", ErrCorrupt, len(frame))
	}
	return binary.BigEndian.Uint64(frame), nil
}

// SequenceFrame returns the frame for a number.
func SequenceFrame(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }

// ParseLive splits the frames of a live message, which are topic, number and payload.
func ParseLive(frames [][]byte) (seq uint64, payload []byte, err error) {
	if len(frames) != 3 {
		return 0, nil, fmt.Errorf("read live message: %w: %d frames, 3 are needed", ErrCorrupt, len(frames))
	}
	if seq, err = ParseSequence(frames[1]); err != nil {
		return 0, nil, err
	}
	if seq == EndOfReplay {
		return 0, nil, fmt.Errorf("read live message: %w: number %d is the replay's end mark", ErrCorrupt, seq)
	}
	return seq, frames[2], nil
}

// TopicPod reads the pod of a topic that names one, kv@POD@MODEL. MODEL may hold further '@'.
func TopicPod(topic []byte) (pod string, ok bool) {
	rest, ok := bytes.CutPrefix(topic, []byte("kv@"))
	if !ok {
		return "", false
	}
	name, _, ok := bytes.Cut(rest, []byte("@"))
	return string(name), ok && len(name) > 0
}

// ParseReply splits the frames of a replay answer as a DEALER socket sees them: an optional empty delimiter, an
// optional topic, the number and the payload. end tells that this is the mark behind the last answer.
func ParseReply(frames [][]byte) (seq uint64, payload []byte, end bool, err error) {
	if len(frames) < 2 || len(frames) > 4 {
		return 0, nil, false, fmt.Errorf("read replay answer: %w: %d frames, 2 to 4 are needed", ErrCorrupt, len(frames))
	}
	last := frames[len(frames)-2:]
	if seq, err = ParseSequence(last[0]); err != nil {
		return 0, nil, false, err
	}
	return seq, last[1], seq == EndOfReplay, nil
}
