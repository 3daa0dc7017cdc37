package library_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/host"
	"github.com/routerd/routerd/host/store"
)

func TestWhatCannotLoadOrWasOnlyTriedLeavesNothing(t *testing.T) {
	s := newShelf(t)
	for _, c := range []struct {
		name string
		wasm []byte
		dry  bool
		want any
	}{
		{"tried", guest("good"), true, nil},
		{"tried", guest("bad"), true, new(*host.LoadError)},
		{"refused", guest("bad"), false, new(*host.LoadError)},
		{"refused", []byte("no module"), false, new(*host.LoadError)},
		{"../refused", guest("good"), false, new(*fleet.FieldError)},
		{"../refused", guest("good"), true, new(*fleet.FieldError)},
	} {
		got, err := s.lib.Put(t.Context(), c.name, c.wasm, c.dry)
		if c.want == nil {
			if err != nil || got.Checked != host.CheckedConfigured || got.Module.Digest != host.Digest(c.wasm) {
				t.Errorf("%s: got %+v, %v", c.name, got, err)
			}
		} else if !errors.As(err, c.want) {
			t.Errorf("%s: got %v, want a %T", c.name, err, c.want)
		}
	}
	if _, cached := s.loader.state(); len(cached) > 0 || len(s.files()) > 0 {
		t.Errorf("left: compiled %v, files %v", cached, s.files())
	}
}

func TestTryingWhatIsStoredKeepsItsCompiledForm(t *testing.T) {
	s := newShelf(t)
	first, err := s.lib.Put(t.Context(), "m1", guest("good"), false)
	if err != nil || !first.Created {
		t.Fatal(first, err)
	}
	if again, err := s.lib.Put(t.Context(), "m1", guest("good"), false); err != nil || again.Created {
		t.Errorf("again: %+v, %v", again, err)
	}
	if _, err := s.lib.Put(t.Context(), "m2", guest("good"), true); err != nil {
		t.Error(err)
	}
	// The same bytes are refused now, for want of memory for example.
	s.loader.set(errors.New("no memory"))
	if _, err := s.lib.Put(t.Context(), "m2", guest("good"), false); err == nil {
		t.Error("no error")
	}
	_, cached := s.loader.state()
	if diff := cmp.Diff([]string{host.Digest(guest("good"))}, cached); diff != "" {
		t.Errorf("compiled forms (-want +got)\n%s", diff)
	}
}

func TestNamesOfTheDirectoryAreRefusedBeforeAnythingIsCompiled(t *testing.T) {
	s := newShelf(t)
	s.write("d1.wasm", guest("one"))
	s.load(s.dir(0))
	before, _ := s.loader.state()
	for _, dry := range []bool{false, true} {
		if _, err := s.lib.Put(t.Context(), "d1", guest("two"), dry); !errors.Is(err, store.ErrOwned) {
			t.Errorf("dry %v: got %v, want ErrOwned", dry, err)
		}
	}
	if err := s.lib.Delete("d1"); !errors.Is(err, store.ErrOwned) {
		t.Errorf("delete: %v", err)
	}
	if after, _ := s.loader.state(); after != before {
		t.Errorf("%d checks", after-before)
	}
	if diff := cmp.Diff([]string{"d1=one dir"}, s.names()); diff != "" {
		t.Error(diff)
	}
}

func TestManyPutsAndDeletesOfANameEndWithOneOfThem(t *testing.T) {
	s := newShelf(t)
	done := make(chan error)
	for i := range 20 {
		go func() {
			_, err := s.lib.Put(t.Context(), "m1", guest(fmt.Sprintf("writer-%d", i%4)), i%5 == 4)
			if i%7 == 6 {
				if derr := s.lib.Delete("m1"); derr != nil && !errors.Is(derr, store.ErrNotFound) {
					err = errors.Join(err, derr)
				}
			}
			done <- err
		}()
	}
	for range 20 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if got := s.files(); len(got) != 0 && len(got) != 2 {
		t.Errorf("files: %v, want one blob with its name, or none", got)
	}
}
