// client-go as a benchmark program: one shared informer of pods, an index, and handlers that count.
//
// The protocol is described in ../README.md. Two more commands: `encode IN OUT` converts pods from JSON lines
// to protobuf, and `fill KUBECONFIG IN` writes them to a server. All settings are client-go's defaults,
// including those of the garbage collector.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// command is a line sent by the harness; each command has its own fields.
type command struct {
	Do       string  `json:"do"`
	Resource string  `json:"resource"`
	Encoding string  `json:"encoding"`
	Strategy string  `json:"strategy"`
	Handlers int     `json:"handlers"`
	Until    uint64  `json:"until"`
	Latency  bool    `json:"latency"`
	Seconds  float64 `json:"seconds"`
	Keys     int     `json:"keys"`
	Workers  int     `json:"workers"`
	Metrics  bool    `json:"metrics"`
	Reset    bool    `json:"reset"`
	Through  string  `json:"through"`
	Results  int     `json:"results"`
	Index    string  `json:"index"`
	Strip    bool    `json:"strip"`
	Revision *string `json:"revision"`
}

// response is a line sent to the harness.
type response map[string]any

func main() {
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 3 && args[0] == "encode":
		err = encode(args[1], args[2])
	case len(args) == 3 && args[0] == "fill":
		err = fill(args[1], args[2])
	case len(args) == 1:
		err = serve(args[0])
	default:
		err = errors.New("usage: client-go KUBECONFIG | encode IN OUT | fill KUBECONFIG IN")
	}
	if err != nil {
		writeResponse(response{"error": err.Error()})
		os.Exit(1)
	}
}

func serve(kubeconfig string) error {
	p := &peer{kubeconfig: kubeconfig}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			writeResponse(response{"error": fmt.Sprintf("invalid command: %v", err)})
			continue
		}
		if c.Do == "quit" {
			return nil
		}
		r, err := p.execute(c)
		if err != nil {
			r = response{"error": err.Error()}
		}
		writeResponse(r)
	}
	return lines.Err()
}

func writeResponse(r response) {
	text, err := json.Marshal(r)
	if err != nil {
		text = []byte(`{"error":"cannot encode the response as JSON"}`)
	}
	fmt.Println(string(text))
}
