package remote_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/remote"
	"github.com/routerd/routerd/kvcache"
)

// unspaced is hexadecimal text as bytes.
func unspaced(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	// A find of two blocks on two ranks in partition m:default with blocks of 4 tokens.
	findText = `72646978 01 01 0000 01000000
		0100 6d  0700 64656661756c74  04000000  02000000  02000000
		efcdab8967452301 0000000000000080
		0100000000000000 00000000  ffffffffffffffff 03000000`
	// Its answer: the first is trusted and holds 1 on the device and 1 on disk.
	foundText = `72646978 01 02 0000 01000000
		0b000000 00  0b 01000000 01000000  00`
	// A record of one block.
	recordText = `72646978 01 03 0000 01000000
		0100 6d  0700 64656661756c74  04000000
		0200000000000000 01000000  01  01000000  efcdab8967452301`
	recordedText = `72646978 01 04 0000 01000000 00`
)

// told is a primary of partition m:default, with blocks of 4 tokens, that notes what it is
// asked and always answers the same.
type told struct {
	blocks  []kvcache.BlockHash
	workers []fleet.Worker
	exact   bool
}

func (p *told) Partition(k fleet.PartitionKey) (x remote.Index, blockSize int, ok bool) {
	return p, 4, k == key
}

func (p *told) Find(blocks []kvcache.BlockHash, workers []fleet.Worker, out []kvcache.Overlap) {
	p.blocks, p.workers = slices.Clone(blocks), slices.Clone(workers)
	clear(out)
	if len(out) > 0 && len(blocks) > 1 {
		out[0] = kvcache.Overlap{Device: 1, Disk: 1}
	}
}

func (p *told) Trusted(w fleet.Worker) bool { return w == p.workers[0] }

func (p *told) Record(_ fleet.PartitionKey, w fleet.Worker, blocks []kvcache.BlockHash, exact bool) bool {
	p.blocks, p.workers, p.exact = slices.Clone(blocks), []fleet.Worker{w}, exact
	return true
}

// The form of the documentation, byte by byte.
func TestMessagesAreAsDocumented(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &told{}
		s := remote.NewServer(p)
		var asked, answered []byte
		r := newRig(t, 4, 1e9, posting(func(_ context.Context, path string, body []byte) (int, []byte, error) {
			do := map[string]func([]byte) ([]byte, error){remote.PathFind: s.Find, remote.PathRecord: s.Record}[path]
			answer, err := do(body)
			asked, answered = body, bytes.Clone(answer)
			return 200, answer, err
		}))
		blocks := []kvcache.BlockHash{0x0123456789abcdef, 1 << 63}
		w := []fleet.Worker{{ID: 1}, {ID: 1<<64 - 1, Rank: 3}}
		got := r.held(blocks, w...)
		if diff := cmp.Diff([]kvcache.Overlap{{Device: 1, Disk: 1}, {}}, got); diff != "" {
			t.Error(diff)
		}
		if !bytes.Equal(asked, unspaced(t, findText)) || !bytes.Equal(answered, unspaced(t, foundText)) {
			t.Errorf("asked\n%x\nanswered\n%x", asked, answered)
		}
		if diff := cmp.Diff([]any{blocks, w}, []any{p.blocks, p.workers}); diff != "" {
			t.Errorf("the primary got (-want +got)\n%s", diff)
		}
		defer r.run(t)()
		r.Record(fleet.Worker{ID: 2, Rank: 1}, blocks[:1], true)
		synctest.Wait()
		if !bytes.Equal(asked, unspaced(t, recordText)) || !bytes.Equal(answered, unspaced(t, recordedText)) {
			t.Errorf("asked\n%x\nanswered\n%x", asked, answered)
		}
		if diff := cmp.Diff([]any{blocks[:1], []fleet.Worker{{ID: 2, Rank: 1}}, true}, []any{p.blocks, p.workers, p.exact}); diff != "" {
			t.Errorf("the primary got (-want +got)\n%s", diff)
		}
	})
}

func TestAWrongMessageIsAnErrorThatSaysWhat(t *testing.T) {
	s := remote.NewServer(&told{})
	set := func(at int, v ...byte) func([]byte) []byte {
		return func(b []byte) []byte { copy(b[at:], v); return b }
	}
	cut := func(n int) func([]byte) []byte { return func(b []byte) []byte { return b[:n] } }
	for _, c := range []struct {
		name   string
		change func([]byte) []byte
		want   string
	}{
		{"empty", cut(0), "the head: 8 bytes are needed, 0 are left"},
		{"torn head", cut(11), "items: 4 bytes are needed, 3 are left"},
		{"other magic", set(0, 'X'), `it begins with "Xdix", not "rdix"`},
		{"other version", set(4, 2), "version 2, not 1"},
		{"other kind", set(5, 3), "kind 3, not 1"},
		{"reserved", set(7, 9), "the reserved bytes are 0 and 9, not 0"},
		{"many items", set(8, 1, 4), "1025 items, at most 1024 are allowed"},
		{"more items than bytes", set(8, 200), "200 items have at least 3200 bytes, 64 are left"},
		{"one item more", set(8, 2), "the model's name: 2 bytes are needed, 0 are left"},
		{"one item less", set(8, 0), "64 bytes follow the last item"},
		{"long name", set(12, 1, 4), "the model's name has 1025 bytes, at most 1024 are allowed"},
		{"torn name", set(15, 200), "the group's name: 200 bytes are needed, 59 are left"},
		{"many hashes", set(28, 1, 0, 1), "65537 hashes, at most 65536 are allowed"},
		{"more hashes than bytes", set(28, 6), "6 hashes have at least 48 bytes, 44 are left"},
		{"many ranks", set(32, 1, 0, 1), "65537 ranks, at most 65536 are allowed"},
		{"more ranks than bytes", set(32, 4), "4 ranks have at least 48 bytes, 40 are left"},
		{"torn ranks", cut(75), "the ranks: 24 bytes are needed, 23 are left"},
		{"more", func(b []byte) []byte { return append(b, 0) }, "1 bytes follow the last item"},
		{"large", func([]byte) []byte { return make([]byte, remote.MaxMessage+1) }, "it has 4194305 bytes, at most 4194304 are allowed"},
	} {
		_, err := s.Find(c.change(unspaced(t, findText)))
		if !errors.Is(err, remote.ErrMessage) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
	if n := s.Stats().Refused; n != 19 {
		t.Errorf("%d were counted as refused", n)
	}
	flag := unspaced(t, recordText)
	flag[len(flag)-13] = 2
	if _, err := s.Record(flag); err == nil || !strings.Contains(err.Error(), "exact is 2, allowed are 0 and 1") {
		t.Errorf("got %v", err)
	}
	if _, err := s.Record(unspaced(t, findText)); err == nil || !strings.Contains(err.Error(), "kind 1, not 3") {
		t.Errorf("got %v", err)
	}
}

// Every message is refused or read to its end, and what is read makes an answer that its
// client can read.
func FuzzServer(f *testing.F) {
	for _, text := range []string{findText, recordText, foundText, recordedText} {
		f.Add(unspaced(f, text))
	}
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, message []byte) {
		s := remote.NewServer(&told{})
		for kind, do := range map[byte]func([]byte) ([]byte, error){1: s.Find, 3: s.Record} {
			answer, err := do(message)
			if err != nil {
				if !errors.Is(err, remote.ErrMessage) || answer != nil {
					t.Fatalf("%x: %x and %v", message, answer, err)
				}
				continue
			}
			n := int(binary.LittleEndian.Uint32(message[8:]))
			if kind == 1 {
				_, err = remote.SplitFound(answer, n)
			} else {
				_, err = remote.ReadRecorded(answer, n)
			}
			if err != nil {
				t.Fatalf("%x was answered %x: %v", message, answer, err)
			}
		}
	})
}

// Whatever a primary answers, what is taken over of it is within the prompt.
func FuzzAnswer(f *testing.F) {
	f.Add(unspaced(f, foundText), 1, 2, 2)
	f.Add(unspaced(f, recordedText), 1, 2, 2)
	f.Add(unspaced(f, `72646978 01 02 0000 02000000 05000000 02 10000000 01000000 01`), 2, 9, 1)
	f.Fuzz(func(t *testing.T, message []byte, finds, blocks, ranks int) {
		if blocks < 0 || ranks < 0 || ranks > 1<<16 || blocks > 1<<16 {
			return
		}
		if statuses, err := remote.ReadRecorded(message, finds); err == nil && len(statuses) != finds {
			t.Fatalf("%d statuses of %d records", len(statuses), finds)
		}
		parts, err := remote.SplitFound(message, finds)
		if err != nil {
			if !errors.Is(err, remote.ErrMessage) {
				t.Fatal(err)
			}
			return
		}
		if len(parts) != finds {
			t.Fatalf("%d answers to %d finds", len(parts), finds)
		}
		for _, part := range parts {
			handed := 0
			answered, err := remote.ReadFound(part, blocks, ranks, func(i int, o kvcache.Overlap, _ bool) {
				if i != handed || uint64(o.Device)+uint64(o.Host)+uint64(o.Disk)+uint64(o.Shared) > uint64(blocks) {
					t.Fatalf("rank %d of %d is handed %+v of %d blocks", i, handed, o, blocks)
				}
				handed++
			})
			if err == nil && answered && handed != ranks {
				t.Fatalf("%d of %d ranks", handed, ranks)
			}
		}
	})
}
