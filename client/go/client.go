// Package diem is a minimal client of the protocol diem.v1.json (docs/guide/write-a-client.md): up to 100 endpoints, the same
// from first to last, in every mode but z-client. It passes the cases of the level "basic" in tests/cases, and with tokens.go
// those of the level "tokens".
package diem

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"math/rand"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const maxBytes = 16 << 20

var (
	began   = time.Now()
	names   = regexp.MustCompile(`^(/[A-Za-z0-9._~!$'()*+,;=:@-]+)+/?$`)
	dots    = regexp.MustCompile(`/\.\.?(/|$)`)
	retry   = regexp.MustCompile(`\bretry=([0-9]{1,9})\b`)
	rest    = http.Client{Timeout: 30 * time.Second}
	isJSON  = regexp.MustCompile(`^($|application/json|[^;]*\+json)`)
	others  = map[string]bool{"welcome": true, "authenticated": true, "update": true, "error": true}
	isFinal = map[int]bool{1000: true, 1002: true, 1003: true, 1007: true, 1008: true, 1009: true}
)

// The rules: no I/O, times in milliseconds.

// IsEndpoint returns whether a text is an endpoint name.
func IsEndpoint(name string) bool {
	return len(name) <= 256 && names.MatchString(name) && !dots.MatchString(name)
}

// Reconnects returns whether a client reconnects after a close code.
func Reconnects(code int) bool { return code < 4500 && !isFinal[code] }

// RetryWindow returns the window in a close reason; negative: none.
func RetryWindow(reason string) float64 {
	if found := retry.FindStringSubmatch(reason); found != nil {
		ms, _ := strconv.ParseFloat(found[1], 64)
		return math.Min(ms, 600_000)
	}
	return -1
}

// RetryAfter returns the delay in a header field, read at a Unix time.
func RetryAfter(field string, wall int64) (delay float64) {
	field = strings.TrimSpace(field)
	if seconds, err := strconv.ParseUint(field, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		delay = 1000 * float64(seconds)
	} else if date, err := http.ParseTime(field); err == nil {
		delay = float64(date.UnixMilli() - wall)
	}
	return math.Max(0, math.Min(delay, 300_000))
}

// SilenceLimit returns the time without a frame after which a server counts as hung.
func SilenceLimit(heartbeat, usual float64) float64 {
	if heartbeat <= 0 {
		return usual
	}
	return math.Min(2*math.Max(heartbeat, 1000), usual)
}

// Backoff has the delays between attempts to connect; Draw returns a share of a window.
type Backoff struct {
	Draw             func() float64
	failures, outage float64 // the outage by its beginning
}

// Delay returns the time until the next attempt; open is negative where there was no connection.
func (b *Backoff) Delay(now, open float64, code int, reason string, retryAfter float64) float64 {
	if open >= 10_000 {
		b.outage = now
	}
	if open >= 60_000 {
		b.failures = 0
	}
	window := RetryWindow(reason)
	if window < 0 {
		window = math.Min(doubled(b.failures, 30_000), math.Max(500, now-b.outage))
	}
	if code != 1012 { // a restart is no failure
		b.failures++
	}
	return retryAfter + b.Draw()*window
}

func doubled(failures, limit float64) float64 { return math.Min(500*math.Pow(2, failures), limit) }

// Versions is what a client has of one endpoint.
type Versions struct {
	Held   int64 // of the data that is shown
	Wanted int64 // announced, and not held; 0: nothing
	Stale  bool  // whatever is current is wanted

	isFetched bool
}

// Update applies an update, which is complete with data or of a deletion; it returns whether that is to be shown.
func (v *Versions) Update(version int64, complete bool) bool {
	isNew := version > v.Held
	if isNew && complete {
		v.Held, v.Wanted, v.Stale = version, 0, false
	} else if isNew && version > v.Wanted {
		v.Wanted = version
	}
	return isNew && complete
}

// Subscribed applies the reply of a live server.
func (v *Versions) Subscribed(version int64) { v.Stale = v.Stale || version < v.Held }

// Answered applies the answer to a fetch that began when asked was held; it returns whether that is to be shown.
func (v *Versions) Answered(version int64, isCurrent bool, asked int64) bool {
	isLost := isCurrent && version < asked && v.Held == asked // the source was put back
	isShown := version > v.Held || isLost
	if version >= v.Wanted {
		v.Wanted = 0
	}
	if isShown {
		v.Held = version
	}
	return isShown
}

// Message is one of a server, with its endpoints as Known or as Names.
type Message struct {
	Type, Endpoint, Code, Owner string
	ID                          *int
	Endpoints, Data             json.RawMessage
	Rejected                    map[string]struct{ Code, Owner string }
	Live, Gone                  bool
	Version                     int64
	MediaType                   string           `json:"media_type"`
	Heartbeat                   float64          `json:"heartbeat_ms"`
	FetchWindow                 float64          `json:"fetch_window_ms"`
	Known                       map[string]int64 `json:"-"`
	Names                       []string         `json:"-"`
}

// Parse returns a message of a server; nil: one of a later version.
func Parse(text []byte) (*Message, error) {
	m := &Message{}
	err := json.Unmarshal(text, m)
	lists := map[string]any{"subscribed": &m.Known, "unsubscribed": &m.Names, "moved": &m.Names, "resync": &m.Names, "status": &m.Names}
	into, hasList := lists[m.Type]
	if err == nil && hasList && (m.Endpoints != nil || m.Type != "status") {
		err = json.Unmarshal(m.Endpoints, into)
	}
	if isReply := strings.HasSuffix(m.Type, "subscribed"); err != nil || m.Type == "" || isReply && m.ID == nil {
		return nil, errors.New("not a message of a server")
	}
	if !hasList && !others[m.Type] {
		return nil, nil
	}
	return m, nil
}

type watcher struct {
	ctx       context.Context
	rest      string
	on        func(*Message)
	lock      sync.Mutex // of what follows, and of calls of on
	tokens    tokens
	endpoints map[string]*Versions
	isLive    bool
	windowMS  float64 // of fetches
}

func duration(ms float64) time.Duration { return time.Duration(ms * 1e6) }

func now() float64 { return float64(time.Since(began)) / 1e6 }

// Watch stays connected to a server (ws://HOST:8101/ws) and calls on, one at a time, with each update that is to be shown,
// with each status, and with replies. It fetches from rest (http://HOST:8080/v1) what does not come with an update. With a
// function token it presents what that returns. It ends with the context, or when a server closes for good.
func Watch(ctx context.Context, url, rest string, names []string, token func() (string, error), on func(*Message)) error {
	rand.Seed(time.Now().UnixNano()) // before Go 1.20, or all clients would return together
	w := &watcher{ctx: ctx, rest: rest, on: on, tokens: tokens{request: token, refusals: Refusals{}}, endpoints: map[string]*Versions{}}
	for _, name := range names {
		w.endpoints[name] = &Versions{}
	}
	dialer := websocket.Dialer{Subprotocols: []string{"diem.v1.json"}, HandshakeTimeout: 10 * time.Second}
	for backoff := (Backoff{Draw: rand.Float64, outage: now()}); ctx.Err() == nil; {
		open, retryAfter, end := -1.0, 0.0, &websocket.CloseError{Code: 1006}
		conn, answer, err := dialer.DialContext(ctx, url, nil)
		if err == nil {
			opened := now()
			errors.As(w.serve(conn), &end)
			open = now() - opened
		} else if answer != nil {
			retryAfter = RetryAfter(answer.Header.Get("Retry-After"), time.Now().UnixMilli())
		}
		if !w.reconnects(end.Code) {
			return end
		}
		select {
		case <-ctx.Done():
		case <-time.After(duration(backoff.Delay(now(), open, end.Code, end.Text, retryAfter))):
		}
	}
	return ctx.Err()
}

func (w *watcher) serve(conn *websocket.Conn) (err error) {
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	go func() { <-ctx.Done(); conn.Close() }()
	conn.SetReadLimit(maxBytes)
	for silence := 10_000.0; err == nil; { // for the welcome
		conn.SetReadDeadline(time.Now().Add(duration(silence)))
		var m *Message
		if _, text, failure := conn.ReadMessage(); failure != nil {
			m, err = &Message{Type: "status"}, failure
		} else if m, _ = Parse(text); m == nil {
			continue // malformed, or of a later version: it changes nothing
		}
		if m.Type == "welcome" {
			silence = SilenceLimit(m.Heartbeat, 60_000)
		}
		w.lock.Lock()
		if failure := w.handle(conn, m); err == nil {
			err = failure
		}
		w.lock.Unlock()
	}
	return err
}

// handle applies a message; an error ends the connection.
func (w *watcher) handle(conn *websocket.Conn, m *Message) error {
	switch m.Type {
	case "welcome":
		w.windowMS = math.Min(m.FetchWindow, 10_000)
		if err := w.present(conn); err != nil {
			return err
		}
		known := map[string]int64{} // 0: nothing, as null
		for name, e := range w.endpoints {
			known[name] = e.Held
		}
		return conn.WriteJSON(map[string]any{"type": "subscribe", "id": 1, "endpoints": known, "data": m.Data != nil})
	case "authenticated":
		w.tokens.refusals.Accepted(server)
	case "status":
		w.isLive = m.Live && m.Names == nil || w.isLive && m.Names != nil
		if m.Names == nil || len(m.Names) > 0 { // else a heartbeat
			w.on(m)
		}
	case "subscribed":
		for name, version := range m.Known {
			if e := w.endpoints[name]; e != nil && w.isLive {
				e.Subscribed(version)
				w.fetch(name, e, 0, 0)
			}
		}
		for name := range m.Rejected {
			delete(w.endpoints, name)
		}
		w.on(m)
	case "update":
		e := w.endpoints[m.Endpoint]
		if e != nil && e.Update(m.Version, m.Gone || m.Data != nil && isJSON.MatchString(m.MediaType)) {
			w.on(m)
		} else if e != nil {
			w.fetch(m.Endpoint, e, w.delay(e), 0)
		}
	case "resync":
		for _, name := range m.Names {
			if e := w.endpoints[name]; e != nil {
				e.Stale = true
				w.fetch(name, e, w.delay(e), 0)
			}
		}
	case "error": // nothing is subscribed: again, with back-off
		if m.Code != "unauthorised" { // which a close follows, if it is about the token
			return errors.New(m.Code)
		}
	}
	return nil
}

// delay returns when a fetch begins: what shows nothing does not wait.
func (w *watcher) delay(e *Versions) float64 {
	return math.Min(float64(e.Held), w.windowMS) * rand.Float64()
}

// fetch requests what is missing of an endpoint, until it is there or has come with an update.
func (w *watcher) fetch(name string, e *Versions, delay, failures float64) {
	isDue := func() bool { return (e.Wanted > 0 || e.Stale) && w.ctx.Err() == nil }
	if e.isFetched || !isDue() {
		return
	}
	e.isFetched = true
	time.AfterFunc(duration(delay), func() {
		w.lock.Lock()
		defer w.lock.Unlock()
		if e.isFetched = isDue(); !e.isFetched {
			return
		}
		version, held := e.Wanted, e.Held
		if e.Stale {
			version = 0
		}
		e.Stale = false
		token := w.tokens.held
		w.lock.Unlock()
		m, isCurrent, retryAfter := w.get(name, version, token)
		w.lock.Lock()
		e.Stale = e.Stale || m == nil && isCurrent
		if m != nil && e.Answered(m.Version, isCurrent, held) {
			w.on(m)
		}
		e.isFetched = false
		w.fetch(name, e, retryAfter+rand.Float64()*doubled(failures, 60_000), failures+1)
	})
}

// get requests a version, or the current one where that is not kept, or is 0; without an answer it returns nil.
func (w *watcher) get(name string, version int64, token string) (m *Message, isCurrent bool, retryAfter float64) {
	url := w.rest + "/data" + name
	if version > 0 {
		url += "?version=" + strconv.FormatInt(version, 10)
	}
	response, err := read(url, token)
	if err != nil {
		return nil, version == 0, 0
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBytes))
	retryAfter = RetryAfter(response.Header.Get("Retry-After"), time.Now().UnixMilli())
	isGone := response.StatusCode == 404 || response.StatusCode == 410
	if isGone && version > 0 {
		return w.get(name, 0, token)
	}
	if err != nil || response.StatusCode != 200 && !isGone {
		return nil, version == 0, retryAfter
	}
	m = &Message{Type: "update", Endpoint: name, Gone: isGone, Data: body, MediaType: response.Header.Get("Content-Type")}
	m.Version, _ = strconv.ParseInt(response.Header.Get("Diem-Version"), 10, 64)
	return m, version == 0, retryAfter
}
