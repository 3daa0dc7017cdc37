package store_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/host/store"
	"github.com/routerd/routerd/internal/testkit"
)

// entries makes entries of "name=bytes", or "name" for one that stays.
func entries(t *testing.T, s *store.Store, set ...string) []store.Entry {
	t.Helper()
	var out []store.Entry
	for _, e := range set {
		name, body, has := strings.Cut(e, "=")
		entry := store.Entry{Name: name}
		if has {
			b, err := s.Stage(strings.NewReader(body), "")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(b.Discard)
			entry.Bytes = b
		}
		out = append(out, entry)
	}
	return out
}

// named lists "name=digest source".
func named(s *store.Store) []string {
	out := []string{}
	for _, m := range s.List() {
		out = append(out, fmt.Sprintf("%s=%s %s", m.Name, m.Digest, m.Source))
	}
	return out
}

func TestReplaceMakesTheSetTheDirectorysNames(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, "mine", "x")
	change, err := s.Replace(entries(t, s, "d1=a", "d2=b"))
	if diff := cmp.Diff(store.Change{Set: []string{"d1", "d2"}}, change); err != nil || diff != "" {
		t.Fatalf("%v\n%s", err, diff)
	}
	change, err = s.Replace(entries(t, s, "d1", "d3=b", "d4=x"))
	if diff := cmp.Diff(store.Change{Set: []string{"d3", "d4"}, Removed: []string{"d2"}}, change); err != nil || diff != "" {
		t.Fatalf("%v\n%s", err, diff)
	}
	want := []string{"d1=" + digest("a") + " dir", "d3=" + digest("b") + " dir", "d4=" + digest("x") + " dir", "mine=" + digest("x") + " api"}
	if diff := cmp.Diff(want, named(s)); diff != "" {
		t.Errorf("names (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(want, named(open(t, dir))); diff != "" {
		t.Errorf("after a restart (-want +got)\n%s", diff)
	}
	if got := testkit.Files(t, dir); len(got) != 7 {
		t.Errorf("files: %v, want three blobs and four names", got)
	}
	if change, err := s.Replace(entries(t, s, "d1", "d3=b", "d4")); err != nil || len(change.Set)+len(change.Removed) > 0 {
		t.Errorf("the same set again: %+v, %v", change, err)
	}
}

func TestASetWithABadNameChangesNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, "mine", "x")
	if _, err := s.Replace(entries(t, s, "d1=a")); err != nil {
		t.Fatal(err)
	}
	before, names := testkit.Files(t, dir), named(s)
	for _, c := range []struct {
		set  []string
		want string
	}{
		{[]string{"d0=n", "mine=y"}, "source api"},
		{[]string{"d0=n", "d9"}, "no such module"},
		{[]string{"d0=n", "../x=y"}, "name"},
	} {
		set := entries(t, s, c.set...)
		if _, err := s.Replace(set); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %q", c.set, err, c.want)
		}
		for _, e := range set {
			if e.Bytes != nil {
				e.Bytes.Discard()
			}
		}
	}
	if diff := cmp.Diff(before, testkit.Files(t, dir)) + cmp.Diff(names, named(s)); diff != "" {
		t.Errorf("changed (-before +after)\n%s", diff)
	}
}

func TestNamesOfTheDirectoryAreNotPutOrDeleted(t *testing.T) {
	s := open(t, t.TempDir())
	if _, err := s.Replace(entries(t, s, "d1=a")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Put("d1", strings.NewReader("other"), ""); !errors.Is(err, store.ErrOwned) || !strings.Contains(err.Error(), "source dir") {
		t.Errorf("put: %v", err)
	}
	if err := s.Delete("d1"); !errors.Is(err, store.ErrOwned) {
		t.Errorf("delete: %v", err)
	}
	if err := s.Adopt(); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete("d1"); err != nil {
		t.Errorf("delete of an adopted name: %v", err)
	}
}

func TestAPinnedNameStaysUntilItIsUnpinned(t *testing.T) {
	s := open(t, t.TempDir())
	if _, err := s.Replace(entries(t, s, "d1=a", "d2=b")); err != nil {
		t.Fatal(err)
	}
	if err := s.Pin(digest("a"), "policy"); err != nil {
		t.Fatal(err)
	}
	change, err := s.Replace(nil)
	if diff := cmp.Diff(store.Change{Removed: []string{"d2"}, Kept: []string{"d1"}}, change); err != nil || diff != "" {
		t.Fatalf("%v\n%s", err, diff)
	}
	// Other bytes under the name: it moves on, the pinned bytes stay.
	if _, err := s.Replace(entries(t, s, "d1=c")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Bytes(digest("a")); err != nil {
		t.Error(err)
	}
	s.Unpin(digest("a"), "policy")
	if change, err := s.Replace(nil); err != nil || !slices.Equal(change.Removed, []string{"d1"}) {
		t.Errorf("unpinned: %+v, %v", change, err)
	}
}

func TestAHeldStoreRemovesNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if _, err := s.Replace(entries(t, s, "d1=a", "d2=b")); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	s.Hold()
	if change, err := s.Replace(entries(t, s, "d1=c")); err != nil || !slices.Equal(change.Kept, []string{"d2"}) {
		t.Fatalf("%+v, %v", change, err)
	}
	if _, err := s.Bytes(digest("a")); err != nil {
		t.Errorf("bytes that nobody had time to pin: %v", err)
	}
	if err := s.Sweep(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Bytes(digest("a")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("after the sweep: %v, want not found", err)
	}
	if change, err := s.Replace(entries(t, s, "d1")); err != nil || !slices.Equal(change.Removed, []string{"d2"}) {
		t.Errorf("%+v, %v", change, err)
	}
}

// The end of the process at any write leaves the old set or the new one.
func TestACutReplaceIsWholeAfterTheStart(t *testing.T) {
	old := []string{"d1=" + digest("a") + " dir", "d2=" + digest("b") + " dir"}
	fresh := []string{"d1=" + digest("c") + " dir", "d3=" + digest("d") + " dir"}
	whole := t.TempDir()
	s := open(t, whole)
	if _, err := s.Replace(entries(t, s, "d1=a", "d2=b")); err != nil {
		t.Fatal(err)
	}
	before := tree(t, whole)
	if _, err := s.Replace(entries(t, s, "d1=c", "d3=d")); err != nil {
		t.Fatal(err)
	}
	after := tree(t, whole)
	journal := `{"source":"dir","set":[` + after["names/d1"] + "," + after["names/d3"] + "]}"
	blob := func(b string) string { return "blobs/" + strings.TrimPrefix(digest(b), "sha256:") }
	steps := []func(m map[string]string){
		func(m map[string]string) { m[blob("c")] = "c" },
		func(m map[string]string) { m[blob("d")] = "d" },
		func(m map[string]string) { m["pending.json"] = journal },
		func(m map[string]string) { m["names/d1"] = after["names/d1"] },
		func(m map[string]string) { m["names/d3"] = after["names/d3"] },
		func(m map[string]string) { delete(m, "names/d2") },
		func(m map[string]string) { delete(m, "pending.json") },
		func(m map[string]string) { delete(m, blob("a")) },
		func(m map[string]string) { delete(m, blob("b")) },
	}
	state := before
	for i, step := range steps {
		step(state)
		dir := t.TempDir()
		for name, body := range state {
			file := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(body), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		want := old
		if i >= 2 {
			want = fresh
		}
		s := open(t, dir)
		if diff := cmp.Diff(want, named(s)); diff != "" {
			t.Errorf("cut after step %d (-want +got)\n%s", i, diff)
		}
		if err := s.Sweep(); err != nil {
			t.Fatal(err)
		}
		if got := testkit.Files(t, dir); len(got) != 4 {
			t.Errorf("cut after step %d: files %v", i, got)
		}
	}
	if diff := cmp.Diff(after, state); diff != "" {
		t.Errorf("the steps are not what Replace does (-want +got)\n%s", diff)
	}
}

// tree is every file below a folder with its content.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range testkit.Files(t, dir) {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(b)
	}
	return out
}

func TestAPendingSetWithoutItsBytesStopsTheStart(t *testing.T) {
	for _, text := range []string{
		`{"source":"dir","set":[{"name":"d1","digest":"` + digest("gone") + `"}]}`,
		`{"source":"dir","set":[{"name":"../d1","digest":"` + digest("gone") + `"}]}`, `{`,
	} {
		dir := t.TempDir()
		open(t, dir)
		if err := os.WriteFile(filepath.Join(dir, "pending.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Open(dir); err == nil || !strings.Contains(err.Error(), "pending.json") {
			t.Errorf("%s: got %v, want an error that names the file", text, err)
		}
	}
}

func TestAFolderThatCannotBeWrittenChangesNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if _, err := s.Replace(entries(t, s, "d1=a")); err != nil {
		t.Fatal(err)
	}
	set := entries(t, s, "d1=b")
	// A folder where the journal belongs: nothing can be renamed over it.
	if err := os.MkdirAll(filepath.Join(dir, "pending.json", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	before := testkit.Files(t, dir)
	if _, err := s.Replace(set); err == nil {
		t.Fatal("no error")
	}
	set[0].Bytes.Discard()
	if m, err := s.Get("d1"); err != nil || m.Digest != digest("a") {
		t.Errorf("got %+v, %v", m, err)
	}
	for _, f := range testkit.Files(t, dir) {
		if !slices.Contains(before, f) {
			t.Errorf("left: %s", f)
		}
	}
}
