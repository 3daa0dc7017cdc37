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
	"io/fs"
	"maps"
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
	// ErrOwned is a name that belongs to another source.
	ErrOwned = errors.New("the name belongs to another source")
)

// Sources of names.
const (
	SourceAPI = "api" // put one by one
	SourceDir = "dir" // the module directory, as a set
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
	Source string    `json:"source"` // SourceAPI or SourceDir: only it changes the name
}

// Store is safe for concurrent use. One process at a time may open a folder.
type Store struct {
	dir string

	mu    sync.Mutex // guards all below and the folder's names
	names map[string]Module
	pins  map[string]map[string]int // digest → who → how often
	held  bool                      // nothing is removed
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
	if err := durable.CleanTemp(dir); err != nil {
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
	if err := s.resume(); err != nil {
		return nil, fmt.Errorf("open module store: %w", err)
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
	if !s.Has(m.Digest) {
		return fmt.Errorf("the bytes %s: %w", m.Digest, ErrNotFound)
	}
	if m.Source == "" {
		m.Source = SourceAPI
	}
	s.names[m.Name] = m
	return nil
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

// Delete removes a name that was put, and its bytes when nothing else needs
// them. A module that is pinned is ErrInUse, naming who uses it; a name of the
// module directory is ErrOwned.
func (s *Store) Delete(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.names[name]
	if !ok {
		return fmt.Errorf("delete module %q: %w", name, ErrNotFound)
	}
	if m.Source != SourceAPI {
		return fmt.Errorf("delete module %q: %w", name, owned(m))
	}
	if users := s.pins[m.Digest]; len(users) > 0 {
		who := strings.Join(slices.Sorted(maps.Keys(users)), ", ")
		return fmt.Errorf("delete module %q: %w by %s", name, ErrInUse, who)
	}
	if err := durable.Remove(s.path("names", name)); err != nil {
		return fmt.Errorf("delete module %q: %w", name, err)
	}
	delete(s.names, name)
	s.collect(m.Digest)
	return nil
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
