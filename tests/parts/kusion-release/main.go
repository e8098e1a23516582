// Kusion's side of its releases, by the documented types of `api.kusion.io/v1` and yaml.v3, with which it reads and
// writes them. It stands in for Kusion itself, whose packages no proxy serves.
//
//	kusion-release check FOLDER                      the newest release as JSON, read strictly and validated
//	kusion-release begin FOLDER PROJECT WORKSPACE STACK  the next release, unless one is under way
//	kusion-release end FOLDER PHASE                  ends it, with the resources of its state as JSON on stdin
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"gopkg.in/yaml.v3"
)

type resource struct {
	ID         string         `yaml:"id" json:"id"`
	Type       string         `yaml:"type" json:"type"`
	Attributes map[string]any `yaml:"attributes" json:"attributes"`
	DependsOn  []string       `yaml:"dependsOn,omitempty" json:"dependsOn,omitempty"`
	Extensions map[string]any `yaml:"extensions,omitempty" json:"extensions,omitempty"`
}

type spec struct {
	Resources   []resource     `yaml:"resources" json:"resources"`
	SecretStore map[string]any `yaml:"secretStore" json:"secretStore"`
	Context     map[string]any `yaml:"context" json:"context"`
}

type state struct {
	Resources []resource `yaml:"resources" json:"resources"`
}

type release struct {
	Project      string    `yaml:"project" json:"project"`
	Workspace    string    `yaml:"workspace" json:"workspace"`
	Revision     uint64    `yaml:"revision" json:"revision"`
	Stack        string    `yaml:"stack" json:"stack"`
	Spec         *spec     `yaml:"spec,omitempty" json:"spec,omitempty"`
	State        *state    `yaml:"state" json:"state"`
	Phase        string    `yaml:"phase" json:"phase"`
	CreateTime   time.Time `yaml:"createTime" json:"createTime"`
	ModifiedTime time.Time `yaml:"modifiedTime" json:"modifiedTime"`
}

type entry struct {
	Revision uint64
	Stack    string
	Phase    string
}

type metadata struct {
	LatestRevision   uint64   `yaml:"latestRevision,omitempty" json:"latestRevision,omitempty"`
	ReleaseMetaDatas []*entry `yaml:"releaseMetaDatas,omitempty" json:"releaseMetaDatas,omitempty"`
}

func read(path string, value any) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	return decoder.Decode(value)
}

func write(path string, value any) error {
	content, err := yaml.Marshal(value)
	if err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}

func (m *metadata) has(revision uint64) bool {
	for _, one := range m.ReleaseMetaDatas {
		if one.Revision == revision {
			return true
		}
	}
	return false
}

func (r *release) validate() error {
	seen := map[string]bool{}
	switch {
	case r.Project == "", r.Workspace == "", r.Revision == 0, r.Stack == "", r.State == nil, r.Phase == "":
		return errors.New("a field is empty")
	case r.CreateTime.IsZero(), r.ModifiedTime.IsZero():
		return errors.New("a time is empty")
	}
	for _, one := range r.State.Resources {
		if seen[one.ID] {
			return fmt.Errorf("duplicate resource key: %s", one.ID)
		}
		seen[one.ID] = true
	}
	return nil
}

func file(folder string, revision uint64) string {
	return filepath.Join(folder, fmt.Sprintf("%d.yaml", revision))
}

// The newest release, as Kusion finds it.
func newest(folder string) (*metadata, *release, error) {
	meta := &metadata{}
	err := read(filepath.Join(folder, ".metadata.yml"), meta)
	if errors.Is(err, os.ErrNotExist) {
		return meta, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if !meta.has(meta.LatestRevision) {
		return nil, nil, errors.New("release does not exist")
	}
	last := &release{}
	if err := read(file(folder, meta.LatestRevision), last); err != nil {
		return nil, nil, err
	}
	return meta, last, last.validate()
}

func begin(folder, project, workspace, stack string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	meta, last, err := newest(folder)
	if err != nil {
		return err
	}
	kept := &state{}
	if last != nil {
		if last.Phase != "succeeded" && last.Phase != "failed" {
			return fmt.Errorf("there is a release %d in progress", last.Revision)
		}
		kept = last.State
	}
	now := time.Now()
	next := &release{
		Project: project, Workspace: workspace, Revision: meta.LatestRevision + 1, Stack: stack,
		State: kept, Phase: "generating", CreateTime: now, ModifiedTime: now,
	}
	if err := write(file(folder, next.Revision), next); err != nil {
		return err
	}
	meta.LatestRevision = next.Revision
	meta.ReleaseMetaDatas = append(meta.ReleaseMetaDatas, &entry{next.Revision, stack, next.Phase})
	return write(filepath.Join(folder, ".metadata.yml"), meta)
}

func end(folder, phase string) error {
	_, last, err := newest(folder)
	if err != nil {
		return err
	}
	resources := []resource{}
	if err := json.NewDecoder(os.Stdin).Decode(&resources); err != nil {
		return err
	}
	last.Spec = &spec{Resources: resources, Context: map[string]any{"KUBECONFIG_PATH": "/home/me/.kube/config"}}
	last.State = &state{Resources: resources}
	last.Phase, last.ModifiedTime = phase, time.Now()
	return write(file(folder, last.Revision), last)
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 2 && arguments[0] == "check":
		_, last, err := newest(arguments[1])
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(last)
	case len(arguments) == 5 && arguments[0] == "begin":
		return begin(arguments[1], arguments[2], arguments[3], arguments[4])
	case len(arguments) == 3 && arguments[0] == "end":
		return end(arguments[1], arguments[2])
	}
	return errors.New("check FOLDER, begin FOLDER PROJECT WORKSPACE STACK or end FOLDER PHASE")
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
