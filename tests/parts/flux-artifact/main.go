// What Flux does with an artifact, by its own packages: `flux pull artifact` of github.com/fluxcd/pkg/oci, and the staged
// server-side apply of github.com/fluxcd/pkg/ssa.
//
//	flux-artifact pull URL FOLDER     unpacks the artifact, and prints its metadata as JSON
//	flux-artifact apply FOLDER        applies its manifests with the kubeconfig in KUBECONFIG, as kustomize-controller does
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/pkg/oci"
	"github.com/fluxcd/pkg/ssa"
	ssautils "github.com/fluxcd/pkg/ssa/utils"
	"github.com/google/go-containerregistry/pkg/crane"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 3 && args[0] == "pull":
		return pull(ctx, args[1], args[2])
	case len(args) == 2 && args[0] == "apply":
		return apply(ctx, args[1])
	default:
		return fmt.Errorf("usage: flux-artifact pull URL FOLDER | apply FOLDER")
	}
}

func pull(ctx context.Context, url, folder string) error {
	found, err := oci.NewClient([]crane.Option{crane.Insecure}).Pull(ctx, strings.TrimPrefix(url, "oci://"), folder)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

func apply(ctx context.Context, folder string) error {
	var objects []*unstructured.Unstructured
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		read, err := ssautils.ReadObjects(file)
		objects = append(objects, read...)
		return err
	})
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	kube, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	poller := polling.NewStatusPoller(kube, kube.RESTMapper(), polling.Options{})
	owner := ssa.Owner{Field: "kustomize-controller", Group: "kustomize.toolkit.fluxcd.io"}
	manager := ssa.NewResourceManager(kube, poller, owner)
	options := ssa.DefaultApplyOptions()
	changes, err := manager.ApplyAllStaged(ctx, objects, options)
	if err != nil {
		return err
	}
	fmt.Print(changes.String())
	return nil
}
