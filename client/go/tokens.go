package diem

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"math/rand"
	"net/http"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

const server = "the only one" // of this client

// Lifetime returns how long a token lives, and what is left of that at a Unix time; 0: it is no token.
func Lifetime(token string, wall float64) (life, left float64) {
	claims := struct{ Iat, Exp float64 }{Iat: math.Inf(1)}
	payload, _ := base64.RawURLEncoding.DecodeString(append(strings.Split(token, "."), "")[1])
	if json.Unmarshal(payload, &claims) != nil || claims.Exp <= claims.Iat {
		return 0, 0
	}
	life, left = 1000*(claims.Exp-claims.Iat), 1000*claims.Exp-wall
	if left <= 0 || left > life { // by a wrong clock: it counts as new
		left = life
	}
	return life, left
}

// RefreshDelay returns the time until a token is replaced; draw in [0, 1) brings it forward.
func RefreshDelay(life, left, draw float64) float64 {
	delay := math.Min(0.8*life, math.Max(life-30_000, life/2)) + left - life
	if delay <= 0 {
		delay = left / 2
	}
	return delay * (1 - draw/4)
}

// Refusals counts close code 4501 of each server and, as "", of each token: one new token is tried.
type Refusals map[string]int

// Accepted applies an accepted token.
func (r Refusals) Accepted(url string) { r[url], r[""] = 0, 0 }

// Refused applies a refused token; it returns whether that was the last. held: there is no newer one.
func (r Refusals) Refused(url string, held bool) bool {
	if r[url]++; held {
		r[""]++
	}
	return r[url] > 1 || r[""] > 1
}

// Closed applies a close code; it returns whether a client reconnects, and whether with a new token.
func (r Refusals) Closed(url string, code int, held bool) (reconnects, isVoid bool) {
	isVoid = code == 4001 || code == 4501 || code == 4503
	return Reconnects(code) || code == 4501 && !r.Refused(url, held), isVoid
}

type tokens struct {
	request  func() (string, error) // nil: none are needed
	held     string
	due      float64 // when it is replaced
	refusals Refusals
}

// replace requests a token, if one is due. It fails if there is none then.
func (t *tokens) replace() error {
	if t.held != "" && now() < t.due {
		return nil
	}
	token, err := t.request()
	life, left := Lifetime(token, float64(time.Now().UnixMilli()))
	if err == nil && life > 0 {
		t.held, t.due = token, now()+RefreshDelay(life, left, rand.Float64())
	} else if t.due = now() + 5_000*(1+rand.Float64()); t.held == "" {
		return fmt.Errorf("no token: %v", err)
	}
	return nil
}

// present sends the token on a connection and, as long as that is open, each later one.
func (w *watcher) present(conn *websocket.Conn) error {
	if w.tokens.request == nil {
		return nil
	}
	if err := w.tokens.replace(); err != nil {
		return err
	}
	time.AfterFunc(duration(w.tokens.due-now()), func() {
		w.lock.Lock()
		defer w.lock.Unlock()
		if w.ctx.Err() != nil || w.present(conn) != nil {
			conn.Close()
		}
	})
	return conn.WriteJSON(map[string]any{"type": "auth", "id": 0, "token": w.tokens.held})
}

// read sends a GET, with a token if there is one.
func read(url, token string) (*http.Response, error) {
	request, err := http.NewRequest("GET", url, nil)
	if err != nil || token == "" {
		return rest.Get(url)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	return rest.Do(request)
}

// reconnects returns whether to connect again after a close code, and forgets the token that it voids.
func (w *watcher) reconnects(code int) bool {
	w.lock.Lock()
	defer w.lock.Unlock()
	reconnects, isVoid := w.tokens.refusals.Closed(server, code, true)
	if isVoid {
		w.tokens.held = ""
	}
	return reconnects
}
