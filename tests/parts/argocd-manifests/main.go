// What Argo CD 2.14 reads in a branch of rendered manifests, by its own repo server.
//
//	argocd-manifests APPLICATION FOLDER     prints each object of the Application as a line of JSON
//
// The Application is a file that has no field that Argo CD does not know. The repo server fetches its repository to
// FOLDER, at its revision, and reads the objects of its path there.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/argoproj/argo-cd/v2/common"
	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v2/reposerver/apiclient"
	"github.com/argoproj/argo-cd/v2/reposerver/cache"
	"github.com/argoproj/argo-cd/v2/reposerver/metrics"
	"github.com/argoproj/argo-cd/v2/reposerver/repository"
	"github.com/argoproj/argo-cd/v2/util/argo"
	cacheutil "github.com/argoproj/argo-cd/v2/util/cache"
	"github.com/argoproj/argo-cd/v2/util/git"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
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
	if len(args) != 2 {
		return fmt.Errorf("usage: argocd-manifests APPLICATION FOLDER")
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var application v1alpha1.Application
	if err := yaml.UnmarshalStrict(text, &application); err != nil {
		return err
	}
	answer, err := generate(ctx, &application, args[1])
	if err != nil {
		return err
	}
	for _, manifest := range answer.Manifests {
		fmt.Println(manifest)
	}
	return nil
}

// With the limit of the size that Argo CD has by default, and its default of tracking, a label.
func generate(ctx context.Context, application *v1alpha1.Application, folder string) (*apiclient.ManifestResponse, error) {
	memory := cacheutil.NewCache(cacheutil.NewInMemoryCache(time.Minute))
	service := repository.NewService(
		metrics.NewMetricsServer(),
		cache.NewCache(memory, time.Minute, time.Minute, 10*time.Second),
		repository.RepoServerInitConstants{
			ParallelismLimit:                  1,
			MaxCombinedDirectoryManifestsSize: resource.MustParse("10M"),
		},
		argo.NewResourceTracking(),
		&git.NoopCredsStore{},
		folder,
	)
	if err := service.Init(); err != nil {
		return nil, err
	}
	source := application.Spec.GetSource()
	return service.GenerateManifest(ctx, &apiclient.ManifestRequest{
		Repo:               &v1alpha1.Repository{Repo: source.RepoURL, Type: "git"},
		Revision:           source.TargetRevision,
		AppName:            application.Name,
		AppLabelKey:        common.LabelKeyAppInstance,
		Namespace:          application.Spec.Destination.Namespace,
		ApplicationSource:  &source,
		ProjectName:        application.Spec.Project,
		ProjectSourceRepos: []string{"*"},
		NoCache:            true,
	})
}
