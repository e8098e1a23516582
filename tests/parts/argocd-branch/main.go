// What Argo CD 2.14 does with a branch of rendered manifests, by its own packages.
//
//	argocd-branch manifests APPLICATION FOLDER  prints each object that its repo server reads, as a line of JSON
//	argocd-branch sync APPLICATION FOLDER       applies them with the kubeconfig in KUBECONFIG, as its controller does
//
// APPLICATION is a file that has no field that Argo CD does not know. The repo server fetches its repository to FOLDER,
// at its revision, and reads the objects of its path there.
package main

import (
	"context"
	"encoding/json"
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
	"github.com/argoproj/argo-cd/v2/util/lua"
	clustercache "github.com/argoproj/gitops-engine/pkg/cache"
	"github.com/argoproj/gitops-engine/pkg/sync"
	synccommon "github.com/argoproj/gitops-engine/pkg/sync/common"
	"github.com/argoproj/gitops-engine/pkg/utils/kube"
	"github.com/argoproj/gitops-engine/pkg/utils/tracing"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"
)

// What Argo CD waits between two waves if nobody says otherwise.
const betweenWaves = 2 * time.Second

const betweenRounds = 200 * time.Millisecond

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 3 || (args[0] != "manifests" && args[0] != "sync") {
		return fmt.Errorf("usage: argocd-branch manifests|sync APPLICATION FOLDER")
	}
	text, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	var application v1alpha1.Application
	if err := yaml.UnmarshalStrict(text, &application); err != nil {
		return err
	}
	answer, err := generate(ctx, &application, args[2])
	if err != nil {
		return err
	}
	if args[0] == "sync" {
		return apply(ctx, &application, answer)
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

// The sync of the controller, with its health scripts, and with the options that the Application has.
func apply(ctx context.Context, application *v1alpha1.Application, answer *apiclient.ManifestResponse) error {
	var objects []*unstructured.Unstructured
	for _, manifest := range answer.Manifests {
		var object unstructured.Unstructured
		if err := json.Unmarshal([]byte(manifest), &object); err != nil {
			return err
		}
		objects = append(objects, &object)
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	keep := func(*unstructured.Unstructured, bool) (any, bool) { return nil, true }
	live := clustercache.NewClusterCache(config, clustercache.SetPopulateResourceInfoHandler(keep))
	if err := live.EnsureSynced(); err != nil {
		return err
	}
	defer live.Invalidate()
	isManaged := func(found *clustercache.Resource) bool {
		return found.Resource != nil && found.Resource.GetLabels()[common.LabelKeyAppInstance] == application.Name
	}
	namespace, options := application.Spec.Destination.Namespace, application.Spec.SyncPolicy.SyncOptions
	phase, message, started := synccommon.OperationRunning, "", metav1.Now()
	var results []synccommon.ResourceSyncResult
	// As in the controller, each round sees the live objects of its time.
	for !phase.Completed() {
		managed, err := live.GetManagedLiveObjs(objects, isManaged)
		if err != nil {
			return err
		}
		state := sync.Reconcile(objects, managed, namespace, live)
		kubectl := &kube.KubectlCmd{Tracer: tracing.NopTracer{}, Log: klog.Background()}
		round, end, err := sync.NewSyncContext(
			answer.Revision, state, config, config, kubectl, namespace, live.GetOpenAPISchema(),
			sync.WithInitialState(phase, message, results, started),
			sync.WithHealthOverride(lua.ResourceHealthOverrides{}),
			sync.WithOperationSettings(false, false, false, false),
			sync.WithServerSideApply(options.HasOption(synccommon.SyncOptionServerSideApply)),
			sync.WithServerSideApplyManager(common.ArgoCDSSAManager),
			sync.WithSyncWaveHook(func(_ synccommon.SyncPhase, _ int, final bool) error {
				if !final {
					time.Sleep(betweenWaves)
				}
				return nil
			}),
		)
		if err != nil {
			return err
		}
		round.Sync()
		phase, message, results = round.GetState()
		end()
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %s", ctx.Err(), message)
		case <-time.After(betweenRounds):
		}
	}
	if !phase.Successful() {
		err = fmt.Errorf("%s: %s", phase, message)
	}
	for _, result := range results {
		fmt.Println(result.ResourceKey, result.Status, result.HookPhase, result.Message)
	}
	return err
}
