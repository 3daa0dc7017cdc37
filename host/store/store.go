// Package store keeps guest modules on disk: bytes by their SHA-256 digest, and
// names that point to digests.
//
// Invariants: a blob's file name is the digest of its bytes; a name points to a
// blob that is there; every change is atomic (temporary file, fsync, rename,
// fsync of the folder), so that a crash at any point leaves the old state or
// the new one; a blob that is pinned, because a kept policy revision uses it,
// is never removed. The package starts no goroutine.
//
//	s, err := store.Open(dir)
//	m, created, err := s.Put("kv-aware", body, "")
//	wasm, err := s.Bytes(m.Digest)
package store

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/durable"
)

// MaxBytes is the largest module.
const MaxBytes = 8 << 20

// Errors that callers branch on.
var (
	// ErrNotFound is a name or digest that the store does not hold.
	ErrNotFound = errors.New("no such module")
	// ErrTooLarge is a module over MaxBytes.
	ErrTooLarge = errors.New("module is larger than 8 MiB")
	// ErrDigest is bytes that do not have the digest that was declared.
	ErrDigest = errors.New("the bytes do not have the declared digest")
	// ErrInUse is a module that a kept policy revision uses.
	ErrInUse = errors.New("module is in use")
)

// NameAllowed says what a module or policy may be called.
const NameAllowed = "2 to 63 characters of a-z, 0-9, dot and hyphen, the first a letter or digit"

var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,62}$`)

// CheckName refuses what is no name with a *fleet.FieldError. Every name that
// passes is safe as a file name.
func CheckName(name string) error {
	if !validName.MatchString(name) {
		return &fleet.FieldError{Field: "name", Value: name, Allowed: NameAllowed}
	}
	return nil
}

// Module is a name and what it points to.
type Module struct {
	Name   string    `json:"name"`
	Digest string    `json:"digest"` // "sha256:HEX"
	Size   int64     `json:"size"`   // bytes
	At     time.Time `json:"at"`     // when the name was set to this digest
}

// Store is safe for concurrent use. One process at a time may open a folder.
type Store struct {
	dir string

	mu    sync.Mutex // guards all below and the folder's names
	names map[string]Module
	pins  map[string]map[string]int // digest → who → how often
}

// Open reads the folder, making it where needed, and removes what a crash left
// half-written.
func Open(dir string) (*Store, error) {
	s := &Store{dir: dir, names: map[string]Module{}, pins: map[string]map[string]int{}}
	if err := os.RemoveAll(s.path("tmp")); err != nil {
		return nil, fmt.Errorf("open module store: %w", err)
	}
	for _, sub := range []string{"blobs", "names", "tmp"} {
		if err := os.MkdirAll(s.path(sub), 0o700); err != nil {
			return nil, fmt.Errorf("open module store: %w", err)
		}
	}
	if err := durable.CleanTemp(s.path("names")); err != nil {
		return nil, fmt.Errorf("open module store: %w", err)
	}
	files, err := os.ReadDir(s.path("names"))
	if err != nil {
		return nil, fmt.Errorf("open module store: %w", err)
	}
	for _, f := range files {
		if err := s.readName(f.Name()); err != nil {
			return nil, fmt.Errorf("open module store: read name %q: %w", f.Name(), err)
		}
	}
	return s, nil
}

func (s *Store) readName(file string) error {
	b, err := os.ReadFile(s.path("names", file))
	if err != nil {
		return err
	}
	var m Module
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	if m.Name != file || CheckName(m.Name) != nil {
		return errors.New("the file holds another name")
	}
	hexDigest, err := digestHex(m.Digest)
	if err != nil {
		return err
	}
	if _, err := os.Stat(s.path("blobs", hexDigest)); err != nil {
		return err
	}
	s.names[m.Name] = m
	return nil
}

// Put stores the bytes of r under a name. want, when not empty, is the digest
// ("sha256:HEX") that they must have. created is false when the name already
// pointed to these bytes. Nothing is stored when r fails, is too large or has
// another digest.
func (s *Store) Put(name string, r io.Reader, want string) (m Module, created bool, err error) {
	if err := CheckName(name); err != nil {
		return Module{}, false, err
	}
	if want != "" {
		if _, err := digestHex(want); err != nil {
			return Module{}, false, err
		}
	}
	tmp, err := os.CreateTemp(s.path("tmp"), "put-*")
	if err != nil {
		return Module{}, false, fmt.Errorf("store module %q: %w", name, err)
	}
	defer func() {
		_ = tmp.Close()
		_ = os.Remove(tmp.Name()) // gone already when it was moved in
	}()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(tmp, sum), io.LimitReader(r, MaxBytes+1))
	if err != nil {
		return Module{}, false, fmt.Errorf("store module %q: read its bytes: %w", name, err)
	}
	if n > MaxBytes {
		return Module{}, false, fmt.Errorf("store module %q: %w", name, ErrTooLarge)
	}
	digest := "sha256:" + hex.EncodeToString(sum.Sum(nil))
	if want != "" && want != digest {
		return Module{}, false, fmt.Errorf("store module %q: %w: declared %s, got %s", name, ErrDigest, want, digest)
	}
	if err := tmp.Sync(); err != nil {
		return Module{}, false, fmt.Errorf("store module %q: %w", name, err)
	}
	return s.point(tmp.Name(), Module{Name: name, Digest: digest, Size: n, At: time.Now().UTC()})
}

// point moves the blob in and lets the name point to it.
func (s *Store) point(tmp string, m Module) (Module, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, had := s.names[m.Name]
	if had && old.Digest == m.Digest {
		return old, false, nil
	}
	blob := s.path("blobs", strings.TrimPrefix(m.Digest, "sha256:"))
	if _, err := os.Stat(blob); errors.Is(err, fs.ErrNotExist) {
		if err := os.Rename(tmp, blob); err != nil {
			return Module{}, false, fmt.Errorf("store module %q: %w", m.Name, err)
		}
		if err := durable.SyncDir(filepath.Dir(blob)); err != nil {
			return Module{}, false, fmt.Errorf("store module %q: %w", m.Name, err)
		}
	}
	b, err := json.Marshal(m)
	if err != nil {
		return Module{}, false, fmt.Errorf("store module %q: %w", m.Name, err)
	}
	if err := durable.WriteFile(s.path("names", m.Name), b, 0o600); err != nil {
		return Module{}, false, fmt.Errorf("store module %q: %w", m.Name, err)
	}
	s.names[m.Name] = m
	if had {
		s.collect(old.Digest)
	}
	return m, true, nil
}

// Get finds a name; ErrNotFound when there is none.
func (s *Store) Get(name string) (Module, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.names[name]
	if !ok {
		return Module{}, fmt.Errorf("module %q: %w", name, ErrNotFound)
	}
	return m, nil
}

// List returns all names in order.
func (s *Store) List() []Module {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Module, 0, len(s.names))
	for _, m := range s.names {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Module) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Bytes reads the module with a digest and checks that it has it; ErrNotFound
// when there is none.
func (s *Store) Bytes(digest string) ([]byte, error) {
	hexDigest, err := digestHex(digest)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(s.path("blobs", hexDigest))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("module %s: %w", digest, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read module %s: %w", digest, err)
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != hexDigest {
		return nil, fmt.Errorf("read module %s: %w", digest, ErrDigest)
	}
	return b, nil
}

// Has tells whether the store holds bytes with a digest.
func (s *Store) Has(digest string) bool {
	hexDigest, err := digestHex(digest)
	if err != nil {
		return false
	}
	_, err = os.Stat(s.path("blobs", hexDigest))
	return err == nil
}

// Delete removes a name, and its bytes when nothing else needs them. A module
// that is pinned is ErrInUse, naming who uses it.
func (s *Store) Delete(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.names[name]
	if !ok {
		return fmt.Errorf("delete module %q: %w", name, ErrNotFound)
	}
	if users := s.pins[m.Digest]; len(users) > 0 {
		who := make([]string, 0, len(users))
		for u := range users {
			who = append(who, u)
		}
		slices.Sort(who)
		return fmt.Errorf("delete module %q: %w by %s", name, ErrInUse, strings.Join(who, ", "))
	}
	if err := durable.Remove(s.path("names", name)); err != nil {
		return fmt.Errorf("delete module %q: %w", name, err)
	}
	delete(s.names, name)
	s.collect(m.Digest)
	return nil
}

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

// Sweep removes the bytes that neither a name nor a pin needs: what a crash
// between two changes left. Call it when everything that is kept is pinned.
func (s *Store) Sweep() error {
	s.mu.Lock()
	defer s.mu.Unlock()
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
	if len(s.pins[digest]) > 0 {
		return
	}
	for _, m := range s.names {
		if m.Digest == digest {
			return
		}
	}
	_ = os.Remove(s.path("blobs", strings.TrimPrefix(digest, "sha256:")))
}

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

func digestHex(digest string) (string, error) {
	h, ok := strings.CutPrefix(digest, "sha256:")
	if b, err := hex.DecodeString(h); !ok || err != nil || len(b) != sha256.Size || strings.ToLower(h) != h {
		return "", &fleet.FieldError{Field: "sha256", Value: digest, Allowed: "sha256: and 64 lower-case hexadecimal digits"}
	}
	return h, nil
}
