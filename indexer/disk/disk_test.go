package disk_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/indexer/disk"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/indexer/indextest"
	"github.com/routerd/routerd/kvcache"
)

var (
	key = fleet.PartitionKey{Model: "a:b", Group: "g:h"}
	day = time.Date(2026, 11, 30, 1, 2, 3, 4, time.UTC)
)

// file is a file of sections.
func file(t testing.TB, add func(w *disk.Writer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	w := disk.NewWriter(&b)
	if err := errors.Join(add(w), w.Close()); err != nil {
		t.Fatal(err)
	}
	if int64(b.Len()) != w.Bytes() {
		t.Errorf("%d bytes are said to be %d", b.Len(), w.Bytes())
	}
	return b.Bytes()
}

func open(b []byte) (*disk.File, error) { return disk.Open(bytes.NewReader(b), int64(len(b))) }

func mustOpen(t testing.TB, b []byte) *disk.File {
	t.Helper()
	f, err := open(b)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// ranksOf are an index's, by worker.
func ranksOf(x indexer.Snapshots) map[fleet.WorkerID][]indexer.Snapshot {
	all := map[fleet.WorkerID][]indexer.Snapshot{}
	for _, w := range x.Workers() {
		s, _ := x.Snapshot(w)
		all[w.ID] = append(all[w.ID], s)
	}
	return all
}

// hop takes an index over a file into a new one.
func hop(t testing.TB, from indexer.Indexer, blockSize int) indexer.Indexer {
	t.Helper()
	f := mustOpen(t, file(t, func(w *disk.Writer) error {
		var errs []error
		for id, ranks := range ranksOf(from) {
			errs = append(errs, w.Add(disk.Entry{Partition: key, Worker: fleet.Worker{ID: id}, BlockSize: blockSize}, nil, ranks))
		}
		return errors.Join(errs...)
	}))
	to := exact.New(blockSize)
	for _, e := range f.Entries() {
		s, err := f.Read(&e)
		if err != nil {
			t.Fatal(err)
		}
		blocks := 0
		for _, r := range s.Ranks {
			if lost := to.Restore(r.Worker, r.Rest, r.Changes); lost != 0 {
				t.Fatalf("%d blocks of %s are lost", lost, r.Worker)
			}
			for _, n := range to.Blocks(r.Worker) {
				blocks += n
			}
		}
		if blocks != e.Blocks {
			t.Fatalf("%d blocks are said to be %d", blocks, e.Blocks)
		}
	}
	return to
}

// I3, over a file: an index that was kept answers as the plain model does, and goes on so.
func TestI3_AnIndexThatWasKeptEqualsThePlainModel(t *testing.T) {
	indextest.Run(t, func(blockSize int) indexer.Indexer {
		return indextest.Restless(exact.New(blockSize), func(x indexer.Indexer) indexer.Indexer { return hop(t, x, blockSize) })
	})
}

// A rank of which blocks were given up is one of which what is not known costs no trust, after a start too.
func TestThatBlocksWereGivenUpIsKept(t *testing.T) {
	x, w := exact.New(4), fleet.Worker{ID: 1, Rank: 2}
	x.Restore(w, indexer.Rest{Evicted: true}, slices.Values([]indexer.Change(nil)))
	if got, ok := hop(t, x, 4).Snapshot(w); !ok || !got.Rest.Evicted {
		t.Errorf("got %+v", got.Rest)
	}
}

func number(n uint64) kvcache.EngineHash { return kvcache.NumberHash(n) }

// held is an index of two ranks of worker 1 and one of worker 2, with holes, tiers,
// salts, groups, hashes of bytes and such as cannot be indexed.
func held(t testing.TB) *exact.Index {
	t.Helper()
	x := exact.New(4)
	bytes, ok := kvcache.BytesHash([]byte{0xab, 1})
	if !ok {
		t.Fatal("no hash")
	}
	chain := kvcache.Event{Kind: kvcache.Stored, Hashes: []kvcache.EngineHash{number(101), number(102)}, Tokens: []uint32{1, 2, 3, 4, 5, 6, 7, 8}, BlockSize: 4}
	salted := chain
	salted.Salt, salted.Hashes = "salt", []kvcache.EngineHash{number(103), number(104)}
	image := kvcache.Event{Kind: kvcache.Stored, Tier: kvcache.Disk, Hashes: []kvcache.EngineHash{number(9), bytes}, Tokens: make([]uint32, 8), BlockSize: 4, Opaque: true}
	window := kvcache.Event{Kind: kvcache.Stored, Attention: kvcache.AttentionWindowed, Group: -3, Hashes: []kvcache.EngineHash{number(8)}, Tokens: make([]uint32, 4), BlockSize: 4}
	x.Apply(fleet.Worker{ID: 1}, []kvcache.Event{
		chain, salted, image, window,
		{Kind: kvcache.Stored, Tier: kvcache.Host, Hashes: []kvcache.EngineHash{bytes}, Parent: number(102), HasParent: true, Tokens: []uint32{9, 10, 11, 12}, BlockSize: 4},
		{Kind: kvcache.Removed, Hashes: []kvcache.EngineHash{number(101)}},
	})
	x.Apply(fleet.Worker{ID: 1, Rank: 3}, []kvcache.Event{chain})
	x.Apply(fleet.Worker{ID: 2}, []kvcache.Event{salted})
	return x
}

// kept is held in a file: worker 1 with its ranks, then worker 2.
func kept(t testing.TB) []byte {
	t.Helper()
	all := ranksOf(held(t))
	return file(t, func(w *disk.Writer) error {
		return errors.Join(
			w.Add(disk.Entry{Partition: key, Worker: fleet.Worker{ID: 1}, Engine: "vllm", BlockSize: 4, At: day}, []byte("position"), all[1]),
			w.Add(disk.Entry{Partition: key, Worker: fleet.Worker{ID: 2}, Engine: "sglang", BlockSize: 4, At: day}, nil, all[2]))
	})
}

func TestAFileSaysWhoseItIs(t *testing.T) {
	f := mustOpen(t, kept(t))
	var got []disk.Entry
	for _, e := range f.Entries() {
		if e.Bytes() == 0 {
			t.Errorf("%+v has no bytes", e)
		}
		got = append(got, disk.Entry{Partition: e.Partition, Worker: e.Worker, Engine: e.Engine, BlockSize: e.BlockSize, At: e.At.UTC(), Blocks: e.Blocks})
	}
	want := []disk.Entry{
		{Partition: key, Worker: fleet.Worker{ID: 1}, Engine: "vllm", BlockSize: 4, At: day, Blocks: 6},
		{Partition: key, Worker: fleet.Worker{ID: 2}, Engine: "sglang", BlockSize: 4, At: day, Blocks: 2},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(disk.Entry{})); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	s, err := f.Read(&f.Entries()[0])
	if err != nil || string(s.Position) != "position" || len(s.Ranks) != 2 {
		t.Errorf("got %q, %d ranks, %v", s.Position, len(s.Ranks), err)
	}
}

// A section of another file can be taken over as it is.
func TestASectionIsCopied(t *testing.T) {
	whole := kept(t)
	f := mustOpen(t, whole)
	again := file(t, func(w *disk.Writer) error {
		var errs []error
		for _, e := range f.Entries() {
			errs = append(errs, w.AddSection(&e, sectionOf(t, f, &e)))
		}
		return errors.Join(errs...)
	})
	if !bytes.Equal(whole, again) {
		t.Error("the copy is another file")
	}
}

// told is what can be had of a file: what Open says, or for each section what Read says.
func told(b []byte) (sections []error, whole error) {
	f, err := open(b)
	if err != nil {
		return nil, err
	}
	for _, e := range f.Entries() {
		_, err := f.Read(&e)
		sections = append(sections, err)
	}
	return sections, nil
}

// Whatever byte is wrong, the file is refused whole or one of its sections is.
func TestAnyWrongByteIsFound(t *testing.T) {
	whole := kept(t)
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 1 << (i % 8)
		sections, err := told(b)
		bad := 0
		for _, err := range sections {
			if err != nil {
				bad++
			}
		}
		if err == nil && bad != 1 {
			t.Errorf("byte %d of %d: the file is taken, with %d sections refused", i, len(whole), bad)
		}
	}
}

func TestAnyOtherLengthIsRefused(t *testing.T) {
	whole := kept(t)
	for n := range whole {
		if _, err := told(whole[:n]); err == nil {
			t.Errorf("%d bytes of %d are taken", n, len(whole))
		}
	}
	if _, err := told(append(bytes.Clone(whole), 0)); err == nil {
		t.Error("a byte too much is taken")
	}
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	whole := kept(t)
	changed := func(at int, to ...byte) []byte {
		b := bytes.Clone(whole)
		copy(b[(at+len(b))%len(b):], to)
		return b
	}
	for says, b := range map[string][]byte{
		"it has 3 bytes, which is none":                      whole[:3],
		`it begins with "<html> x" instead of "routerdx"`:    changed(0, []byte("<html> x")...),
		"it has version 2, this router reads version 1":      changed(8, 2),
		"it is torn: the last bytes are":                     whole[:len(whole)-1],
		"it is torn: the directory is said to be":            changed(-32, 1),
		"the checksum of the directory is wrong":             changed(-16, 0, 0, 0, 0),
		"worker 1/0 of partition a:b:g:h is there twice":     twice(t),
		"read index of worker 1/0: the checksum is wrong":    changed(12, 77),
		"it has 3 blocks, the directory says 4":              counted(t),
		"read index of worker 7/0: the head of a change is":  raw(t, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3),
		"read index of worker 7/0: a chain has a parent and": raw(t, 0, 1, 0, 0, 0, 0, 0, 0, 0, 13),
		"read index of worker 7/0: it ends early":            raw(t, 0, 1, 0, 0, 0, 0, 0, 0, 0, 17, 255, 255, 255, 255, 15),
		"read index of worker 7/0: a change is empty":        raw(t, 0, 1, 0, 0, 0, 0, 0, 0, 0, 17, 0),
		"read index of worker 7/0: a change is on tier 4":    raw(t, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0x81),
		"read index of worker 7/0: rank 0 is there twice":    raw(t, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
		"read index of worker 7/0: 1 bytes too many":         raw(t, 0, 0, 0),
	} {
		sections, err := told(b)
		if err = errors.Join(append(sections, err)...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}

// raw is a file with a section of worker 7 that has these bytes.
func raw(t testing.TB, section ...byte) []byte {
	t.Helper()
	return file(t, func(w *disk.Writer) error {
		return w.AddSection(&disk.Entry{Partition: key, Worker: fleet.Worker{ID: 7}}, section)
	})
}

// twice is a file with two sections of one stream.
func twice(t testing.TB) []byte {
	t.Helper()
	e := disk.Entry{Partition: key, Worker: fleet.Worker{ID: 1}}
	return file(t, func(w *disk.Writer) error { return errors.Join(w.Add(e, nil, nil), w.Add(e, nil, nil)) })
}

// counted is a file whose directory has another number of blocks than its section.
func counted(t testing.TB) []byte {
	t.Helper()
	section := []byte{0, 1, 0, 0, 0, 0, 0, 0, 0, 17, 3}
	for range 2 * 3 {
		section = binary.LittleEndian.AppendUint64(section, 5)
	}
	return file(t, func(w *disk.Writer) error { return w.AddSection(&disk.Entry{Blocks: 4}, append(section, 0)) })
}

// sound reads what it can of a file, and restores and writes it again.
func sound(t *testing.T, b []byte) {
	t.Helper()
	f, err := open(b)
	if err != nil {
		return
	}
	for _, e := range f.Entries() {
		s, err := f.Read(&e)
		if err != nil {
			continue
		}
		to := exact.New(4)
		for _, r := range s.Ranks {
			to.Restore(r.Worker, r.Rest, r.Changes)
		}
		again := mustOpen(t, file(t, func(w *disk.Writer) error { return w.Add(e, s.Position, s.Ranks) }))
		got, err := again.Read(&again.Entries()[0])
		if err != nil || !bytes.Equal(got.Position, s.Position) || len(got.Ranks) != len(s.Ranks) {
			t.Fatalf("what was read is written otherwise: %v", err)
		}
		for i := range got.Ranks {
			a, b := &got.Ranks[i], &s.Ranks[i]
			if a.Worker != b.Worker || !cmp.Equal(changesOf(a), changesOf(b), cmp.Comparer(func(a, b kvcache.EngineHash) bool { return a == b })) {
				t.Fatalf("rank %d is written otherwise", i)
			}
		}
	}
}

// said is what a snapshot tells.
type said struct {
	Rest    indexer.Rest
	Changes []indexer.Change
}

// changesOf is what a snapshot tells.
func changesOf(s *indexer.Snapshot) said {
	out := said{Rest: s.Rest}
	for c := range s.Changes {
		c.Blocks, c.Removed = slices.Clone(c.Blocks), slices.Clone(c.Removed)
		out.Changes = append(out.Changes, c)
	}
	return out
}

// FuzzFile: bytes of a file never do more than be refused.
func FuzzFile(f *testing.F) {
	f.Add(kept(f))
	f.Add(twice(f))
	f.Add(file(f, func(*disk.Writer) error { return nil }))
	f.Fuzz(func(t *testing.T, b []byte) { sound(t, b) })
}

// FuzzSection: nor do those of a section whose checksum is right.
func FuzzSection(f *testing.F) {
	whole := mustOpen(f, kept(f))
	for _, e := range whole.Entries() {
		f.Add(e.Blocks, sectionOf(f, whole, &e))
	}
	f.Fuzz(func(t *testing.T, blocks int, section []byte) {
		e := disk.Entry{Worker: fleet.Worker{ID: 7}, Blocks: max(blocks, 0)}
		sound(t, file(t, func(w *disk.Writer) error { return w.AddSection(&e, section) }))
	})
}

// sectionOf are the bytes of a section.
func sectionOf(t testing.TB, from *disk.File, e *disk.Entry) []byte {
	t.Helper()
	b, err := from.Section(e)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
