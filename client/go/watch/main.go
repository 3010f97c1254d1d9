// watch prints what a client receives as JSON: go run ./watch ws://HOST:8101/ws http://HOST:8080/v1 NAME...
// With an API key in the variable DIEM_KEY it gets tokens for it, as DIEM_TOKEN_BODY asks (docs/access.md section 8).
package main

import (
	"context"
	"encoding/json"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"

	"diem"
)

func main() {
	if len(os.Args) < 4 {
		log.Fatal("usage: watch WEBSOCKET REST NAME...")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	out := json.NewEncoder(os.Stdout)
	var token func() (string, error)
	if key := os.Getenv("DIEM_KEY"); key != "" {
		token = func() (string, error) { return newToken(ctx, os.Args[2]+"/tokens", key) }
	}
	err := diem.Watch(ctx, os.Args[1], os.Args[2], os.Args[3:], token, func(m *diem.Message) {
		switch m.Type {
		case "update":
			out.Encode(map[string]any{"endpoint": m.Endpoint, "version": m.Version, "gone": m.Gone, "data": string(m.Data)})
		case "status":
			out.Encode(map[string]any{"live": m.Live, "endpoints": m.Names})
		}
		for name, rejection := range m.Rejected {
			out.Encode(map[string]any{"rejected": name, "code": rejection.Code})
		}
	})
	if ctx.Err() == nil {
		log.Fatal(err)
	}
}

func newToken(ctx context.Context, url, key string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(os.Getenv("DIEM_TOKEN_BODY")))
	if err != nil {
		return "", err
	}
	request.Header = http.Header{"Authorization": {"Bearer " + key}, "Content-Type": {"application/json"}}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var answer struct{ Token, Detail string }
	if err = json.NewDecoder(response.Body).Decode(&answer); err == nil && answer.Token == "" {
		log.Print("no token: ", answer.Detail)
	}
	return answer.Token, err
}
