package library_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/library"
	"github.com/routerd/routerd/host/store"
	"github.com/routerd/routerd/plugins/abi"
)

// mount is a directory as a kubelet mounts a ConfigMap: files are links through
// ..data, which is switched in one step.
type mount struct {
	s     *shelf
	dated int
}

// prepare writes a set into a dated folder and returns its name.
func (m *mount) prepare(set map[string][]byte) string {
	m.s.t.Helper()
	m.dated++
	dated := fmt.Sprintf("..2026_01_01_00_00_%02d", m.dated)
	m.s.must(os.Mkdir(filepath.Join(m.s.path, dated), 0o700))
	for name, body := range set {
		m.s.must(os.WriteFile(filepath.Join(m.s.path, dated, name), body, 0o600))
	}
	return dated
}

// flip points ..data at a dated folder.
func (m *mount) flip(dated string) {
	m.s.t.Helper()
	tmp := filepath.Join(m.s.path, "..data_tmp")
	m.s.must(os.Symlink(dated, tmp), os.Rename(tmp, filepath.Join(m.s.path, "..data")))
}

func (m *mount) link(names ...string) {
	m.s.t.Helper()
	for _, n := range names {
		m.s.must(os.Symlink(filepath.Join("..data", n), filepath.Join(m.s.path, n)))
	}
}

func (m *mount) remove(name string) {
	m.s.t.Helper()
	m.s.must(os.RemoveAll(filepath.Join(m.s.path, name)))
}

func TestAConfigMapIsFollowedThroughItsSwaps(t *testing.T) {
	s := newShelf(t)
	m := &mount{s: s}
	first := m.prepare(map[string][]byte{"kv.wasm": guest("kv-1"), "lb.wasm": guest("lb-1"), "README": []byte("text")})
	m.flip(first)
	m.link("kv.wasm", "lb.wasm", "README")
	d := s.dir(time.Hour) // only hints
	s.load(d)
	s.expect("kv=kv-1 dir", "lb=lb-1 dir")
	s.run(d)

	second := m.prepare(map[string][]byte{"kv.wasm": guest("kv-2"), "new.wasm": guest("new-1")})
	m.flip(second)
	m.link("new.wasm")
	m.remove("lb.wasm")
	m.remove("README")
	m.remove(first)
	s.expect("kv=kv-2 dir", "new=new-1 dir")
	if st := s.status(); st.Error != "" || st.AppliedAt == nil || st.Path != s.path {
		t.Errorf("status %+v", st)
	}
	m.flip(m.prepare(map[string][]byte{"kv.wasm": guest("kv-3"), "new.wasm": guest("new-1")}))
	s.expect("kv=kv-3 dir", "new=new-1 dir")
	if got := s.files(); len(got) != 4 {
		t.Errorf("files: %v, want two blobs and two names", got)
	}
}

// A kubelet that ends between two steps leaves a directory that is the old set,
// the new one, or bad; then the old one stays until the steps are finished.
func TestASwapThatEndsHalfWayChangesNothingOrAll(t *testing.T) {
	s := newShelf(t)
	m := &mount{s: s}
	first := m.prepare(map[string][]byte{"kv.wasm": guest("kv-1"), "lb.wasm": guest("lb-1")})
	m.flip(first)
	m.link("kv.wasm", "lb.wasm")
	var dated string
	old, fresh := []string{"kv=kv-1 dir", "lb=lb-1 dir"}, []string{"kv=kv-2 dir", "new=new-1 dir"}
	for i, step := range []struct {
		do   func()
		want []string
		bad  bool
	}{
		{func() {}, old, false},
		{func() { dated = m.prepare(map[string][]byte{"kv.wasm": guest("kv-2"), "new.wasm": guest("new-1")}) }, old, false},
		{func() { s.must(os.Symlink(dated, filepath.Join(s.path, "..data_tmp"))) }, old, false},
		// lb.wasm leads nowhere now.
		{func() { s.must(os.Rename(filepath.Join(s.path, "..data_tmp"), filepath.Join(s.path, "..data"))) }, old, true},
		{func() { m.link("new.wasm") }, old, true},
		{func() { m.remove("lb.wasm") }, fresh, false},
		{func() { m.remove(first) }, fresh, false},
	} {
		step.do()
		s.open() // the router was killed as well
		s.load(s.dir(0))
		if diff := cmp.Diff(step.want, s.names()); diff != "" {
			t.Errorf("step %d (-want +got)\n%s", i, diff)
		}
		if st := s.status(); (st.Error != "") != step.bad {
			t.Errorf("step %d: status %+v", i, st)
		}
	}
}

func TestOneBadFileLeavesTheLastGoodSet(t *testing.T) {
	big := make([]byte, 9<<20)
	link := func(target string) func(file string) error {
		return func(file string) error { return os.Symlink(target, file) }
	}
	content := func(b []byte) func(file string) error {
		return func(file string) error { return os.WriteFile(file, b, 0o600) }
	}
	for _, c := range []struct {
		name, file string
		put        func(file string) error
		reason     string
	}{
		{"random bytes", "x2.wasm", content([]byte("no module")), "E_PARSE"},
		{"empty", "x2.wasm", content(nil), "E_PARSE"},
		{"half a module", "x2.wasm", content(guest("half")[:60]), "E_PARSE"},
		{"a module that fails its self-test", "x2.wasm", content(guest("bad")), "E_TRAP"},
		{"9 MiB", "x2.wasm", content(big), "larger than 8 MiB"},
		{"a link to itself", "x2.wasm", link("x2.wasm"), "too many levels of symbolic links"},
		{"a link to nothing", "x2.wasm", link("nothing"), "no such file"},
		{"a file that cannot be read", "x2.wasm", link("/proc/self/mem"), "file \"x2.wasm\""},
		{"a FIFO", "x2.wasm", func(f string) error { return syscall.Mkfifo(f, 0o600) }, "no regular file"},
		{"a folder", "x2.wasm", func(f string) error { return os.Mkdir(f, 0o700) }, "no regular file"},
		{"a device", "x2.wasm", link("/dev/zero"), "no regular file"},
		{"no name of a module", "Bad Name.wasm", content(guest("good")), "Bad Name"},
		{"a percent-encoded name", "a..%2fx.wasm", content(guest("good")), "name"},
		{"a name of 200 characters", strings.Repeat("n", 200) + ".wasm", content(guest("good")), "2 to 63 characters"},
		{"a name of one character", "a.wasm", content(guest("good")), "2 to 63 characters"},
		{"a name of the API", "api.wasm", content(guest("good")), "put by API"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newShelf(t)
			if _, err := s.lib.Put(t.Context(), "api", guest("mine"), false); err != nil {
				t.Fatal(err)
			}
			s.write("x1.wasm", guest("one"))
			d := s.dir(0)
			s.load(d)
			files := s.files()
			_, cached := s.loader.state()
			s.write("x1.wasm", guest("two"))
			s.write("x9.wasm", guest("nine"))
			s.must(c.put(filepath.Join(s.path, c.file)))
			for range 2 {
				s.load(d)
			}
			if diff := cmp.Diff([]string{"api=mine api", "x1=one dir"}, s.names()); diff != "" {
				t.Errorf("names (-want +got)\n%s", diff)
			}
			if st := s.status(); !strings.Contains(st.Error, c.reason) || st.ErrorAt == nil || st.AppliedAt == nil {
				t.Errorf("status %+v, want a reason with %q", st, c.reason)
			}
			_, after := s.loader.state()
			if diff := cmp.Diff(files, s.files()) + cmp.Diff(cached, after); diff != "" {
				t.Errorf("left (-before +after)\n%s", diff)
			}
			if n := s.log.Count("refused"); n != 1 {
				t.Errorf("logged %d times, want 1", n)
			}
			if got := s.metric("routerd_plugin_dir_refused", ""); got != 1 {
				t.Errorf("refused gauge %v", got)
			}
			if n := s.metric("routerd_plugin_dir_syncs_total", "refused"); n != 1 {
				t.Errorf("counted %v, want 1", n)
			}
			s.must(os.RemoveAll(filepath.Join(s.path, c.file)))
			s.load(d)
			if diff := cmp.Diff([]string{"api=mine api", "x1=two dir", "x9=nine dir"}, s.names()); diff != "" {
				t.Errorf("once it is gone (-want +got)\n%s", diff)
			}
			if st := s.status(); st.Error != "" || st.ErrorAt != nil || s.metric("routerd_plugin_dir_refused", "") != 0 {
				t.Errorf("once it is gone: status %+v", st)
			}
		})
	}
}

func TestADirectoryOfTenThousandFiles(t *testing.T) {
	s := newShelf(t)
	s.write("note.txt", nil)
	for i := range 10_000 {
		s.must(os.Link(filepath.Join(s.path, "note.txt"), filepath.Join(s.path, fmt.Sprintf("note-%05d.txt", i))))
	}
	s.write(".hidden.wasm", []byte("no module"))
	s.write("x1.wasm", guest("one"))
	d := s.dir(0)
	s.load(d)
	if diff := cmp.Diff([]string{"x1=one dir"}, s.names()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for i := range 256 {
		s.write(fmt.Sprintf("more-%05d.wasm", i), nil)
	}
	s.load(d)
	if st := s.status(); !strings.Contains(st.Error, "more than 256 modules") {
		t.Errorf("status %+v", st)
	}
}

func TestADirectoryThatIsGoneKeepsTheNames(t *testing.T) {
	s := newShelf(t)
	s.write("x1.wasm", guest("one"))
	d := s.dir(10 * time.Millisecond)
	s.load(d)
	s.must(os.RemoveAll(s.path))
	s.load(d)
	if st := s.status(); !strings.Contains(st.Error, "no such file") || len(s.names()) != 1 {
		t.Errorf("status %+v, names %v", st, s.names())
	}
	s.run(d)
	s.must(os.Mkdir(s.path, 0o700))
	s.write("x2.wasm", guest("two"))
	s.expect("x2=two dir")
}

// What the system does not tell is found by the comparison.
func TestAChangeBehindALinkIsFoundWithoutAHint(t *testing.T) {
	s := newShelf(t)
	elsewhere := filepath.Join(s.top, "built.wasm")
	s.must(os.WriteFile(elsewhere, guest("one"), 0o600), os.Symlink(elsewhere, filepath.Join(s.path, "x1.wasm")))
	s.run(s.dir(20 * time.Millisecond))
	s.expect("x1=one dir")
	s.must(os.WriteFile(elsewhere, guest("two"), 0o600))
	s.expect("x1=two dir")
}

// A file that is written slowly is never half a module.
func TestAFileIsTakenWhole(t *testing.T) {
	s := newShelf(t)
	s.write("x1.wasm", guest("one"))
	d := s.dir(5 * time.Millisecond)
	s.load(d)
	s.run(d)
	whole := guest("two")
	f, err := os.OpenFile(filepath.Join(s.path, "x1.wasm"), os.O_WRONLY|os.O_TRUNC, 0)
	s.must(err)
	tick := time.NewTicker(debounce / 2)
	defer tick.Stop()
	for i := range whole {
		if i%16 == 0 {
			<-tick.C
		}
		_, err := f.Write(whole[i : i+1])
		s.must(err)
		if got := s.names()[0]; i < len(whole)-1 && got != "x1=one dir" {
			t.Fatalf("after %d bytes: %s", i, got)
		}
	}
	s.must(f.Close())
	s.expect("x1=two dir")
}

func TestAModuleThatAPolicyUsesStaysWhenItsFileGoes(t *testing.T) {
	s := newShelf(t)
	s.write("x1.wasm", guest("one"))
	s.write("x2.wasm", guest("two"))
	d := s.dir(5 * time.Millisecond)
	s.load(d)
	used := host.Digest(guest("one"))
	s.must(s.store.Pin(used, "policy"), os.Remove(filepath.Join(s.path, "x1.wasm")))
	s.run(d)
	s.until(func() string {
		if st := s.status(); len(st.Kept) != 1 || st.Kept[0] != "x1" || st.Error != "" {
			return fmt.Sprintf("status %+v, want x1 kept", st)
		}
		return ""
	})
	s.expect("x1=one dir", "x2=two dir")
	s.store.Unpin(used, "policy")
	s.expect("x2=two dir")
	s.until(func() string {
		if st := s.status(); len(st.Kept) != 0 {
			return fmt.Sprintf("status %+v, want none kept", st)
		}
		return ""
	})
}

func TestASetThatOnlyTheMomentIsAgainstIsTriedAgain(t *testing.T) {
	for name, moment := range map[string]error{
		"no memory": &host.LoadError{Step: host.StepStart, Code: abi.EPool, Item: "pages"},
		"full disk": host.ErrCompiledCache,
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t)
			s.loader.set(moment)
			s.write("x1.wasm", guest("one"))
			s.run(s.dir(5 * time.Millisecond))
			s.until(func() string {
				if s.status().Error == "" {
					return "no error"
				}
				return ""
			})
			s.loader.set(nil)
			s.expect("x1=one dir")
		})
	}
	t.Run("a module at fault is not", func(t *testing.T) {
		s := newShelf(t)
		s.write("x1.wasm", guest("bad"))
		d := s.dir(0)
		for range 3 {
			s.load(d)
		}
		if n, _ := s.loader.state(); n != 1 {
			t.Errorf("checked %d times, want 1", n)
		}
	})
}

func TestANameOfTheAPIIsTakenOnceItIsDeleted(t *testing.T) {
	s := newShelf(t)
	if _, err := s.lib.Put(t.Context(), "x1", guest("mine"), false); err != nil {
		t.Fatal(err)
	}
	s.write("x1.wasm", guest("one"))
	s.run(s.dir(5 * time.Millisecond))
	s.until(func() string {
		if !strings.Contains(s.status().Error, "put by API") {
			return s.status().Error
		}
		return ""
	})
	if err := s.lib.Delete("x1"); err != nil && !errors.Is(err, store.ErrNotFound) {
		t.Fatal(err)
	}
	s.expect("x1=one dir")
}

// What only one look saw is not even checked.
func TestAFileIsBelievedOnceTwoLooksSawTheSame(t *testing.T) {
	s := newShelf(t)
	s.write("x1.wasm", guest("one"))
	d := library.NewDir(library.DirConfig{Path: s.path, Debounce: 500 * time.Millisecond}, s.lib, slog.New(slog.DiscardHandler))
	done := make(chan error)
	go func() { done <- d.Load(t.Context()) }()
	<-time.After(100 * time.Millisecond) // within the debounce
	s.write("x1.wasm", guest("two"))
	s.must(<-done)
	if diff := cmp.Diff([]string{"x1=two dir"}, s.names()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if n, _ := s.loader.state(); n != 1 {
		t.Errorf("checked %d times, want 1", n)
	}
}

func TestLoadEndsWithItsContext(t *testing.T) {
	s := newShelf(t)
	s.write("x1.wasm", guest("one"))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := s.dir(0).Load(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want cancelled", err)
	}
	if st := s.status(); st.Error != "" || len(s.names()) > 0 {
		t.Errorf("status %+v, names %v", st, s.names())
	}
}

// A look that is asked for does not wait for the next full comparison.
func TestALookWhileTheDirectoryIsFollowed(t *testing.T) {
	s := newShelf(t)
	d := s.dir(time.Hour)
	s.load(d)
	s.run(d)
	for i := range 5 {
		name := fmt.Sprintf("m%d", i)
		s.write(name+".wasm", guest(name))
		s.load(d)
		if _, err := s.lib.Get(name); err != nil {
			t.Errorf("after the look: %v", err)
		}
	}
}
