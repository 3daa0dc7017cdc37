package store

import (
	"fmt"
	"os"
	"strings"
)

// Pin keeps the bytes with a digest until Unpin is called as often for the same
// who, such as "policy default revision 3". ErrNotFound when there are none.
func (s *Store) Pin(digest, who string) error {
	hexDigest, err := digestHex(digest)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := os.Stat(s.path("blobs", hexDigest)); err != nil {
		return fmt.Errorf("module %s: %w", digest, ErrNotFound)
	}
	if s.pins[digest] == nil {
		s.pins[digest] = map[string]int{}
	}
	s.pins[digest][who]++
	return nil
}

// Unpin undoes one Pin; bytes that nothing needs any more are removed.
func (s *Store) Unpin(digest, who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	users := s.pins[digest]
	if users[who] == 0 {
		return
	}
	if users[who]--; users[who] == 0 {
		delete(users, who)
	}
	if len(users) == 0 {
		delete(s.pins, digest)
	}
	s.collect(digest)
}

// Hold keeps all bytes, and all names that Replace would remove, until Sweep:
// after a start, what is needed is not pinned yet.
func (s *Store) Hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = true
}

// Sweep removes the bytes that neither a name nor a pin needs: what a crash
// between two changes left. Call it when everything that is kept is pinned.
func (s *Store) Sweep() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = false
	files, err := os.ReadDir(s.path("blobs"))
	if err != nil {
		return fmt.Errorf("sweep module store: %w", err)
	}
	for _, f := range files {
		s.collect("sha256:" + f.Name())
	}
	return nil
}

// collect removes a blob without name and pin. s.mu is held. A blob that cannot
// be removed is left to the next Sweep.
func (s *Store) collect(digest string) {
	if s.held || len(s.pins[digest]) > 0 {
		return
	}
	for _, m := range s.names {
		if m.Digest == digest {
			return
		}
	}
	_ = os.Remove(s.path("blobs", strings.TrimPrefix(digest, "sha256:")))
}
