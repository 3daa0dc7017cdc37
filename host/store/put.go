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
	"strings"
	"time"

	"github.com/routerd/routerd/internal/durable"
)

// Staged are bytes that are on disk under no name yet. Discard it.
type Staged struct {
	Digest string // "sha256:HEX"
	Size   int64  // bytes
	tmp    string
}

// Discard removes the bytes unless a name has got them.
func (b *Staged) Discard() { _ = os.Remove(b.tmp) }

// Stage writes the bytes of r down. want, when not empty, is the digest
// ("sha256:HEX") that they must have. Nothing is left when r fails, is too
// large or has another digest.
func (s *Store) Stage(r io.Reader, want string) (b *Staged, err error) {
	if want != "" {
		if _, err := digestHex(want); err != nil {
			return nil, err
		}
	}
	tmp, err := os.CreateTemp(s.path("tmp"), "put-*")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err = errors.Join(err, tmp.Close()); err != nil {
			_ = os.Remove(tmp.Name())
		}
	}()
	b = &Staged{tmp: tmp.Name()}
	sum := sha256.New()
	b.Size, err = io.Copy(io.MultiWriter(tmp, sum), io.LimitReader(r, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read its bytes: %w", err)
	}
	if b.Size > MaxBytes {
		return nil, ErrTooLarge
	}
	b.Digest = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	if want != "" && want != b.Digest {
		return nil, fmt.Errorf("%w: declared %s, got %s", ErrDigest, want, b.Digest)
	}
	return b, tmp.Sync()
}

// Put stores the bytes of r under a name. want is as in Stage. created is false
// when the name already pointed to these bytes. Nothing is stored when r fails,
// is too large or has another digest, or when the name is the module
// directory's (ErrOwned).
func (s *Store) Put(name string, r io.Reader, want string) (m Module, created bool, err error) {
	if err := CheckName(name); err != nil {
		return Module{}, false, err
	}
	b, err := s.Stage(r, want)
	if err == nil {
		defer b.Discard()
		m, created, err = s.point(name, b)
	}
	if err != nil {
		return Module{}, false, fmt.Errorf("store module %q: %w", name, err)
	}
	return m, created, nil
}

// point moves the blob in and lets the name point to it.
func (s *Store) point(name string, b *Staged) (Module, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, had := s.names[name]
	if had && old.Source != SourceAPI {
		return Module{}, false, owned(old)
	}
	if had && old.Digest == b.Digest {
		return old, false, nil
	}
	if err := s.moveIn(b); err != nil {
		return Module{}, false, err
	}
	m := Module{Name: name, Digest: b.Digest, Size: b.Size, At: time.Now().UTC(), Source: SourceAPI}
	if err := s.writeName(m); err != nil {
		s.collect(m.Digest)
		return Module{}, false, err
	}
	s.names[name] = m
	if had {
		s.collect(old.Digest)
	}
	return m, true, nil
}

// moveIn makes staged bytes a blob. s.mu is held.
func (s *Store) moveIn(b *Staged) error {
	blob := s.path("blobs", strings.TrimPrefix(b.Digest, "sha256:"))
	if _, err := os.Stat(blob); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(b.tmp, blob); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(blob))
}

func (s *Store) writeName(m Module) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return durable.WriteFile(s.path("names", m.Name), text, 0o600)
}

// owned says whose a name is.
func owned(m Module) error { return fmt.Errorf("%w: %q is from source %s", ErrOwned, m.Name, m.Source) }
