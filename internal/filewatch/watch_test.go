package filewatch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/internal/filewatch"
	"github.com/routerd/routerd/internal/testkit"
)

func plain(w *watched) { w.write("c.yaml", "one") }

func TestAWrittenFileIsToldOnce(t *testing.T) {
	w := watch(t, never, plain, "c.yaml").run(nil)
	w.quiet(0)
	w.write("c.yaml", "two")
	w.called(1)
	w.write("c.yaml", "three")
	w.called(2)
}

// Editors write another file and rename it over the old one.
func TestARenameOverTheFileIsSeen(t *testing.T) {
	w := watch(t, never, plain, "c.yaml").run(nil)
	for n, text := range []string{"two", "three"} {
		w.write("c.yaml.swp", text)
		w.quiet(int64(n))
		w.rename("c.yaml.swp", "c.yaml")
		w.called(int64(n) + 1)
	}
	w.rename("c.yaml", "c.yaml~") // others keep the old one and write anew
	w.write("c.yaml", "four")
	w.called(3)
}

// As a kubelet does it: a new folder, a link to it beside ..data, the rename of
// that link, the removal of the old folder.
func TestAConfigMapIsFollowedThroughItsSwaps(t *testing.T) {
	dated := func(w *watched, n int, text string) string {
		name := fmt.Sprintf("..2026_01_01_00_00_%02d.1", n)
		w.must(os.Mkdir(w.path(name), 0o700))
		w.write(filepath.Join(name, "c.yaml"), text)
		return name
	}
	w := watch(t, never, func(w *watched) {
		w.link(dated(w, 0, "text 0"), "..data")
		w.link(filepath.Join("..data", "c.yaml"), "c.yaml")
	}, "c.yaml").run(nil)
	old := "..2026_01_01_00_00_00.1"
	swap := func(n int, text string) {
		t.Helper()
		next := dated(w, n, text)
		w.link(next, "..data_tmp")
		w.rename("..data_tmp", "..data")
		w.must(os.RemoveAll(w.path(old)))
		old = next
	}
	for n := 1; n <= 3; n++ {
		swap(n, fmt.Sprintf("text %d", n))
		w.called(int64(n))
	}
	swap(4, "text 3") // another key of the map has changed
	w.quiet(3)
	swap(5, "text 5")
	w.called(4)
	if got := w.log.String(); got != "" {
		t.Errorf("the log has\n%s", got)
	}
}

// A link further up, as of releases that are switched, counts too.
func TestALinkAmongTheFoldersIsFollowed(t *testing.T) {
	w := watch(t, never, func(w *watched) {
		for _, name := range []string{"one", "two"} {
			w.must(os.MkdirAll(w.path(filepath.Join("releases", name, "etc")), 0o700))
			w.write(filepath.Join("releases", name, "etc", "c.yaml"), name)
		}
		w.must(os.Mkdir(w.path("links"), 0o700))
		w.link(filepath.Join("..", "releases", "one"), filepath.Join("links", "current"))
		w.link(filepath.Join("links", "current", "etc"), "etc")
	}, filepath.Join("etc", "c.yaml")).run(nil)
	w.quiet(0)
	w.link(filepath.Join("..", "releases", "two"), filepath.Join("links", "next"))
	w.rename(filepath.Join("links", "next"), filepath.Join("links", "current"))
	w.called(1)
	w.write(filepath.Join("releases", "one", "etc", "c.yaml"), "of no interest any more")
	w.quiet(1)
	w.write(filepath.Join("releases", "two", "etc", "c.yaml"), "two, changed")
	w.called(2)
}

func TestTheFoldersOfAFileAndOfTheLinksToItAreWatched(t *testing.T) {
	w := watch(t, never, func(w *watched) {
		w.must(os.MkdirAll(w.path("real/deep"), 0o700))
		w.write("real/deep/c.yaml", "x")
		w.link("real/../real/deep", "link")
		w.link("circle", "circle")
	})
	for _, c := range []struct {
		path           string
		folders, names []string
	}{
		{"real/deep/c.yaml", []string{"real/deep"}, []string{"c.yaml"}},
		{"link/c.yaml", []string{".", "real/deep"}, []string{"c.yaml", "link"}},
		{"link/../deep/c.yaml", []string{".", "real/deep"}, []string{"c.yaml", "link"}},
		{"real/none/c.yaml", []string{"real"}, []string{"none"}},
		{"real/deep/none", []string{"real/deep"}, []string{"none"}},
		{"circle/c.yaml", []string{"."}, []string{"circle"}},
	} {
		var want []string
		for _, f := range c.folders {
			want = append(want, w.path(f))
		}
		folders, names := filewatch.Folders(w.dir + "/" + c.path)
		if diff := cmp.Diff([][]string{want, c.names}, [][]string{folders, names}); diff != "" {
			t.Errorf("%s (-want +got)\n%s", c.path, diff)
		}
	}
}

// What is truncated is about to be written: it is not taken.
func TestAFileIsTakenWhenItIsWrittenNotWhenItIsTruncated(t *testing.T) {
	var got atomic.Value
	w := watch(t, never, plain, "c.yaml")
	w.run(func() {
		text, err := os.ReadFile(w.path("c.yaml"))
		if err != nil {
			t.Error(err)
		}
		got.Store(string(text))
	})
	w.must(os.Truncate(w.path("c.yaml"), 0))
	testkit.Until(t, "the log tells of it", func() bool { return w.log.Count("empty, as a file is while it is written") == 1 })
	w.quiet(0)
	w.write("c.yaml", "two")
	w.called(1)
	if got.Load() != "two" {
		t.Errorf("told when the file had %q", got.Load())
	}
}

// A writer that is slower than the debounce is seen at every rest that it makes,
// and so at its end.
func TestTheEndOfASlowWriteIsSeen(t *testing.T) {
	w := watch(t, never, plain, "c.yaml").run(nil)
	w.write("c.yaml", "tw")
	w.called(1)
	w.write("c.yaml", "two")
	w.called(2)
}

func TestATouchedFileIsNoChange(t *testing.T) {
	w := watch(t, debounce, plain, "c.yaml").run(nil)
	for n := range 5 {
		at := time.Now().Add(time.Duration(n) * time.Hour)
		w.must(os.Chtimes(w.path("c.yaml"), at, at))
		w.write("c.yaml", "one")
		w.write("c.yaml.new", "one")
		w.rename("c.yaml.new", "c.yaml")
	}
	w.quiet(0)
}

func TestAChangeThatIsTakenBackWithinTheDebounceIsNone(t *testing.T) {
	w := watch(t, never, plain, "c.yaml").run(nil)
	w.write("c.yaml", "two")
	w.write("c.yaml", "one")
	w.quiet(0)
}

func TestAThousandWritesAreFewChangesAndTheLastIsSeen(t *testing.T) {
	var last atomic.Value
	w := watch(t, never, plain, "c.yaml")
	w.run(func() {
		text, err := os.ReadFile(w.path("c.yaml"))
		if err != nil {
			t.Error(err)
		}
		last.Store(string(text))
	})
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for n := range 1000 {
		w.write("c.yaml.new", fmt.Sprint(n))
		w.rename("c.yaml.new", "c.yaml")
		<-tick.C
	}
	testkit.Until(t, "the last write is told", func() bool { return last.Load() == "999" })
	// One look a debounce at most; a change of a file that never rests is told
	// each 25 looks, or where the writer was held up for a debounce.
	if n := w.calls.Load(); n > 10 {
		t.Errorf("1,000 writes were told as %d changes", n)
	}
}

func TestAFileThatNeverRestsIsToldAllTheSame(t *testing.T) {
	w := watch(t, never, plain, "c.yaml").run(nil)
	n := 0
	testkit.Until(t, "a change is told while the file changes", func() bool {
		n++
		w.write("c.yaml.new", fmt.Sprint(n))
		w.rename("c.yaml.new", "c.yaml")
		return w.calls.Load() > 0
	})
}

func TestOtherFilesOfTheFolderAreNoHint(t *testing.T) {
	w := watch(t, never, plain, "c.yaml")
	w.run(nil)
	w.quiet(0)
	w.must(os.Mkdir(w.path("more"), 0o700))
	for n := range 200 {
		w.write("other.yaml", fmt.Sprint(n))
	}
	w.quiet(0)
}

func TestAVanishedFileKeepsItsLastStateAndIsSeenWhenItIsBack(t *testing.T) {
	w := watch(t, debounce, plain, "c.yaml").run(nil)
	w.must(os.Remove(w.path("c.yaml")))
	testkit.Until(t, "the log tells of it", func() bool { return w.log.Count("watched file cannot be read") == 1 })
	w.quiet(0)
	if n := w.log.Count("WARN"); n != 1 {
		t.Errorf("%d warnings in\n%s", n, w.log)
	}
	w.write("c.yaml", "one") // as it was
	w.quiet(0)
	w.must(os.Remove(w.path("c.yaml")))
	testkit.Until(t, "the log tells of it again", func() bool { return w.log.Count("watched file cannot be read") == 2 })
	w.write("c.yaml", "two")
	w.called(1)
}

// The folder itself is made anew, as a deployment does that copies all of it.
func TestAFolderThatIsReplacedIsFollowed(t *testing.T) {
	fill := func(w *watched, name, text string) {
		w.must(os.Mkdir(w.path(name), 0o700))
		w.write(filepath.Join(name, "c.yaml"), text)
	}
	w := watch(t, never, func(w *watched) { fill(w, "etc", "one") }, "etc/c.yaml").run(nil)
	w.quiet(0)
	w.rename("etc", "etc.old")
	fill(w, "etc.new", "two")
	w.rename("etc.new", "etc")
	w.called(1)
	w.must(os.RemoveAll(w.path("etc")))
	testkit.Until(t, "the log tells of it", func() bool { return w.log.Count("watched file cannot be read") > 0 })
	fill(w, "etc", "three")
	w.called(2)
}

// A folder further up is replaced, of which the system tells nobody who watches
// the folder of the file.
func TestAPollFindsWhatNoHintTold(t *testing.T) {
	fill := func(w *watched, name, text string) {
		w.must(os.MkdirAll(w.path(name+"/etc"), 0o700))
		w.write(name+"/etc/c.yaml", text)
	}
	replaced := func(poll time.Duration) *watched {
		w := watch(t, poll, func(w *watched) { fill(w, "top", "one") }, "top/etc/c.yaml").run(nil)
		w.quiet(0)
		fill(w, "next", "two")
		w.rename("top", "old")
		w.rename("next", "top")
		return w
	}
	replaced(never).quiet(0)
	w := replaced(2 * debounce)
	w.called(1)
	w.write("top/etc/c.yaml", "three") // the new folder is watched
	w.called(2)
}

func TestWhatChangedBeforeRunIsTold(t *testing.T) {
	w := watch(t, never, plain, "c.yaml")
	w.write("c.yaml", "two")
	w.run(nil).called(1)
}

func TestMarkedContentsAreKnown(t *testing.T) {
	w := watch(t, never, plain, "c.yaml")
	w.write("c.yaml", "two")
	w.Mark()
	w.run(nil).quiet(0)
	w.must(os.Remove(w.path("c.yaml")))
	w.Mark() // who reads now finds nothing: what comes then is new, whatever it is
	w.write("c.yaml", "two")
	w.called(1)
}

func TestFollowedFilesAreKnownAsTheyAre(t *testing.T) {
	w := watch(t, never, func(w *watched) {
		plain(w)
		w.must(os.Mkdir(w.path("secret"), 0o700))
		w.write("secret/token", "t1")
	}, "c.yaml").run(nil)
	w.Follow(w.path("c.yaml"), w.path("secret/token"))
	w.quiet(0)
	w.write("secret/token", "t2")
	w.called(1)
	w.must(os.Remove(w.path("secret/token"))) // does not stand against the other
	w.write("c.yaml", "two")
	w.called(2)
	w.Follow(w.path("c.yaml"))
	w.write("secret/token", "t3")
	w.quiet(2)
}

// What happens while a change is told is seen afterwards.
func TestAChangeDuringTheCallIsToldNext(t *testing.T) {
	w := watch(t, never, plain, "c.yaml")
	w.run(func() {
		if w.calls.Load() == 1 {
			w.write("c.yaml", "three")
		}
	})
	w.write("c.yaml", "two")
	w.called(2)
}

func TestLookLeavesOutWhatItCannotRead(t *testing.T) {
	w := watch(t, debounce, func(w *watched) { w.must(os.Mkdir(w.path("folder"), 0o700)) }, "folder", "none").run(nil)
	testkit.Until(t, "the log tells of both", func() bool { return w.log.Count("no regular file") == 1 && w.log.Count("no such file") == 1 })
	w.quiet(0)
}
