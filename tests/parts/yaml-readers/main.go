// How the libraries of kubectl and of Kusion read scalars. Each line of stdin is a scalar as a JSON string; its answer is
// a line of JSON: what a field of any type, and a field for a name, get of it.
package main

import (
	"bufio"
	"encoding/json"
	"os"

	"gopkg.in/yaml.v3"
	kubernetes "sigs.k8s.io/yaml"
)

type answer struct {
	// The value for kubectl, as JSON; null if it refuses.
	Kubectl json.RawMessage `json:"kubectl"`
	// The value for Kusion; null if it refuses.
	Kusion any `json:"kusion"`
	// A name for Kusion; null if it refuses.
	Name *string `json:"name"`
}

func read(scalar string) answer {
	text := []byte("v: " + scalar + "\n")
	var found answer
	var any struct {
		V any `yaml:"v"`
	}
	if yaml.Unmarshal(text, &any) == nil {
		found.Kusion = any.V
	}
	var name struct {
		V string `yaml:"v"`
	}
	if yaml.Unmarshal(text, &name) == nil {
		found.Name = &name.V
	}
	var object struct {
		V json.RawMessage `json:"v"`
	}
	if converted, err := kubernetes.YAMLToJSON(text); err == nil && json.Unmarshal(converted, &object) == nil {
		found.Kubectl = object.V
	}
	return found
}

func main() {
	answers := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var scalar string
		if err := json.Unmarshal(lines.Bytes(), &scalar); err != nil {
			panic(err)
		}
		found := read(scalar)
		if err := answers.Encode(found); err != nil {
			// JSON has no such number.
			found.Kusion = nil
			if err := answers.Encode(found); err != nil {
				panic(err)
			}
		}
	}
}
