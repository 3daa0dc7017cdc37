package store_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host/store"
	"github.com/routerd/routerd/internal/testkit"
)

func open(t *testing.T, dir string) *store.Store {
	t.Helper()
	s, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, s *store.Store, name, body string) store.Module {
	t.Helper()
	m, _, err := s.Put(name, strings.NewReader(body), "")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func digest(body string) string {
	sum := sha256.Sum256([]byte(body))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func TestP1_NamesThatAreNoNames(t *testing.T) {
	top := t.TempDir()
	s := open(t, filepath.Join(top, "store"))
	put(t, s, "there", "x")
	before := testkit.Files(t, top)
	for _, name := range []string{
		"../x", "a/b", "..%2fx", `a\\b`, ".", "", "a\x00b", strings.Repeat("a", 300), "x.wasm/../../y", "A", "-a", "a", "..", "ü-a",
	} {
		_, _, err := s.Put(name, strings.NewReader("y"), "")
		var fe *fleet.FieldError
		if !errors.As(err, &fe) || fe.Field != "name" {
			t.Errorf("put %q: got %v, want a refusal of name", name, err)
		}
		if err := s.Delete(name); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("delete %q: got %v, want not found", name, err)
		}
	}
	if diff := cmp.Diff(before, testkit.Files(t, top)); diff != "" {
		t.Errorf("files changed (-before +after):\n%s", diff)
	}
}

// Names that look odd but have the form stay inside the store.
func TestP1_NamesOfTheFormStayInTheStore(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "store")
	s := open(t, dir)
	want := []string{"store/blobs/" + strings.TrimPrefix(digest("x"), "sha256:")}
	for _, name := range []string{"a.", "a..", "a..b", "con", "nul.wasm", "0-", "x.wasm.", strings.Repeat("n", 63), "pending.json", "tmp", "blobs"} {
		put(t, s, name, "x")
		want = append(want, "store/names/"+name)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, testkit.Files(t, top)); diff != "" {
		t.Errorf("files (-want +got)\n%s", diff)
	}
	for _, m := range open(t, dir).List() {
		if err := s.Delete(m.Name); err != nil {
			t.Error(err)
		}
	}
	if got := testkit.Files(t, top); len(got) > 0 {
		t.Errorf("left: %v", got)
	}
}

func TestP4_CutUploadLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	body := io.MultiReader(strings.NewReader("half"), iotest.ErrReader(io.ErrUnexpectedEOF))
	if _, _, err := s.Put("m1", body, ""); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("got %v, want the reader's error", err)
	}
	if got := testkit.Files(t, dir); len(got) > 0 {
		t.Errorf("files left: %v", got)
	}
}

func TestP4_OneOfTwoUploadsOfAName(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	bodies := []string{strings.Repeat("a", 1<<16), strings.Repeat("b", 1<<16)}
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			if i%5 == 4 {
				_ = s.Delete("m1")
				return
			}
			if _, _, err := s.Put("m1", strings.NewReader(bodies[i%2]), ""); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	put(t, s, "m1", bodies[0])
	m, err := s.Get("m1")
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Bytes(m.Digest)
	if err != nil || string(b) != bodies[0] || m.Digest != digest(bodies[0]) {
		t.Errorf("name points to %s (%v), want the last upload", m.Digest, err)
	}
	want := []string{"blobs/" + strings.TrimPrefix(m.Digest, "sha256:"), "names/m1"}
	if diff := cmp.Diff(want, testkit.Files(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestP5_DeclaredDigestOfOtherBytes(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if _, _, err := s.Put("m1", strings.NewReader("x"), digest("y")); !errors.Is(err, store.ErrDigest) {
		t.Errorf("got %v, want ErrDigest", err)
	}
	if _, _, err := s.Put("m1", strings.NewReader("x"), "sha256:zz"); err == nil {
		t.Error("a digest that is none was accepted")
	}
	if got := testkit.Files(t, dir); len(got) > 0 {
		t.Errorf("files left: %v", got)
	}
}

func TestP6_SameBytesTwiceAndUnderTwoNames(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	first, created, err := s.Put("m1", strings.NewReader("x"), "")
	if err != nil || !created {
		t.Fatalf("first: created %v, %v", created, err)
	}
	again, created, err := s.Put("m1", strings.NewReader("x"), digest("x"))
	if err != nil || created || again != first {
		t.Errorf("second: got %+v created %v %v, want the first unchanged", again, created, err)
	}
	put(t, s, "m2", "x")
	if got := testkit.Files(t, dir); len(got) != 3 {
		t.Errorf("files: got %v, want one blob and two names", got)
	}
	if err := s.Delete("m1"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Bytes(first.Digest); err != nil {
		t.Errorf("the other name lost its bytes: %v", err)
	}
}

func TestTooLargeIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if _, _, err := s.Put("m1", bytes.NewReader(make([]byte, store.MaxBytes+1)), ""); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
	if got := testkit.Files(t, dir); len(got) > 0 {
		t.Errorf("files left: %v", got)
	}
}

func TestPinnedModuleIsNotDeleted(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	m := put(t, s, "m1", "x")
	const who = "policy default revision 1"
	if err := s.Pin(m.Digest, who); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete("m1"); !errors.Is(err, store.ErrInUse) || !strings.Contains(err.Error(), who) {
		t.Errorf("delete: got %v, want in use by %q", err, who)
	}
	put(t, s, "m1", "y")
	if _, err := s.Bytes(m.Digest); err != nil {
		t.Errorf("pinned bytes went when the name moved on: %v", err)
	}
	s.Unpin(m.Digest, who)
	if _, err := s.Bytes(m.Digest); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("unpinned bytes without a name: got %v, want not found", err)
	}
	if err := s.Pin(digest("gone"), who); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("pin of nothing: got %v", err)
	}
}

func TestReopenedStoreHoldsTheSame(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	m1, m2 := put(t, s, "m1", "x"), put(t, s, "m2", "y")
	// What a crash leaves: a half-written upload, a half-written name, a blob
	// whose name was not written yet.
	orphan := filepath.Join(dir, "blobs", strings.TrimPrefix(digest("z"), "sha256:"))
	for path, body := range map[string]string{
		filepath.Join(dir, "tmp", "put-1"): "ha", filepath.Join(dir, "names", ".writing-1"): "{", orphan: "z",
	} {
		if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, dir)
	if diff := cmp.Diff([]store.Module{m1, m2}, s.List()); diff != "" {
		t.Errorf("modules (-want +got):\n%s", diff)
	}
	if err := s.Sweep(); err != nil {
		t.Fatal(err)
	}
	if got := testkit.Files(t, dir); len(got) != 4 {
		t.Errorf("files: got %v, want two blobs and two names", got)
	}
}

func TestChangedBlobIsNotBelieved(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	m := put(t, s, "m1", "x")
	if err := os.WriteFile(filepath.Join(dir, "blobs", strings.TrimPrefix(m.Digest, "sha256:")), []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Bytes(m.Digest); !errors.Is(err, store.ErrDigest) {
		t.Errorf("got %v, want ErrDigest", err)
	}
}
