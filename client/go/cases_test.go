package diem

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func load(t *testing.T, name string, into any) {
	folder := os.Getenv("DIEM_CASES")
	if folder == "" {
		folder = "../../tests/cases"
	}
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func equal(t *testing.T, what, found, expected any) {
	t.Helper()
	if !reflect.DeepEqual(found, expected) {
		t.Errorf("%v: %v instead of %v", what, found, expected)
	}
}

var runners = map[string]func(*testing.T){
	"endpoint_names.json": endpointNames, "close.json": closes, "retry_after.json": retryAfter, "silence.json": silence,
	"reconnect.json": reconnect, "server_messages.json": messages, "lost_versions.json": lostVersions, "tokens.json": tokenRules,
}

func TestCases(t *testing.T) {
	var index struct {
		Files []struct{ File, Level string }
	}
	load(t, "index.json", &index)
	found := map[string]bool{}
	for _, each := range index.Files {
		if each.Level != "basic" && each.Level != "tokens" {
			continue
		}
		found[each.File] = true
		if run := runners[each.File]; run == nil {
			t.Errorf("%s has no runner", each.File)
		} else {
			t.Run(each.File, run)
		}
	}
	equal(t, "files", len(found), len(runners))
}

func endpointNames(t *testing.T) {
	var cases map[string]json.RawMessage
	load(t, "endpoint_names.json", &cases)
	for _, kind := range []string{"valid", "invalid"} {
		var all []struct {
			Name   string
			Length int
		}
		if err := json.Unmarshal(cases[kind], &all); err != nil || len(all) == 0 {
			t.Fatal(err)
		}
		for _, each := range all {
			name := strings.Replace(each.Name, "{a}", strings.Repeat("a", int(math.Max(0, float64(each.Length-len(each.Name)+3)))), 1)
			equal(t, each.Name, IsEndpoint(name), kind == "valid")
		}
	}
}

func closes(t *testing.T) {
	var cases struct {
		Reconnects map[string]bool
		Windows    map[string]*float64 `json:"windows_ms"`
	}
	load(t, "close.json", &cases)
	for text, expected := range cases.Reconnects {
		var code int
		fmt.Sscan(text, &code)
		equal(t, text, Reconnects(code), expected)
	}
	for reason, expected := range cases.Windows {
		if window := RetryWindow(reason); expected == nil {
			equal(t, reason, window < 0, true)
		} else {
			equal(t, reason, window, *expected)
		}
	}
	equal(t, "cases", len(cases.Reconnects) > 0 && len(cases.Windows) > 0, true)
}

func retryAfter(t *testing.T) {
	var cases struct {
		Now   int64 `json:"now_ms"`
		Cases map[string]float64
	}
	load(t, "retry_after.json", &cases)
	for field, expected := range cases.Cases {
		equal(t, field, RetryAfter(field, cases.Now), expected)
	}
	equal(t, "cases", len(cases.Cases) > 0, true)
}

func silence(t *testing.T) {
	var cases struct {
		Cases []struct {
			Heartbeat float64 `json:"heartbeat_ms"`
			Usual     float64 `json:"usual_ms"`
			Limit     float64 `json:"limit_ms"`
		}
	}
	load(t, "silence.json", &cases)
	for _, each := range cases.Cases {
		equal(t, each, SilenceLimit(each.Heartbeat, each.Usual), each.Limit)
	}
	equal(t, "cases", len(cases.Cases) > 0, true)
}

func reconnect(t *testing.T) {
	var cases struct {
		Cases []struct {
			Name  string
			Steps []struct {
				Open       *float64 `json:"open_ms"`
				Code       int
				Reason     string
				RetryAfter float64 `json:"retry_after_ms"`
				Draw       *float64
				Delay      float64 `json:"delay_ms"`
			}
		}
	}
	load(t, "reconnect.json", &cases)
	for _, each := range cases.Cases {
		now, draw := 0.0, 1.0
		backoff := Backoff{Draw: func() float64 { return draw }}
		for number, step := range each.Steps {
			open := -1.0
			if draw = 1; step.Draw != nil {
				draw = *step.Draw
			}
			if step.Open != nil {
				open = *step.Open
				now += open
			}
			delay := backoff.Delay(now, open, step.Code, step.Reason, step.RetryAfter)
			equal(t, fmt.Sprint(each.Name, number), math.Round(delay), step.Delay)
			now += delay
		}
	}
	equal(t, "cases", len(cases.Cases) > 0, true)
}

func messages(t *testing.T) {
	var cases struct {
		Frames []struct {
			Text  string
			Frame map[string]any
		}
		Ignored, Malformed []string
	}
	load(t, "server_messages.json", &cases)
	for _, each := range cases.Frames {
		m, err := Parse([]byte(each.Text))
		if err != nil || m == nil {
			t.Fatal(each.Text, err)
		}
		for field, expected := range each.Frame {
			equal(t, each.Text+field, asJSON(fieldOf(m, field)), asJSON(expected))
		}
	}
	for _, text := range cases.Ignored {
		m, err := Parse([]byte(text))
		equal(t, text, m == nil && err == nil, true)
	}
	for _, text := range cases.Malformed {
		m, err := Parse([]byte(text))
		equal(t, text, m == nil && err != nil, true)
	}
	equal(t, "cases", len(cases.Frames) > 0 && len(cases.Malformed) > 0, true)
}

func asJSON(value any) string {
	text, _ := json.Marshal(value)
	return string(text)
}

func fieldOf(m *Message, field string) any {
	switch field {
	case "type":
		return m.Type
	case "id":
		return m.ID
	case "live":
		return m.Live
	case "owner":
		return orNil(m.Owner)
	case "rejected":
		owners := map[string]any{}
		for name, rejection := range m.Rejected {
			owners[name] = orNil(rejection.Owner)
		}
		return owners
	}
	if m.Known == nil {
		return m.Names
	}
	known := map[string]any{}
	for name, version := range m.Known {
		if known[name] = version; version == 0 {
			known[name] = nil
		}
	}
	return known
}

func orNil(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func lostVersions(t *testing.T) {
	var cases struct {
		Cases []struct {
			Name  string
			Store int64
			Steps []struct {
				Do             string
				Version, Shown int64
			}
		}
	}
	load(t, "lost_versions.json", &cases)
	for _, each := range cases.Cases {
		v := Versions{}
		for number, step := range each.Steps {
			if step.Do == "subscribed" {
				v.Subscribed(step.Version)
			} else {
				v.Update(step.Version, step.Do == "data")
			}
			if v.Stale || v.Wanted > 0 {
				isCurrent := v.Stale || v.Wanted != each.Store // 404 of a version that is not kept
				v.Stale = false
				v.Answered(each.Store, isCurrent, v.Held)
			}
			equal(t, fmt.Sprint(each.Name, number), v.Held, step.Shown)
		}
	}
	equal(t, "cases", len(cases.Cases) > 0, true)
}

func tokenRules(t *testing.T) {
	type outcome struct {
		Reconnects bool
		NewToken   *bool `json:"new_token"`
	}
	var cases struct {
		Refresh []struct {
			Life  float64 `json:"life_ms"`
			Left  float64 `json:"left_ms"`
			Draw  float64
			Delay float64 `json:"delay_ms"`
		}
		Lifetimes []struct {
			Claims json.RawMessage
			Token  string
			Wall   float64 `json:"wall_ms"`
			Life   float64 `json:"life_ms"`
			Left   float64 `json:"left_ms"`
		}
		Refusals []struct {
			Name  string
			Steps []struct {
				Accepted, Refused string
				Held, Final       bool
			}
		}
		Closes []struct {
			Code         int
			First, Again *outcome
		}
	}
	load(t, "tokens.json", &cases)
	for _, each := range cases.Refresh {
		equal(t, each, math.Abs(RefreshDelay(each.Life, each.Left, each.Draw)-each.Delay) < 0.001, true)
	}
	for _, each := range cases.Lifetimes {
		token := each.Token
		if each.Claims != nil {
			token = "x." + base64.RawURLEncoding.EncodeToString(each.Claims) + ".x"
		}
		life, left := Lifetime(token, each.Wall)
		equal(t, each, [2]float64{math.Round(life), math.Round(left)}, [2]float64{each.Life, each.Left})
	}
	for _, each := range cases.Refusals {
		refusals := Refusals{}
		for number, step := range each.Steps {
			if step.Refused == "" {
				refusals.Accepted(step.Accepted)
			} else {
				equal(t, fmt.Sprint(each.Name, number), refusals.Refused(step.Refused, step.Held), step.Final)
			}
		}
	}
	for _, each := range cases.Closes {
		refusals := Refusals{}
		for _, expected := range []*outcome{each.First, each.Again} {
			if expected == nil {
				continue
			}
			reconnects, isVoid := refusals.Closed("a", each.Code, true)
			equal(t, each.Code, reconnects, expected.Reconnects)
			if expected.NewToken != nil {
				equal(t, each.Code, isVoid, *expected.NewToken)
			}
		}
	}
	counts := []int{len(cases.Refresh), len(cases.Lifetimes), len(cases.Refusals), len(cases.Closes)}
	equal(t, "cases", counts[0]*counts[1]*counts[2]*counts[3] > 0, true)
}
