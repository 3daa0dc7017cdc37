package selection

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/jsonscan"
)

// overrides are the settings of router_config_override: some are the policy's, the
// others say how the request counts.
type overrides struct {
	policy       map[string]json.RawMessage // by the policy's own names; nil for none
	assumeReuse  *bool
	trackPrefill *bool
}

// The settings; those before setWeight are the policy's.
const (
	setCredit = iota
	setScale
	setTemperature
	setShared
	setWeight // the old name of the scale
	setReuse
	setTrack
	settings
)

// What the settings are called here, and those of the policy there.
var (
	settingNames  = [settings]string{"overlap_score_credit", "prefill_load_scale", "router_temperature", "shared_cache_multiplier", "overlap_score_weight", "assume_kv_reuse", "track_prefill_tokens"}
	policySetting = [setWeight]string{"overlap_credit", "prefill_load_scale", "temperature", "shared_weight"}
)

// read reads router_config_override.
func (o *overrides) read(r *jsonscan.Reader) error {
	at := object{r: r, path: fieldOverride.name(), fields: settingNames[:]}
	weight := math.NaN()
	err := at.scalars(func(i int, raw []byte, name string) (err error) {
		switch i {
		case setReuse:
			o.assumeReuse, err = truthOf(raw, name)
			return err
		case setTrack:
			o.trackPrefill, err = truthOf(raw, name)
			return err
		}
		high, allowed := math.MaxFloat64, "a finite number, at least 0"
		if i == setShared {
			high, allowed = 1, "0 to 1"
		}
		v, err := numberOf(raw, name, 0, high, allowed)
		if err != nil {
			return err
		}
		if i == setWeight {
			weight = v
			return nil
		}
		o.set(i, v)
		return nil
	})
	if err == nil && !math.IsNaN(weight) { // it wins, as it does in Dynamo
		o.set(setScale, weight)
		if weight == 0 {
			o.set(setCredit, 0)
		}
	}
	return err
}

func (o *overrides) set(i int, v float64) {
	if o.policy == nil {
		o.policy = map[string]json.RawMessage{}
	}
	o.policy[policySetting[i]] = strconv.AppendFloat(nil, v, 'g', -1, 64)
}

// apply hands the settings to a request.
func (o *overrides) apply(req *core.Request) {
	req.Overrides, req.AssumeReuse, req.TrackPrefill = o.policy, o.assumeReuse, o.trackPrefill
}

// named puts a setting's own name in place of the policy's where the policy refused it.
func (o *overrides) named(err error) error {
	if len(o.policy) == 0 {
		return err
	}
	refused, ok := errors.AsType[*core.Error](err)
	if !ok || refused.Code != core.CodeInvalid {
		return err
	}
	bad, ok := errors.AsType[*fleet.FieldError](err)
	if !ok {
		return err
	}
	for i, name := range policySetting {
		if bad.Field == name {
			return &fleet.FieldError{Field: fieldOverride.name() + "." + settingNames[i], Value: bad.Value, Allowed: bad.Allowed}
		}
	}
	return err
}
