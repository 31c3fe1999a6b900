// A reader of Server-Sent Events with the library r3labs/sse, as its documentation shows it: prints
// what it hands on, one line of JSON for each.
//
// Usage: r3labs-sse URL
package main

import (
	"encoding/json"
	"os"

	"github.com/r3labs/sse/v2"
)

func main() {
	out := json.NewEncoder(os.Stdout)
	client := sse.NewClient(os.Args[1])
	err := client.SubscribeRaw(func(event *sse.Event) {
		out.Encode(map[string]string{
			"id":   string(event.ID),
			"name": string(event.Event),
			"data": string(event.Data),
		})
	})
	if err != nil {
		os.Exit(1)
	}
}
