// Gives a Job to the API rules and the Job controller of Kubernetes, lets its pods end in the ways
// that the arguments name, one after the other, and prints what became of the Job as JSON.
//
// An end is an exit code or "evicted". There is no cluster: the client keeps all objects in memory.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/batch"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	"k8s.io/kubernetes/pkg/controller/job"
	registry "k8s.io/kubernetes/pkg/registry/batch/job"
	"sigs.k8s.io/yaml"
)

const (
	namespace = "default"
	patience  = time.Minute
	interval  = 20 * time.Millisecond
)

type outcome struct {
	Pods      int      `json:"pods"`
	Condition string   `json:"condition"`
	Reason    string   `json:"reason"`
	Warnings  []string `json:"warnings"`
}

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	given, warnings := accepted(ctx, os.Args[1])
	client := fake.NewSimpleClientset()
	made := 0
	// An API server gives a name and an id to each pod. The client in memory does not.
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		made++
		pod := action.(clienttesting.CreateAction).GetObject().(*v1.Pod)
		pod.Name = fmt.Sprintf("%s%d", pod.GenerateName, made)
		pod.UID = types.UID(pod.Name)
		return false, nil, nil
	})
	shared := informers.NewSharedInformerFactory(client, 0)
	controller, err := job.NewController(ctx, shared.Core().V1().Pods(), shared.Batch().V1().Jobs(), client)
	check(err)
	shared.Start(ctx.Done())
	shared.WaitForCacheSync(ctx.Done())
	go controller.Run(ctx, 1)
	_, err = client.BatchV1().Jobs(namespace).Create(ctx, given, metav1.CreateOptions{})
	check(err)

	found := outcome{Condition: "none", Warnings: warnings}
	seen := map[string]bool{}
	for _, end := range os.Args[2:] {
		if pod := nextPod(ctx, client, given.Name, seen); pod != nil {
			finish(ctx, client, pod, end)
		}
	}
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(interval) {
		if last := condition(ctx, client, given.Name); last != nil {
			found.Condition, found.Reason = string(last.Type), last.Reason
			break
		}
	}
	found.Pods = len(seen)
	check(json.NewEncoder(os.Stdout).Encode(found))
}

// accepted returns the Job of a file of manifests as an API server would store it, and the warnings
// that it would give to whoever made it.
func accepted(ctx context.Context, path string) (*batchv1.Job, []string) {
	text, err := os.ReadFile(path)
	check(err)
	given := &batchv1.Job{}
	for _, part := range strings.Split(string(text), "\n---\n") {
		var kind metav1.TypeMeta
		check(yaml.Unmarshal([]byte(part), &kind))
		if kind.Kind == "Job" {
			check(yaml.UnmarshalStrict([]byte(part), given))
		}
	}
	given.Namespace, given.UID = namespace, types.UID("job")
	legacyscheme.Scheme.Default(given)
	internal := &batch.Job{}
	check(legacyscheme.Scheme.Convert(given, internal, nil))
	registry.Strategy.PrepareForCreate(ctx, internal)
	check(registry.Strategy.Validate(ctx, internal).ToAggregate())
	stored := &batchv1.Job{}
	check(legacyscheme.Scheme.Convert(internal, stored, nil))
	return stored, registry.Strategy.WarningsOnCreate(ctx, internal)
}

// nextPod waits for a pod that was not seen yet. It returns nil if the Job has ended before.
func nextPod(ctx context.Context, client *fake.Clientset, name string, seen map[string]bool) *v1.Pod {
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(interval) {
		found, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		check(err)
		for i := range found.Items {
			if pod := &found.Items[i]; !seen[pod.Name] {
				seen[pod.Name] = true
				return pod
			}
		}
		if condition(ctx, client, name) != nil {
			return nil
		}
	}
	return nil
}

// finish ends a pod an hour ago, so that the controller does not wait before it makes the next one.
func finish(ctx context.Context, client *fake.Clientset, pod *v1.Pod, end string) {
	code := 137
	pod.Status.Phase = v1.PodFailed
	if end == "evicted" {
		evicted := v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}
		pod.Status.Conditions = append(pod.Status.Conditions, evicted)
	} else {
		given, err := strconv.Atoi(end)
		check(err)
		code = given
	}
	if code == 0 {
		pod.Status.Phase = v1.PodSucceeded
	}
	ended := &v1.ContainerStateTerminated{
		ExitCode: int32(code), FinishedAt: metav1.NewTime(time.Now().Add(-time.Hour)),
	}
	pod.Status.ContainerStatuses = []v1.ContainerStatus{
		{Name: pod.Spec.Containers[0].Name, State: v1.ContainerState{Terminated: ended}},
	}
	_, err := client.CoreV1().Pods(namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	check(err)
}

// condition returns what ended the Job. It returns nil while the Job runs.
func condition(ctx context.Context, client *fake.Clientset, name string) *batchv1.JobCondition {
	found, err := client.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
	check(err)
	for i := range found.Status.Conditions {
		each := &found.Status.Conditions[i]
		over := each.Type == batchv1.JobComplete || each.Type == batchv1.JobFailed
		if over && each.Status == v1.ConditionTrue {
			return each
		}
	}
	return nil
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
