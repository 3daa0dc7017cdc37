package filewatch

import (
	"os"
	"path/filepath"
	"strings"
)

// maxLinks ends the walk along links that lead in a circle, as systems do.
const maxLinks = 40

// places are folders and the names in them that decide what files hold.
type places struct {
	folders map[string]bool // without links in their paths
	names   map[string]bool // of entries in any of the folders
}

// placesOf are the folders whose entries can change what the paths lead to: the
// one of each file and those of the links on the way to it. On the way to a file
// that is not there it is the folder where the way ends.
func placesOf(paths []string) places {
	p := places{folders: map[string]bool{}, names: map[string]bool{}}
	for _, path := range paths {
		p.walk(path)
	}
	return p
}

func (p *places) note(folder, name string) {
	p.folders[folder], p.names[name] = true, true
}

// walk goes to a file step by step. at has no links, so that ".." is its parent.
func (p *places) walk(path string) {
	at, rest := split(path)
	if at == "" {
		here, err := os.Getwd()
		if err != nil {
			return
		}
		top, steps := split(here)
		at, rest = top, append(steps, rest...)
	}
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		here := filepath.Join(at, name)
		info, err := os.Lstat(here)
		link := err == nil && info.Mode()&os.ModeSymlink != 0
		if err != nil || link || len(rest) == 0 {
			p.note(at, name)
		}
		if err != nil {
			return
		}
		if !link {
			at = here
			continue
		}
		to, err := os.Readlink(here)
		if links++; err != nil || links > maxLinks {
			return
		}
		top, steps := split(to)
		if top != "" {
			at = top
		}
		rest = append(steps, rest...)
	}
}

// split takes a path into its root, empty for a relative one, and its steps.
func split(path string) (root string, steps []string) {
	volume := filepath.VolumeName(path)
	below := filepath.ToSlash(path[len(volume):])
	if strings.HasPrefix(below, "/") {
		root = volume + string(filepath.Separator)
	}
	return root, strings.Split(strings.Trim(below, "/"), "/")
}
