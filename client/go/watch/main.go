// watch prints what a client receives as JSON: go run ./watch ws://HOST:8101/ws http://HOST:8080/v1 NAME...
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"os/signal"

	"diem"
)

func main() {
	if len(os.Args) < 4 {
		log.Fatal("usage: watch WEBSOCKET REST NAME...")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	out := json.NewEncoder(os.Stdout)
	err := diem.Watch(ctx, os.Args[1], os.Args[2], os.Args[3:], func(m *diem.Message) {
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
