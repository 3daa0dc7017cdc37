package host

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/host/store"
	"github.com/routerd/routerd/internal/durable"
	"github.com/routerd/routerd/plugins/abi"
)

// keptRevisions is how many revisions a policy keeps. The active one, the one
// before it, the canary's and the shadow's are among them, however old.
const keptRevisions = 10

// history is a policy as it is kept on disk: one file, replaced as a whole.
type history struct {
	Name        string           `json:"name"`
	Next        int              `json:"next"`     // number of the next revision
	Active      int              `json:"active"`   // 0 for none
	Previous    int              `json:"previous"` // what rollback goes to, 0 for none
	ActivatedBy string           `json:"activated_by,omitempty"`
	ActivatedAt time.Time        `json:"activated_at,omitzero"`
	Seed        string           `json:"seed,omitempty"` // digest of the last seed applied
	Trip        *keptTrip        `json:"trip,omitempty"` // the active revision has tripped
	Canary      *CanaryInfo      `json:"canary,omitempty"`
	Shadow      *ShadowInfo      `json:"shadow,omitempty"`
	Revisions   []historyElement `json:"revisions"`         // by number
	Changes     []Change         `json:"changes,omitempty"` // the oldest first
}

// keptTrip says that the active revision has tripped and nobody gave it another
// chance: it starts so again. The list of changes is too short to tell.
type keptTrip struct {
	Why        string `json:"why"`
	Distrusted bool   `json:"distrusted,omitempty"` // by an audit: the fallback stands in, and no probe helps
}

type historyElement struct {
	Number  int         `json:"number"`
	Spec    policy.Spec `json:"spec"`  // every module pinned
	Given   policy.Spec `json:"given"` // as it was put
	Digests []string    `json:"digests,omitempty"`
	Columns []string    `json:"columns,omitempty"`
	Used    bool        `json:"used,omitempty"` // was active once
	By      string      `json:"by"`
	At      time.Time   `json:"at"`
}

// differs tells whether the active revision was made from another specification
// than the one with this digest.
func (h *history) differs(digest string) bool {
	el := h.find(h.Active)
	return el != nil && specDigest(el.Given) != digest
}

func (h *history) find(number int) *historyElement {
	for i := range h.Revisions {
		if h.Revisions[i].Number == number {
			return &h.Revisions[i]
		}
	}
	return nil
}

// same finds the newest kept revision with this pinned spec.
func (h *history) same(spec policy.Spec) *historyElement {
	want := specDigest(spec)
	for i := len(h.Revisions) - 1; i >= 0; i-- {
		if specDigest(h.Revisions[i].Spec) == want {
			return &h.Revisions[i]
		}
	}
	return nil
}

// copied is a copy that can be changed without touching h.
func (h *history) copied() history {
	out := *h
	out.Revisions = slices.Clone(h.Revisions)
	return out
}

// trim drops the oldest revisions over the limit and returns them.
func (h *history) trim() []historyElement {
	var dropped []historyElement
	for i := 0; len(h.Revisions) > keptRevisions && i < len(h.Revisions); {
		r := h.Revisions[i]
		if h.inUse(r.Number) || i == len(h.Revisions)-1 {
			i++
			continue
		}
		dropped = append(dropped, r)
		h.Revisions = slices.Delete(h.Revisions, i, i+1)
	}
	return dropped
}

// inUse tells whether a revision must be kept, however old.
func (h *history) inUse(number int) bool {
	return number == h.Active || number == h.Previous ||
		h.Canary != nil && number == h.Canary.Revision || h.Shadow != nil && number == h.Shadow.Revision
}

// add appends a revision under the next number and drops the oldest ones over
// the limit.
func (h *history) add(el historyElement) (number int, dropped []historyElement) {
	number = h.Next
	el.Number = number
	h.Next++
	h.Revisions = append(h.Revisions, el)
	return number, h.trim()
}

// activate notes that a revision becomes the active one.
func (h *history) activate(number int, by string, at time.Time) {
	if h.Active != number {
		h.Previous, h.Trip = h.Active, nil
	}
	h.Active, h.ActivatedBy, h.ActivatedAt = number, by, at
	h.find(number).Used = true
}

func (h *history) save(dir string) error {
	b, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		return fmt.Errorf("save policy %q: %w", h.Name, err)
	}
	if err := durable.WriteFile(filepath.Join(dir, h.Name+".json"), b, 0o600); err != nil {
		return fmt.Errorf("save policy %q: %w", h.Name, err)
	}
	return nil
}

// restore writes the file as it was before a change that is taken back.
func (h *history) restore(dir string) error {
	if h.Next > 1 {
		return h.save(dir)
	}
	if err := durable.Remove(filepath.Join(dir, h.Name+".json")); err != nil { // there was none
		return fmt.Errorf("restore policy %q: %w", h.Name, err)
	}
	return nil
}

// loadHistories reads what is kept in dir, making it where needed.
func loadHistories(dir string) ([]history, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open policies: %w", err)
	}
	if err := durable.CleanTemp(dir); err != nil {
		return nil, fmt.Errorf("open policies: %w", err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open policies: %w", err)
	}
	var out []history
	for _, f := range files {
		h, err := loadHistory(dir, f.Name())
		if err != nil {
			return nil, fmt.Errorf("open policies: read %q: %w", f.Name(), err)
		}
		out = append(out, h)
	}
	return out, nil
}

func loadHistory(dir, file string) (history, error) {
	name, ok := strings.CutSuffix(file, ".json")
	if !ok || store.CheckName(name) != nil {
		return history{}, errors.New("no policy's file; allowed: NAME.json")
	}
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return history{}, err
	}
	var h history
	if err := json.Unmarshal(b, &h); err != nil {
		return history{}, err
	}
	if err := h.check(name); err != nil {
		return history{}, err
	}
	return h, nil
}

// check refuses a file that contradicts itself.
func (h *history) check(name string) error {
	if h.Name != name {
		return errors.New("the file does not fit its name")
	}
	refers := []int{h.Active}
	if h.Canary != nil {
		refers = append(refers, h.Canary.Revision)
	}
	if h.Shadow != nil {
		refers = append(refers, h.Shadow.Revision)
	}
	for _, number := range refers {
		if number != 0 && h.find(number) == nil {
			return fmt.Errorf("the file names revision %d, which it does not hold", number)
		}
	}
	return nil
}

// specDigest names a specification, so that two spellings of one compare equal.
func specDigest(s policy.Spec) string {
	if n, err := s.Normalised(); err == nil {
		s = n
	}
	s = s.Clone()
	s.EachStage(func(_ string, _ abi.Kind, st *policy.StageSpec) { st.Config = compact(st.Config) })
	b, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// compact is a configuration with its keys in order and no white space.
func compact(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return nil
	}
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return raw
	}
	b, err := json.Marshal(v)
	if err != nil {
		return raw
	}
	return b
}
